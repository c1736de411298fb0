"""What a whole study costs, recomputed from its events."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import dp_accounting
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dptune import Budget, TrainPlan, accounting, gdp
from dptune.errors import BudgetExceeded
from dptune.privacy import Composition, Event, NoisyCount, Parallel, Price, total
from dptune.search.base import (
    Facts,
    Schedule,
    SearchMethod,
    Stage,
    calibrated,
    draft,
    schedule,
)
from dptune.search.linear_scaling import LinearScaling
from dptune.search.paper_line import PaperLine
from dptune.search.random_search import RandomSearch
from dptune.search.score import HeldOutScore, NoisyScore, PublicScore, Score, UnpaidScore
from dptune.search.space import Setting
from dptune.search.unit_noise import UnitNoise

UNIT = Facts(columns=512, outputs=10, unit_rows=True)
OTHER = Facts(columns=512, outputs=10, unit_rows=False)
RECIPE = TrainPlan(rows=50_000, steps=100, learning_rate=1.0, noise_multiplier=30.0)


@dataclass(frozen=True)
class Greedy(SearchMethod):
    """Sweeps that use all but `rest` of the budget."""

    name: ClassVar[str] = "greedy"
    rest: float = 0.0
    trials: int = 3

    def sweeps(self, budget: Budget, facts: Facts) -> tuple[Stage, ...]:
        return (Stage("sweep", self.trials, budget.mu_squared() * (1 - self.rest) / self.trials),)


def run(stage: Stage, steps: int) -> Event:
    return calibrated(replace(RECIPE, steps=steps), stage.mu_squared, 0.0).event


def events(planned: Schedule, score: Score, steps: Sequence[int] = (5, 17, 200)) -> list[Event]:
    """All that the study does to the data."""
    done: list[Event] = [planned.census] if planned.census else []
    for sweep in planned.sweeps:
        trials = [run(sweep, steps[i % len(steps)]) for i in range(sweep.trials)]
        scores = [sweep.score] if sweep.score else []
        if isinstance(score, HeldOutScore):
            done.append(Parallel(parts=(Composition(parts=tuple(trials)), *scores)))
        else:
            done += [*trials, *scores]
    return [*done, run(planned.final, steps[-1])]


def mu_squared(done: Sequence[Event]) -> float:
    return accounting.price(Composition(parts=tuple(done))).mu_squared


@st.composite
def methods(draw: st.DrawFn, epsilon: float) -> SearchMethod:
    fractions = draw(st.sampled_from([(0.01, 0.05), (0.05, 0.1), (0.02, 0.05, 0.1)]))
    line = PaperLine(epsilons=tuple(epsilon * f for f in fractions), trials=draw(st.integers(2, 4)))
    return draw(st.sampled_from([LinearScaling(), UnitNoise(), RandomSearch(), line]))


scores = st.sampled_from(
    [NoisyScore(), NoisyScore(share=0.1), HeldOutScore(), PublicScore(), UnpaidScore()]
)


@settings(max_examples=200)
@given(
    data=st.data(),
    epsilon=st.floats(0.01, 50),
    delta=st.floats(1e-12, 1e-2),
    score=scores,
    facts=st.sampled_from([UNIT, OTHER]),
    aside=st.sampled_from([0.0, 0.01]),
    failing=st.sampled_from([0.0, 0.1]),
)
def test_a_whole_study_fits_in_its_budget_and_uses_it(
    data: st.DataObject,
    epsilon: float,
    delta: float,
    score: Score,
    facts: Facts,
    aside: float,
    failing: float,
) -> None:
    budget = Budget(epsilon, delta)
    method = data.draw(methods(epsilon))
    first = Price(aside * budget.mu_squared(), failing * delta)
    try:
        planned = schedule(method, budget, facts, score, aside=first)
    except BudgetExceeded:
        assume(False)
    spent = mu_squared(events(planned, score)) + first.mu_squared
    assert spent <= budget.mu_squared(first.slack)
    assert spent > 0.999 * budget.mu_squared(first.slack)


@given(
    rest=st.floats(-10, -0.5).map(lambda log: 10**log),
    trials=st.integers(2, 30),
    epsilon=st.floats(0.01, 50),
    held_out=st.booleans(),
)
def test_no_rounding_exceeds_the_budget_when_hardly_anything_is_left(
    rest: float, trials: int, epsilon: float, held_out: bool
) -> None:
    budget = Budget(epsilon, 1e-5)
    score: Score = HeldOutScore() if held_out else PublicScore()
    planned = schedule(Greedy(rest, trials), budget, UNIT, score)
    assert mu_squared(events(planned, score, steps=(7, 100))) <= budget.mu_squared()
    assert planned.final.mu_squared == pytest.approx(rest * budget.mu_squared(), rel=0.02)


def test_dp_accounting_agrees_on_the_epsilon_of_the_default_study(budget: Budget) -> None:
    planned = schedule(LinearScaling(), budget, OTHER, NoisyScore())
    (sweep,) = planned.sweeps
    assert planned.census is not None and sweep.score is not None
    # Noise per unit of sensitivity: two histograms; counts of three, centred, move by sqrt(2/3).
    sigmas = [planned.census.noise / math.sqrt(2), sweep.score.noise / math.sqrt(2 / 3)]
    sigmas += [1 / sweep.mu] * 3 + [1 / planned.final.mu]
    together = sum(sigma**-2 for sigma in sigmas) ** -0.5
    epsilon = dp_accounting.get_epsilon_gaussian(together, budget.delta)
    assert epsilon == pytest.approx(1.0, rel=1e-6)


def test_shares_of_the_default_study(budget: Budget) -> None:
    everything = budget.mu_squared()
    planned = schedule(LinearScaling(), budget, UNIT, NoisyScore())
    (sweep,) = planned.sweeps
    assert planned.census is not None and sweep.score is not None
    shares = [
        accounting.price(planned.census).mu_squared / everything,
        sweep.trials * sweep.mu_squared / everything,
        accounting.price(sweep.score).mu_squared / everything,
        planned.final.mu_squared / everything,
    ]
    assert shares == pytest.approx([0.001, 0.015, 0.005, 0.979], rel=1e-9)


def test_the_papers_split_comes_out_of_the_paper_line(budget: Budget) -> None:
    planned = schedule(PaperLine(epsilons=(0.1, 0.2)), budget, UNIT, PublicScore())
    assert gdp.epsilon_from_mu(planned.final.mu, budget.delta) == pytest.approx(0.884046, abs=1e-6)
    assert planned.census is None


def test_only_methods_that_ask_for_a_census_pay_for_one(budget: Budget) -> None:
    paying = schedule(LinearScaling(), budget, UNIT, NoisyScore()).census
    both = schedule(LinearScaling(), budget, OTHER, NoisyScore()).census
    assert paying is not None and paying.counts == 1  # classes
    assert both is not None and both.counts == 2  # and lengths of rows
    assert accounting.price(paying).mu_squared == pytest.approx(accounting.price(both).mu_squared)
    weighed = schedule(UnitNoise(), budget, UNIT, NoisyScore(), weighs_rows=True)
    assert weighed.census == paying and weighed.sweeps == ()  # or whoever weighs rows by class
    alone = schedule(UnitNoise(), budget, UNIT, NoisyScore())
    assert alone.census is None and alone.sweeps == ()
    assert alone.final.mu_squared == pytest.approx(budget.mu_squared(), rel=1e-11)


def test_held_out_scores_cost_as_much_as_the_trials_and_are_free(budget: Budget) -> None:
    free = schedule(LinearScaling(), budget, UNIT, PublicScore())
    held_out = schedule(LinearScaling(), budget, UNIT, HeldOutScore())
    (sweep,) = held_out.sweeps
    assert isinstance(sweep.score, NoisyCount)
    assert accounting.price(sweep.score).mu_squared <= 3 * sweep.mu_squared
    assert accounting.price(sweep.score).mu_squared == pytest.approx(3 * sweep.mu_squared)
    assert held_out.final.mu_squared == pytest.approx(free.final.mu_squared, rel=1e-14)
    noisy = schedule(LinearScaling(), budget, UNIT, NoisyScore())
    assert noisy.final.mu_squared < held_out.final.mu_squared


def test_sweeps_share_what_scores_may_cost(budget: Budget) -> None:
    planned = schedule(PaperLine(), budget, UNIT, NoisyScore(share=0.02))
    paid = [accounting.price(sweep.score).mu_squared for sweep in planned.sweeps if sweep.score]
    assert paid == pytest.approx([0.01 * budget.mu_squared()] * 2, rel=1e-9)


@pytest.mark.parametrize("rest", [0.0, -0.5, 1e-13])
def test_a_search_that_leaves_nothing_is_refused(budget: Budget, rest: float) -> None:
    with pytest.raises(BudgetExceeded, match=r"epsilon 1\.\d+ of 1 .* leaves nothing .* fewer or"):
        schedule(Greedy(rest), budget, UNIT, PublicScore())


def test_runs_whose_failures_use_up_delta_are_refused() -> None:
    """A thousand sampled runs of a thousandth of delta each leave nothing for anything else."""
    with pytest.raises(BudgetExceeded, match=r"of 1001 runs, 1e-05 together, use up delta = 1e-05"):
        schedule(RandomSearch(trials=1001), Budget(1.0, 1e-5), UNIT, NoisyScore(), slack=1e-8)


def test_paper_search_can_exceed_its_budget() -> None:
    with pytest.raises(BudgetExceeded, match="Nothing was spent"):
        schedule(PaperLine(epsilons=(0.2, 0.3), trials=9), Budget(0.5, 1e-5), UNIT, NoisyScore())


@given(mu_squared=st.floats(1e-10, 1e3), steps=st.integers(1, 1000))
def test_calibrated_noise_never_costs_more_than_asked(mu_squared: float, steps: int) -> None:
    plan = calibrated(replace(RECIPE, steps=steps), mu_squared, 0.0)
    price = accounting.price(plan.event).mu_squared
    assert mu_squared * (1 - 1e-14) <= price <= mu_squared
    assert plan.noise_multiplier == pytest.approx(math.sqrt(steps / mu_squared), rel=1e-12)


@settings(max_examples=10)
@given(mu_squared=st.floats(1e-3, 1.0), rate=st.floats(0.01, 0.5), steps=st.integers(1, 50))
def test_calibrated_noise_of_sampled_runs_never_costs_more_than_asked(
    mu_squared: float, rate: float, steps: int
) -> None:
    plan = calibrated(replace(RECIPE, steps=steps, sampling_rate=rate), mu_squared, 1e-8)
    price = accounting.price(plan.event, slack=1e-8)
    assert price.mu_squared <= mu_squared
    assert price.slack <= 1e-8
    full = calibrated(replace(RECIPE, steps=steps), mu_squared, 0.0)
    assert plan.noise_multiplier < full.noise_multiplier


def test_a_draft_takes_from_the_recipe_what_the_setting_leaves_open() -> None:
    recipe = replace(RECIPE, sampling_rate=0.1, clip_norm=0.5, momentum=0.3)
    plain = draft(recipe, Setting(2.0, 7))
    assert plain == replace(recipe, learning_rate=2.0, steps=7)
    bent = draft(recipe, Setting(2.0, 7, sampling_rate=0.2, clip_norm=3.0))
    assert (bent.sampling_rate, bent.clip_norm, bent.momentum) == (0.2, 3.0, 0.3)


def test_where_there_is_nothing_to_count_nothing_is_paid_for_counting(budget: Budget) -> None:
    """Values have no classes: of rows of length one there is then nothing to count, of others only
    their lengths."""
    score, shares = NoisyScore(measure="loss"), []
    for unit_rows in (True, False):
        facts = Facts(columns=512, outputs=1, unit_rows=unit_rows, has_classes=False)
        planned = schedule(LinearScaling(), budget, facts, score)
        assert (planned.census is None) == unit_rows
        assert planned.census is None or planned.census.counts == 1
        shares.append(mu_squared(events(planned, score)) / budget.mu_squared())
    assert shares == pytest.approx([1, 1], rel=1e-9)


@settings(max_examples=5)
@given(epsilon=st.floats(0.3, 5), rate=st.floats(0.05, 0.5))
def test_a_study_of_sampled_runs_fits_beside_its_failure_probabilities(
    epsilon: float, rate: float
) -> None:
    budget, slack = Budget(epsilon, 1e-5), 1e-8
    planned = schedule(LinearScaling(), budget, UNIT, NoisyScore(), slack=slack)
    assert planned.census is not None
    sampled = replace(RECIPE, steps=20, sampling_rate=rate)
    stages = [*[stage for stage in planned.sweeps for _ in range(stage.trials)], planned.final]
    runs = [calibrated(sampled, stage.mu_squared, slack).event for stage in stages]
    counts = [planned.census, *[stage.score for stage in planned.sweeps if stage.score]]
    spent = total(
        [accounting.price(event, slack=slack) for event in runs]
        + [accounting.price(event) for event in counts]
    )
    assert spent.slack == pytest.approx(4 * slack)
    assert accounting.fits([*runs, *counts], spent, budget, 4 * slack)
    assert accounting.epsilon(spent, budget.delta) > 0.99 * epsilon


def test_a_search_that_is_done_leaves_everything_to_the_final_run(budget: Budget) -> None:
    planned = schedule(LinearScaling(), budget, UNIT, NoisyScore(), searched=True)
    assert planned.census is None and planned.sweeps == ()
    assert planned.final.mu_squared == pytest.approx(budget.mu_squared(), rel=1e-11)
