"""tune() and resume(): the one place where ledger, data, search and engine meet.

    outline   what everything will cost, before a row is read          outline.py
    reserve   all of it, in the ledger                                 payments.py
    run       census, sweeps, scores, the final run                    runner.py
    state     one guarantee for all of it                              statement.py

Killed at any moment, a study can be resumed without spending anything twice.
"""

import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dptune import accounting
from dptune.data import Data
from dptune.data.rows import MemoryRows, find_device, find_precision
from dptune.engines.executors import Executor, SerialExecutor
from dptune.engines.linear import LinearEngine
from dptune.engines.randomness import Randomness
from dptune.errors import BudgetExceeded, DptuneError, FolderProblem, InvalidInput, LedgerExists
from dptune.ledger import Ledger
from dptune.ledger.store import are_one
from dptune.privacy import Budget, Event, Guarantee, Price, total
from dptune.rounding import allowance, cost
from dptune.search.base import Census, SearchMethod
from dptune.search.linear_scaling import LinearScaling
from dptune.search.score import NoisyScore, PublicScore, Score
from dptune.search.space import Space
from dptune.search.trial import Trial
from dptune.study.config import Config, Preparation, build, parse, score_from, seal, search_from
from dptune.study.outline import Outline, is_final
from dptune.study.payments import Payments
from dptune.study.run_folder import RunFolder
from dptune.study.runner import Course, Progress, Watch, read_census
from dptune.study.statement import hopelessness, state
from dptune.study.trained_model import TrainedModel

_OWN_LEDGER = "ledger.db"
_AS_IT_WAS = (
    "What was paid for is what it said at first: put it back as it was, or begin a new study."
)


@dataclass(frozen=True, kw_only=True, repr=False)
class StudyResult:
    """A model, its guarantee, and every trial that may be shown."""

    model: TrainedModel
    trials: tuple[Trial, ...]
    final: Trial
    census: Census | None
    dataset: str
    rows: int
    test_accuracy: float | None
    test_rows: int
    notes: tuple[str, ...]
    folder: Path | None
    set_aside: float = 0.0  # how much of delta its ledger keeps for failures

    def __repr__(self) -> str:
        promise = f"epsilon {cost(self.guarantee.epsilon)} at delta {self.guarantee.delta!r}"
        right = "" if self.test_accuracy is None else f", test accuracy {self.test_accuracy:.4f}"
        return f"StudyResult({self.dataset!r}, {promise}{right})"

    @property
    def guarantee(self) -> Guarantee:
        return self.model.guarantee

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        plan = self.final.plan
        return {
            "test_accuracy": self.test_accuracy,
            "test_rows": self.test_rows,
            "total_step_size": plan.total_step_size,
            "learning_rate": plan.learning_rate,
            "steps": plan.steps,
            "noise_multiplier": plan.noise_multiplier,
            "weight_noise": plan.weight_noise,
            "out": None if self.folder is None else str(self.folder),
            "data": {
                "name": self.dataset,
                "rows": self.rows,
                "columns": self.model.columns,
                "classes": len(self.model.classes),
            },
            "trials": [trial.to_dict() for trial in self.trials],
            "final": self.final.to_dict(),
            "notes": list(self.notes),
            "set_aside": self.set_aside,
            "guarantee": self.guarantee.to_dict(),
        }


