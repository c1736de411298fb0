"""Values: how they are learned, what is paid to say how well, and the estimator for them."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import estimator_checks_generator

from dptune import Budget, DPLinearRegressor, Preparation, UnitNoise, accounting, tune
from dptune.data import Data
from dptune.data.preprocess import Preprocessing
from dptune.data.row_maps import ClipLength
from dptune.data.rows import DataFacts
from dptune.engines.linear import LinearEngine, LinearModel
from dptune.errors import InvalidInput
from dptune.estimator import EXPECTED_FAILED_CHECKS_OF_VALUES
from dptune.preparation.lengths import clips
from dptune.privacy import NoisyCount
from dptune.report import model_card
from dptune.search import LinearScaling, NoisyScore, Space
from dptune.search.space import MANY_STEPS
from dptune.study import measure
from dptune.study.check import BETTER, NO_BETTER_VALUES, UNKNOWN, ErrorCheck, error_check
from dptune.study.config import Config
from dptune.study.outline import CHECK, Outline
from dptune.study.recipe import case_of, in_words, settled
from support.noise import repeated_noise
from support.row_maps import earlier

RANGE = (0.0, 100.0)
BESIDE = ("check_estimators_pickle", "check_dict_unchanged", "check_estimator_tags_renamed")


def priced_rows(count: int, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lengths matter, and the target is far from the middle of its range."""
    rng = np.random.default_rng(seed)
    rows = rng.uniform(-1, 1, size=(count, 4))
    return rows, 40 + rows @ [20.0, -10.0, 5.0, 0.0] + rng.normal(size=count)


@pytest.fixture(scope="module")
def fitted() -> DPLinearRegressor:
    with repeated_noise():
        return DPLinearRegressor(RANGE, epsilon=4.0).fit(*priced_rows(8000))


