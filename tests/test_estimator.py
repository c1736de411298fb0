import math
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, Normalizer, StandardScaler
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import check_estimator

from dptune import Budget, BudgetExceeded, Ledger, gdp, rounding
from dptune.columns import Columns, as_table
from dptune.data import Data
from dptune.data.row_maps import Scale
from dptune.errors import InvalidInput, WrongDataset
from dptune.estimator import EXPECTED_FAILED_CHECKS, DPLinearClassifier, DPLinearRegressor
from dptune.estimator.earlier_fits import EarlierFits, add_earlier_fits
from dptune.estimator.own_scale import own_scale
from dptune.estimator.rows import Rows, dense
from dptune.export import to_sklearn
from dptune.privacy import Price
from dptune.search.space import Space
from dptune.search.unit_noise import UnitNoise
from support.noise import repeated_noise
from support.row_maps import appended, matrix_of

FEW_STEPS = Space(steps=(5, 5))


def easy_rows(count: int, classes: int = 3) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """One direction a class, and some noise."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, count)
    return 3 * np.eye(classes, 8)[labels] + rng.normal(size=(count, 8)), labels


@pytest.fixture(scope="module")
def fitted() -> DPLinearClassifier:
    with repeated_noise():
        return DPLinearClassifier(epsilon=2.0).fit(*easy_rows(5000))


@pytest.fixture
def one_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of fits on few rows, entries in the ledger take most of the time; each segment makes four."""
    monkeypatch.setattr("dptune.study.recipe.SEGMENTS", 1)