def tune(
    engine: LinearEngine | None,
    data: Data,
    *,
    budget: Budget,
    search: SearchMethod | None = None,
    space: Space | None = None,
    score: Score | None = None,
    recipe: Mapping[str, Any] | None = None,
    preparation: Preparation | None = None,
    ledger: str = "",
    executor: Executor | None = None,
    out: str | Path | None = None,
    seed: int = 0,
    device: str = "cpu",
    precision: str = "float32",
    reuse: str | Path = "",
    source: Mapping[str, Any] | None = None,
    watch: Watch | None = None,
) -> StudyResult:
    """Search and train inside `budget`.

    Guarantees: everything the result holds and everything in `out`, a ledger apart, is together
    differentially private as `result.guarantee` says. An error before the first trial spends
    nothing.

    Args:
        engine: what to train; None for a linear model that fits the data.
        data: the private rows.
        budget: for all of it: trials, scores and the final model.
        search: how to find hyperparameters, by default `LinearScaling()`.
        space: where to look for learning rate and steps.
        score: how trials are compared; by default noisy counts, paid for.
        recipe: fields of every `TrainPlan` that are not searched.
        preparation: what is done to features first.
        ledger: address of the ledger to pay from; by default a new one in `out`.
        executor: where trials run.
        out: the run folder; by default nothing is kept.
        seed: for public choices only; noise is always fresh.
        device: cpu or cuda.
        precision: in which features are kept.
        reuse: folder of an earlier study whose search, paid from the same ledger, serves this one.
        source: how `dptune resume` can load the data again.
        watch: is told how things go.

    """
    config = Config(
        study="",
        facts=data.public_facts,
        budget=budget,
        search=search or LinearScaling(),
        score=score or NoisyScore(measure="correct" if data.classes else "loss"),
        space=space or Space(),
        recipe=dict(recipe or {}),
        preparation=preparation or Preparation(),
        seed=seed,
        device=device,
        precision=precision,
        ledger=ledger,
        reuse=str(reuse),
        source=dict(source or {}),
    ).sealed()
    if out is not None:
        return _begin(engine, data, config, Path(out), executor, watch)
    with tempfile.TemporaryDirectory(prefix="dptune-") as scratch:
        folder = Path(scratch) / "run"
        try:
            return replace(_begin(engine, data, config, folder, executor, watch), folder=None)
        except BaseException:  # nobody can resume it
            if config.ledger and RunFolder(folder).holds_a_run():
                with suppress(DptuneError):  # what went wrong first is what to say
                    _payments(config, RunFolder(folder), data).give_back()
            raise


def resume(
    out: str | Path,
    data: Data | None = None,
    *,
    executor: Executor | None = None,
    watch: Watch | None = None,
) -> StudyResult:
    """Go on with a study that was cut off; one that is finished is only read again.

    `data` are the same rows as before; they may be left out where the run knows its file.
    """
    folder = RunFolder.open(out)
    with folder.locked():
        config = read_config(folder)
        data = data or _load_again(config)
        planned = outline(data, config)
        engine, payments = _rehearse(None, data, planned), _payments(config, folder, data)
        result = _run(engine, data, planned, folder, payments, executor, watch)
    _hide_dates(planned, folder)
    return result


def read_config(folder: RunFolder) -> Config:
    """What the run in `folder` was asked to do."""
    name = folder.path / "run.toml"
    try:
        plain = parse(folder.read("run.toml") or "", str(name))
        config = Config(
            study=str(plain.get("study")),
            facts=tuple(plain.get("facts", ())),
            budget=build(Budget, plain["budget"], "[budget]"),
            search=search_from(plain["search"]),
            score=score_from(plain["score"]),
            space=build(Space, plain["space"], "[space]"),
            recipe=plain["recipe"],
            preparation=build(Preparation, plain["preparation"], "[preparation]"),
            source=plain["data"],
            **plain["run"],
        )
        unchanged = config.study.endswith(f"-{seal(plain)}")
    except (InvalidInput, TypeError) as error:
        raise FolderProblem(f"{name} cannot be read: {error} {_AS_IT_WAS}") from None
    if not unchanged:
        raise FolderProblem(f"{name} was changed after the study began. {_AS_IT_WAS}")
    return config