@pytest.fixture
def few_payments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of fits on few rows, entries in the ledger are most of the time, and each segment makes four,
    as each trial of a search does."""
    monkeypatch.setattr("dptune.study.study.LinearScaling", UnitNoise)
    monkeypatch.setattr("dptune.study.recipe.SEGMENTS", 1)


# The estimator


@pytest.mark.usefixtures("few_payments", "same_noise")
def test_scikit_learn_s_checks_of_regressors_pass_except_where_noise_forbids() -> None:
    """Those that the classifier, which shares the rest, does not pass for it too."""
    model = DPLinearRegressor((-300, 300), public_scaling=True, space=Space(steps=(5, 5)))
    passed = set()
    for estimator, check in estimator_checks_generator(model):
        name = check.func.__name__
        own = "regressor" in name or "_y_" in name or name in BESIDE
        if own and name not in EXPECTED_FAILED_CHECKS_OF_VALUES:
            check(estimator)
            passed.add(name)
    assert passed >= {*BESIDE, "check_regressors_train", "check_supervised_y_no_nan"}


@pytest.mark.usefixtures("few_payments")
@pytest.mark.parametrize("name", EXPECTED_FAILED_CHECKS_OF_VALUES)
def test_checks_that_are_expected_to_fail_do_so_because_noise_is_fresh(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dptune.engines.randomness.secrets.randbits", lambda bits: 0)
    model = DPLinearRegressor((-300, 300), public_scaling=True, space=Space(steps=(5, 5)))
    getattr(estimator_checks, name)("DPLinearRegressor", model)


def test_a_range_must_be_declared_and_the_error_says_why() -> None:
    with pytest.raises(InvalidInput, match=r"the values of two people.*target_range=\(0, 20000\)"):
        DPLinearRegressor().fit(*priced_rows(50))
    with pytest.raises(InvalidInput, match="target_range"):
        DPLinearRegressor((3, 1)).fit(*priced_rows(50))


def test_it_learns_values_whose_rows_differ_in_length(fitted: DPLinearRegressor) -> None:
    features, asked = priced_rows(2000, seed=1)
    assert fitted.score(features, asked) > 0.95  # without privacy 0.994
    assert 3.99 < fitted.guarantee_.epsilon <= 4.0 and fitted.guarantee_.covers_search


def test_weights_and_intercept_are_in_units_of_the_target(fitted: DPLinearRegressor) -> None:
    features, _ = priced_rows(20, seed=2)
    prepared = fitted.result_.model.preprocessing.apply(features)
    by_hand = prepared[:, :-1] @ fitted.coef_ + fitted.intercept_
    np.testing.assert_allclose(by_hand, fitted.predict(features), rtol=1e-4)


def test_the_guarantee_names_what_checked_it(fitted: DPLinearRegressor) -> None:
    assert isinstance(fitted.result_.check, ErrorCheck)
    assert fitted.result_.check.verdict == BETTER
    assert any("noisy squared errors" in released for released in fitted.guarantee_.releases)


# Rows that keep their length


def test_rows_with_a_reach_are_cut_and_shorter_ones_stay_in_proportion() -> None:
    rows = np.array([[3.0, 4.0], [0.3, 0.4], [30.0, 40.0], [0.0, 0.0], [1e300, 0.0]])
    cut = Preprocessing([ClipLength(10.0)]).apply(rows)
    np.testing.assert_allclose(cut, [[0.3, 0.4], [0.03, 0.04], [0.6, 0.8], [0, 0], [1, 0]], 1e-6)


def test_no_step_makes_rows_with_a_reach_longer_than_one() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 3)) * rng.lognormal(sigma=3, size=(200, 1))
    made = earlier(
        unit_rows=False,
        reach=1.0,
        center=np.array([0.5, -2.0, 0.0]),
        whitening=np.diag([9.0, 1.0, 0.1]),
        constant=0.25,
    )
    done = made.apply(rows)
    assert done.shape == (200, 4) and np.linalg.norm(done, axis=1).max() <= 1 + 1e-6
    np.testing.assert_allclose(done[:, -1], 0.25 / math.hypot(1, 0.25), rtol=1e-6)
    again = Preprocessing.from_arrays(made.arrays(), made.facts())
    assert (again.apply(rows) == done).all() and "clipped to length 1" in made.in_words()


def test_clipped_rows_are_not_scaled_to_unit_length() -> None:
    with pytest.raises(InvalidInput, match="leave shorten out"):
        Preparation(unit_rows=False, shorten=True)


def values(count: int, columns: int) -> DataFacts:
    return DataFacts(count, (columns,), 1, 1, "squared")


def asked(**changed: Any) -> Config:
    usual: dict[str, Any] = {
        "study": "s",
        "budget": Budget(1.0, 1e-5),
        "search": LinearScaling(),
        "score": NoisyScore(measure="loss"),
        "space": MANY_STEPS,
        "recipe": {},
        "preparation": Preparation(),
        "source": {},
    }
    return Config(**usual | changed)


def test_values_are_shortened_centred_and_whitened_where_that_is_worth_its_price() -> None:
    found = settled(asked(), values(50_000, 20))
    nothing_for_columns = {"range_share": 0, "category_share": 0, "logarithm_share": 0}
    nothing_for_columns |= {"class_share": 0}
    assert found.preparation == Preparation(
        center_share=0.01, whiten_share=0.02, shorten=True, curves=1, **nothing_for_columns
    )
    assert found.recipe == {"clip_norm": 0.2, "averaging": "swa"}
    first, *_ = in_words(asked(), values(50_000, 20))
    assert (
        first == "clipped to their typical length, by noisy counts of lengths: 0.1 % of the budget"
    )
    assert clips(
        case_of(asked(), values(50_000, 1))
    )  # of one column, scaling leaves the sign alone
    assert not clips(case_of(asked(preparation=Preparation(unit_rows=False)), values(50_000, 20)))
    assert not clips(case_of(asked(), DataFacts(50_000, (20,), 1, 3, "softmax")))


def test_lengths_that_noise_hides_are_said_to_be() -> None:
    draws = np.random.default_rng(0)
    features = draws.normal(size=(60, 3))
    data = Data(features, features.sum(1), task="values", target_range=(-5, 5))
    with repeated_noise():  # of which one cell in thirty thousand stands out
        result = tune(data, budget=Budget(0.1, 1e-5), search=UnitNoise())
    assert "the row lengths are hidden by their noise: rows lose their length" in result.notes
    assert (
        "typical length hidden by the noise on its counts, and not used: 0.1 % of the budget"
    ) in result.preparation


def test_what_an_older_version_began_is_neither_shortened_nor_checked() -> None:
    old = asked(preparation=Preparation(center_share=0, whiten_share=0, shorten=None))
    planned = Outline(config=old, data=values(1000, 5), reused=False)
    labels = [label for label, _ in planned.payments]
    assert labels[0] == "trial 1" and CHECK not in labels
    assert not planned.preparing and planned.preparation["constant"].skipped


@pytest.mark.parametrize("clip_norm", [0.2, 1.0, None])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_gradient_descent_on_squared_loss_is_stable_at_the_largest_rate(
    clip_norm: float | None, momentum: float
) -> None:
    """On f(w) = h w^2 / 2 at the rate for half of that curvature, which noise may have hidden."""
    recipe = replace(asked().plan(100), clip_norm=1.0, momentum=momentum)
    if clip_norm is None:
        recipe = replace(recipe, clip_norm=None, noise_multiplier=0.0)
    rate = Space((0.01, 1e9)).steady(1e12, recipe, 0.25, squared=True).learning_rate
    w, velocity = 1.0, 0.0
    for _ in range(3000):
        velocity = momentum * velocity + 0.49 * w
        w -= rate * velocity
    assert abs(w) < 1e-3


# What is paid to say how well


def noiseless(shape: tuple[int, ...]) -> NDArray[np.float64]:
    return np.zeros(shape)


def sums_of(data: Data, model: LinearModel, monkeypatch: pytest.MonkeyPatch) -> NDArray[Any]:
    """The exact sums, of publicly 40 rows."""
    monkeypatch.setattr(measure, "fresh_normal", noiseless)
    rows = data.unprotected_rows(Preprocessing(unit_rows=False))
    engine = LinearEngine(outputs=1, loss="squared")
    event = NoisyCount(counts=3, noise=1.0)
    return np.array(measure.measure_errors(engine, model, rows, event, 40))


def test_one_row_moves_each_of_three_sums_by_at_most_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum that the constant follows from is released with noise before the other two, so those
    are compared at one constant, as adaptive composition does."""
    rng = np.random.default_rng(0)
    features, targets = rng.normal(size=(40, 2)), rng.uniform(-3, 3, 40)
    for weights in ([0.5, -0.2], [1e30, 0.0], [math.nan, 1.0]):
        model = LinearModel(torch.tensor([weights]), None, "squared")
        monkeypatch.setattr(measure, "middle_of", lambda total, count: 0.3)
        full = sums_of(values_of(features, targets), model, monkeypatch)
        for out in range(0, 40, 5):
            kept = np.arange(40) != out
            less = sums_of(values_of(features[kept], targets[kept]), model, monkeypatch)
            moved = full - less
            assert (moved >= 0).all() and (moved <= 1).all()


