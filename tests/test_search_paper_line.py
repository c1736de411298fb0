"""The paper's line: its own numbers, and what happens where it has no answer."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptune import Budget, TrainPlan, gdp
from dptune.errors import InvalidInput
from dptune.search.base import Facts, Situation, Stage
from dptune.search.paper_line import PaperLine
from dptune.search.space import Setting, Space
from dptune.search.trial import Trial

DELTA = 1e-5
FACTS = Facts(columns=100, outputs=10, unit_rows=True)
RECIPE = TrainPlan(rows=50_000, steps=100, learning_rate=1.0, noise_multiplier=30.0)
WIDE = Space(learning_rate=(1e-4, 100.0), steps=(1, 200))
DECOMPOSITIONS = ["rejection", "steps-first", "independent"]


def trial(sweep: int, r: float, score: float | None, **changes: Any) -> Trial:
    plan = dataclasses.replace(RECIPE, learning_rate=r / 10, steps=10, **changes)
    return Trial(number=0, stage=f"sweep {sweep}", plan=plan, mu=0.1, score=score)


def sweep_with_best(sweep: int, r: float) -> list[Trial]:
    return [trial(sweep, 2 * r, -0.1), trial(sweep, r, 0.2), trial(sweep, r / 2, -0.1)]


def history(*best: float) -> list[Trial]:
    return [tried for i, r in enumerate(best, start=1) for tried in sweep_with_best(i, r)]


def situation(trials: list[Trial], space: Space = WIDE, seed: int = 0) -> Situation:
    return Situation(
        facts=FACTS,
        recipe=RECIPE,
        space=space,
        history=trials,
        census=None,
        choices=np.random.default_rng(seed),
        delta=DELTA,
    )


def final(epsilon: float) -> Stage:
    return Stage("final run", 1, gdp.mu_from_epsilon(epsilon, DELTA) ** 2)


def sweep(number: int, trials: int = 3) -> Stage:
    return Stage(f"sweep {number}", trials, 1e-3)


def final_setting(method: PaperLine, epsilon: float, given: Situation) -> Setting:
    (setting,) = method.suggest(final(epsilon), given)
    return setting


def notes(method: PaperLine, epsilon: float, given: Situation) -> str:
    return "; ".join(final_setting(method, epsilon, given).notes)


STEPS_FIRST = PaperLine(decomposition="steps-first")  # the product is exactly r


def test_a_sweep_costs_its_epsilon_at_the_budgets_delta(budget: Budget) -> None:
    stages = PaperLine(epsilons=(0.1, 0.2), trials=4).sweeps(budget, FACTS)
    assert [stage.name for stage in stages] == ["sweep 1", "sweep 2"]
    assert [stage.trials for stage in stages] == [4, 4]
    assert [gdp.epsilon_from_mu(stage.mu, budget.delta) for stage in stages] == pytest.approx(
        [0.1, 0.2], rel=1e-9
    )


@pytest.mark.parametrize(
    ("epsilons", "best", "axis", "degree", "at", "r"),
    [
        ((0.05, 0.1), (3, 6), "epsilon", 1, 0.96, 57.6),
        ((0.05, 0.1), (3, 6), "mu", 1, 0.96, 50.5229),
        ((0.1, 0.2, 0.3), (4, 9, 11), "epsilon", 1, 0.8, 29.0),  # least squares: 35 x + 1
        ((0.1, 0.2, 0.3), (4, 9, 11), "epsilon", 2, 0.35, -150 * 0.35**2 + 95 * 0.35 - 4),
        ((0.2, 0.5), (0.008, 0.02), "epsilon", 1, 3.0, 0.12),  # WikiText: 0.04 x
    ],
)
def test_known_fits(
    epsilons: tuple[float, ...],
    best: tuple[float, ...],
    axis: str,
    degree: int,
    at: float,
    r: float,
) -> None:
    method = PaperLine(
        epsilons=epsilons, axis=axis, degree=degree, decomposition="steps-first", ranges="full"
    )
    setting = final_setting(method, at, situation(history(*best)))
    assert setting.total_step_size == pytest.approx(r, rel=1e-5)
    assert setting.notes == ()


def test_one_search_predicts_the_papers_enron_row() -> None:
    predicted = PaperLine(epsilons=(0.1, 0.2)).predict(
        [0.5, 1, 2, 3], situation(history(0.10, 0.58), WIDE)
    )
    assert predicted == pytest.approx([2.02, 4.42, 9.22, 14.02], rel=1e-6)


def test_predictions_need_a_scored_sweep_and_stay_inside_the_space() -> None:
    method = PaperLine()
    with pytest.raises(InvalidInput, match="finish a sweep"):
        method.predict([1.0], situation([]))
    space = Space(learning_rate=(0.01, 1.0), steps=(5, 50))
    assert method.predict([0.01, 5.0], situation(history(3, 6.1), space)) == pytest.approx(
        [62 * 0.01 - 0.1, 50.0]
    )


def test_a_polynomial_that_dives_below_the_space_is_clamped_and_says_so() -> None:
    """-150, 95, -4 through (.1, 4), (.2, 9), (.3, 11) is -24 at .8"""
    method = PaperLine(epsilons=(0.1, 0.2, 0.3), degree=2, decomposition="steps-first")
    setting = final_setting(method, 0.8, situation(history(4, 9, 11)))
    assert setting.total_step_size == pytest.approx(WIDE.total_step_size[0])
    assert any("r -24 is outside the space" in note for note in setting.notes)


def test_an_r_beyond_the_space_gets_the_largest_rate_and_the_most_steps() -> None:
    space = Space(learning_rate=(0.01, 0.5), steps=(5, 20))
    setting = final_setting(STEPS_FIRST, 0.96, situation(history(3, 6), space))
    assert (setting.learning_rate, setting.steps) == (0.5, 20)
    assert any("r 57.6 is outside" in note for note in setting.notes)


@pytest.mark.parametrize("axis", ["epsilon", "mu"])
def test_a_falling_line_becomes_a_line_through_the_origin_in_mu(axis: str) -> None:
    method = PaperLine(axis=axis, decomposition="steps-first")
    setting = final_setting(method, 0.96, situation(history(6, 3)))
    mus = [gdp.mu_from_epsilon(epsilon, DELTA) for epsilon in (0.05, 0.1, 0.96)]
    expected = mus[2] * math.sqrt(6 / mus[0] * 3 / mus[1])
    assert setting.total_step_size == pytest.approx(expected, rel=1e-9)
    assert any("falls" in note for note in setting.notes)


def test_a_flat_line_does_not_fall() -> None:
    setting = final_setting(STEPS_FIRST, 0.96, situation(history(5, 5)))
    assert setting.total_step_size == pytest.approx(5)
    assert setting.notes == ()


def test_a_rate_above_its_range_raises_the_steps() -> None:
    space = Space(learning_rate=(0.01, 1.0), steps=(5, 60))
    for seed in range(20):
        setting = final_setting(STEPS_FIRST, 0.96, situation(history(3, 6), space, seed))
        assert setting.steps in (58, 59, 60)
        assert setting.total_step_size == pytest.approx(57.6)
        assert any("58 steps or more" in note for note in setting.notes)


def test_a_rate_below_its_range_lowers_the_steps() -> None:
    space = Space(learning_rate=(10.0, 100.0), steps=(1, 200))
    for seed in range(20):
        setting = final_setting(STEPS_FIRST, 0.96, situation(history(3, 6), space, seed))
        assert 1 <= setting.steps <= 5
        assert setting.total_step_size == pytest.approx(57.6)


def test_a_sweep_without_scores_is_left_out_and_the_other_scaled_with_mu() -> None:
    lost = [trial(2, 9.0, None), trial(2, 1.0, None)]
    setting = final_setting(STEPS_FIRST, 0.96, situation(history(3) + lost))
    scale = gdp.mu_from_epsilon(0.96, DELTA) / gdp.mu_from_epsilon(0.05, DELTA)
    assert setting.total_step_size == pytest.approx(3 * scale)
    assert setting.notes[0] == "sweep 2 has no scores and was skipped"
    assert "only one sweep has scores" in setting.notes[1]


def test_too_few_scored_sweeps_lower_the_degree() -> None:
    method = PaperLine(epsilons=(0.1, 0.2, 0.3), degree=2, decomposition="steps-first")
    given = situation([*sweep_with_best(1, 4.0), *sweep_with_best(3, 11.0)])
    assert final_setting(method, 0.8, given).total_step_size == pytest.approx(28.5)
    said = notes(method, 0.8, given)
    assert "sweep 2 has no scores" in said and "degree 1, not 2" in said


def test_points_that_cannot_determine_a_polynomial_lower_the_degree() -> None:
    """Five sweeps in a heap and one far away: no quintic through them means anything."""
    epsilons = (*(1e-4 * 1.002**i for i in range(5)), 50.0)
    method = PaperLine(epsilons=epsilons, degree=5)
    given = situation(history(1, 1.1, 1.2, 1.3, 1.4, 2))
    assert "not 5" in notes(method, 60.0, given)


def test_without_any_score_the_unit_noise_law_decides() -> None:
    space = Space(learning_rate=(1e-4, 1e4), steps=(5, 200))
    setting = final_setting(PaperLine(), 0.96, situation([trial(1, 3.0, None)], space))
    mu = gdp.mu_from_epsilon(0.96, DELTA)
    plan = dataclasses.replace(
        RECIPE,
        learning_rate=setting.learning_rate,
        steps=setting.steps,
        noise_multiplier=math.sqrt(setting.steps) / mu,
    )
    assert plan.weight_noise == pytest.approx(1.0)
    assert any("unit-noise law" in note for note in setting.notes)
    assert sum("was skipped" in note for note in setting.notes) == 2


def test_an_r_in_a_gap_of_the_space_becomes_the_nearest_below() -> None:
    """One step reaches 1 to 1.2, two steps 2 to 2.4."""
    space = Space(learning_rate=(1.0, 1.2), steps=(1, 2))
    for decomposition in DECOMPOSITIONS:
        method = PaperLine(decomposition=decomposition)
        setting = final_setting(method, 0.15, situation(history(1.2, 1.4), space))
        assert (setting.learning_rate, setting.steps) == (1.2, 1)
        assert any("the target was 1.6" in note for note in setting.notes)


def test_the_best_trial_wins_and_the_first_of_equals() -> None:
    tied = [trial(1, 3.0, 0.1), trial(1, 8.0, 0.1), trial(1, 9.0, None), trial(1, 2.0, -0.2)]
    setting = final_setting(STEPS_FIRST, 0.96, situation(tied + history(1, 6)[3:]))
    assert setting.total_step_size == pytest.approx(57.6)


def test_r_is_not_truncated_to_a_whole_number() -> None:
    setting = final_setting(STEPS_FIRST, 0.96, situation(history(0.03, 0.06)))
    assert setting.total_step_size == pytest.approx(0.576)


@pytest.mark.parametrize("decomposition", DECOMPOSITIONS)
def test_the_authors_sweeps_look_low_first_and_never_below_the_last_best(
    decomposition: str,
) -> None:
    space = Space(learning_rate=(1e-3, 1.0), steps=(5, 100))
    method = PaperLine(epsilons=(0.05, 0.1, 0.2), decomposition=decomposition)
    slack = 1.05 if decomposition == "rejection" else 1 + 1e-12
    first = method.suggest(sweep(1, 50), situation([], space))
    second = method.suggest(sweep(2, 50), situation(history(7.0), space))
    third = method.suggest(sweep(3, 50), situation(history(7.0, 15.0), space))
    for settings, low, high in ((first, 0.005, 10), (second, 7, 20), (third, 15, 30)):
        assert all(low / slack <= setting.total_step_size <= high * slack for setting in settings)
        assert max(setting.total_step_size for setting in settings) > (low + high) / 2


def test_full_ranges_look_everywhere_in_every_sweep() -> None:
    space = Space(learning_rate=(1e-3, 1.0), steps=(5, 100))
    method = PaperLine(ranges="full", decomposition="steps-first")
    settings = method.suggest(sweep(2, 200), situation(history(50.0), space))
    drawn = [setting.total_step_size for setting in settings]
    assert min(drawn) < 10 and max(drawn) > 90
    assert np.mean(drawn) == pytest.approx(50, abs=8)  # uniformly


def test_a_space_too_narrow_for_the_authors_tenth_is_searched_to_its_end() -> None:
    space = Space(learning_rate=(1.0, 2.0), steps=(5, 10))
    for setting in PaperLine().suggest(sweep(1), situation([], space)):
        assert 5 <= setting.total_step_size <= 20
        assert any("r is drawn up to 20" in note for note in setting.notes)


def test_the_next_sweep_starts_low_when_the_last_has_no_score() -> None:
    given = situation([trial(1, 3.0, None)], Space((1e-3, 1.0), (5, 100)))
    settings = PaperLine().suggest(sweep(2), given)
    assert all("sweep 1 has no scores" in setting.notes[0] for setting in settings)


@pytest.mark.parametrize("decomposition", DECOMPOSITIONS)
def test_the_same_generator_gives_the_same_settings(decomposition: str) -> None:
    method = PaperLine(decomposition=decomposition, clip_norm=(0.1, 1.0))
    once = method.suggest(sweep(1, 5), situation([], seed=3))
    again = method.suggest(sweep(1, 5), situation([], seed=3))
    other = method.suggest(sweep(1, 5), situation([], seed=4))
    assert once == again
    assert once != other
    assert len(set(once)) == 5


def test_rejection_gives_up_on_a_product_that_is_rarely_drawn_and_says_so() -> None:
    space = Space(learning_rate=(1e-8, 1e8), steps=(1, 100_000))
    given = situation(history(1.2e-8, 1.3e-8), space)  # only a single step is so little
    setting = final_setting(PaperLine(), 0.12, given)
    assert setting.learning_rate == pytest.approx(1.34e-8)
    assert setting.steps == 1
    assert any("1000 draws" in note for note in setting.notes)


def test_clip_norm_and_sampling_rate_become_factors_of_r() -> None:
    method = PaperLine(
        decomposition="steps-first", sampling_rate=(0.1, 0.5), clip_norm=(0.1, 2.0), ranges="full"
    )
    settings = method.suggest(sweep(1, 50), situation([]))
    for setting in settings:
        assert setting.sampling_rate is not None and 0.1 <= setting.sampling_rate <= 0.5
        assert setting.clip_norm is not None and 0.1 <= setting.clip_norm <= 2.0
    clips = [math.log(setting.clip_norm or 0) for setting in settings]
    assert np.mean(clips) == pytest.approx(math.log(0.1 * 2.0) / 2, abs=0.4)  # log-uniformly

    trials = [
        trial(1, 3 / 0.2 / 0.5, 0.3, sampling_rate=0.2, clip_norm=0.5),
        trial(1, 1.0, 0.1, sampling_rate=0.3, clip_norm=1.5),
        trial(2, 6 / 0.4 / 0.25, 0.2, sampling_rate=0.4, clip_norm=0.25),  # of the last sweep
        trial(2, 1.0, 0.1, sampling_rate=0.3, clip_norm=1.5),
    ]
    setting = final_setting(method, 0.96, situation(trials))
    assert (setting.sampling_rate, setting.clip_norm) == (0.4, 0.25)
    assert setting.total_step_size * 0.4 * 0.25 == pytest.approx(57.6)
    assert method.predict([0.96], situation(trials)) == pytest.approx([57.6])


def test_a_fixed_clip_norm_is_no_factor_of_r_and_stays_the_recipes() -> None:
    trials = [trial(1, 3.0, 0.1, clip_norm=0.5), trial(2, 6.0, 0.1, clip_norm=0.5)]
    setting = final_setting(STEPS_FIRST, 0.96, situation(trials))
    assert setting.total_step_size == pytest.approx(57.6)
    assert (setting.sampling_rate, setting.clip_norm) == (None, None)


def test_an_r_out_of_reach_of_the_drawn_clip_norm_is_noted() -> None:
    space = Space(learning_rate=(0.5, 1.0), steps=(50, 100))
    method = PaperLine(clip_norm=(1e-3, 1.0))
    given = situation([trial(1, 40.0, 0.1, clip_norm=0.5)], space)
    settings = method.suggest(sweep(2, 20), given)
    noted = [
        setting
        for setting in settings
        if "outside the space for the drawn" in " ".join(setting.notes)
    ]
    reached = [setting for setting in settings if setting not in noted]
    assert noted and reached
    for setting in reached:
        r = setting.total_step_size * (setting.clip_norm or 0)
        assert 20 / 1.05 <= r <= 100 * 1.05


def test_trial_more_expensive_than_budget_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"epsilon 0\.1 does not fit in a budget of 0\.08"):
        PaperLine().sweeps(Budget(0.08, DELTA), FACTS)


@pytest.mark.parametrize(
    "options",
    [
        {"epsilons": (0.1, 0.05)},
        {"epsilons": (0.1, 0.1)},
        {"epsilons": (0.1, 0.10001)},
        {"epsilons": (0.1,)},
        {"epsilons": ()},
        {"epsilons": (0.0, 0.1)},
        {"epsilons": (0.1, math.inf)},
        {"degree": 2},
        {"degree": 0},
        {"trials": 1},
        {"trials": 2.5},
        {"axis": "delta"},
        {"decomposition": "grid"},
        {"ranges": "half"},
        {"sampling_rate": (0.5, 0.1)},
        {"sampling_rate": (0.1, 1.0)},
        {"sampling_rate": 0.1},
        {"clip_norm": (0.0, 1.0)},
        {"clip_norm": (1.0, 2.0, 3.0)},
    ],
)
def test_senseless_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=r"must|needs|range"):
        PaperLine(**options)


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    rate, fewest = draw(st.floats(1e-5, 10)), draw(st.integers(1, 50))
    wider = draw(st.sampled_from([1.0, 1.01, 3.0, 1e3, 1e6]))
    return Space((rate, rate * wider), (fewest, fewest + draw(st.integers(0, 300))))


ranges = st.one_of(st.none(), st.sampled_from([(0.3, 0.3), (0.01, 0.9)]))
methods = st.builds(
    PaperLine,
    epsilons=st.sampled_from([(0.05, 0.1), (0.1, 0.2, 0.3), (0.01, 0.02, 0.5, 0.7)]),
    degree=st.just(1),
    axis=st.sampled_from(["epsilon", "mu"]),
    decomposition=st.sampled_from(DECOMPOSITIONS),
    ranges=st.sampled_from(["authors", "full"]),
    sampling_rate=ranges,
    clip_norm=ranges,
)
trials = st.builds(
    trial,
    st.integers(1, 4),
    st.floats(1e-6, 1e6),
    st.one_of(st.none(), st.floats(-1, 1)),
    clip_norm=st.floats(0.01, 1.0),
    sampling_rate=st.one_of(st.none(), st.floats(0.01, 0.9)),
)


@given(
    method=methods,
    steeper=st.booleans(),
    space=spaces(),
    tried=st.lists(trials, max_size=8),
    epsilon=st.floats(0.01, 50),
    stage=st.integers(1, 5),
    seed=st.integers(0, 2**32),
)
def test_any_history_gives_settings_inside_the_space(
    method: PaperLine,
    steeper: bool,
    space: Space,
    tried: list[Trial],
    epsilon: float,
    stage: int,
    seed: int,
) -> None:
    if steeper:
        method = dataclasses.replace(method, degree=len(method.epsilons) - 1)
    asked = final(epsilon) if stage > len(method.epsilons) else sweep(stage)
    given = situation(tried, space, seed)
    settings = method.suggest(asked, given)
    assert len(settings) == asked.trials
    for setting in settings:
        assert space.learning_rate[0] <= setting.learning_rate <= space.learning_rate[1]
        assert space.steps[0] <= setting.steps <= space.steps[1]
        for ends, drawn in (
            (method.sampling_rate, setting.sampling_rate),
            (method.clip_norm, setting.clip_norm),
        ):
            assert ends is not None or drawn is None
            if asked.trials > 1 and ends is not None:
                assert drawn is not None and ends[0] <= drawn <= ends[1]
    if asked.trials == 1 and any(
        trial.score is not None and int(trial.stage[-1]) <= len(method.epsilons) for trial in tried
    ):
        (predicted,) = method.predict([epsilon], given)
        assert 0 < predicted < math.inf
        if not settings[0].notes:
            factor = (settings[0].sampling_rate or 1) * (settings[0].clip_norm or 1)
            assert settings[0].total_step_size * factor == pytest.approx(predicted, rel=0.0501)


@given(
    decomposition=st.sampled_from(DECOMPOSITIONS),
    space=spaces(),
    share=st.floats(0, 1),
    seed=st.integers(0, 2**32),
)
def test_every_decomposition_keeps_r(
    decomposition: str, space: Space, share: float, seed: int
) -> None:
    least, most = space.total_step_size
    r = least + share * (most - least)
    method = PaperLine(decomposition=decomposition)
    given = situation(history(r, r), space, seed)  # the line is flat, so the final r is this one
    setting = final_setting(method, 1.0, given)
    tolerance = 0.05 if decomposition == "rejection" else 1e-9
    if not any("the target was" in note for note in setting.notes):
        assert setting.total_step_size == pytest.approx(r, rel=tolerance)
