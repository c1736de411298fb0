"""tune() and resume(): the one place where ledger, data, search and engine meet.

    plan       what everything will cost, before a row is read     planning.py, outline.py
    rehearse   all that the engine must do, on a made-up row       rehearsal.py
    reserve    everything, in the ledger                           payments.py
    prepare    rows, by what is worth its price                    recipe.py, and dptune.preparation
    run        census, sweeps, scores, the final run               loop.py, runner.py
    state      one guarantee for all of it                         statement.py

Killed at any moment, a study can be resumed without spending anything twice.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from dptune.accounting import Budget
from dptune.data import Data
from dptune.data.made_by import is_of_words
from dptune.data.rows import IDS
from dptune.engines.base import Engine
from dptune.engines.executors import Executor, SerialExecutor
from dptune.engines.linear import LinearEngine
from dptune.engines.registry import must_be_registered
from dptune.errors import DptuneError, InvalidInput, LedgerExists
from dptune.ledger import Ledger
from dptune.own_code import must_be_found_again, must_not_be_importing
from dptune.preparation.sentences import notes as preparation_notes
from dptune.preparation.step import State
from dptune.privacy import total
from dptune.scratch import scratch_folder
from dptune.search.base import Census, SearchMethod
from dptune.search.linear_scaling import LinearScaling
from dptune.search.score import NoisyScore, Score
from dptune.search.space import Space
from dptune.search.trial import Trial
from dptune.study.check import ErrorCheck, FinalCheck, error_check, final_check
from dptune.study.config import (
    Config,
    Preparation,
    usual_measure,
    usual_preparation,
    usual_space,
)
from dptune.study.figures import ACCURACY, lines_of_figures, on_test_rows
from dptune.study.finished_run import finish, must_hold_what_was_paid
from dptune.study.loop import UNSCORED, Counted
from dptune.study.outline import Outline
from dptune.study.payments import Payments
from dptune.study.planning import (
    Earlier,
    decided,
    must_fit,
    must_protect,
    outline,
    read_config,
    stated_epsilon,
)
from dptune.study.recipe import in_words
from dptune.study.rehearsal import rehearse, stored_and_loaded
from dptune.study.result import StudyResult
from dptune.study.run_folder import EXPORTED, RunFolder
from dptune.study.runner import Progress, Runner, Watch
from dptune.study.shifted import on_shift
from dptune.study.split import slots
from dptune.study.statement import Paid, Released, guarantee_for, noise_notes
from dptune.study.trained_model import TrainedModel
from dptune.study.versions import must_be_resumable

_OWN_LEDGER = "ledger.db"


def tune(
    data: Data,
    *misplaced: object,
    budget: Budget,
    engine: Engine[Any] | None = None,
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
    balance: str = "none",
    check: bool = True,
    reuse: str | Path = "",
    allow_large_epsilon: bool = False,
    allow_large_delta: bool = False,
    source: Mapping[str, Any] | None = None,
    watch: Watch | None = None,
) -> StudyResult:
    """Search and train inside `budget`.

    Guarantees: everything the result holds and everything in `out`, a ledger apart, is together
    differentially private as `result.guarantee` says. An error before the first trial spends
    nothing.

    Args:
        data: the private rows.
        misplaced: nothing: everything else is given by name.
        budget: for all of it: trials, scores and the final model.
        engine: what to train, by default a linear model.
        search: how to find hyperparameters, by default `LinearScaling()`.
        space: where to look for learning rate and steps.
        score: how trials are compared; by default noisy counts, paid for.
        recipe: fields of every `TrainPlan` that are not searched; by default what the engine is
            usually trained with.
        preparation: what is done to features first; by default all that is worth its price.
        ledger: address of the ledger to pay from; by default a new one in `out`.
        executor: where trials run.
        out: the run folder; by default nothing is kept.
        seed: for public choices only; noise is always fresh.
        device: cpu or cuda.
        precision: in which features are kept.
        balance: "classes" to make every class count alike, however rare, in training and in scores;
            "none" to make every row count alike.
        check: whether a noisy count, for a thousandth of mu^2, says in the end how the final model
            does, where rows are counted by class; of values noisy errors, for a two-hundredth.
        reuse: folder of an earlier study whose search, paid from the same ledger, serves this one.
        allow_large_epsilon: accept a promise with an epsilon above 20.
        allow_large_delta: accept a delta above one in the number of rows.
        source: how `dptune resume` can load the data again.
        watch: callback that receives `Progress` updates.

    """
    must_not_be_importing("tune")
    if misplaced:
        raise InvalidInput(
            "tune takes the data, and everything else by name: tune(data, budget=..., engine=...)."
        )
    if not isinstance(data, Data):
        raise InvalidInput(
            f"tune takes a dptune.Data, and got a {type(data).__name__}: make one with "
            "dptune.Data(features, labels), or Data.from_batches(loader) from what gives batches."
        )
    if not isinstance(budget, Budget):
        raise InvalidInput(f"budget must be a dptune.Budget(epsilon, delta); got {budget!r}.")
    engine = LinearEngine() if engine is None else engine
    must_be_registered(engine)
    if out is not None:
        must_be_found_again(engine.traits.own_functions)
    # A study that is resumed goes on with the same weights and words.
    engine = engine.inspection.pin()
    source = dict(source or {})
    if is_of_words(data.made_by) and "tokenizer" in source:
        source["tokenizer"] = data.made_by["tokenizer"]
    search = search or LinearScaling()
    asked = Config(
        study="",
        facts=data.public_facts,
        budget=budget,
        search=search,
        score=score or NoisyScore(**usual_measure(data.facts)),
        space=space or usual_space(search, engine),
        recipe=dict(recipe or {}),
        preparation=preparation or usual_preparation(data.facts, engine),
        engine=engine,
        seed=seed,
        device=device,
        precision=precision,
        balance=balance,
        check=check,
        ledger=ledger,
        reuse=str(reuse),
        allow_large_epsilon=allow_large_epsilon,
        allow_large_delta=allow_large_delta,
        source=source,
        columns=data.declared,
    )
    config = decided(asked, data.facts).named()
    if out is not None:
        return _begin(data, config, Path(out), executor, watch, kept=True)
    with scratch_folder() as scratch:
        folder = scratch / "run"
        try:
            ended = _begin(data, config, folder, executor, watch, kept=False)
            return replace(ended, folder=None)
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
    own_code: bool = False,
) -> StudyResult:
    """Go on with a study that was interrupted; one that is finished is only read again.

    Args:
        out: the run folder.
        data: the same rows as before; they may be left out where the run knows its file.
        executor: where trials run.
        watch: callback that receives `Progress` updates.
        own_code: whether functions that the run names may be imported and called, although this
            process did not get them: that runs their code, whatever it is.

    """
    must_not_be_importing("resume")
    folder = RunFolder.open(out)
    with folder.locked():
        must_be_resumable(folder)
        config = read_config(folder, own_code=own_code)
        must_hold_what_was_paid(folder)
        data = data or _load_again(config)
        if data.has_secret_classes and not config.preparation.class_share:
            data = data.with_public_classes()  # as an older version took them
        planned, executor = outline(data, config), executor or SerialExecutor()
        rehearse(planned, executor)
        payments = _payments(config, folder, data)
        result = _run(data, planned, folder, payments, executor, watch, kept=True)
    _hide_dates(planned, folder)
    return result


def _begin(
    data: Data,
    config: Config,
    out: Path,
    executor: Executor | None,
    watch: Watch | None,
    *,
    kept: bool,
) -> StudyResult:
    """Hold the money and make the folder, both or neither."""
    planned, executor = outline(data, config), executor or SerialExecutor()
    must_protect(config, data.count, stated_epsilon(planned, data))
    rehearse(planned, executor)
    if config.ledger:
        must_fit(planned, data)
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
        result = _run(data, planned, folder, payments, executor, watch, kept=kept)
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
    data: Data,
    planned: Outline,
    folder: RunFolder,
    payments: Payments,
    executor: Executor,
    watch: Watch | None,
    *,
    kept: bool,
) -> StudyResult:
    config = planned.config
    runner = Runner(
        outline=planned,
        data=data,
        folder=folder,
        payments=payments,
        executor=executor,
        watch=watch or _unwatched,
    )
    runner.models.must_run_the_same_code(data.shape)
    runner.check(folder.read_trials())
    # A finished study pays for nothing more, but its rows must be the same.
    wanted = () if folder.is_finished() else planned.payments
    payments.reserve(wanted, planned.slack, fixed=planned.fixed)
    if not folder.is_finished():
        runner.announce()
    runner = runner.with_classes()
    data, planned = runner.data, runner.outline
    state = runner.prepare()
    preprocessing = state.preprocessing
    planned = planned.prepared(state)
    runner = replace(runner, outline=planned, lost=frozenset(state.lost))
    earlier = Earlier.read(config, data) if config.reuse else None
    census: Census | None = None
    trials: tuple[Trial, ...] = ()
    counted: Counted | None = None
    if planned.schedule.sealed:
        fitted, final = runner.sealed_run(planned.schedule.sealed, preprocessing)
    else:
        known = None if earlier is None else (earlier.trials, earlier.census)
        result = runner.search(preprocessing, known)
        fitted, final = runner.model_of(result), result.final
        trials, census = result.trials, result.census
        counted = result.counted
    check = _check(planned, census, counted, data.target_range)
    begun, others = payments.begun(), payments.others()
    events, spent = [payment.event for payment in begun], total(p.price for p in begun)
    if earlier is not None:
        events, others = [*earlier.events, *events], others - len(earlier.events)
    told = (note for trial in (*trials, final) for note in trial.notes)
    losses = [*_losses(planned, trials, census, state, final), *_left_out(data)]
    checked = _about_check(planned, counted, check)
    notes = tuple(dict.fromkeys((*told, *losses, *checked, *noise_notes(planned))))
    searched = None if earlier is None else earlier.price
    paid = Paid(events=events, price=spent, others=others, searched=searched)
    released = Released(
        preparation=state,
        classes=planned.classes is not None,
        counts=census is not None,
        weighted=planned.weighing(census) is not None,
        scores=any(trial.score is not None for trial in trials),
        check=counted is not None,
    )
    model = TrainedModel(
        engine=planned.engine,
        model=stored_and_loaded(planned.engine, fitted),
        shape=data.shape,
        preprocessing=preprocessing,
        loss=data.loss,
        classes=data.classes,
        target_range=data.target_range,
        guarantee=guarantee_for(planned, data, paid, released, notes),
        trials=trials,
        column_names=data.column_names,
        made_by=data.made_by,
    )
    precision = IDS if planned.engine.traits.takes_ids else "float32"
    # Rows of words pass through large models, so they go where these were trained.
    device = config.device if planned.engine.traits.takes_ids else "cpu"
    test = data.test_rows(preprocessing, device, precision)
    figures = on_test_rows(planned.engine, model.model, test, data)
    shifts = tuple(
        on_shift(name, model, data.shifted_rows(name, preprocessing, precision=precision))
        for name in data.shifts
    )
    ended = StudyResult(
        model=model,
        trials=trials,
        final=final,
        census=census,
        dataset=data.name,
        rows=data.count,
        test_accuracy=figures.pop(ACCURACY, None),
        test_rows=0 if test is None else test.count,
        test_figures=figures,
        shifts=shifts,
        check=check,
        notes=notes,
        folder=folder.path,
        set_aside=planned.set_aside,
        slots=slots(planned),
        preparation=in_words(config, planned.data, planned.preparation, state),
    )
    model.save(folder)
    if kept and model.is_pretrained:
        ended = replace(ended, notes=(*notes, *_exported(ended, folder)))
    finish(folder, ended.to_dict())
    # Last: a study that is not finished holds all it may need, even if others pay from its ledger.
    payments.give_back()  # scores of trials that were lost
    return ended


def _exported(ended: StudyResult, folder: RunFolder) -> list[str]:
    """A note where there is no Hugging Face folder of a model: what was paid for is kept anyway."""
    try:
        figures = lines_of_figures(ended.to_dict(), ended.model.target_range)
        folder.write_folder(EXPORTED, partial(ended.model.save_pretrained, figures=figures))
    except InvalidInput as error:
        return [f"no folder for from_pretrained was written: {str(error).rstrip('.')}"]
    return []


def _left_out(data: Data) -> list[str]:
    """Rows beside the private ones whose label is none of the classes that were bought."""
    return [
        f"{rows:,} {which} rows are left out: their labels are none of the classes"
        for which, rows in data.left_out.items()
    ]


def _check(
    planned: Outline,
    census: Census | None,
    counted: Counted | None,
    target_range: tuple[float, float] | None,
) -> FinalCheck | ErrorCheck | None:
    """What the noisy counts say; None where there is nothing to compare."""
    event = planned.schedule.check
    if event is None or counted is None:
        return None
    rows, parameters = planned.data.count, planned.parameters
    if target_range is not None:
        return error_check(counted.counts, event.noise, rows, target_range, parameters=parameters)
    if census is None:
        return None
    weighing = planned.weighing(census)
    return final_check(
        counted.counts[0],
        event.noise,
        census,
        weighing,
        rows,
        parameters=parameters,
        mu=planned.price.mu,
    )


def _about_check(
    planned: Outline,
    counted: Counted | None,
    check: FinalCheck | ErrorCheck | None,
) -> list[str]:
    if check is not None:
        return [check.in_words] if check.warns else []
    lost = planned.schedule.check is not None and counted is None
    return ["the check of the final model was interrupted after payment"] * lost


def _losses(
    planned: Outline,
    trials: Sequence[Trial],
    census: Census | None,
    state: State,
    final: Trial,
) -> list[str]:
    """What was paid for and interrupted before its result was on disk."""
    notes = preparation_notes(planned.preparation, state)
    if planned.schedule.census is not None and census is None:
        notes.append("the counts of rows were interrupted after payment: the search goes without")
    if planned.weighs_rows and planned.weighing(census) is None:
        why = "there are no counts" if census is None else "the counts cannot tell classes apart"
        notes.append(f"rows are not weighted by class, because {why}: every row counts alike")
    lost = sum(trial.lost for trial in trials)
    if lost:
        notes.append(
            f"trials that were interrupted after payment: {lost} of {len(trials)}; never rerun"
        )
    return notes + _unscored(planned, trials, final)


def _unscored(planned: Outline, trials: Sequence[Trial], final: Trial) -> list[str]:
    """A note where no trial has a score, unless the final run has one."""
    if not trials or UNSCORED in final.notes or any(trial.score is not None for trial in trials):
        return []
    if planned.schedule.final.trials > 1:
        return ["no trial has a score, so the first of them was taken"]
    return ["no trial has a score on record any more"]


def _payments(config: Config, folder: RunFolder, data: Data) -> Payments:
    address = config.ledger or str(folder.path / _OWN_LEDGER)
    return Payments(Ledger.open(address), config.study, data.fingerprint)


def _load_again(config: Config) -> Data:
    from dptune.data.sources import load_data

    if not config.source:
        raise InvalidInput(
            "this run was started by a program that passed its data, so it must be passed again: "
            "dptune.resume(folder, data)."
        )
    return load_data(**config.source, columns=config.columns)


def _unwatched(progress: Progress) -> None:
    pass