def values_of(features: NDArray[Any], targets: NDArray[Any]) -> Data:
    return Data(features, targets, task="values", target_range=(-1, 1))


def test_the_price_of_the_check_is_that_of_three_gaussians() -> None:
    """By the accountant, and by integrating two Gaussians at a distance of root three."""
    planned = Outline(config=settled(asked(), values(5000, 5)), data=values(5000, 5), reused=False)
    event = dict(planned.payments)[CHECK]
    assert isinstance(event, NoisyCount) and event.counts == 3
    paid = accounting.price(event).mu_squared
    assert paid == pytest.approx(0.005 * planned.config.budget.mu_squared(), rel=1e-6)
    mu, epsilon = math.sqrt(3) / event.noise, 0.01
    x = np.linspace(-12, 12, 400_001)
    excess = np.maximum(norm.pdf(x, mu) - math.exp(epsilon) * norm.pdf(x), 0)
    delta = float(excess.sum() * (x[1] - x[0]))
    assert accounting.epsilon(accounting.price(event), delta) == pytest.approx(epsilon, rel=1e-3)
    assert planned.price.mu_squared <= planned.config.budget.mu_squared()


def test_sums_become_errors_in_units_of_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    features, targets = rng.uniform(-1, 1, (40, 1)), rng.uniform(-0.5, 0.2, 40)
    model = LinearModel(torch.tensor([[0.5]]), None, "squared")
    counted = tuple(sums_of(values_of(features, targets), model, monkeypatch))
    found = error_check(counted, 0.01, 40, (100.0, 300.0), parameters=1)
    off = targets - 0.5 * features[:, 0]
    assert found.rmse == pytest.approx(100 * math.sqrt(np.mean(off**2)), rel=1e-4)
    assert found.middle == pytest.approx(200 + 100 * targets.mean(), rel=1e-4)
    assert found.constant_error == pytest.approx(targets.var(), rel=1e-4)
    assert found.error == 0.01 / 40