@pytest.fixture
def few_payments(one_segment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """And so does each trial."""
    monkeypatch.setattr("dptune.study.study.LinearScaling", UnitNoise)


@pytest.mark.usefixtures("few_payments", "same_noise")
def test_scikit_learn_s_own_checks_pass_except_where_noise_forbids() -> None:
    results = check_estimator(
        DPLinearClassifier(public_scaling=True, classes="public", space=FEW_STEPS),
        expected_failed_checks=EXPECTED_FAILED_CHECKS,
        on_skip=None,
    )
    assert sum(found["status"] == "passed" for found in results) >= 45
    declared = {found["check_name"] for found in results if found["expected_to_fail"]}
    assert declared == set(EXPECTED_FAILED_CHECKS)
    failed = {found["check_name"] for found in results if found["status"] == "xfail"}
    assert "check_fit_idempotent" in failed  # of labels alone two fits may agree by chance


@pytest.mark.usefixtures("few_payments")
@pytest.mark.parametrize("name", EXPECTED_FAILED_CHECKS)
def test_checks_that_are_expected_to_fail_do_so_because_noise_is_fresh(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dptune.engines.randomness.secrets.randbits", lambda bits: 0)
    model = DPLinearClassifier(public_scaling=True, space=FEW_STEPS)
    getattr(estimator_checks, name)("DPLinearClassifier", model)


def test_the_guarantee_is_the_budget_and_covers_the_search(fitted: DPLinearClassifier) -> None:
    promise = fitted.guarantee_
    assert 1.99 < promise.epsilon <= 2.0
    assert promise.delta == 1e-5
    assert promise.covers_search is True
    assert promise.covers_selection is True
    assert len(fitted.trials_) == 3


def test_easy_rows_are_learned(fitted: DPLinearClassifier) -> None:
    features, labels = easy_rows(7000)
    assert fitted.score(features[5000:], labels[5000:]) > 0.9


def test_outputs_agree_with_each_other(fitted: DPLinearClassifier) -> None:
    features, _ = easy_rows(100)
    probabilities = fitted.predict_proba(features)
    assert probabilities.shape == fitted.decision_function(features).shape == (100, 3)
    np.testing.assert_allclose(probabilities.sum(1), 1.0)
    best = fitted.classes_[probabilities.argmax(1)]
    np.testing.assert_array_equal(best, fitted.predict(features))


def test_two_fits_differ_although_the_random_state_is_the_same(fitted: DPLinearClassifier) -> None:
    features, labels = easy_rows(5000)
    again = clone(fitted).fit(features, labels)
    assert again.random_state == fitted.random_state
    one, other = (model.decision_function(features) for model in (fitted, again))
    assert (one != other).mean() > 0.99


def test_pickled_it_predicts_the_same(fitted: DPLinearClassifier) -> None:
    features, _ = easy_rows(50)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(features), fitted.predict_proba(features))
    assert again.guarantee_ == fitted.guarantee_


def test_a_pickle_holds_no_rows() -> None:
    features, labels = easy_rows(20_000, classes=2)
    small = pickle.dumps(DPLinearClassifier().fit(features[:200], labels[:200]))
    fitted = DPLinearClassifier().fit(features, labels)
    more = matrix_of(fitted.result_.model.preprocessing).nbytes
    assert len(pickle.dumps(fitted)) < len(small) + more + 4000 < features.nbytes / 10


@pytest.mark.usefixtures("one_segment")
@pytest.mark.parametrize("classes", [2, 3])
# The few are neither centred nor whitened; lengths are known only of many.
@pytest.mark.parametrize("count", [60, 500, 20_000])
def test_coefficients_act_on_prepared_rows(count: int, classes: int) -> None:
    features, labels = easy_rows(count, classes)
    model = DPLinearClassifier().fit(features, labels)
    prepared = model.result_.model.preprocessing
    assert (matrix_of(prepared) is None) == (count == 60)
    outputs = 1 if classes == 2 else classes
    if count != 500:  # of which noise hides the lengths, most often
        assert (len(appended(prepared)) == 2) == (count == 20_000)
    assert (prepared.encoding is not None) == (count > 60)  # ranges, and curves for many
    width = 8 if prepared.encoding is None else prepared.encoding.width
    constants = appended(prepared)
    constant = constants[-1] if count > 60 else 0.0
    columns = width + len(constants[:-1])
    assert (model.coef_.shape, model.intercept_.shape) == ((outputs, columns), (outputs,))
    expected = model.decision_function(features).reshape(-1, outputs)
    rows = features / np.linalg.norm(features, axis=1, keepdims=True)
    if constant:  # rows before it joined them and they were scaled for the last time
        rows = prepared.apply(features)
        length = constant / rows[:, -1:]
        rows, expected = rows[:, :-1] * length, expected * length
    assert bool(model.intercept_.any()) == bool(constants) == (count > 60)
    decision = rows @ model.coef_.T + model.intercept_
    np.testing.assert_allclose(decision, expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.usefixtures("one_segment")
def test_what_ranges_may_cost_can_be_named() -> None:
    features, labels = easy_rows(2000)
    for share in (0.0, 0.125):
        fitted = DPLinearClassifier(range_share=share).fit(features, labels)
        said = [line for line in fitted.result_.preparation if "private ranges" in line]
        assert [f"{share:.1%}"[:-1] in line for line in said] == [True] * bool(share)
    with pytest.raises(InvalidInput, match="Nothing was spent; make it"):
        DPLinearClassifier(range_share=1e-5).fit(features, labels)


@pytest.mark.usefixtures("one_segment")
@pytest.mark.parametrize("state", [None, np.random.RandomState(3), np.int64(5)])
def test_any_random_state_of_scikit_learn_will_do(state: Any) -> None:
    model = clone(DPLinearClassifier(random_state=state)).fit(*easy_rows(100))
    assert model.guarantee_.epsilon <= 1.0


@pytest.mark.usefixtures("same_noise")
def test_two_classes_have_one_decision_and_text_labels_come_back() -> None:
    features, labels = easy_rows(2000, classes=2)
    words = np.array(["sick", "healthy"])[labels]
    model = DPLinearClassifier(epsilon=2.0, delta=None).fit(features, words)
    assert model.classes_.tolist() == ["healthy", "sick"]
    assert model.guarantee_.delta == 1e-5
    assert model.score(features, words) > 0.9
    decision = model.decision_function(features)
    assert decision.shape == (2000,)
    np.testing.assert_array_equal(model.predict(features) == "sick", decision > 0)


def test_declared_classes_may_be_without_rows_and_are_sorted() -> None:
    features, labels = easy_rows(300, classes=2)
    model = DPLinearClassifier(classes=[2, 0, 1]).fit(features, labels)
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.predict_proba(features).shape == (300, 3)
    assert "the classes (3), as declared" in model.guarantee_.public_facts
    with pytest.raises(InvalidInput, match="not among the classes"):
        DPLinearClassifier(classes=[1, 2]).fit(features, labels)


def constant_column(features: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.hstack([features, np.ones((len(features), 1))])


@pytest.mark.usefixtures("same_noise")
def test_in_a_pipeline_of_steps_that_see_one_row_at_a_time() -> None:
    features, labels = easy_rows(5000)
    pipeline = make_pipeline(Normalizer(), DPLinearClassifier(epsilon=2.0))
    pipeline.fit(features[:4000], labels[:4000])
    assert pipeline.score(features[4000:], labels[4000:]) > 0.9


@pytest.mark.usefixtures("same_noise")
def test_a_constant_column_makes_the_length_of_rows_count() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 5000)
    features = 1 + labels[:, None] + 0.3 * rng.normal(size=(5000, 4))  # all in one direction
    pipeline = make_pipeline(FunctionTransformer(constant_column), DPLinearClassifier(epsilon=2.0))
    assert pipeline.fit(features, labels).score(features, labels) > 0.9


def test_a_ledger_pays_once_and_refuses_the_second_fit(tmp_path: Path) -> None:
    features, labels = easy_rows(300, classes=2)
    frame = pd.DataFrame(features, columns=list("abcdefgh"))
    words = pd.Series(["no", "yes"]).take(labels)
    address = str(tmp_path / "ledger.db")
    rows = Data(frame, words).fingerprint
    ledger = Ledger.create(address, Budget(1.2, 1e-5), dataset="patients", fingerprint=rows)

    model = DPLinearClassifier(epsilon=1.0, ledger=address, classes="public").fit(frame, words)
    spent = ledger.spent()
    assert spent.mu_squared == pytest.approx(Budget(1.0, 1e-5).mu_squared(2e-7), rel=1e-6)
    assert model.feature_names_in_.tolist() == list("abcdefgh")

    before, kept = model.predict_proba(frame), vars(model).copy()
    with pytest.raises(BudgetExceeded):
        model.fit(frame, words)
    with pytest.raises(WrongDataset):
        model.fit(features[:, :5], labels)
    assert vars(model) == kept
    np.testing.assert_array_equal(model.predict_proba(frame), before)
    assert ledger.spent() == spent


def test_cross_validation_on_rows_the_ledger_does_not_know_is_refused(tmp_path: Path) -> None:
    features, labels = easy_rows(300, classes=2)
    address = str(tmp_path / "ledger.db")
    rows = Data(features, labels).fingerprint
    ledger = Ledger.create(address, Budget(9.0, 1e-5), dataset="patients", fingerprint=rows)
    with pytest.raises(WrongDataset):
        cross_val_score(
            DPLinearClassifier(ledger=address), features, labels, cv=2, error_score="raise"
        )
    assert ledger.spent().mu == 0


def together(model: DPLinearClassifier) -> str:
    """What the printed guarantee says of this and earlier fits."""
    lines = [line for line in model.guarantee_.in_words().splitlines() if "earlier fit" in line]
    return lines[-1] if lines else ""


def other_rows(seed: int, count: int = 300) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Rows that no other test has."""
    rng = np.random.default_rng([17, seed])
    return rng.normal(size=(count, 5)), np.arange(count) % 2


@pytest.mark.usefixtures("one_segment")
def test_a_fit_that_shares_rows_with_earlier_ones_says_what_all_cost_together() -> None:
    features, labels = other_rows(0)
    first = DPLinearClassifier(epsilon=1.0).fit(features[:200], labels[:200])
    unrelated = DPLinearClassifier(epsilon=3.0).fit(*other_rows(1))
    assert together(first) == together(unrelated) == ""
    # One row in common is enough; it may have another label, and come in another precision.
    second = DPLinearClassifier(epsilon=2.0).fit(features[199:].astype("f"), 1 - labels[199:])
    both = math.hypot(first.guarantee_.mu, second.guarantee_.mu)
    said = rounding.cost(gdp.epsilon_from_mu(both, 1e-5))
    assert f"also in an earlier fit in this process; all of them together promise ({said}," in (
        together(second)
    )
    assert second.guarantee_.epsilon <= 2.0  # by itself
    assert second.result_.guarantee == second.guarantee_
    assert "that earlier fits in this process share rows" in second.guarantee_.public_facts


@pytest.mark.usefixtures("one_segment")
def test_a_grid_search_says_what_its_folds_cost_with_its_last_fit() -> None:
    grid = GridSearchCV(DPLinearClassifier(), {"delta": [1e-5]}, cv=2)
    grid.fit(*other_rows(2))
    assert "also in 2 earlier fits in this process" in together(grid.best_estimator_)


@pytest.mark.usefixtures("one_segment")
def test_a_fit_that_fails_costs_later_ones_nothing() -> None:
    rows = other_rows(3)
    with pytest.raises(InvalidInput):
        DPLinearClassifier(epsilon=-1).fit(*rows)
    assert together(DPLinearClassifier().fit(*rows)) == ""


@pytest.mark.usefixtures("one_segment")
def test_so_many_fits_that_nothing_is_promised_are_said_to_promise_nothing() -> None:
    promise = DPLinearClassifier().fit(*other_rows(4)).guarantee_
    for price in (Price(1e9), Price(0.1, slack=1e-5)):
        said = add_earlier_fits(promise, [price, price]).caveats[-1]
        assert "2 earlier fits in this process; all of them together promise nothing" in said


SCALERS = {
    "standardised": StandardScaler(),
    "centred": StandardScaler(with_std=False),
    "rotated": make_pipeline(StandardScaler(), PCA(3)),
    "with a constant": make_pipeline(StandardScaler(), FunctionTransformer(constant_column)),
    "from 0 to 1": MinMaxScaler(),
    "from -1 to 1": MinMaxScaler((-1, 1)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scaled", SCALERS)
def test_rows_scaled_by_their_own_figures_are_refused(scaled: str, dtype: str) -> None:
    features, labels = other_rows(5)
    features = (features * [1, 2, 1e3, 1e-3, 1] + [0, 1, 60, 0.01, 50]).astype(dtype)
    with pytest.raises(InvalidInput, match="public_scaling=True") as refused:
        make_pipeline(clone(SCALERS[scaled]), DPLinearClassifier()).fit(features, labels)
    assert not re.search(r"\d\.\d", str(refused.value))


@pytest.mark.parametrize("scaled", ["standardised", "from 0 to 1"])
def test_a_single_column_scaled_by_its_own_figures_is_refused(scaled: str) -> None:
    features, labels = other_rows(6)
    with pytest.raises(InvalidInput, match="fitted on these very rows"):
        make_pipeline(clone(SCALERS[scaled]), DPLinearClassifier()).fit(features[:, :1], labels)


def test_rows_scaled_by_numbers_from_elsewhere_pass() -> None:
    (public, _), (features, _) = other_rows(7), other_rows(8)
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (20_000, 4)) / 255  # every column goes from 0 to 1
    for honest in (
        features,
        StandardScaler().fit(public).transform(features),
        MinMaxScaler().fit(public).transform(features),
        rng.integers(0, 2, (300, 5)),  # yes or no
        2 * rng.integers(0, 2, (300, 5)) - 1,
        pixels,
        np.zeros((300, 5)),
        np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]]),
        features * 1e200,
    ):
        assert own_scale(np.asarray(honest)) == ""


@pytest.mark.usefixtures("one_segment")
def test_public_scaling_is_declared_and_named_in_the_guarantee() -> None:
    features, labels = other_rows(9)
    model = DPLinearClassifier(public_scaling=True)
    model.fit(StandardScaler().fit_transform(features), labels)
    assert "the numbers that scale the columns, as declared" in model.guarantee_.public_facts


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": "1"}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"classes": [0]}, "classes"),
        ({"device": "abacus"}, "device"),
        ({"balance": "rows"}, "balance must be one of none, classes"),
        ({"random_state": -1}, "random_state"),
        ({"random_state": "0"}, "random_state"),
        ({"public_scaling": "yes"}, "public_scaling"),
        ({"class_weight": "even"}, 'class_weight must be None, "balanced" or weights by class'),
        ({"class_weight": [1, 2]}, "class_weight must be"),
        ({"class_weight": {0: 1, 7: 1}}, "class_weight names 7, which is no class"),
        ({"class_weight": {0: 0}}, "weights of classes must be numbers above 0; got 0"),
        ({"class_weight": "balanced", "balance": "classes"}, "both weigh classes"),
        ({"class_weight": {0: 2}, "recipe": {"class_weights": (1, 1)}}, "give one"),
        ({"bias": "yes"}, "bias"),
        ({"space": (1, 2)}, r"space must be a dptune\.Space"),
        ({"recipe": {"steps": 3}}, "steps"),
        ({"recipe": "usual"}, "recipe must be"),
        ({"ranges": [(0, 1)]}, "ranges has 1 pairs, and the data have 8 columns"),
        ({"ranges": "bought"}, "ranges must be pairs"),
    ],
)
def test_wrong_parameters_are_refused_at_fit(wrong: dict[str, object], named: str) -> None:
    model = DPLinearClassifier().set_params(**wrong)
    with pytest.raises(InvalidInput, match=named):
        model.fit(*easy_rows(100, classes=2))
    with pytest.raises(NotFittedError):
        model.predict(np.zeros((1, 8)))


COLUMNS: dict[str, Any] = {
    "age": {"kind": "number", "range": [0, 100], "indicator": True},
    "color": {"kind": "category", "values": ["red", "green"]},
    "seen": {"kind": "date", "range": ["2020-01-01", "2024-12-31"], "parts": ["weekday"]},
    "id": "drop",
}
QUICK: dict[str, Any] = {"epsilon": 20.0, "space": Space(steps=(5, 20))}


def patients(count: int = 400) -> tuple[pd.DataFrame, NDArray[Any]]:
    """A table with texts, dates and gaps; old and red ones are sick."""
    rng = np.random.default_rng(3)
    age, red = rng.uniform(0, 100, count), rng.random(count) < 0.5
    frame = pd.DataFrame(
        {
            "age": np.where(rng.random(count) < 0.1, np.nan, age),
            "color": np.where(red, "red", "green"),
            "seen": np.datetime64("2021-01-01", "s") + np.arange(count).astype("m8[D]"),
            "id": [f"patient {number}" for number in range(count)],
        }
    )
    return frame, np.where(age / 50 + red > 1.5, "sick", "healthy")


@pytest.mark.usefixtures("one_segment", "same_noise")
def test_declared_columns_of_any_frame() -> None:
    pl = pytest.importorskip("polars")
    frame, labels = patients()
    model = DPLinearClassifier(columns=COLUMNS, **QUICK).fit(frame, labels)
    assert model.score(frame, labels) > 0.75
    assert model.feature_names_in_.tolist() == list(frame)
    assert model.n_features_in_ == 4
    encoding = model.result_.model.preprocessing.encoding
    assert encoding is not None
    assert model.coef_.shape[1] - encoding.width in (0, 1)  # where lengths are kept
    wanted = model.predict_proba(frame)
    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    for same in (arrow, pl.from_arrow(arrow), frame[frame.columns[::-1]], frame.drop(columns="id")):
        np.testing.assert_array_equal(model.predict_proba(same), wanted)
    exported = to_sklearn(model.result_.model)
    np.testing.assert_allclose(exported.predict_proba(frame), wanted, atol=1e-5)
    again = DPLinearClassifier(columns=COLUMNS, **QUICK).fit(arrow[200:], labels[200:])
    assert "also in an earlier fit in this process" in together(again)


def test_the_same_rows_are_known_again_whatever_is_declared_of_them() -> None:
    fits, price = EarlierFits(), Price(1.0)
    table = as_table({"age": [30.0, None, np.inf], "job": ["cook", None, "x"], "v": [[1], [2], []]})
    declared: list[dict[str, Any]] = [
        {"age": {"kind": "number", "range": [0, 9], "fill": 1}, "job": "drop", "v": "drop"},
        {"job": {"kind": "category", "values": "paid"}, "age": "drop", "v": "drop"},
        {"v": "drop", "job": {"kind": "category", "buckets": 2}, "age": "boolean"},
    ]
    for before, columns in enumerate(declared):
        compared = Rows(table, Columns.of(columns)).compared()
        assert fits.add(compared, price) == [price] * before
    other = table.set_column(0, "age", pa.array([31.0, None, None]))
    other = other.set_column(1, "job", pa.array(["cook", "y", "x"]))
    assert fits.add(Rows(other, Columns.of(declared[0])).compared(), price) == []


@pytest.mark.usefixtures("few_payments")
def test_values_are_learned_from_declared_columns_and_exported_too() -> None:
    frame, _ = patients()
    target = frame["age"].fillna(50) / 10
    model = DPLinearRegressor((0, 10), columns=COLUMNS, bias=True, **QUICK).fit(frame, target)
    exported = to_sklearn(model.result_.model)
    np.testing.assert_allclose(exported.predict(frame), model.predict(frame), atol=1e-4)


@pytest.mark.usefixtures("one_segment")
def test_frames_of_numbers_need_no_declaration() -> None:
    pl = pytest.importorskip("polars")
    features, labels = easy_rows(100, classes=2)
    frame = pd.DataFrame(features, columns=list("abcdefgh"))
    arrow = pa.Table.from_pandas(frame)
    model = DPLinearClassifier(**QUICK).fit(arrow, labels)
    assert model.feature_names_in_.tolist() == list("abcdefgh")
    wanted = model.predict_proba(arrow)
    for same in (frame, pl.from_arrow(arrow)):
        np.testing.assert_array_equal(model.predict_proba(same), wanted)


@pytest.mark.usefixtures("one_segment")
def test_sparse_rows_are_learned_as_dense_ones() -> None:
    features, labels = easy_rows(500, classes=2)
    features[np.abs(features) < 0.5] = 0
    with repeated_noise():
        whole = DPLinearClassifier(**QUICK).fit(features.astype(np.float32), labels)
    with repeated_noise():
        model = DPLinearClassifier(**QUICK).fit(sparse.coo_array(features), labels)
    np.testing.assert_array_equal(model.coef_, whole.coef_)
    np.testing.assert_array_equal(
        model.predict(sparse.csc_matrix(features)), whole.predict(features.astype(np.float32))
    )


@pytest.mark.usefixtures("one_segment", "same_noise")
def test_options_reach_the_study() -> None:
    features, labels = easy_rows(300, classes=2)
    ranges = [(-4.0, 4.0)] * 8
    recipe = {"clip_norm": 0.5}
    model = DPLinearClassifier(ranges=ranges, bias=True, recipe=recipe, **QUICK)
    model.fit(features, labels)
    done = model.result_.model.preprocessing
    scale = done.find(Scale)
    assert scale is not None and scale.scale.tolist() == [4.0] * 8
    assert all(trial.plan.clip_norm == 0.5 for trial in model.trials_)
    assert all(trial.plan.steps <= 20 for trial in model.trials_)
    bias = model.result_.model.model.bias  # type: ignore[attr-defined]
    assert model.intercept_ == pytest.approx(float(bias[1] - bias[0]))
    assert not appended(done)
    prepared = done.apply(features) @ model.coef_.T + model.intercept_
    np.testing.assert_allclose(prepared[:, 0], model.decision_function(features), atol=1e-4)


@pytest.mark.usefixtures("one_segment")
def test_ranges_of_an_array_can_be_paid_for() -> None:
    features, labels = easy_rows(300, classes=2)
    model = DPLinearClassifier(ranges="paid", **QUICK).fit(features, labels)
    encoding = model.result_.model.preprocessing.encoding
    assert encoding is not None
    assert encoding.columns.to_plain()["x7"] == {"kind": "number", "range": "paid"}
    assert list(encoding.ranges) == list(encoding.columns.names)
    frame = pd.DataFrame(features, columns=encoding.columns.names)
    exported = to_sklearn(model.result_.model)
    np.testing.assert_allclose(
        exported.predict_proba(frame), model.predict_proba(features), atol=1e-5
    )


@pytest.mark.usefixtures("one_segment")
def test_weights_of_classes_are_declared_or_balanced() -> None:
    features, labels = easy_rows(300, classes=2)
    model = DPLinearClassifier(class_weight={1: 4, 0: 2.0}, **QUICK).fit(features, labels)
    assert {trial.plan.class_weights for trial in model.trials_} == {(0.5, 1.0)}
    assert "the weights of the classes, as declared" in model.guarantee_.public_facts
    rare = np.concatenate([np.flatnonzero(labels == 0), np.flatnonzero(labels == 1)[:10]])
    alike = DPLinearClassifier(class_weight="balanced", **QUICK).fit(features[rare], labels[rare])
    assert alike.trials_[-1].plan.class_weights != (1.0, 1.0)
    assert any("every class counts alike" in said for said in alike.guarantee_.releases)


def test_wrong_rows_are_named_by_column_and_no_value_is_shown() -> None:
    frame, labels = patients(50)
    numbers, infinite = frame[["age"]].assign(b=1.0), frame[["age"]].fillna(1.0)
    infinite.loc[3, "age"] = np.inf
    for given, options, said in (
        (frame, {}, "columns color, seen, id are no numbers; declare what columns hold"),
        (numbers, {}, "column age holds NaN; declare what stands for a gap"),
        (numbers.to_numpy(), {}, "column 1 (counted from 1) holds NaN"),
        (infinite, {}, "column age holds infinite numbers"),
        (sparse.csr_array(np.ones((50, 4))), {"columns": COLUMNS}, "sparse rows hold only numbers"),
        (frame.drop(columns="color"), {"columns": COLUMNS}, "color: is declared but missing"),
        (frame.assign(age="old"), {"columns": COLUMNS}, "age: holds texts that are not numbers"),
        (np.ones((50, 3)), {"columns": COLUMNS}, "4 columns are declared by name"),
        (frame, {"columns": COLUMNS, "ranges": "paid"}, "leave ranges out"),
    ):
        with pytest.raises(InvalidInput) as refused:
            DPLinearClassifier(**options).fit(given, labels)
        assert said in " ".join(str(refused.value).split())
        assert "patient" not in str(refused.value)
    with pytest.raises(InvalidInput, match=r"sparse rows of 1,000,000 columns take 3,725"):
        dense(sparse.csr_array((10**6, 10**6)))


@pytest.mark.usefixtures("few_payments")
def test_its_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parent.parent / "docs" / "guide" / "estimator.md"
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(page), "exec"), names)
    assert len(blocks) == 5


UNFIT: dict[str, tuple[Callable[..., Any], str]] = {
    "None among labels": (lambda X, y: (X, np.where(y, "a", None)), "labels are missing"),
    "None in a list": (lambda X, y: (X, ["a" if each else None for each in y]), "are missing"),
    "NaN in a list": (lambda X, y: (X, ["a" if each else math.nan for each in y]), "are missing"),
    "NaN": (lambda X, y: (X, np.where(y, 1.0, np.nan)), "labels are missing"),
    "NA": (lambda X, y: (X, pd.Series(y).astype("boolean").where(y)), "labels are missing"),
    "labels of two types": (
        lambda X, y: (X, ["a" if each else 1 for each in y]),
        "found int and text",
    ),
    "a name twice": (lambda X, y: (X.set_axis(["a", "a"], axis=1), y), "a is there more than once"),
    "no rows": (lambda X, y: (X[:0], y[:0]), "X has no rows"),
    "no rows of an array": (lambda X, y: (X.to_numpy()[:0], y[:0]), "X has no rows"),
    "no columns": (lambda X, y: (X[[]], y), "X has no columns"),
}


@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize("unfit", UNFIT)
def test_rows_and_labels_that_do_not_do_are_refused_in_our_words(
    unfit: str, declared: bool
) -> None:
    change, said = UNFIT[unfit]
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 2)), columns=["a", "b"])
    wrong, labels = change(X, np.arange(40) % 2 == 0)
    number = {"kind": "number", "range": [-3, 3]}
    columns = {"a": number, "b": number} if declared else None
    for estimator in (
        DPLinearClassifier(columns=columns),
        DPLinearRegressor((0, 1), columns=columns),
    ):
        with pytest.raises(InvalidInput, match=said):
            estimator.fit(wrong, labels)


@pytest.mark.parametrize(
    ("labels", "found"),
    [(np.zeros(60, int), "the same label"), (np.arange(60) // 2, "almost all different")],
)
def test_labels_that_are_no_classes_are_refused_in_its_own_words(labels: Any, found: str) -> None:
    with pytest.raises(InvalidInput, match=found) as refused:
        DPLinearClassifier(epsilon=1.0, public_scaling=True).fit(np.ones((60, 2)), labels)
    assert "classes=[...]" in str(refused.value) and "DPLinearRegressor" in str(refused.value)
    assert "config" not in str(refused.value)
