"""The space: how a displacement becomes a rate and steps, and what happens at its ends."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptune import Budget, TrainPlan, gdp
from dptune.errors import InvalidInput
from dptune.plan import SCHEDULES
from dptune.search.base import Facts, Situation, Stage, calibrated, draft
from dptune.search.linear_scaling import LinearScaling
from dptune.search.random_search import RandomSearch
from dptune.search.space import ADAPTIVE_RATES, Setting, Space
from dptune.search.unit_noise import UnitNoise

RECIPE = TrainPlan(rows=50_000, steps=100, learning_rate=1.0, noise_multiplier=30.0)
FACTS = Facts(columns=100, outputs=10, unit_rows=True)


def displacement(setting: Setting, recipe: TrainPlan = RECIPE) -> float:
    """How far it moves weights; an adaptive optimizer by noise."""
    plan = draft(recipe, setting)
    return plan.weight_noise if plan.is_adaptive else plan.displacement


def situation(space: Space, seed: int = 0, recipe: TrainPlan = RECIPE) -> Situation:
    return Situation(FACTS, recipe, space, [], None, np.random.default_rng(seed), 1e-5)


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    rate, fewest = draw(st.floats(1e-5, 10)), draw(st.integers(1, 50))
    wider = draw(st.sampled_from([1.0, 1.01, 3.0, 1e3, 1e6]))
    return Space((rate, rate * wider), (fewest, fewest + draw(st.integers(0, 300))))


recipes = st.builds(
    lambda momentum, optimizer: dataclasses.replace(RECIPE, momentum=momentum, optimizer=optimizer),
    st.sampled_from([0.0, 0.5, 0.9, 0.99]),
    st.sampled_from(["sgd", "adam"]),
)


@given(space=spaces(), recipe=recipes, wanted=st.floats(1e-9, 1e9))
def test_a_spread_stays_inside_and_moves_as_asked_unless_it_says_otherwise(
    space: Space, recipe: TrainPlan, wanted: float
) -> None:
    setting = space.spread(wanted, recipe)
    low, high = space.learning_rate
    assert low <= setting.learning_rate <= high
    assert space.steps[0] <= setting.steps <= space.steps[1]
    moved = displacement(setting, recipe)
    if setting.notes:
        assert moved != pytest.approx(wanted, rel=1e-13)
        assert setting.learning_rate in (low, high)
        assert "the target was" in setting.notes[0]
    else:
        assert moved == pytest.approx(wanted, rel=1e-9)


@given(space=spaces(), recipe=recipes, wanted=st.floats(1e-9, 1e9))
def test_a_spread_takes_the_most_steps_that_do_not_move_too_far(
    space: Space, recipe: TrainPlan, wanted: float
) -> None:
    steps = space.spread(wanted, recipe).steps
    low, (fewest, most) = space.learning_rate[0], space.steps
    if steps > fewest:
        assert displacement(Setting(low, steps), recipe) <= wanted * (1 + 1e-12)
    if steps < most:
        assert displacement(Setting(low, steps + 1), recipe) > wanted * (1 - 1e-12)


def test_spreads_at_the_ends_are_clamped_and_noted() -> None:
    space = Space(learning_rate=(0.1, 1.0), steps=(5, 10))
    little, much = space.spread(1e-3, RECIPE), space.spread(1e6, RECIPE)
    assert (little.learning_rate, little.steps) == (0.1, 5)
    assert (much.learning_rate, much.steps) == (1.0, 10)
    assert "learning rate 0.1 with 5 steps" in little.notes[0]
    assert "learning rate 1 with 10 steps" in much.notes[0]


@given(space=spaces())
def test_the_corners_of_a_space_are_spread_without_a_note(space: Space) -> None:
    for rate, steps in zip(space.learning_rate, space.steps, strict=True):
        setting = space.spread(displacement(Setting(rate, steps)), RECIPE)
        assert setting.notes == ()


# At a rate that is stable.

STABLE_SPACE = Space(learning_rate=(0.01, 1e4), steps=(5, 1000))


@given(
    space=spaces(),
    recipe=recipes,
    clip_norm=st.sampled_from([None, 1e-3, 0.1, 1.0, 30.0]),
    curvature=st.floats(1e-4, 1.0),
    wanted=st.floats(1e-9, 1e9),
)
def test_rate_is_stable_or_noted_as_unstable(
    space: Space, recipe: TrainPlan, clip_norm: float | None, curvature: float, wanted: float
) -> None:
    noise = 0.0 if clip_norm is None else 30.0
    recipe = dataclasses.replace(recipe, clip_norm=clip_norm, noise_multiplier=noise)
    setting = space.steady(wanted, recipe, curvature)
    low, high = space.learning_rate
    stable = 4 * (1 + recipe.momentum) / (curvature * min(clip_norm or 1.0, 1.0))
    assert low <= setting.learning_rate <= high
    assert space.steps[0] <= setting.steps <= space.steps[1]
    moved = displacement(setting, recipe)
    if low <= stable:
        assert setting.learning_rate <= stable
    elif setting.learning_rate > stable:
        assert "may be unstable" in setting.notes[-1]
    if not setting.notes:
        assert moved == pytest.approx(wanted, rel=1e-9)
    elif "is stable" in setting.notes[-1]:  # as far as can be
        assert setting.learning_rate == stable and setting.steps == space.steps[1]
        assert moved < wanted
    elif moved > wanted * (1 + 1e-9):  # only where the space has nothing less
        assert (setting.learning_rate, setting.steps) == (low, space.steps[0])


@given(wanted=st.floats(1.0, 1e9), curvature=st.floats(1e-3, 1.0))
def test_more_steps_are_taken_before_weights_move_less(wanted: float, curvature: float) -> None:
    setting = STABLE_SPACE.steady(wanted, RECIPE, curvature)
    stable = 4 * 1.9 / curvature
    in_usual_steps = displacement(Setting(stable, 200))
    if wanted <= in_usual_steps:
        assert setting.steps <= 200 and not setting.notes
    elif wanted <= displacement(Setting(stable, 1000)):
        # No more of them than it takes, give or take a tenth.
        assert displacement(Setting(stable, int(setting.steps / 1.1) - 2)) < wanted
        assert displacement(setting) == pytest.approx(wanted, rel=1e-9) and not setting.notes
    else:
        assert (setting.learning_rate, setting.steps) == (stable, 1000)
        assert displacement(setting) < wanted
        assert setting.notes == (f"learning rate {stable:.3g} is the largest that is stable",)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize(("part", "grows"), [(0.99, False), (1.01, True)])
def test_the_largest_stable_rate_is_where_descent_begins_to_grow(
    momentum: float, part: float, grows: bool
) -> None:
    """A second derivation: gradient descent itself, where logistic loss is most curved."""
    recipe, curvature = dataclasses.replace(RECIPE, momentum=momentum), 0.2
    rate = part * STABLE_SPACE.steady(1e9, recipe, curvature).learning_rate
    weight, velocity = 1.0, 0.0
    for _ in range(1000):
        velocity = momentum * velocity + 0.5 * curvature * weight
        weight -= rate * velocity
    assert (abs(weight) > 1) == grows


def test_flatter_rows_and_shorter_gradients_allow_larger_rates() -> None:
    short = dataclasses.replace(RECIPE, clip_norm=0.1)
    without = dataclasses.replace(RECIPE, clip_norm=None, noise_multiplier=0.0)
    still = dataclasses.replace(RECIPE, momentum=0.0)
    wide = Space(learning_rate=(0.01, 1e6), steps=(5, 1000))
    rates = [
        wide.steady(1e9, recipe, curvature).learning_rate
        for recipe, curvature in (
            (RECIPE, 1.0), (RECIPE, 0.1), (short, 1.0), (without, 1.0), (still, 1.0),
        )
    ]  # fmt: skip
    assert rates == pytest.approx([7.6, 76.0, 76.0, 7.6, 4.0])


def test_a_space_above_all_that_is_stable_moves_no_further_than_asked() -> None:
    space = Space(learning_rate=(100.0, 200.0), steps=(5, 1000))
    setting = space.steady(displacement(Setting(100.0, 20)), RECIPE, 1.0)
    assert (setting.learning_rate, setting.steps) == (100.0, 20)
    (note,) = setting.notes
    assert note == "the space begins at learning rate 100; above 7.6 may be unstable"


@pytest.mark.parametrize(("steps", "usual"), [((5, 1000), 200), ((5, 20), 20), ((300, 900), 300)])
def test_the_usual_steps_lie_inside_the_space(steps: tuple[int, int], usual: int) -> None:
    space = Space(steps=steps)
    assert space.usual_steps == usual
    # Sampled runs all take as many, so that they can be priced together.
    assert LinearScaling().fixed_steps(space) == UnitNoise().fixed_steps(space) == usual


def test_an_r_outside_is_clamped_and_noted() -> None:
    space = Space(learning_rate=(0.1, 1.0), steps=(5, 10))
    assert space.total_step_size == (0.5, 10.0)
    assert space.clamp(3.0) == (3.0, ())
    assert space.clamp(10.0 * (1 + 1e-15)) == (10.0, ())
    for wanted, clamped in ((-24.0, 0.5), (0.0, 0.5), (57.6, 10.0)):
        r, (note,) = space.clamp(wanted)
        assert r == clamped
        assert f"r {wanted:g} is outside" in note


@pytest.mark.parametrize(
    "ranges",
    [
        {"learning_rate": (1.0, 0.1)},
        {"learning_rate": (0.0, 1.0)},
        {"learning_rate": 1.0},
        {"learning_rate": (1.0, 2.0, 3.0)},
        {"steps": (10, 5)},
        {"steps": (0, 5)},
        {"steps": (1.5, 5)},
    ],
)
def test_invalid_ranges_are_refused(ranges: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=r"must|range"):
        Space(**ranges)


@given(space=spaces(), seed=st.integers(0, 2**32))
def test_a_random_setting_lies_inside(space: Space, seed: int) -> None:
    (setting,) = RandomSearch().suggest(Stage("final run", 1, 0.01), situation(space, seed))
    assert space.learning_rate[0] <= setting.learning_rate <= space.learning_rate[1]
    assert space.steps[0] <= setting.steps <= space.steps[1]


def test_random_rates_are_log_uniform_and_steps_uniform() -> None:
    space, stage = Space((0.01, 100.0), (5, 205)), Stage("final run", 1, 0.01)
    one_generator = situation(space)
    drawn = [RandomSearch().suggest(stage, one_generator)[0] for _ in range(2000)]
    logs = [np.log10(setting.learning_rate) for setting in drawn]
    assert np.mean(logs) == pytest.approx(0, abs=0.1)
    assert np.std(logs) == pytest.approx(4 / 12**0.5, rel=0.05)
    assert np.mean([setting.steps for setting in drawn]) == pytest.approx(105, abs=5)
    assert RandomSearch().sweeps(Budget(1.0, 1e-5), FACTS) == ()


@pytest.mark.parametrize("noise", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("clip_norm", [1.0, 0.25])
def test_the_unit_noise_law_ends_at_its_noise(noise: float, clip_norm: float) -> None:
    mu = gdp.mu_from_epsilon(1.0, 1e-5)
    recipe = dataclasses.replace(RECIPE, clip_norm=clip_norm)
    space = Space(learning_rate=(1e-3, 1e5), steps=(5, 10_000))
    given = situation(space, recipe=recipe)
    (setting,) = UnitNoise(noise).suggest(Stage("final run", 1, mu * mu), given)
    plan = calibrated(draft(recipe, setting), mu * mu, 0.0)
    assert plan.weight_noise == pytest.approx(noise, rel=1e-9)
    assert setting.notes == ()


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "lamb", "wosm"])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("epsilon", [0.1, 8.0])
def test_the_rate_of_an_adaptive_optimizer_is_that_of_its_noise_at_any_price(
    optimizer: str, schedule: str, epsilon: float
) -> None:
    """A random walk of so many steps, each a rate long; stable or not is not asked."""
    mu, noise = gdp.mu_from_epsilon(epsilon, 1e-5), 0.02
    recipe = dataclasses.replace(RECIPE, optimizer=optimizer, schedule=schedule)
    given = situation(Space(learning_rate=ADAPTIVE_RATES, steps=(5, 1000)), recipe=recipe)
    (setting,) = UnitNoise(noise).suggest(Stage("final run", 1, mu * mu), given)
    plan = calibrated(draft(recipe, setting), mu * mu, 0.0)
    assert (plan.steps, setting.notes) == (200, ())
    assert plan.weight_noise == pytest.approx(noise, rel=1e-9)
    squares = {"constant": 1.0, "linear": 1 / 3, "cosine": 3 / 8}[schedule]
    by_hand = setting.learning_rate * math.sqrt(200 * squares)
    assert by_hand == pytest.approx(noise, rel=0.01)


def test_an_engine_that_is_not_linear_has_no_bound_of_linear_ones() -> None:
    """It may be unstable long before, or long after: nobody knows."""
    mu = gdp.mu_from_epsilon(8.0, 1e-5)
    stage, linear = Stage("final run", 1, mu * mu), situation(STABLE_SPACE)
    other = dataclasses.replace(linear, facts=dataclasses.replace(FACTS, linear_in_rows=False))
    (bound,), (free,) = (UnitNoise(0.5).suggest(stage, given) for given in (linear, other))
    assert bound.steps > free.steps == 200
    assert displacement(bound) == pytest.approx(displacement(free), rel=1e-9)
    assert free.learning_rate > 4 * 1.9 >= bound.learning_rate


def test_more_directions_leave_less_noise_so_weights_may_move_further() -> None:
    mu = gdp.mu_from_epsilon(1.0, 1e-5)
    recipe = dataclasses.replace(RECIPE, directions=4)
    given = situation(Space(learning_rate=(1e-3, 1e5), steps=(5, 10_000)), recipe=recipe)
    (setting,) = UnitNoise(0.5).suggest(Stage("final run", 1, mu * mu), given)
    plan = calibrated(draft(recipe, setting), mu * mu, 0.0)
    assert plan.weight_noise == pytest.approx(0.5, rel=1e-9)
    alone = dataclasses.replace(plan, directions=1)
    assert alone.weight_noise == pytest.approx(1.0, rel=1e-9)


def test_invalid_noise_is_refused() -> None:
    with pytest.raises(InvalidInput, match="noise must"):
        UnitNoise(0.0)