def outline(data: Data, config: Config) -> Outline:
    """What the study will do and pay for; refuses what cannot be done."""
    find_device(config.device)
    find_precision(config.precision)
    if config.facts and config.facts != data.public_facts:
        raise InvalidInput(
            f"the study began with other public facts ({'; '.join(config.facts)}) than these rows "
            f"come with ({'; '.join(data.public_facts)}); declare the same as then."
        )
    if config.score.kind == PublicScore.kind:
        data.check_public_rows()
    if config.preparation.standardize:
        data.public_features()
    config.preparation.must_fit(data.columns)
    if not data.classes and config.score.measure != "loss":
        raise InvalidInput(
            "values are not right or wrong, so trials are compared by their loss; use a score "
            "with measure='loss'."
        )
    if config.reuse and (config.search.sealing or config.search.finalists > 1):
        raise InvalidInput(
            f"{config.search.name} releases one of its own runs, so there is no search that "
            "another study could reuse; leave reuse out."
        )
    planned = Outline(
        config=config,
        count=data.count,
        columns=data.columns,
        outputs=data.outputs,
        has_classes=bool(data.classes),
        reused=bool(config.reuse),
        set_aside=_set_aside(config),
    )
    if planned.holds_out and planned.samples:
        raise InvalidInput(
            "held-out scores go with full-batch runs only, and this study samples rows; pay for "
            "noisy scores, or leave the sampling rate out."
        )
    planned.payments  # noqa: B018  # an over-dear search is refused here
    return planned


def foresee(data: Data, config: Config) -> tuple[Outline, Guarantee]:
    """What a study would pay for and promise. Spends nothing and writes nothing."""
    planned = outline(data, config)
    events = [event for _, event in planned.payments]
    searched = None
    others = _must_fit(planned, data) if config.ledger else 0
    counted, scored = planned.schedule.census is not None, bool(planned.schedule.compared)
    if config.reuse:
        earlier = _Earlier.read(config, data)
        events, searched = [*earlier.events, *events], earlier.price
        counted, scored = earlier.census is not None, True
    caveats = ("a plan: true of a study that is run exactly like this", *hopelessness(planned))
    return planned, state(
        planned,
        data,
        events,
        planned.price,
        others,
        caveats,
        searched=searched,
        centred=planned.mean is not None,
        counted=counted,
        scored=scored,
    )


def _must_fit(planned: Outline, data: Data) -> int:
    """Refuse a study that its ledger cannot pay for; the number of payments it holds."""
    budget, spent = planned.config.budget, planned.price
    ledger = Ledger.open(planned.config.ledger)
    ledger.must_know(data.fingerprint)
    now = ledger.state()
    if spent.slack > now.remaining.slack:
        raise BudgetExceeded(
            f"the study's sampled runs or sealed search need a failure probability of "
            f"{cost(spent.slack)}, and {ledger.address} has {allowance(now.remaining.slack)} left "
            f"of the {cost(now.slack)} that was set aside when it was opened; nothing was spent. "
            "Leave the sampling rate out, or pay from a ledger that was opened with more (--slack)."
        )
    if not now.admits([event for _, event in planned.payments], spent):
        raise BudgetExceeded(
            f"the study asks for epsilon {budget.epsilon:g} at delta "
            f"{budget.delta:g}; {ledger.address} has enough left for one full-batch run of epsilon "
            f"{allowance(now.remaining_epsilon)} at delta {now.budget.delta:g}, and nothing was "
            "spent. Ask for less."
        )
    return len(now.counted)


def _set_aside(config: Config) -> float:
    """As large a part of the study's delta as the ledger it names keeps of its own, so that a study
    with all of a ledger's budget fits in; a ledger of the study's own keeps what it needs."""
    if not config.ledger:
        return 0.0
    now = Ledger.open(config.ledger).state()
    kept = now.opened_slack or 0.0
    return min(kept, config.budget.delta * kept / now.changes[0].budget.delta)


def _begin(
    engine: LinearEngine | None,
    data: Data,
    config: Config,
    out: Path,
    executor: Executor | None,
    watch: Watch | None,
) -> StudyResult:
    """Hold the money and make the folder, both or neither."""
    planned = outline(data, config)
    engine = _rehearse(engine, data, planned)
    if config.ledger:
        _must_fit(planned, data)
    if config.reuse:  # what cannot be stated later is refused before it is paid for
        together = total([_Earlier.read(config, data).price, planned.price])
        accounting.epsilon(together, config.budget.delta)
    with RunFolder.begin(out) as folder:
        made = ["run.toml", "environment.json"]  # in this order, so that half of it is no run
        own = out / _OWN_LEDGER
        try:
            if not config.ledger and _create_or_take_unused(own, planned, data):
                made.append(_OWN_LEDGER)
            folder.write_environment(config.device)
            folder.write("run.toml", config.to_toml())  # first: killed here, a resume reserves
            payments = _payments(config, folder, data)
        except DptuneError:
            folder.discard(*made)
            raise
        try:
            payments.reserve(planned.payments, planned.slack, fixed=planned.fixed)
        except DptuneError as error:
            if not payments.hold_nothing():  # it may be paid for, so it must stay resumable
                raise type(error)(f"{error} Then go on with: dptune resume {out}") from error
            folder.discard(*made)
            raise
        result = _run(engine, data, planned, folder, payments, executor, watch)
    _hide_dates(planned, folder)
    return result


