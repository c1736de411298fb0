"""The run of a study over private rows, step by step, from wherever it stands.

Every step is the same dance: start the payment in the ledger, touch the rows, put the result on
disk, commit the payment. After a crash the ledger says what was started; what was started and left
no result may have touched rows, so it stays paid and is never run again. Only a run that was kept
on disk while it went on does go on: the steps that are there and those that follow are what was
paid.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from numpy.typing import NDArray

from dptune.columns.private_categories import private_categories
from dptune.data import Data
from dptune.data.classes import WITH_CLASSES
from dptune.data.preprocess import Preprocessing, standardization
from dptune.data.rows import Rows
from dptune.engines.base import Engine, Model
from dptune.engines.checkpoint import Checkpoint, steps_kept
from dptune.engines.executors import Executor
from dptune.engines.randomness import Randomness
from dptune.errors import DptuneError, FolderProblem, InvalidInput
from dptune.plan import TrainPlan
from dptune.preparation.class_names import CLASSES, rows_of_a_class
from dptune.preparation.pipeline import STEPS, prepare
from dptune.preparation.step import Decision, PrivateRows, State, Step
from dptune.privacy import Event, NoisyCount, Receipt
from dptune.search.base import Census, Schedule, Situation, Stage
from dptune.search.sealing import SealedSearch
from dptune.search.trial import Trial
from dptune.study import loop
from dptune.study.kept_runs import KeptRuns
from dptune.study.measure import (
    compare,
    count_correct,
    fresh_normal,
    measure_errors,
    take_census,
)
from dptune.study.models_on_disk import ModelsOnDisk
from dptune.study.outline import (
    CHECK,
    Outline,
    scores_label,
    segment_label,
    side_by_side,
    trial_label,
)
from dptune.study.paid_statistics import read_statistic, write_statistic
from dptune.study.payments import Payments
from dptune.study.recipe import class_share_of
from dptune.study.run_folder import RunFolder
from dptune.study.sealed_run import SealedRun

_CENSUS, _CHECK = "census.json", "check.json"
# Where what is paid for before the search is kept.
_STATISTICS = {CLASSES: "classes.json"} | {step.name: step.file for step in STEPS if step.file}


@dataclass(frozen=True)
class Progress:
    """What may be shown while a study runs."""

    doing: str
    schedule: Schedule
    trials: tuple[Trial, ...]
    spent: float  # share of the budget's mu^2 that is used by now
    situation: Situation  # what the search knows by now
    steps: str = ""  # how far a run that tells it is


Watch = Callable[[Progress], None]
Stored = TypeVar("Stored")


@dataclass(frozen=True)
class Runner:
    """A study at work: answers the requests of its search, each paid before it touches rows.
    Everything its steps return was paid for and may be shown."""

    outline: Outline
    data: Data
    folder: RunFolder
    payments: Payments
    executor: Executor
    watch: Watch
    lost: frozenset[str] = frozenset()  # of what was to prepare rows
    # Of sweeps with held-out rows that this process has begun: one payment trains and scores.
    _begun: dict[str, Receipt] = field(default_factory=dict)

    @property
    def engine(self) -> Engine[Any]:
        return self.outline.engine

    @property
    def models(self) -> ModelsOnDisk:
        """What was trained so far."""
        return ModelsOnDisk(self.folder, self.engine, self.lost)

    def check(self, trials: Sequence[Trial]) -> None:
        """Refuse results that nobody has paid for."""
        files = {"census": _CENSUS, CHECK: _CHECK} | _STATISTICS
        found = [name for name, file in files.items() if (self.folder.path / file).exists()]
        for stage, numbers in self.outline.sweeps():
            found += [
                self._label(stage, number) for number in filter(self.models.has_trial, numbers)
            ]
            scored = any(trial.score is not None for trial in trials if trial.number in numbers)
            if scored and stage.score and not self.outline.holds_out:
                found.append(scores_label(stage))
        _, segments = self.models.final()
        found += map(segment_label, segments)
        if self.outline.schedule.sealed and self.models.winner() is not None:
            found.append(self.outline.schedule.sealed.name)
        self.payments.must_be_begun([*found, *self._with_steps()])
        ended = [label for label, _ in self.outline.payments if label in found]
        if ended and not self.folder.is_finished():
            self._tell(f"going on after {ended[-1]}", trials)

    def _with_steps(self) -> list[str]:
        """The labels of runs of which steps are kept; the mark of one about to begin has none."""
        files: dict[Path, str] = {}
        for stage, numbers in self.outline.sweeps():
            files |= {self._runs.trial_file(n): self._label(stage, n) for n in numbers}
        for segment in range(1, self.outline.segments + 1):
            files[self._runs.segment_file(segment)] = segment_label(segment)
        return [label for file, label in files.items() if steps_kept(file)]

    def announce(self) -> None:
        """What prepares rows, before anything is paid."""
        plan = self.outline.preparation
        if plan.events:
            prices = (f"{name} {100 * plan[name].share:g} %" for name in plan.events)
            self._tell(f"preparing: {', '.join(prices)} of the budget", [])

    def with_classes(self) -> "Runner":
        """The same once the names of classes are estimated, where they are secret."""
        if self.outline.class_names is None:
            return self
        file = _STATISTICS[CLASSES]

        def bought(receipt: Receipt) -> None:
            self._tell(CLASSES, [])
            labels, names = self.data.labels_for(receipt)
            self.folder.write_json(file, {"classes": self._named(labels, names)})

        stored = partial(read_class_names, self.folder)
        found = self._paid_once(CLASSES, self.outline.class_names, stored, bought)
        names = found or []
        if len(names) < 2:
            raise self._too_few_classes(names, lost=found is None)
        outline = replace(self.outline, classes=len(names))
        return replace(self, data=self.data.with_classes(names), outline=outline)

    def _named(self, labels: NDArray[Any], names: Sequence[Any]) -> list[Any]:
        """Names of classes in their order; `labels` are places among all names that rows have."""
        event = self.outline.class_names
        assert event is not None
        at_most = [len(names)]  # all that reach the threshold
        (kept,) = private_categories(
            [labels[:, None]], [names], at_most, event.noise, event.threshold, fresh_normal
        )
        return sorted(kept)

    def _too_few_classes(self, names: Sequence[object], *, lost: bool) -> DptuneError:
        """There is nothing to learn then; what was held for the rest is given back."""
        self.payments.give_back()
        share = class_share_of(self.outline.config, self.outline.data)
        found = "were lost when the study was interrupted"
        if not lost:
            rows = rows_of_a_class(self.outline.preparation.case, share)
            named = f" ({names[0]})" if names else ""
            found = f"are {len(names)}{named}, since a name needs about {rows:,} rows"
        return InvalidInput(
            f"the names of classes that were bought {found}, so there is nothing to learn. "
            f"{100 * share:g} % of the budget was spent on them, and nothing else. Begin a new "
            f"study, and declare all classes {WITH_CLASSES}."
        )

    def prepare(self) -> State:
        """How features are prepared: by public numbers, and by private ones where they are paid."""
        outline, data, scale = self.outline, self.data, None
        if outline.config.preparation.standardize:
            scale = standardization(data.public_features())
        start = outline.preparation.start(data.encoding, scale)
        return prepare(outline.preparation, self._statistic, start)

    def _statistic(self, step: Step, decision: Decision, state: State) -> Any:
        """A paid statistic of all rows; None where it is lost: the study goes on without it."""
        plan = self.outline.preparation

        def measured(receipt: Receipt) -> None:
            self._tell(step.name, [])
            rows = PrivateRows(
                tables=lambda maps: self.data.tables_for(
                    receipt, None if maps is None else Preprocessing(maps)
                ),
                vocabularies=lambda: self.data.vocabularies_for(receipt),
                normal=fresh_normal,
            )
            write_statistic(self.folder, step, step.measure(plan.case, decision, state, rows))

        stored = partial(read_statistic, self.folder, plan, step, state)
        assert decision.event is not None
        return self._paid_once(step.name, decision.event, stored, measured)

    def _paid_once(
        self,
        label: str,
        event: Event,
        stored: Callable[[], Stored | None],
        make: Callable[[Receipt], None],
    ) -> Stored | None:
        """What is in the folder, made and put there first where nobody has begun it; None where it
        was begun and is lost."""
        if stored() is None:
            receipt = self.payments.begin(label, event)
            if receipt is None:
                self._tell(f"{label}, which was interrupted after payment: going on without", [])
                return None
            make(receipt)
        self.payments.settle(label)
        return stored()

    def search(
        self, preprocessing: Preprocessing, earlier: tuple[tuple[Trial, ...], Census | None] | None
    ) -> loop.Result:
        """The whole search and the final run, or only that where an `earlier` study has searched;
        from wherever the study stands."""
        numbers = [number for _, numbers in self.outline.sweeps() for number in numbers]
        self.models.must_be_prepared_alike(numbers, _STATISTICS)
        begun, is_known = self.models.begun_with()
        if not is_known:
            self._must_know_scores()
        steps = loop.search(self.outline, begun)
        if earlier is not None:
            self.folder.write_trials(earlier[0])
            steps = loop.final_run(self.outline, *earlier, begun, models=False)
        (result,) = loop.drive([steps], lambda asked: [self._answer(asked[0], preprocessing)])
        released = () if result.is_trial else (result.final,)
        self._tell("done", (*result.trials, *released), result.census)
        return result

    def model_of(self, result: loop.Result) -> Model:
        """What is released."""
        if result.is_trial:
            return self.models.trial(result.final.number)
        model, _ = self.models.final()
        assert model is not None
        return model

    def _answer(self, request: loop.Request, preprocessing: Preprocessing) -> loop.Answer:
        match request:
            case loop.Count():
                return self._count(request.event, preprocessing)
            case loop.Fit():
                return self._fit(request, preprocessing)
            case loop.Compare():
                return self._compare(request, preprocessing)
            case loop.Segment():
                return self._segment(request, preprocessing)
            case loop.Check():
                return self._check(request, preprocessing)

    def _count(self, event: NoisyCount, preprocessing: Preprocessing) -> Census | None:
        """Paid counts of rows by class and by length; None where they are lost."""

        def counted(receipt: Receipt) -> None:
            self._tell("counting rows by class", [])
            rows = self.data.open(receipt, preprocessing, **self._place)
            classes = self.data.outputs if self.outline.data.has_classes else 0
            unit_rows = self.outline.facts.unit_rows
            census = take_census(rows, event, classes=classes, unit_rows=unit_rows)
            self.folder.write_json(_CENSUS, asdict(census))

        return self._paid_once("census", event, partial(read_census, self.folder), counted)

    def _fit(self, asked: loop.Fit, preprocessing: Preprocessing) -> Sequence[Trial]:
        """The trials as they are on disk, after those were trained that nobody has begun yet."""
        numbers = {trial.number for trial in asked.trials}
        stored = [trial for trial in self.folder.read_trials() if trial.number in numbers]
        if len(stored) < len(numbers):
            asked = replace(asked, trials=tuple(map(self.models.as_trained, asked.trials)))
        # The user may have removed a model that was damaged.
        trials = [replace(t, lost=t.lost or not self.models.has_trial(t.number)) for t in stored]
        if len(trials) < len(numbers):
            trials = self._fit_unfinished(asked, preprocessing)
            self.folder.write_trials([*asked.history, *trials])
        # With held-out rows the payment is for the scores too, if there is anything to compare.
        if not self.outline.holds_out or sum(not trial.lost for trial in trials) < 2:
            self._settle(asked.stage, trials)
        # Before anything is scored, so that a trial that is still kept proves that nothing was.
        for keep in self._keeps(asked.trials).values():
            keep.remove()
        return trials

    def _fit_unfinished(self, asked: loop.Fit, preprocessing: Preprocessing) -> list[Trial]:
        unfinished = [trial for trial in asked.trials if not self.models.has_trial(trial.number)]
        keeps = self._keeps(asked.trials)
        receipts = self._begin(asked.stage, unfinished, asked.trials, keeps)
        if receipts:
            doing = f"{asked.stage.name}: training {len(receipts)} trials"
            shown = self._tell(doing, asked.history, asked.census)
            part, _ = self._train_and_score
            rows = part.open(next(iter(receipts.values())), preprocessing, **self._place)
            begun = [trial for trial in unfinished if trial.number in receipts]
            models = self._train(
                [trial.plan for trial in begun],
                rows,
                [self._randomness(trial.number) for trial in begun],
                keep=[
                    self._telling(keeps[trial.number], shown, f"trial {trial.number}, ", trial.plan)
                    for trial in begun
                    if keeps
                ],
            )
            for trial, model in zip(begun, models, strict=True):
                if model is not None:
                    self.models.write_trial(trial, model)
            for trial, model in zip(begun, models, strict=True):
                if model is None and keeps:
                    raise self._runs.died(keeps[trial.number], trial.plan)
        return [replace(t, lost=not self.models.has_trial(t.number)) for t in asked.trials]

    def _train(
        self,
        plans: Sequence[TrainPlan],
        rows: Rows,
        randomness: Sequence[Randomness],
        start: Sequence[Model | None] | None = None,
        *,
        keep: Sequence[Checkpoint],
    ) -> list[Any]:
        kept = [keep] if keep else []  # an executor of one's own need not know of it
        try:
            return self.executor.fit(self.engine, plans, rows, randomness, start, *kept)
        except Exception as error:
            then = "and kept as far as it came." if keep else "and lost; nothing else is."
            error.add_note(
                f"What was begun is paid for {then} Mend the cause, then go on with: dptune resume "
                f"{self.folder.path}"
            )
            raise

    def _begin(
        self,
        stage: Stage,
        unfinished: Sequence[Trial],
        all_of_stage: Sequence[Trial],
        keeps: Mapping[int, Checkpoint],
    ) -> Mapping[int, Receipt]:
        """Receipts, by number, for those that nobody began before or that are kept."""
        labels = {trial.number: self._label(stage, trial.number) for trial in all_of_stage}
        wanted: dict[str, Event] = {labels[t.number]: t.plan.event for t in unfinished}
        scores = stage.score if self.outline.holds_out else None  # then one payment is for all
        if scores and (unfinished or keeps):
            event = side_by_side([trial.plan.event for trial in all_of_stage], scores)
            wanted = {stage.name: event}
        its_keeps = {
            label: [keep for number, keep in keeps.items() if labels[number] == label]
            for label in wanted
        }
        receipts = self._begin_or_go_on(wanted, its_keeps)
        if scores and receipts:
            self._begun[stage.name] = receipts[stage.name]
        return {
            trial.number: receipts[labels[trial.number]]
            for trial in unfinished
            if labels[trial.number] in receipts
            and (not keeps or keeps[trial.number].steps() is not None)
        }

    def _begin_or_go_on(
        self, wanted: Mapping[str, Event], keeps: Mapping[str, Sequence[Checkpoint]]
    ) -> dict[str, Receipt]:
        """Receipts for what nobody began before, and for what was begun, is not settled and has a
        run that is kept."""
        if not any(keeps.values()):
            return self.payments.begin_all(wanted)
        free = self.payments.in_state("reserved", wanted)
        for label in free:  # marked first: from now on a kill loses nothing
            for keep in keeps[label]:
                keep.save({}, 0)
        begun = self.payments.begin_all(wanted)
        for label in free:
            if label not in begun:  # another copy of the folder was quicker: it is theirs
                for keep in keeps[label]:
                    keep.remove()
        for label in self.payments.in_state("started", wanted):
            if label not in begun and any(keep.steps() is not None for keep in keeps[label]):
                begun[label] = self.payments.receipt(label)
        return begun

    def _keeps(self, trials: Iterable[Trial]) -> dict[int, Checkpoint]:
        """Where trials are kept, by number; nowhere where the engine keeps nothing."""
        if not self.engine.traits.checkpoints:
            return {}
        return {trial.number: self._runs.trial(trial.number, trial.plan) for trial in trials}

    def _telling(self, keep: Checkpoint, shown: Progress, run: str, plan: TrainPlan) -> Checkpoint:
        """The same, seen by the watch."""

        def told(done: int) -> None:
            self.watch(replace(shown, steps=f"{run}step {done} of {plan.steps}"))

        return replace(keep, told=told)

    def _settle(self, stage: Stage, trials: Iterable[Trial]) -> None:
        """Of these trials, those whose models are on disk."""
        numbers = [trial.number for trial in trials if self.models.has_trial(trial.number)]
        self.payments.settle_all(dict.fromkeys(self._label(stage, number) for number in numbers))

    def _compare(self, asked: loop.Compare, preprocessing: Preprocessing) -> Sequence[Trial]:
        """The trials with their scores; without, where the scores were lost."""
        stage, trials = asked.stage, list(asked.trials)
        kept = [trial for trial in trials if self.models.has_trial(trial.number)]
        if any(trial.score is None for trial in kept) and len(kept) > 1:
            _, part = self._train_and_score
            rows = self._scoring_rows(stage, part, trials, preprocessing)
            if rows is not None:
                doing = f"{stage.name}: comparing {len(kept)} trials"
                self._tell(doing, asked.history, asked.census)
                values, noise = compare(
                    self.engine,
                    [self.models.trial(trial.number) for trial in kept],
                    rows,
                    self.outline.config.score,
                    stage.score,
                    self.outline.weighing(asked.census),
                    part.count,
                )
                pairs = zip(kept, values, strict=True)
                scored = {trial.number: trial.with_score(value, noise) for trial, value in pairs}
                trials = [scored.get(trial.number, trial) for trial in trials]
                history = [scored.get(trial.number, trial) for trial in asked.history]
                self.folder.write_trials(history)
                self._tell(f"{stage.name}: compared", history, asked.census)
        has_scores = any(trial.score is not None for trial in trials)
        if has_scores and stage.score and not self.outline.holds_out:
            self.payments.settle(scores_label(stage))
        self._settle(stage, trials)
        return trials

    def _scoring_rows(
        self, stage: Stage, part: Data, trials: Sequence[Trial], preprocessing: Preprocessing
    ) -> Rows | None:
        """The rows that compare; None where they were looked at before and the result is lost."""
        receipt: Receipt | None
        if self.outline.config.score.rows == "public":
            return part.public_rows(preprocessing, **self._place)
        if not self.outline.config.score.covers_selection:  # exact, and nobody pays for it
            receipt = self.payments.receipt(self._label(stage, trials[0].number))
        elif self.outline.holds_out:
            receipt = self._begun.get(stage.name)
        else:
            assert stage.score is not None
            receipt = self.payments.begin(scores_label(stage), stage.score)
        return None if receipt is None else part.open(receipt, preprocessing, **self._place)

    def _segment(self, asked: loop.Segment, preprocessing: Preprocessing) -> bool:
        """Whether a segment of the final run is in the model on disk, after it was run unless it
        was begun before."""
        label = segment_label(asked.number)
        model, done = self.models.final()
        if asked.number > max(done, default=0):
            keep = self._runs.segment(asked.number, asked.plan, done)
            keeps = [keep] if self.engine.traits.checkpoints else []
            receipt = self._begin_or_go_on({label: asked.plan.event}, {label: keeps}).get(label)
            if receipt is None:
                return False
            doing = f"final run: segment {asked.number} of {asked.segments}"
            shown = self._tell(doing, asked.history, asked.census)
            rows = self.data.open(receipt, preprocessing, **self._place)
            randomness = [self._randomness(0)]
            telling = [self._telling(keep, shown, "", asked.plan) for keep in keeps]
            (further,) = self._train([asked.plan], rows, randomness, [model], keep=telling)
            if further is None and keeps:
                raise self._runs.died(keep, asked.plan)
            if further is None:  # its process died
                return False
            done = (*done, asked.number)
            self.models.write_final(further, done, asked.setting)
        if asked.number in done:
            self.payments.settle(label)
            self._runs.segment(asked.number, asked.plan, done).remove()
        return asked.number in done

    def _check(self, asked: loop.Check, preprocessing: Preprocessing) -> loop.Counted | None:
        """A noisy count of rows that the final model gets right, or those of its errors; None where
        it is lost."""
        values, found = self.outline.data.loss == "squared", asked.result

        def checked(receipt: Receipt) -> None:
            released = () if found.is_trial else (found.final,)
            self._tell("checking the final model", (*found.trials, *released), found.census)
            rows = self.data.open(receipt, preprocessing, **self._place)
            weighing = self.outline.weighing(found.census)
            model = self.model_of(found)
            if values:
                errors = measure_errors(self.engine, model, rows, asked.event, self.data.count)
                self.folder.write_json(_CHECK, {"errors": errors})
            else:
                correct = count_correct(self.engine, model, rows, asked.event, weighing)
                self.folder.write_json(_CHECK, {"correct": correct})

        read = partial(self.folder.read_json, _CHECK)
        stored = self._paid_once(CHECK, asked.event, read, checked)
        if stored is None:
            return None
        with self.folder.undamaged(_CHECK):
            counts = stored["errors"] if values else [stored["correct"]]
            counted = loop.Counted(tuple(map(float, counts)))
        return counted

    def sealed_run(self, sealed: SealedSearch, preprocessing: Preprocessing) -> tuple[Model, Trial]:
        """All of the budget in one search of which only the winner is kept."""
        stored = self.models.winner()
        if stored is not None:
            return stored
        receipt = self.payments.begin(sealed.name, sealed.event)
        if receipt is None:
            raise FolderProblem(
                "this study's sealed search was interrupted. It keeps nothing from which it could "
                "go on, so what was paid is spent and there is no model. Start a new study if the "
                "budget allows one."
            )
        # Settled now: when it ends, the ledger's clock would tell how many trials there were.
        self.payments.settle(sealed.name)
        self._tell(f"{sealed.name}: how far it is stays secret", [])
        rows = self.data.open(receipt, preprocessing, **self._place)
        public = None
        if self.outline.config.score.rows == "public":
            public = self.data.public_rows(preprocessing, **self._place)
        search = SealedRun(self.outline, sealed, self.executor, public)
        model, winner = search.on(rows)
        self.models.write_winner(model, winner)
        self._tell("done", [winner])
        return model, winner

    def _must_know_scores(self) -> None:
        """Refuse a final run of which nothing says what it was begun with."""
        scores = [scores_label(stage) for stage, _ in self.outline.sweeps() if stage.score]
        if self.outline.holds_out or not self.payments.in_state("committed", scores):
            return
        if all(trial.score is None for trial in self.folder.read_trials()):
            raise FolderProblem(
                f"{self.folder.path / 'trials.jsonl'} is missing or lacks its scores. The final "
                "run was begun with settings chosen by them, and they are not known without it. "
                "Put it back from a backup."
            )

    def _label(self, stage: Stage, number: int) -> str:
        return stage.name if self.outline.holds_out and stage.score else trial_label(number)

    def _randomness(self, number: int) -> Randomness:
        return Randomness(seed=self.outline.config.seed, trial=number)

    @property
    def _runs(self) -> KeptRuns:
        return KeptRuns(self.folder.path, self.outline.config.study)

    @property
    def _train_and_score(self) -> tuple[Data, Data]:
        """The rows that train trials, and those that score them."""
        every = self.outline.held_out_every
        return (self.data, self.data) if every is None else self.data.held_out(every)

    @property
    def _place(self) -> dict[str, Any]:
        return {"device": self.outline.config.device, "precision": self.outline.precision}

    def _tell(self, doing: str, trials: Sequence[Trial], census: Census | None = None) -> Progress:
        # A sealed search costs all of the budget, though less than its price in company.
        everything = self.outline.config.budget.mu_squared(self.outline.set_aside)
        used = min(self.payments.used().mu_squared / everything, 1.0)
        schedule = self.outline.schedule
        situation = self.outline.situation(schedule.final, trials, census)
        shown = Progress(doing, schedule, tuple(trials), used, situation)
        self.watch(shown)
        return shown


def read_class_names(folder: RunFolder) -> list[Any] | None:
    """The names of classes that were paid for, where there are any yet."""
    file = _STATISTICS[CLASSES]
    stored = folder.read_json(file)
    if stored is None:
        return None
    with folder.undamaged(file):
        names = stored["classes"]
        if not isinstance(names, list) or len({type(name) for name in names}) > 1:
            raise ValueError("classes must be a list of texts or a list of numbers")
        if len(set(names)) < len(names) or None in names:
            raise ValueError("names of classes must be all different")
        return names


def read_census(folder: RunFolder) -> Census | None:
    """The counts that were paid for, where there are any yet."""
    stored = folder.read_json(_CENSUS)
    if stored is None:
        return None
    with folder.undamaged(_CENSUS):
        classes = tuple(map(float, stored["classes"]))
        census = Census(classes, float(stored["noise"]), float(stored["row_norm"]))
    return census
