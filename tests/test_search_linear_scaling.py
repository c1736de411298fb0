"""The default search, from the law to the final run, on scores we make up."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptune import Budget, TrainPlan
from dptune.accounting import price
from dptune.privacy import Price
from dptune.search.base import Census, Facts, Schedule, Situation, calibrated, draft, schedule
from dptune.search.law import best_noise
from dptune.search.linear_scaling import (
    LinearScaling,
    carry_over_share,
    fit_scores,
    law_error,
    offset_of,
    top_for,
)
from dptune.search.score import HeldOutScore, NoisyScore
from dptune.search.space import Space
from dptune.search.trial import Trial

RECIPE = TrainPlan(rows=50_000, steps=100, learning_rate=1.0, noise_multiplier=30.0)
FACTS = Facts(columns=512, outputs=10, unit_rows=True, rows=50_000)
# Wide enough that nothing is clamped.
SPACE = Space(learning_rate=(1e-3, 1e3), steps=(5, 10_000))
CENSUS = Census(classes=(5000.0,) * 10, noise=118.0)


def situation(
    history: list[Trial], *, facts: Facts = FACTS, space: Space = SPACE, census: Census = CENSUS
) -> Situation:
    return Situation(facts, RECIPE, space, history, census, np.random.default_rng(0), 1e-5)


def plans(schedule: Schedule, given: Situation) -> list[TrainPlan]:
    (sweep,) = schedule.sweeps
    settings = LinearScaling().suggest(sweep, given)
    return [calibrated(draft(RECIPE, setting), sweep.mu_squared, 0.0) for setting in settings]


def tent(x: float, top: float, height: float) -> float:
    """Accuracy, at log c from the law."""
    return 0.8 - height / 100 * (math.sqrt(1 + (x - top) ** 2) - 1)


def searched(
    budget: Budget, top: float, *, height: float = 6.0, score_noise: float = 0.0
) -> tuple[float, Situation]:
    """Where the final run ends up, in log c from the law, when the truth is a tent."""
    planned = schedule(LinearScaling(), budget, FACTS, NoisyScore())
    trials = []
    for number, plan in enumerate(plans(planned, situation([]))):
        trial = Trial(number=number, stage="sweep", plan=plan, mu=planned.sweeps[0].mu)
        x = offset_of(trial, situation([]))
        trials.append(trial.with_score(tent(x, top, height), score_noise))
    given = situation(trials)
    (setting,) = LinearScaling().suggest(planned.final, given)
    plan = calibrated(draft(RECIPE, setting), planned.final.mu_squared, 0.0)
    final = Trial(number=3, stage="final run", plan=plan, mu=planned.final.mu)
    return offset_of(final, given), given


def test_trials_lie_around_the_law_and_have_its_noise(budget: Budget) -> None:
    planned = schedule(LinearScaling(), budget, FACTS, NoisyScore())
    mu = planned.sweeps[0].mu
    assert planned.sweeps[0].trials == 3
    assert mu**2 == pytest.approx(0.005 * budget.mu_squared())
    guess = best_noise(mu, RECIPE, FACTS, CENSUS)
    offsets = [math.log(plan.weight_noise / guess) for plan in plans(planned, situation([]))]
    assert offsets == pytest.approx([-1.4, 0.0, 1.4], abs=1e-9)


@pytest.mark.parametrize("top", [-0.8, -0.4, 0.0, 0.3, 0.8])
def test_sharp_scores_move_the_final_run_to_the_top(budget: Budget, top: float) -> None:
    best, given = searched(budget, top, height=30.0)
    told = carry_over_share(schedule(LinearScaling(), budget, FACTS, NoisyScore()).final.mu, given)
    assert 0.4 < told < 0.6  # a final run costs some 190 times what a trial does
    assert best == pytest.approx(told * top, abs=0.1)


def test_the_final_run_moves_toward_the_top_and_stays_near_the_law_when_scores_are_dim(
    budget: Budget,
) -> None:
    sharp, _ = searched(budget, 0.8)
    dim, _ = searched(budget, 0.8, score_noise=0.02)
    blind, _ = searched(budget, 0.8, score_noise=10.0)
    assert 0.8 >= sharp > dim > blind > -1e-6
    assert blind == pytest.approx(0, abs=0.01)


def test_without_scores_the_final_run_follows_the_law(budget: Budget) -> None:
    planned = schedule(LinearScaling(), budget, FACTS, NoisyScore())
    lost = [
        Trial(number=i, stage="sweep", plan=plan, mu=planned.sweeps[0].mu, lost=True)
        for i, plan in enumerate(plans(planned, situation([])))
    ]
    for history in ([], lost):
        (setting,) = LinearScaling().suggest(planned.final, situation(history))
        plan = calibrated(draft(RECIPE, setting), planned.final.mu_squared, 0.0)
        guess = best_noise(planned.final.mu, RECIPE, FACTS, CENSUS)
        assert plan.weight_noise == pytest.approx(guess, rel=1e-9)


def test_scores_that_are_only_shifted_change_nothing(budget: Budget) -> None:
    _, given = searched(budget, 0.5)
    centred = [trial.with_score((trial.score or 0.0) - 0.8, 0.0) for trial in given.history]
    assert fit_scores(situation(centred)).top == pytest.approx(fit_scores(given).top, abs=1e-9)


def test_a_lost_trial_is_no_score_of_zero(budget: Budget) -> None:
    _, given = searched(budget, 0.5)
    first, *others = given.history
    gone = Trial(number=0, stage="sweep", plan=first.plan, mu=first.mu, lost=True)
    assert fit_scores(situation([gone, *others])) == fit_scores(situation(others))


def test_the_law_is_trusted_less_on_rows_of_unknown_length(budget: Budget) -> None:
    other = Facts(columns=512, outputs=10, unit_rows=False)
    assert (law_error(FACTS), law_error(other)) == (0.6, 0.8)
    assert fit_scores(situation([])).top_error == pytest.approx(0.6, rel=1e-2)
    assert fit_scores(situation([], facts=other)).top_error == pytest.approx(0.8, rel=1e-2)


def test_a_space_that_ends_too_soon_is_noted(budget: Budget) -> None:
    planned = schedule(LinearScaling(), budget, FACTS, NoisyScore())
    narrow = situation([], space=Space(learning_rate=(0.01, 0.02), steps=(5, 10)))
    (setting,) = LinearScaling().suggest(planned.final, narrow)
    assert (setting.learning_rate, setting.steps) == (0.02, 10)
    assert "space ends" in setting.notes[0]


@given(
    scores=st.lists(st.one_of(st.none(), st.floats(-1, 1)), min_size=3, max_size=3),
    noise=st.floats(0, 1),
    epsilon=st.floats(0.01, 50),
    rows=st.integers(10, 10**7),
    row_norm=st.floats(0.01, 100),
)
def test_any_scores_give_a_setting_inside_the_space(
    scores: list[float | None], noise: float, epsilon: float, rows: int, row_norm: float
) -> None:
    recipe = TrainPlan(rows=rows, steps=100, learning_rate=1.0, noise_multiplier=30.0)
    census = Census(classes=(rows / 10,) * 10, noise=100.0, row_norm=row_norm)
    planned = schedule(LinearScaling(), Budget(epsilon, 1e-6), FACTS, NoisyScore())
    (sweep,) = planned.sweeps
    empty = Situation(FACTS, recipe, SPACE, [], census, np.random.default_rng(0), 1e-6)
    history = []
    for number, setting in enumerate(LinearScaling().suggest(sweep, empty)):
        plan = calibrated(draft(recipe, setting), sweep.mu_squared, 0.0)
        trial = Trial(number=number, stage="sweep", plan=plan, mu=sweep.mu)
        score = scores[number]
        history.append(trial if score is None else trial.with_score(score, noise))
    given = Situation(FACTS, recipe, SPACE, history, census, np.random.default_rng(0), 1e-6)
    (setting,) = LinearScaling().suggest(planned.final, given)
    assert SPACE.learning_rate[0] <= setting.learning_rate <= SPACE.learning_rate[1]
    assert SPACE.steps[0] <= setting.steps <= SPACE.steps[1]


@pytest.mark.parametrize("scores", ["none", "lost", "equal"])
def test_trials_that_tell_nothing_leave_the_final_run_at_the_law(
    budget: Budget, scores: str
) -> None:
    planned = schedule(LinearScaling(), budget, FACTS, NoisyScore())
    history = [
        Trial(
            number=number,
            stage="sweep",
            plan=plan,
            mu=planned.sweeps[0].mu,
            score=0.7 if scores == "equal" else None,
            lost=scores == "lost",
        )
        for number, plan in enumerate(plans(planned, situation([])))
    ]
    assert top_for(planned.final.mu, situation(history)) == pytest.approx(0, abs=1e-6)
    if scores != "equal":
        assert carry_over_share(planned.final.mu, situation(history)) == 1.0


# What trials tell about dearer runs.


def scored(mu: float) -> Trial:
    return Trial(number=1, stage="sweep", plan=RECIPE, mu=mu, score=0.5, score_noise=0.0)


@given(st.floats(1e-3, 10), st.lists(st.floats(1e-3, 10), min_size=1, max_size=5))
def test_carry_over_share_is_partial_for_expensive_runs_and_whole_for_cheap_ones(
    mu: float, mus: list[float]
) -> None:
    told = carry_over_share(mu, situation(list(map(scored, mus))))
    assert 0 < told <= 1
    assert (told == 1) == (max(mus) >= mu)


def test_carry_over_share_is_half_at_hundredfold_price() -> None:
    """And the dearest trial tells it."""
    told = carry_over_share(1.0, situation([scored(0.1), scored(0.01)]))
    assert told == pytest.approx(0.5, abs=0.03)
    assert carry_over_share(1.0, situation([scored(0.01)])) == pytest.approx(told**2)


# What trials cost.


@given(
    epsilon=st.floats(0.01, 100),
    delta=st.floats(1e-12, 1e-3),
    rows=st.integers(1, 10**9),
    columns=st.integers(1, 10**5),
    outputs=st.integers(1, 1000),
    unit_rows=st.booleans(),
    aside=st.floats(0, 0.03),
    held_out=st.booleans(),
)
def test_trials_cost_little_and_all_together_the_budget(
    epsilon: float,
    delta: float,
    rows: int,
    columns: int,
    outputs: int,
    unit_rows: bool,
    aside: float,
    held_out: bool,
) -> None:
    budget = Budget(epsilon, delta)
    facts = Facts(columns=columns, outputs=outputs, unit_rows=unit_rows, rows=rows)
    everything = budget.mu_squared()
    score = HeldOutScore() if held_out else NoisyScore()
    first = Price(aside * everything)
    planned = schedule(LinearScaling(), budget, facts, score, aside=first, checks=1)
    (sweep,) = planned.sweeps
    assert 0.005 * (1 - 1e-9) <= sweep.mu_squared / everything <= 0.05 * (1 + 1e-9)
    assert sweep.score is not None and planned.census is not None and planned.check is not None
    trials, scores = 3 * sweep.mu_squared, price(sweep.score).mu_squared
    paid = math.fsum(
        [
            first.mu_squared,
            max(trials, scores) if held_out else trials + scores,
            price(planned.census).mu_squared,
            price(planned.check).mu_squared,
            planned.final.mu_squared,
        ]
    )
    assert paid <= everything
    assert paid == pytest.approx(everything, rel=1e-9)
    assert planned.final.mu_squared > 0.8 * everything


def test_trials_cost_more_where_there_is_signal_to_spare() -> None:
    def share(**changes: Any) -> float:
        budget = Budget(changes.pop("epsilon", 1.0), 1e-5)
        (sweep,) = LinearScaling().sweeps(budget, replace(FACTS, **changes))
        return sweep.mu_squared / budget.mu_squared()

    assert share() == pytest.approx(0.005)  # a signal of 2.6 for every weight
    assert share(columns=8, outputs=2) == pytest.approx(0.05)  # of 840
    between = share(columns=64)  # of 21: its root, against that of 5
    assert between == pytest.approx(
        0.005 * math.sqrt(Budget(1.0, 1e-5).mu * 50_000 / 640 / 5), rel=1e-9
    )
    assert between < share(columns=64, epsilon=2.0) < 0.05
    assert between < share(columns=64, rows=100_000) < 0.05
