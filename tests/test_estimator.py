import pickle
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer
from sklearn.utils.estimator_checks import check_estimator

from conftest import repeated_noise
from dptune import Budget, BudgetExceeded, Ledger
from dptune.data import Data
from dptune.errors import InvalidInput, WrongDataset
from dptune.estimator import DPLinearClassifier

pytestmark = pytest.mark.usefixtures("one_thread")

FRESH = "it compares the predictions of two fits, and noise is fresh in every fit"
EXPECTED = {
    "check_classifier_data_not_an_array": FRESH,
    "check_fit_idempotent": FRESH,
    "check_supervised_y_2d": FRESH,
}


def easy_rows(count: int, classes: int = 3) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """One direction a class, and some noise."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, count)
    return 3 * np.eye(classes, 8)[labels] + rng.normal(size=(count, 8)), labels


@pytest.fixture(scope="module")
def fitted(one_thread: None) -> DPLinearClassifier:
    with repeated_noise():
        return DPLinearClassifier(epsilon=2.0).fit(*easy_rows(5000))


@pytest.mark.usefixtures("same_noise")
def test_scikit_learn_s_own_checks_pass_except_where_noise_forbids(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Of fits on few rows, entries in the ledger are most of the time, and each leg makes four.
    monkeypatch.setattr("dptune._outline.LEGS", 1)
    results = check_estimator(DPLinearClassifier(), expected_failed_checks=EXPECTED, on_skip=None)
    assert sum(found["status"] == "passed" for found in results) >= 45


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
    assert (again.predict_proba(features) != fitted.predict_proba(features)).mean() > 0.99


def test_pickled_it_predicts_the_same(fitted: DPLinearClassifier) -> None:
    features, _ = easy_rows(50)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(features), fitted.predict_proba(features))
    assert again.guarantee_ == fitted.guarantee_


def test_a_pickle_holds_no_rows() -> None:
    features, labels = easy_rows(20_000, classes=2)
    small = pickle.dumps(DPLinearClassifier().fit(features[:200], labels[:200]))
    large = pickle.dumps(DPLinearClassifier().fit(features, labels))
    assert len(large) < len(small) + 1000 < features.nbytes / 10


@pytest.mark.usefixtures("same_noise")
def test_two_classes_have_one_decision_and_text_labels_come_back() -> None:
    features, labels = easy_rows(2000, classes=2)
    words = np.array(["sick", "healthy"])[labels]
    model = DPLinearClassifier(epsilon=2.0, delta=None).fit(features, words)
    assert model.classes_.tolist() == ["healthy", "sick"]
    assert model.guarantee_.delta == 1 / 20_000
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

    model = DPLinearClassifier(epsilon=1.0, ledger=address).fit(frame, words)
    spent = ledger.spent()
    assert spent.mu == pytest.approx(Budget(1.0, 1e-5).mu, rel=1e-6)
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


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": "1"}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"classes": [0]}, "classes"),
        ({"device": "abacus"}, "device"),
        ({"random_state": None}, "random_state"),
    ],
)
def test_wrong_parameters_are_refused_at_fit(wrong: dict[str, object], named: str) -> None:
    model = DPLinearClassifier().set_params(**wrong)
    with pytest.raises(InvalidInput, match=named):
        model.fit(*easy_rows(100, classes=2))
    with pytest.raises(NotFittedError):
        model.predict(np.zeros((1, 8)))


def test_its_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parent.parent / "docs" / "estimator.md"
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(page), "exec"), names)
    assert len(blocks) == 3
