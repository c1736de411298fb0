"""The course of a study over private rows, step by step, from wherever it stands.

Every step is the same dance: start the payment in the ledger, touch the rows, put the result on
disk, commit the payment. After a crash the ledger says what was started; what was started and left
no result may have touched rows, so it stays paid and is never run again.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from dptune.data import Data
from dptune.data.preprocess import Preprocessing, from_ranges, private_mean, standardization
from dptune.data.rows import MemoryRows
from dptune.engines.executors import Executor
from dptune.engines.linear import LinearEngine, LinearModel
from dptune.engines.randomness import Randomness
from dptune.errors import FolderProblem
from dptune.plan import TrainPlan
from dptune.privacy import Receipt
from dptune.search.base import Census, Schedule, Situation, Stage
from dptune.search.sealing import SealedSearch
from dptune.search.trial import Trial
from dptune.study.measure import compare, fresh_normal, take_census
from dptune.study.outline import Outline, leg_label, scores_label, side_by_side, trial_label
from dptune.study.payments import Payments
from dptune.study.run_folder import RunFolder
from dptune.study.sealed_run import SealedRun

_MEAN, _CENSUS, _FINAL = "models/mean.safetensors", "census.json", "models/final.safetensors"
_WINNER = "models/winner.safetensors"


@dataclass(frozen=True)
class Progress:
    """What may be shown while a study runs."""

    doing: str
    schedule: Schedule
    trials: tuple[Trial, ...]
    spent: float  # share of the budget's mu^2 that is used by now
    situation: Situation  # what the search knows by now


Watch = Callable[[Progress], None]


@dataclass(frozen=True)
class Course:
    """A study at work. Everything its steps return was paid for and may be shown."""

    outline: Outline
    engine: LinearEngine
    data: Data
    folder: RunFolder
    payments: Payments
    executor: Executor
    watch: Watch

    def check(self, trials: Sequence[Trial]) -> None:
        """Refuse results that nobody has paid for."""
        found = [
            label
            for label, file in (("private mean", _MEAN), ("census", _CENSUS))
            if (self.folder.path / file).exists()
        ]
        for stage, numbers in self.outline.sweeps():
            found += [self._label(stage, number) for number in filter(self._has_model, numbers)]
            scored = any(trial.score is not None for trial in trials if trial.number in numbers)
            if scored and stage.score and not self.outline.holds_out:
                found.append(scores_label(stage))
        _, legs = self._checkpoint()
        found += map(leg_label, legs)
        if self.outline.schedule.sealed and (self.folder.path / _WINNER).exists():
            found.append(self.outline.schedule.sealed.name)
        self.payments.must_be_begun(found)

    def prepare(self) -> Preprocessing:
        """How features are prepared: by public numbers, and a private mean where one is paid."""
        asked = self.outline.config.preparation
        plain = Preprocessing()
        if asked.standardize:
            plain = standardization(self.data.public_features())
        elif asked.ranges:
            plain = from_ranges(asked.ranges)
        plain = replace(plain, unit_rows=asked.unit_rows)
        if self.outline.mean is None:
            return plain
        stored = self.folder.read_tensors(_MEAN)
        if stored is None:
            receipt = self.payments.begin("private mean", self.outline.mean)
            if receipt is None:  # lost: the study goes on without it
                return plain
            self._tell("private mean", [])
            rows = plain.apply(self.data.features_for(receipt))
            noise = self.outline.mean.noise_multiplier
            mean = private_mean(rows, noise, self.outline.count, fresh_normal)
            self.folder.write_tensors(_MEAN, {"mean": torch.from_numpy(mean)})
            stored = ({"mean": torch.from_numpy(mean)}, {})
        self.payments.settle("private mean")
        with self.folder.undamaged(_MEAN):
            centred = replace(plain, center=stored[0]["mean"].numpy())
        return centred

    def census(self, preprocessing: Preprocessing) -> Census | None:
        """Paid counts of rows by class and by length; None where not wanted, or lost."""
        event = self.outline.schedule.census
        if event is None:
            return None
        found = read_census(self.folder)
        if found is None:
            receipt = self.payments.begin("census", event)
            if receipt is None:
                return None
            self._tell("counting rows by class", [])
            rows = self.data.open(receipt, preprocessing, **self._place)
            classes = self.outline.outputs if self.outline.has_classes else 0
            unit_rows = self.outline.facts.unit_rows
            found = take_census(rows, event, classes=classes, unit_rows=unit_rows)
            self.folder.write_json(_CENSUS, asdict(found))
        self.payments.settle("census")
        return found

    def sweep(
        self,
        stage: Stage,
        numbers: range,
        trials: list[Trial],
        preprocessing: Preprocessing,
        census: Census | None,
    ) -> list[Trial]:
        """`trials`, with those of this sweep trained and compared."""
        train, scoring = self.data, self.data
        if self.outline.held_out_every is not None:
            train, scoring = self.data.held_out(self.outline.held_out_every)
        trials, receipt = self._train(stage, numbers, trials, train, preprocessing, census)
        compared = self._compare(stage, numbers, trials, scoring, preprocessing, census, receipt)
        for number in filter(self._has_model, numbers):
            self.payments.settle(self._label(stage, number))
        return compared

    def _train(
        self,
        stage: Stage,
        numbers: range,
        trials: list[Trial],
        data: Data,
        preprocessing: Preprocessing,
        census: Census | None,
    ) -> tuple[list[Trial], Receipt | None]:
        """All trials of the sweep that are not there yet; the receipt where this call paid."""
        missing = [n for n in numbers if all(trial.number != n for trial in trials)]
        if not missing:
            return trials, None
        earlier = [trial for trial in trials if trial.number < numbers.start]
        settings = self.outline.suggest(stage, earlier, census)
        plans = {
            number: self.outline.plan(setting, stage, data.count)
            for number, setting in zip(numbers, settings, strict=True)
        }
        records = {
            number: Trial(
                number=number, stage=stage.name, plan=plans[number], mu=stage.mu, notes=s.notes
            )
            for number, s in zip(numbers, settings, strict=True)
        }
        unfinished = [number for number in missing if not self._has_model(number)]
        receipts = self._begin(stage, unfinished, plans)
        if receipts:
            self._tell(f"{stage.name}: training {len(receipts)} trials", trials, census)
            rows = data.open(next(iter(receipts.values())), preprocessing, **self._place)
            models = self.executor.fit(
                self.engine,
                [plans[number] for number in receipts],
                rows,
                [self._randomness(number) for number in receipts],
            )
            for number, model in zip(receipts, models, strict=True):
                if model is not None:
                    self.folder.write_tensors(_trial_file(number), self.engine.pack(model))
        for number in missing:
            lost = not self._has_model(number)
            trials = [*trials, replace(records[number], lost=lost)]
        self.folder.write_trials(trials)
        if not self.outline.holds_out:  # there the payment is for the scores too
            for number in filter(self._has_model, receipts):
                self.payments.settle(self._label(stage, number))
        return trials, next(iter(receipts.values()), None)

    def _begin(
        self, stage: Stage, numbers: Sequence[int], plans: Mapping[int, TrainPlan]
    ) -> dict[int, Receipt]:
        """Receipts for those that nobody began before."""
        if self.outline.holds_out and stage.score:
            event = side_by_side([plan.event for plan in plans.values()], stage.score)
            receipt = self.payments.begin(stage.name, event) if numbers else None
            return {} if receipt is None else dict.fromkeys(numbers, receipt)
        began = {n: self.payments.begin(self._label(stage, n), plans[n].event) for n in numbers}
        return {number: receipt for number, receipt in began.items() if receipt is not None}

    def _compare(
        self,
        stage: Stage,
        numbers: range,
        trials: list[Trial],
        data: Data,
        preprocessing: Preprocessing,
        census: Census | None,
        receipt: Receipt | None,
    ) -> list[Trial]:
        """The trials of the sweep with their scores; without, where the scores were lost."""
        ours = [trial for trial in trials if trial.number in numbers]
        alive = [trial for trial in ours if not trial.lost and self._has_model(trial.number)]
        if any(trial.score is None for trial in alive) and len(alive) > 1:
            rows = self._scoring_rows(stage, numbers, data, preprocessing, receipt)
            if rows is None:
                return trials
            self._tell(f"{stage.name}: comparing {len(alive)} trials", trials, census)
            values, noise = compare(
                self.engine,
                [self._model(trial.number) for trial in alive],
                rows,
                self.outline.config.score,
                stage.score,
                census,
                data.count,
            )
            scored = {
                trial.number: trial.with_score(value, noise)
                for trial, value in zip(alive, values, strict=True)
            }
            trials = [scored.get(trial.number, trial) for trial in trials]
            self.folder.write_trials(trials)
            self._tell(f"{stage.name}: compared", trials, census)
        found = any(trial.score is not None for trial in trials if trial.number in numbers)
        if found and stage.score and not self.outline.holds_out:
            self.payments.settle(scores_label(stage))
        return trials

    def _scoring_rows(
        self,
        stage: Stage,
        numbers: range,
        data: Data,
        preprocessing: Preprocessing,
        receipt: Receipt | None,
    ) -> MemoryRows | None:
        """The rows that compare; None where they were looked at before and the result is lost."""
        if not self.outline.config.score.covers_selection:  # exact, and nobody pays for it
            receipt = self.payments.receipt(self._label(stage, numbers.start))
        elif stage.score is None:
            return data.public_rows(preprocessing, **self._place)
        elif not self.outline.holds_out:
            receipt = self.payments.begin(scores_label(stage), stage.score)
        return None if receipt is None else data.open(receipt, preprocessing, **self._place)

    def sealed_run(
        self, sealed: SealedSearch, preprocessing: Preprocessing
    ) -> tuple[LinearModel, Trial]:
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
            search = SealedRun(self.outline, sealed, self.engine, self.executor, public)
            model, winner = search.on(rows)
            words = json.dumps(winner.to_dict())
            self.folder.write_tensors(_WINNER, self.engine.pack(model), trial=words)
            self._tell("done", [winner])
            return model, winner
        with self.folder.undamaged(_WINNER):
            model = self.engine.unpack(stored[0], self.engine.loss)
            winner = Trial.from_dict(json.loads(stored[1]["trial"]))
        return model, winner

    def final_run(
        self, trials: list[Trial], preprocessing: Preprocessing, census: Census | None
    ) -> tuple[LinearModel, Trial]:
        """The rest of the budget: in one run, paid leg by leg, or in the runs of which the best is
        chosen, which are done by now."""
        stage = self.outline.schedule.final
        if stage.trials > 1:
            chosen = self._best_of([trial for trial in trials if trial.stage == stage.name])
            self._tell("done", trials, census)
            return chosen
        (setting,) = self.outline.suggest(stage, trials, census)
        plans = self.outline.leg_plans(setting)
        model, done = self._checkpoint()
        for leg, plan in enumerate(plans, start=1):
            if leg > max(done, default=0):
                receipt = self.payments.begin(leg_label(leg), plan.event)
                if receipt is None:
                    continue
                self._tell(f"final run: leg {leg} of {len(plans)}", trials, census)
                rows = self.data.open(receipt, preprocessing, **self._place)
                randomness = [self._randomness(0)]
                model = self.engine.fit_many([plan], rows, randomness, start=[model])[0]
                done = (*done, leg)
                legs = json.dumps(done)
                self.folder.write_tensors(_FINAL, self.engine.pack(model), legs=legs)
            if leg in done:
                self.payments.settle(leg_label(leg))
        notes = list(setting.notes)
        if lost := len(plans) - len(done):
            notes.append(
                f"legs of the final run that were cut off: {lost} of {len(plans)}; paid for, and "
                "lost to the model"
            )
        steps = sum(plans[leg - 1].steps for leg in done) or setting.steps
        record = Trial(
            number=len(trials) + 1,
            stage=stage.name,
            plan=replace(self.outline.plan(setting, stage), steps=steps),
            mu=stage.mu * math.sqrt(len(done) / len(plans)),
            notes=tuple(notes),
        )
        if model is None:
            found, best = self._best_of(trials)
            note = f"the final run was lost as a whole, so this is trial {best.number}"
            return found, replace(best, notes=(*record.notes, note))
        self._tell("done", [*trials, record], census)
        return model, record

    def _best_of(self, trials: Sequence[Trial]) -> tuple[LinearModel, Trial]:
        """The best of some trials; the first of them where none has a score."""
        alive = [trial for trial in trials if not trial.lost and self._has_model(trial.number)]
        if not alive:
            raise FolderProblem(
                "every run of this study was cut off before its result was on disk; what was paid "
                "is spent and there is no model. Start a new study if the budget allows one."
            )
        best = max(alive, key=lambda trial: -math.inf if trial.score is None else trial.score)
        return self._model(best.number), best

    def _checkpoint(self) -> tuple[LinearModel | None, tuple[int, ...]]:
        """The final run as far as it came, and the legs that are in it."""
        stored = self.folder.read_tensors(_FINAL)
        if stored is None:
            return None, ()
        with self.folder.undamaged(_FINAL):
            legs = tuple(map(int, json.loads(stored[1]["legs"])))
            model = self.engine.unpack(stored[0], self.engine.loss)
        return model, legs

    def _has_model(self, number: int) -> bool:
        return (self.folder.path / _trial_file(number)).exists()

    def _model(self, number: int) -> LinearModel:
        tensors, _ = self.folder.read_tensors(_trial_file(number)) or ({}, {})
        with self.folder.undamaged(_trial_file(number)):
            model = self.engine.unpack(tensors, self.engine.loss)
        return model

    def _label(self, stage: Stage, number: int) -> str:
        return stage.name if self.outline.holds_out and stage.score else trial_label(number)

    def _randomness(self, number: int) -> Randomness:
        return Randomness(seed=self.outline.config.seed, trial=number)

    @property
    def _place(self) -> dict[str, Any]:
        config = self.outline.config
        return {"device": config.device, "precision": config.precision}

    def _tell(self, doing: str, trials: Sequence[Trial], census: Census | None = None) -> None:
        # A sealed search costs all of the budget, though less than its price in company.
        everything = self.outline.config.budget.mu_squared(self.outline.set_aside)
        used = min(self.payments.used().mu_squared / everything, 1.0)
        schedule = self.outline.schedule
        situation = self.outline.situation(schedule.final, trials, census)
        self.watch(Progress(doing, schedule, tuple(trials), used, situation))


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
