"""The run of a study over private rows, step by step, from wherever it stands.

Every step is the same dance: start the payment in the ledger, touch the rows, put the result on
disk, commit the payment. After a crash the ledger says what was started; what was started and left
no result may have touched rows, so it stays paid and is never run again. Only a run that was kept
on disk while it went on does go on: the steps that are there and those that follow are what was
paid.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from dptune.columns.encoding import Encoding
from dptune.data import Data
from dptune.data.classes import WITH_CLASSES
from dptune.data.preprocess import Preprocessing
from dptune.data.rows import Rows
from dptune.engines.base import Engine, Model
from dptune.engines.checkpoint import Checkpoint, steps_kept
from dptune.engines.executors import Executor
from dptune.engines.randomness import Randomness
from dptune.engines.tensor_files import read_words
from dptune.errors import DptuneError, FolderProblem, InvalidInput
from dptune.plain_data import read_json
from dptune.plan import TrainPlan
from dptune.privacy import Event, NoisyCount, Receipt
from dptune.search.base import Census, Schedule, Situation, Stage
from dptune.search.sealing import SealedSearch
from dptune.search.space import Setting
from dptune.search.trial import Trial
from dptune.study import loop
from dptune.study.kept_runs import KeptRuns
from dptune.study.measure import compare, count_correct, measure_errors, take_census
from dptune.study.outline import (
    CHECK,
    Outline,
    scores_label,
    side_by_side,
    trial_label,
)
from dptune.study.paid_columns import CATEGORIES, CLASSES, RANGES, rows_of_a_class
from dptune.study.payments import Payments
from dptune.study.prepare import Figure, Prepared, Take, prepare, public_steps
from dptune.study.purchases import bent, buy_categories, buy_classes, buy_ranges
from dptune.study.recipe import (
    FINER_MEAN,
    LENGTHS,
    LOGARITHMS,
    MEAN,
    SECOND_MOMENT,
    in_words,
)
from dptune.study.run_folder import RunFolder
from dptune.study.sealed_run import SealedRun

_CENSUS, _FINAL = "census.json", "models/final.safetensors"
# What prepares rows: its file, and what it is called in there.
_FIGURES = {
    LOGARITHMS: ("models/unlike.safetensors", "unlike"),
    LENGTHS: ("models/lengths.safetensors", "lengths"),
    MEAN: ("models/mean.safetensors", "mean"),
    FINER_MEAN: ("models/finer_mean.safetensors", "finer_mean"),
    SECOND_MOMENT: ("models/second_moment.safetensors", "second_moment"),
}
# What is bought for columns, and for the label.
_PURCHASES = {CLASSES: "classes.json", CATEGORIES: "categories.json", RANGES: "ranges.json"}
_COLUMNS = "columns"  # in the last two files
# What the module of the beginning gives for made-up rows.
_CODE, _OUTPUTS = "models/code.safetensors", "outputs"
_WINNER, _CHECK = "models/winner.safetensors", "check.json"


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

    def must_run_the_same_code(self) -> None:
        """Refuse a module of a user's own that computes something else than when the study began:
        weights and steps that were paid for would go on in another module."""
        shape, stored = self.data.shape, self.folder.read_tensors(_CODE)
        if stored is not None:
            with self.folder.undamaged(_CODE):
                before = stored[0][_OUTPUTS]
            self.engine.inspection.must_give_as_before(shape, before)
        elif not self.folder.is_finished():  # or a version that kept none has begun it
            outputs = self.engine.inspection.initial_outputs(shape)
            if outputs is not None:
                self.folder.write_tensors(_CODE, {_OUTPUTS: outputs})

    def check(self, trials: Sequence[Trial]) -> None:
        """Refuse results that nobody has paid for."""
        files = {"census": _CENSUS, CHECK: _CHECK} | _PURCHASES
        files |= {name: file for name, (file, _) in _FIGURES.items()}
        found = [name for name, file in files.items() if (self.folder.path / file).exists()]
        for stage, numbers in self.outline.sweeps():
            found += [self._label(stage, number) for number in filter(self._has_model, numbers)]
            scored = any(trial.score is not None for trial in trials if trial.number in numbers)
            if scored and stage.score and not self.outline.holds_out:
                found.append(scores_label(stage))
        _, legs = self._final_so_far()
        found += map(self.outline.leg_label, legs)
        if self.outline.schedule.sealed and (self.folder.path / _WINNER).exists():
            found.append(self.outline.schedule.sealed.name)
        paid = map(self.outline.payment_for, found)
        self.payments.must_be_begun([*paid, *self._with_steps()])
        names = [label for label, _ in self.outline.payments]
        if FINER_MEAN in found:
            names.insert(names.index(MEAN) + 1, FINER_MEAN)
        ended = [name for name in names if name in found]
        if ended and not self.folder.is_finished():
            self._tell(f"going on after {ended[-1]}", trials)

    def _with_steps(self) -> list[str]:
        """The labels of runs of which steps are kept; the mark of one about to begin has none."""
        files: dict[Path, str] = {}
        for stage, numbers in self.outline.sweeps():
            files |= {self._runs.trial_file(n): self._label(stage, n) for n in numbers}
        for leg in range(1, self.outline.legs + 1):
            files[self._runs.leg_file(leg)] = self.outline.leg_label(leg)
        return [label for file, label in files.items() if steps_kept(file)]

    def announce(self) -> None:
        """What will be done to rows, before anything is paid."""
        if said := in_words(self.outline.config, self.outline.data):
            self._tell(f"rows are {'; '.join(said)}", [])

    def with_classes(self) -> "Runner":
        """The same once the names of classes are bought, where they are secret."""
        if self.outline.class_names is None:
            return self
        file = _PURCHASES[CLASSES]

        def bought(receipt: Receipt) -> None:
            self._tell(CLASSES, [])
            labels, names = self.data.labels_for(receipt)
            self.folder.write_json(file, {"classes": buy_classes(self.outline, labels, names)})

        stored = partial(self.folder.read_json, file)
        found = self._paid_once(CLASSES, self.outline.class_names, stored, bought)
        with self.folder.undamaged(file):
            names = [] if found is None else list(found["classes"])
        if len(names) < 2:
            raise self._too_few_classes(names, lost=found is None)
        outline = replace(self.outline, classes=len(names))
        return replace(self, data=self.data.with_classes(names), outline=outline)

    def _too_few_classes(self, names: Sequence[object], *, lost: bool) -> DptuneError:
        """There is nothing to learn then; what was held for the rest is given back."""
        self.payments.give_back()
        found = "were lost when the study was interrupted"
        if not lost:
            rows = rows_of_a_class(self.outline.config, self.outline.data)
            named = f" ({names[0]})" if names else ""
            found = f"are {len(names)}{named}, since a name needs about {rows:,} rows"
        share = 100 * self.outline.shares.classes
        return InvalidInput(
            f"the names of classes that were bought {found}, so there is nothing to learn. "
            f"{share:g} % of the budget was spent on them, and nothing else. Begin a new study, "
            f"and declare all classes {WITH_CLASSES}."
        )

    def prepare(self) -> Prepared:
        """How features are prepared: by public numbers, and by private ones where they are paid."""
        asked = self.outline.config.preparation
        plain = public_steps(asked, self.data.public_features, self._encoding())
        return prepare(self.outline, plain, self._measured)

    def _encoding(self) -> Encoding | None:
        """The columns as declared, with what is bought for them; what is lost is left out."""
        outline, data, declared = self.outline, self.data, self.data.encoding
        unbent = not (outline.curves.room or outline.ranks)
        if declared is None or (data.as_given and unbent):
            return None
        made, by_position = declared, outline.config.preparation.ranges
        if by_position and outline.curves.room:  # else numbers are only shifted and scaled
            made = made.with_ranges(dict(zip(declared.columns.kept, by_position, strict=True)))
        if outline.names:
            names = self._bought(
                CATEGORIES,
                lambda paid: buy_categories(
                    outline, declared, data.tables_for(paid), data.vocabularies_for(paid)
                ),
            )
            with self.folder.undamaged(_PURCHASES[CATEGORIES]):
                if names is not None:
                    made = made.with_categories({name: names[name] for name in outline.categorized})
        if not outline.ranks:
            return bent(outline, made, {})
        ranges = self._bought(
            RANGES, lambda paid: buy_ranges(outline, declared, data.tables_for(paid))
        )
        if ranges is None:  # lost
            return bent(outline, made, {})
        with self.folder.undamaged(_PURCHASES[RANGES]):
            return bent(outline, made, {name: ranges[name] for name in outline.ranged})

    def _bought(
        self, label: str, buy: Callable[[Receipt], Mapping[str, Any]]
    ) -> Mapping[str, Any] | None:
        """What is bought for columns, by their names; None where it is lost."""
        file = _PURCHASES[label]

        def bought(receipt: Receipt) -> None:
            self._tell(label, [])
            self.folder.write_json(file, {_COLUMNS: dict(buy(receipt))})

        def stored() -> Mapping[str, Any] | None:
            plain = self.folder.read_json(file)
            columns = None if plain is None else plain.get(_COLUMNS)
            # Versions before 0.2 wrote names of columns, each with a list.
            return columns if isinstance(columns, dict) else plain

        return self._paid_once(label, self.outline.preparing[label], stored, bought)

    def _measured(self, label: str, take: Take, shape: tuple[int, ...]) -> Figure | None:
        """A paid figure of all rows; None where it is lost: the study goes on without it."""

        def measured(receipt: Receipt) -> None:
            self._tell(label, [])
            tables = partial(self.data.tables_for, receipt)
            taken = torch.from_numpy(take(tables))
            file, name = _FIGURES[label]
            self.folder.write_tensors(file, {name: taken})

        stored = partial(read_figure, self.folder, label, shape)
        return self._paid_once(label, self.outline.price_tag(label), stored, measured)

    def _paid_once(
        self,
        name: str,
        event: Event,
        stored: Callable[[], Stored | None],
        make: Callable[[Receipt], None],
    ) -> Stored | None:
        """What is in the folder, made and put there first where nobody has begun it; None where it
        was begun and is lost."""
        label = self.outline.payment_for(name)
        if stored() is None:
            receipt = self.payments.begin(label, event)
            if receipt is None:
                self._tell(f"{name} cut off before: paid for, and lost; going on without", [])
                return None
            make(receipt)
        self.payments.settle(label)
        return stored()

    def search(
        self, preprocessing: Preprocessing, earlier: tuple[tuple[Trial, ...], Census | None] | None
    ) -> loop.Result:
        """The whole search and the final run, or only that where an `earlier` study has searched;
        from wherever the study stands."""
        self._must_be_prepared_alike()
        begun = self._begun_with()
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
            return self._model(result.final.number)
        model, _ = self._final_so_far()
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
            case loop.Leg():
                return self._leg(request, preprocessing)
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
            asked = replace(asked, trials=tuple(map(self._as_trained, asked.trials)))
        # Somebody may have removed a model that was damaged.
        trials = [replace(t, lost=t.lost or not self._has_model(t.number)) for t in stored]
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
        unfinished = [trial for trial in asked.trials if not self._has_model(trial.number)]
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
                    self._write_model(
                        _trial_file(trial.number), model, trial=json.dumps(trial.to_dict())
                    )
            for trial, model in zip(begun, models, strict=True):
                if model is None and keeps:
                    raise self._runs.died(keeps[trial.number], trial.plan)
        return [replace(t, lost=not self._has_model(t.number)) for t in asked.trials]

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
            if label not in begun:  # somebody with a copy of the folder was quicker: it is theirs
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
        """The same, heard by whoever watches."""

        def told(done: int) -> None:
            self.watch(replace(shown, steps=f"{run}step {done} of {plan.steps}"))

        return replace(keep, told=told)

    def _settle(self, stage: Stage, trials: Iterable[Trial]) -> None:
        """Of these trials, those whose models are on disk."""
        numbers = [trial.number for trial in trials if self._has_model(trial.number)]
        self.payments.settle_all(dict.fromkeys(self._label(stage, number) for number in numbers))

    def _compare(self, asked: loop.Compare, preprocessing: Preprocessing) -> Sequence[Trial]:
        """The trials with their scores; without, where the scores were lost."""
        stage, trials = asked.stage, list(asked.trials)
        kept = [trial for trial in trials if self._has_model(trial.number)]
        if any(trial.score is None for trial in kept) and len(kept) > 1:
            _, part = self._train_and_score
            rows = self._scoring_rows(stage, part, trials, preprocessing)
            if rows is not None:
                doing = f"{stage.name}: comparing {len(kept)} trials"
                self._tell(doing, asked.history, asked.census)
                values, noise = compare(
                    self.engine,
                    [self._model(trial.number) for trial in kept],
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

    def _leg(self, asked: loop.Leg, preprocessing: Preprocessing) -> bool:
        """Whether a leg of the final run is in the model on disk, after it was run unless somebody
        has begun it before."""
        label = self.outline.leg_label(asked.number)
        model, done = self._final_so_far()
        if asked.number > max(done, default=0):
            keep = self._runs.leg(asked.number, asked.plan, done)
            keeps = [keep] if self.engine.traits.checkpoints else []
            receipt = self._begin_or_go_on({label: asked.plan.event}, {label: keeps}).get(label)
            if receipt is None:
                return False
            doing = f"final run: leg {asked.number} of {asked.legs}"
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
            setting = json.dumps(asdict(asked.setting))
            self._write_model(_FINAL, further, legs=json.dumps(done), setting=setting)
        if asked.number in done:
            self.payments.settle(label)
            self._runs.leg(asked.number, asked.plan, done).remove()
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
        stored = self.folder.read_tensors(_WINNER)
        if stored is None:
            receipt = self.payments.begin(sealed.name, sealed.event)
            if receipt is None:
                raise FolderProblem(
                    "this study's sealed search was cut off. It keeps nothing from which it could "
                    "go on, so what was paid is spent and there is no model. Start a new study if "
                    "the budget allows one."
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
            words = json.dumps(winner.to_dict())
            self.folder.write_tensors(_WINNER, self.engine.pack(model), trial=words)
            self._tell("done", [winner])
            return model, winner
        with self.folder.undamaged(_WINNER):
            model = self.engine.unpack(stored[0])
            winner = Trial.from_dict(read_json(stored[1]["trial"], "its trial"))
        return model, winner

    def _final_so_far(self) -> tuple[Model | None, tuple[int, ...]]:
        """The final run as far as it came, and the legs that are in it."""
        stored = self.folder.read_tensors(_FINAL)
        if stored is None:
            return None, ()
        with self.folder.undamaged(_FINAL):
            legs = tuple(map(int, read_json(stored[1]["legs"], "its legs")))
            model = self.engine.unpack(stored[0])
        return model, legs

    def _begun_with(self) -> Setting | None:
        """What the legs on disk were trained with, whatever would be chosen now; None where there
        are none, or where a version before 0.2 wrote them."""
        stored = self.folder.read_tensors(_FINAL)
        if stored is None:
            return None
        with self.folder.undamaged(_FINAL):
            if "setting" not in stored[1]:
                self._must_know_scores()
                return None
            plain = read_json(stored[1]["setting"], "its setting")
            setting = Setting(**{**plain, "notes": tuple(plain["notes"])})
        return setting

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

    def _as_trained(self, trial: Trial) -> Trial:
        """The trial whose model is on disk, as it was trained; the same where there is no model."""
        name = _trial_file(trial.number)
        if not self._has_model(trial.number):
            return trial
        with self.folder.undamaged(name):
            words = read_words(self.folder.path / name)
            if "trial" in words:
                trial = Trial.from_dict(read_json(words["trial"], "its trial"))
        return trial

    def _write_model(self, name: str, model: Model, **words: str) -> None:
        lost = json.dumps(sorted(self.lost))
        self.folder.write_tensors(name, self.engine.pack(model), lost=lost, **words)

    def _must_be_prepared_alike(self) -> None:
        """Refuse weights that met rows prepared by what has been removed since."""
        if not self.lost:
            return
        numbers = (number for _, numbers in self.outline.sweeps() for number in numbers)
        trained = [
            path
            for name in [*map(_trial_file, numbers), _FINAL]
            if (path := self.folder.path / name).exists()
        ]
        for path in trained:
            with self.folder.undamaged(path.relative_to(self.folder.path).as_posix()):
                words = read_words(path)
                # Versions before 0.2 did not say what was lost.
                before = read_json(words["lost"], "what it lacks") if "lost" in words else self.lost
            for label in sorted(self.lost - set(before)):
                files = _PURCHASES | {label: file for label, (file, _) in _FIGURES.items()}
                raise FolderProblem(
                    f"{self.folder.path / files[label]} is missing, and {path} was trained on rows "
                    "that it prepared, so it is of no use without it. Put it back from a backup."
                )

    def _has_model(self, number: int) -> bool:
        return (self.folder.path / _trial_file(number)).exists()

    def _model(self, number: int) -> Model:
        tensors, _ = self.folder.read_tensors(_trial_file(number)) or ({}, {})
        with self.folder.undamaged(_trial_file(number)):
            model: Model = self.engine.unpack(tensors)
        return model

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
        schedule = replace(self.outline.schedule, final=self.outline.final)
        situation = self.outline.situation(schedule.final, trials, census)
        shown = Progress(doing, schedule, tuple(trials), used, situation)
        self.watch(shown)
        return shown


def read_figure(folder: RunFolder, label: str, shape: tuple[int, ...]) -> Figure | None:
    """What prepares rows and was paid for, where there is any yet."""
    file, name = _FIGURES[label]
    stored = folder.read_tensors(file)
    if stored is None:
        return None
    with folder.undamaged(file):
        figure: Figure = stored[0][name].numpy()
        if figure.shape != shape:
            raise ValueError(f"its shape is {figure.shape} instead of {shape}")
    return figure


def read_census(folder: RunFolder) -> Census | None:
    """The counts that were paid for, where there are any yet."""
    stored = folder.read_json(_CENSUS)
    if stored is None:
        return None
    with folder.undamaged(_CENSUS):
        classes = tuple(map(float, stored["classes"]))
        census = Census(classes, float(stored["noise"]), float(stored["row_norm"]))
    return census


def _trial_file(number: int) -> str:
    return f"models/trial-{number}.safetensors"
