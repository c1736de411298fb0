"""The space: how a displacement becomes a rate and steps, and what happens at its ends."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptune import Budget, TrainPlan, gdp
from dptune.errors import InvalidInput
from dptune.search.base import Facts, Situation, Stage, calibrated, draft
from dptune.search.random_search import RandomSearch
from dptune.search.space import Setting, Space
from dptune.search.unit_noise import UnitNoise

RECIPE = TrainPlan(rows=50_000, steps=100, learning_rate=1.0, noise_multiplier=30.0)
FACTS = Facts(columns=100, outputs=10, unit_rows=True)


def displacement(setting: Setting, recipe: TrainPlan = RECIPE) -> float:
    return draft(recipe, setting).displacement


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
        assert "was wanted" in setting.notes[0]
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
def test_senseless_ranges_are_refused(ranges: dict[str, Any]) -> None:
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
    given = situation(Space(learning_rate=(1e-3, 1e5)), recipe=recipe)
    (setting,) = UnitNoise(noise).suggest(Stage("final run", 1, mu * mu), given)
    plan = calibrated(draft(recipe, setting), mu * mu, 0.0)
    assert plan.weight_noise == pytest.approx(noise, rel=1e-9)
    assert setting.notes == ()


def test_senseless_noise_is_refused() -> None:
    with pytest.raises(InvalidInput, match="noise must"):
        UnitNoise(0.0)
