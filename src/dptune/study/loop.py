"""The search of one study as a pure loop: suggest, plan, fit, score, and the final run.

It decides everything and does nothing: whatever touches rows is a request that it yields, and
its driver answers. The runner answers for one study, with ledger and folder; the benchmarks
answer for many repeats at once, on public rows. So both run the same search.
"""

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace

from dptune.errors import FolderProblem
from dptune.plan import TrainPlan
from dptune.privacy import NoisyCount
from dptune.search.base import Census, Stage
from dptune.search.space import Setting
from dptune.search.trial import Trial
from dptune.study.outline import Outline

UNSCORED = "no trial has a score, so the final run goes by what was known before them"


@dataclass(frozen=True)
class Count:
    """Take the census. Answer: the census, or None where it is lost."""

    event: NoisyCount


@dataclass(frozen=True)
class Fit:
    """Train these trials, the next after `history`. Answer: the trials as they came out."""

    stage: Stage
    trials: tuple[Trial, ...]
    history: tuple[Trial, ...]
    census: Census | None


@dataclass(frozen=True)
class Compare:
    """Score these trials, the last of `history`. Answer: the same with scores, or without where
    they are lost."""

    stage: Stage
    trials: tuple[Trial, ...]
    history: tuple[Trial, ...]
    census: Census | None


@dataclass(frozen=True)
class Segment:
    """Go on with the final run. Answer: whether this segment is in the model."""

    number: int  # from 1
    segments: int
    plan: TrainPlan
    setting: Setting  # of all segments together
    history: tuple[Trial, ...]
    census: Census | None


@dataclass(frozen=True)
class Counted:
    """The noisy counts that check a final model: of rows that it gets right, or of its errors."""

    counts: tuple[float, ...]


@dataclass(frozen=True)
class Result:
    """What a search came to. `final` is the run whose model is released: one of `trials` where the
    best of them is taken, else that of the segments, of which none may be left. `counted` checks
    it."""

    trials: tuple[Trial, ...]
    census: Census | None
    final: Trial
    is_trial: bool
    counted: Counted | None = None


@dataclass(frozen=True)
class Check:
    """Count what checks the model of `result`. Answer: the noisy counts, or None where they are
    lost."""

    event: NoisyCount
    result: Result


Request = Count | Fit | Compare | Segment | Check
Answer = Census | Sequence[Trial] | bool | Counted | None
Loop = Generator[Request, Answer, Result]


def search(outline: Outline, begun: Setting | None = None) -> Loop:
    """Of a method whose trials may all be seen. `begun`: what the final run was begun with, where
    it was."""
    event, census = outline.schedule.census, None
    if event is not None:
        counted = yield Count(event)
        census = counted if isinstance(counted, Census) else None
    trials: tuple[Trial, ...] = ()
    for stage, numbers in outline.sweeps():
        settings = outline.suggest(stage, trials, census)
        proposed = tuple(
            Trial(
                number=number,
                stage=stage.name,
                plan=outline.plan(setting, stage, outline.rows_of_a_trial, census),
                mu=stage.mu,
                notes=setting.notes,
            )
            for number, setting in zip(numbers, settings, strict=True)
        )
        fitted = _trials((yield Fit(stage, proposed, trials, census)))
        history = (*trials, *fitted)
        ran = tuple(trial for trial in fitted if not trial.lost)
        compared = _trials((yield Compare(stage, ran, history, census))) if len(ran) > 1 else ()
        scored = {trial.number: trial for trial in compared}
        trials = tuple(scored.get(trial.number, trial) for trial in history)
    return (yield from final_run(outline, trials, census, begun))


def final_run(
    outline: Outline,
    trials: tuple[Trial, ...],
    census: Census | None,
    begun: Setting | None = None,
    *,
    models: bool = True,
) -> Loop:
    """What is left of the budget, and then the check of what came of it. `models`: whether those of
    the trials are at hand."""
    result = yield from _last_stage(outline, trials, census, begun, models)
    event = outline.schedule.check
    if event is None:
        return result
    counted = yield Check(event, result)
    return replace(result, counted=counted if isinstance(counted, Counted) else None)


def _last_stage(
    outline: Outline,
    trials: tuple[Trial, ...],
    census: Census | None,
    begun: Setting | None,
    models: bool,
) -> Loop:
    """One run, segment by segment, or the trials of the last stage, of which the best is taken."""
    stage = outline.schedule.final
    if stage.trials > 1:
        chosen = best_of([trial for trial in trials if trial.stage == stage.name])
        return Result(trials, census, chosen, is_trial=True)
    setting = begun
    if setting is None:
        (setting,) = outline.suggest(stage, trials, census)
        if trials and all(trial.score is None for trial in trials):
            setting = replace(setting, notes=(*setting.notes, UNSCORED))
    plans = outline.segment_plans(setting, census)
    done = []
    for number, plan in enumerate(plans, start=1):
        if (yield Segment(number, outline.segments, plan, setting, trials, census)):
            done.append(plan)
    notes = list(setting.notes)
    if lost := len(plans) - len(done):
        notes.append(
            f"segments of the final run that were interrupted after payment: {lost} of "
            f"{len(plans)}; the model is trained without them"
        )
    final = Trial(
        number=len(trials) + 1,
        stage=stage.name,
        plan=replace(
            outline.plan(setting, stage, census=census),
            steps=sum(p.steps for p in done) or setting.steps,
        ),
        mu=stage.mu * math.sqrt(len(done) / len(plans)),
        notes=tuple(notes),
    )
    if done:
        return Result(trials, census, final, is_trial=False)
    best = best_of(trials if models else ())
    note = f"the final run was lost as a whole, so this is trial {best.number}"
    return Result(trials, census, replace(best, notes=(*final.notes, note)), is_trial=True)


def best_of(trials: Sequence[Trial]) -> Trial:
    """The best of some trials; the first of them where none has a score."""
    ran = [trial for trial in trials if not trial.lost]
    if not ran:
        raise FolderProblem(
            "every run of this study was interrupted before its result was on disk; what was paid "
            "is spent and there is no model. Start a new study if the budget allows one."
        )
    return max(ran, key=lambda trial: -math.inf if trial.score is None else trial.score)


def drive(
    loops: Sequence[Loop], answer: Callable[[Sequence[Request]], Sequence[Answer]]
) -> list[Result]:
    """Run searches of one schedule in lockstep: their requests of each moment, which are all of one
    kind, are answered together."""
    results: list[Result] = []
    answers: Sequence[Answer] = [None] * len(loops)
    while not results:
        requests: list[Request] = []
        for loop, its_answer in zip(loops, answers, strict=True):
            try:
                requests.append(loop.send(its_answer))
            except StopIteration as end:
                results.append(end.value)
        if requests:
            answers = answer(requests)
    return results


def _trials(answer: Answer) -> tuple[Trial, ...]:
    assert isinstance(answer, Sequence)
    return tuple(answer)