def _create_or_take_unused(path: Path, planned: Outline, data: Data) -> bool:
    """Whether the own ledger is new: an attempt killed early leaves one without payments."""
    budget = planned.config.budget
    try:
        Ledger.create(
            str(path),
            budget,
            dataset=data.name,
            fingerprint=data.fingerprint,
            slack=planned.price.slack,
        )
    except LedgerExists:
        now = Ledger.open(str(path)).state()
        if now.payments:
            raise
        if (now.budget, now.opened_slack) != (budget, planned.price.slack):
            raise InvalidInput(
                f"{path} is the ledger of another study, which never began; remove it, or give "
                "another folder."
            ) from None
        return False
    return True


def _hide_dates(planned: Outline, folder: RunFolder) -> None:
    """Those of a sealed search would tell how many trials there were."""
    if planned.schedule.sealed:
        folder.give_one_date()


def _run(
    engine: LinearEngine,
    data: Data,
    planned: Outline,
    folder: RunFolder,
    payments: Payments,
    executor: Executor | None,
    watch: Watch | None,
) -> StudyResult:
    config = planned.config
    course = Course(
        outline=planned,
        engine=engine,
        data=data,
        folder=folder,
        payments=payments,
        executor=executor or SerialExecutor(),
        watch=watch or _unwatched,
    )
    course.check(folder.read_trials())
    # A finished study pays for nothing more, but its rows must be the same.
    wanted = () if folder.is_finished() else planned.payments
    payments.reserve(wanted, planned.slack, fixed=planned.fixed)
    preprocessing = course.prepare()
    earlier = _Earlier.read(config, data) if config.reuse else None
    census: Census | None = None
    trials: list[Trial] = []
    if planned.schedule.sealed:
        fitted, final = course.sealed_run(planned.schedule.sealed, preprocessing)
    else:
        if earlier is None:
            census = course.census(preprocessing)
            trials = folder.read_trials()
            for sweep, numbers in planned.sweeps():
                trials = course.sweep(sweep, numbers, trials, preprocessing, census)
        else:
            census, trials = earlier.census, list(earlier.trials)
            folder.write_trials(trials)
        fitted, final = course.final_run(trials, preprocessing, census)
    begun, others = payments.begun(), payments.others()
    events, spent = [payment.event for payment in begun], total(p.price for p in begun)
    if earlier is not None:
        events, others = [*earlier.events, *events], others - len(earlier.events)
    told = (note for trial in (*trials, final) for note in trial.notes)
    centred = preprocessing.center is not None
    losses = _losses(planned, trials, census, centred)
    notes = tuple(dict.fromkeys((*told, *losses, *hopelessness(planned))))
    model = TrainedModel(
        model=fitted.cpu(),
        preprocessing=preprocessing,
        classes=data.classes,
        target_range=data.target_range,
        guarantee=state(
            planned,
            data,
            events,
            spent,
            others,
            notes,
            searched=earlier.price if earlier else None,
            centred=centred,
            counted=census is not None,
            scored=any(trial.score is not None for trial in trials),
        ),
        trials=tuple(trials),
        column_names=data.column_names,
    )
    test = data.test_rows(preprocessing)
    accuracy = None
    if test is not None and data.classes:
        accuracy = course.engine.evaluate_many([fitted], test)[0].correct / test.count
    result = StudyResult(
        model=model,
        trials=tuple(trials),
        final=final,
        census=census,
        dataset=data.name,
        rows=data.count,
        test_accuracy=accuracy,
        test_rows=0 if test is None else test.count,
        notes=notes,
        folder=folder.path,
        set_aside=planned.set_aside,
    )
    model.save(folder)
    folder.write_json("result.json", result.to_dict())
    # Last: a study that is not finished holds all it may need, whoever else pays from its ledger.
    payments.give_back()  # scores of trials that were lost
    return result


