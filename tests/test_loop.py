"""The search as a pure loop: what it asks for, in which order, and what it makes of the answers."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptune.data.rows import DataFacts
from dptune.errors import FolderProblem
from dptune.search.base import SearchMethod
from dptune.search.linear_scaling import LinearScaling
from dptune.search.random_search import RandomSearch
from dptune.search.score import HeldOutScore, NoisyScore, Score
from dptune.search.space import Setting
from dptune.search.trial import Trial
from dptune.study import loop
from dptune.study.outline import Outline
from support.studies import PLAIN, a_config

FACTS = DataFacts(1000, (8,), 1, 3, "softmax")


def outline(search: SearchMethod, score: Score | None = None, seed: int = 0) -> Outline:
    config = a_config(search=search, score=score or NoisyScore(), preparation=PLAIN, seed=seed)
    return Outline(config, FACTS, reused=False)


class Desk:
    """Answers as told, and remembers what it was asked."""

    def __init__(
        self,
        fit: Callable[[Trial], Trial] = lambda trial: trial,
        score: Callable[[Trial], Trial] = lambda trial: trial.with_score(trial.number / 10, 0.01),
        segment: Callable[[int], bool] = lambda number: True,
    ) -> None:
        self.fit, self.score, self.segment = fit, score, segment
        self.asked: list[loop.Request] = []

    def answer(self, requests: Sequence[loop.Request]) -> Sequence[Any]:
        assert len({type(request) for request in requests}) == 1
        return [self._one(request) for request in requests]

    def _one(self, request: loop.Request) -> Any:
        self.asked.append(request)
        match request:
            case loop.Count():
                return None
            case loop.Fit():
                return [self.fit(trial) for trial in request.trials]
            case loop.Compare():
                return [self.score(trial) for trial in request.trials]
            case loop.Segment():
                return self.segment(request.number)
            case loop.Check():
                return loop.Counted((250.0,))


def run(planned: Outline, desk: Desk) -> loop.Result:
    (result,) = loop.drive([loop.search(planned)], desk.answer)
    return result


def test_it_asks_for_what_is_paid_for_in_the_order_of_the_payments() -> None:
    planned, desk = outline(LinearScaling()), Desk()
    result = run(planned, desk)
    kinds = [type(request).__name__ for request in desk.asked]
    assert kinds == ["Count", "Fit", "Compare", *["Segment"] * planned.segments, "Check"]
    assert result.counted == loop.Counted((250.0,))
    events = [t.plan.event for r in desk.asked if isinstance(r, loop.Fit) for t in r.trials]
    events += [r.plan.event for r in desk.asked if isinstance(r, loop.Segment)]
    reserved = [event for label, event in planned.payments if label not in _BESIDES]
    assert len(events) == len(reserved)
    for event, held in zip(events, reserved, strict=True):
        assert planned.price_of(event).mu_squared <= planned.price_of(held).mu_squared
    assert not result.is_trial and result.final.plan.steps == sum(
        r.plan.steps for r in desk.asked if isinstance(r, loop.Segment)
    )
    assert [trial.score for trial in result.trials] == [0.1, 0.2, 0.3]


_BESIDES = ("census", "scores of sweep", "check of the final model")


def test_lost_trials_are_not_compared_and_lost_scores_leave_the_prior() -> None:
    planned = outline(LinearScaling())
    desk = Desk(fit=lambda trial: replace(trial, lost=trial.number == 2))
    result = run(planned, desk)
    (compared,) = (r for r in desk.asked if isinstance(r, loop.Compare))
    assert [trial.number for trial in compared.trials] == [1, 3]
    assert [trial.score is None for trial in result.trials] == [False, True, False]
    unscored = run(planned, Desk(score=lambda trial: trial))
    alone = run(planned, Desk(fit=lambda trial: replace(trial, lost=True)))
    assert unscored.final.plan == alone.final.plan  # both go by what was known before


def test_a_single_survivor_has_nothing_to_be_compared_with() -> None:
    desk = Desk(fit=lambda trial: replace(trial, lost=trial.number != 1))
    run(outline(LinearScaling()), desk)
    assert not any(isinstance(request, loop.Compare) for request in desk.asked)


def test_segments_that_are_lost_are_said_and_all_lost_gives_the_best_trial() -> None:
    planned = outline(LinearScaling())
    result = run(planned, Desk(segment=lambda number: number not in (2, 3)))
    assert any("2 of 5" in note for note in result.final.notes)
    assert result.final.mu**2 == pytest.approx(0.6 * planned.schedule.final.mu_squared)
    lost = run(planned, Desk(segment=lambda number: False))
    assert lost.is_trial and lost.final.number == 3
    assert "lost as a whole" in lost.final.notes[-1]
    nothing = Desk(fit=lambda trial: replace(trial, lost=True), segment=lambda number: False)
    with pytest.raises(FolderProblem, match="no model"):
        run(planned, nothing)


def test_the_best_of_the_final_runs_is_taken() -> None:
    desk = Desk(score=lambda trial: trial.with_score(-abs(trial.number - 2), 0.01))
    result = run(outline(RandomSearch(trials=4)), desk)
    assert result.is_trial and result.final.number == 2
    assert not any(isinstance(request, loop.Segment) for request in desk.asked)


def test_trials_that_are_scored_on_held_out_rows_are_planned_for_the_others() -> None:
    planned = outline(LinearScaling(), HeldOutScore(every=3))
    result = run(planned, Desk())
    assert {trial.plan.rows for trial in result.trials} == {planned.rows_of_a_trial} == {666}
    assert result.final.plan.rows == 1000


def test_searches_in_lockstep_are_what_each_is_alone() -> None:
    planned = [outline(RandomSearch(trials=3), seed=seed) for seed in range(4)]
    together = loop.drive([loop.search(one) for one in planned], Desk().answer)
    assert together == [run(one, Desk()) for one in planned]
    assert len({result.final.plan.learning_rate for result in together}) == 4


@pytest.mark.parametrize("averaging", ["none", "swa"])
@given(steps=st.integers(5, 300))
def test_segments_take_all_steps_and_the_mean_of_the_last_half(averaging: str, steps: int) -> None:
    planned = outline(LinearScaling())
    planned = replace(planned, config=replace(planned.config, recipe={"averaging": averaging}))
    plans = planned.segment_plans(Setting(1.0, steps))
    assert len(plans) == 5 and sum(plan.steps for plan in plans) == steps
    if averaging == "none":
        assert {plan.tail for plan in plans} == {None}
        return
    tails = [plan.tail or 0 for plan in plans]
    assert sum(tails) == steps - steps // 2
    # All that follows the first of them is in the mean.
    first = next(number for number, tail in enumerate(tails) if tail)
    assert tails[:first] == [0] * first and tails[first] <= plans[first].steps
    assert tails[first + 1 :] == [plan.steps for plan in plans[first + 1 :]]