@pytest.mark.parametrize(
    ("changed", "verdict", "words"),
    [
        ({}, BETTER, "better than always answering the mean: its root mean squared error"),
        ({"squared_error": 0.198}, NO_BETTER_VALUES, "is no better than always answering the mean"),
        ({"squared_error": 0.35}, NO_BETTER_VALUES, "beside 44.72 of always answering 130"),
        ({"error": 0.05}, UNKNOWN, "inconclusive at this budget"),
        ({"error": 0.5}, UNKNOWN, "the noise is larger than what all rows could be off by"),
        ({"squared_error": 0.15, "memorised": 0.06}, UNKNOWN, "inconclusive"),
        ({"squared_error": -0.0001}, BETTER, "rows is at most 5.385, beside"),
    ],
)
def test_a_verdict_needs_three_standard_deviations(
    changed: dict[str, float], verdict: str, words: str
) -> None:
    usual = ErrorCheck(0.04, 0.2, 0.001, 130.0, 100.0)
    found = replace(usual, **changed)
    assert found.verdict == verdict and words in found.in_words
    assert found.to_dict()["verdict"] == verdict and found.to_dict()["by"] == "noisy squared errors"


@pytest.mark.usefixtures("same_noise", "few_payments")
def test_a_study_of_values_tells_exact_errors_of_test_rows(tmp_path: Path) -> None:
    features, targets = priced_rows(4000)
    test = priced_rows(500, seed=1)
    data = Data(features, targets, task="values", target_range=RANGE, test=test)
    out = tmp_path / "run"
    result = tune(data, budget=Budget(8.0, 1e-5), search=UnitNoise(), out=out)
    guessed = result.model.predict(test[0])
    assert result.test_figures == pytest.approx(
        {
            "RMSE": root_mean_squared_error(test[1], guessed),
            "MAE": mean_absolute_error(test[1], guessed),
            "R^2": r2_score(test[1], guessed),
        },
        rel=1e-4,
    )
    assert f"R^2 {result.test_figures['R^2']:.4f}" in repr(result)
    stored = json.loads((out / "result.json").read_text())
    assert stored["test_figures"] == result.test_figures
    assert result.check is not None and stored["check"] == result.check.to_dict()
    public = "the test rows, whose RMSE, MAE and R^2 are shown exactly"
    assert public in result.guarantee.public_facts
    card = model_card(out)
    assert "Test RMSE: **" in card and "By noisy squared errors (paid for), the final" in card


@pytest.mark.usefixtures("same_noise", "few_payments")
def test_values_that_have_nothing_to_do_with_rows_are_no_better_and_noted() -> None:
    rng = np.random.default_rng(0)
    data = Data(
        rng.normal(size=(6000, 3)),
        rng.uniform(0, 1, 6000),
        task="values",
        target_range=(0, 1),
    )
    result = tune(data, budget=Budget(8.0, 1e-5), search=UnitNoise())
    assert result.check is not None and result.check.verdict == NO_BETTER_VALUES
    assert any("no better than always answering the mean" in note for note in result.notes)