def _losses(
    planned: Outline, trials: list[Trial], census: Census | None, centred: bool
) -> list[str]:
    """What was paid for and cut off before its result was on disk."""
    notes = []
    if planned.mean and not centred:
        notes.append("the private mean was cut off: paid for, and not subtracted")
    if planned.schedule.census is not None and census is None:
        notes.append("the counts of rows were cut off: paid for, and lost to the search")
    lost = sum(trial.lost for trial in trials)
    if lost:
        notes.append(f"trials that were cut off: {lost} of {len(trials)}; paid for, never rerun")
    if trials and all(trial.score is None for trial in trials):
        instead = "the final run goes by what was known before them"
        if planned.schedule.final.trials > 1:
            instead = "the first of them was taken"
        notes.append(f"no trial has a score, so {instead}")
    return notes


@dataclass(frozen=True)
class _Earlier:
    """The search of an earlier study, whose price this one's guarantee includes."""

    trials: tuple[Trial, ...]
    census: Census | None
    events: tuple[Event, ...]
    price: Price  # as it was planned: what was spent in the end depends on outputs

    @staticmethod
    def read(config: Config, data: Data) -> "_Earlier":
        folder = RunFolder.open(config.reuse)
        theirs = read_config(folder)
        if theirs.reuse:
            raise InvalidInput(
                f"the study in {config.reuse} has no search of its own: it reused the one in "
                f"{theirs.reuse}; reuse that."
            )
        if not config.ledger or not are_one(theirs.ledger, config.ledger):
            raise InvalidInput(
                f"the search in {config.reuse} was paid from another ledger; a search can be "
                "reused where both studies pay from one ledger, named with ledger=."
            )
        # The promise for this study is also one for that search.
        for name in ("search", "score", "preparation"):
            asked, found = getattr(config, name), getattr(theirs, name)
            if asked != found:
                raise InvalidInput(
                    f"the {name} in {config.reuse} is {found}, this study asks for {asked}; reuse "
                    "it with the same options."
                )
        planned = outline(data, replace(theirs, ledger=config.ledger))
        search = [planned.price_of(e) for label, e in planned.payments if not is_final(label)]
        paid = Payments(Ledger.open(config.ledger), theirs.study, data.fingerprint)
        return _Earlier(
            trials=tuple(folder.read_trials()),
            census=read_census(folder),
            events=tuple(paid.events(but=is_final)),
            price=total(search),
        )


def _rehearse(engine: LinearEngine | None, data: Data, planned: Outline) -> LinearEngine:
    """The engine, after a step on one empty row: what it refuses, it refuses before it is paid."""
    if engine is None:
        engine = LinearEngine(outputs=data.outputs, loss=data.loss)
    if (engine.outputs, engine.loss) != (data.outputs, data.loss):
        raise InvalidInput(
            f"these rows need an engine of {data.outputs} outputs and {data.loss} loss; got "
            f"{engine.outputs} and {engine.loss}. Give None for one that fits."
        )
    target = np.zeros(1, dtype=np.int64 if data.classes else np.float64)
    config = planned.config
    empty = MemoryRows(
        np.zeros((1, data.columns), dtype=np.float32),
        target,
        device=config.device,
        precision=config.precision,
    )
    engine.fit_many([planned.recipe], empty, [Randomness()])
    return engine


def _payments(config: Config, folder: RunFolder, data: Data) -> Payments:
    address = config.ledger or str(folder.path / _OWN_LEDGER)
    return Payments(Ledger.open(address), config.study, data.fingerprint)


def _load_again(config: Config) -> Data:
    from dptune.data.sources import load_data

    if not config.source:
        raise InvalidInput(
            "this run was started by a program that passed arrays, so they must be passed again: "
            "dptune.resume(folder, data)."
        )
    return load_data(**config.source)


def _unwatched(progress: Progress) -> None:
    pass
