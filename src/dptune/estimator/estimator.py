"""A private linear classifier by scikit-learn's conventions: search and training in one `fit`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from dptune.data import Data
from dptune.estimator.base import FRESH, DPLinearEstimator, weights_and_intercept
from dptune.study.result import StudyResult

EXPECTED_FAILED_CHECKS = {
    "check_classifier_data_not_an_array": FRESH,
    "check_fit_idempotent": FRESH,
    "check_supervised_y_2d": FRESH,
}
"""What scikit-learn's own checks find and we promise to the contrary; for its `check_estimator` and
`parametrize_with_checks`, with `public_scaling=True` because they scale rows that are no secret."""


class DPLinearClassifier(ClassifierMixin, DPLinearEstimator):  # type: ignore[misc]
    """A linear classifier on rows scaled to unit length, differentially private as a whole.

    `epsilon` and `delta` are the total for one `fit`: its search for hyperparameters, every score
    that the search compares, and the model. The next `fit` on the same rows spends as much again,
    and so does every fold and candidate of `cross_val_score`, `GridSearchCV` or `learning_curve`:
    `guarantee_` says what fits of this process that share rows cost together. Name a ledger to have
    what does not fit in its budget, and rows it does not know, refused.

    A `fit` that raises, refused or not, leaves an earlier one as it was.

    Args:
        epsilon: the budget of one `fit`.
        delta: the same; None for one in ten times the number of rows.
        classes: all labels there can be; by default those that occur, which are then released.
        balance: "classes" to make every class count alike, however rare; "none" for every row.
        ledger: address of the ledger to pay from; by default nothing is kept of what was spent.
        device: cpu or cuda.
        random_state: for public choices of the search only. Noise is fresh in every `fit`, or it
            could be subtracted.
        public_scaling: say True where the scale of the columns comes from numbers that are nobody's
            secret. Otherwise rows that look scaled by their own mean or range are refused.

    Attributes:
        guarantee_: the promise for everything the fitted estimator holds.
        trials_: every trial of the search, with its noisy score.
        result_: the `StudyResult`: the model and what else was paid for.
        classes_: labels, sorted, in the order of the columns of `predict_proba`.
        n_features_in_: the number of columns.
        feature_names_in_: their names, where `X` had any.
        coef_: weights of prepared rows (`result_.model.preprocessing`), before a constant is put
            beside them: one row a class; for two classes one row, of the second against the first.
            One column more than `X` has where the length of rows is kept in one.
        intercept_: one number for each row of `coef_`, to be added: what the constant adds. 0
            where there is none, as without a private mean.

    """

    classes_: NDArray[Any]
    coef_: NDArray[np.float32]
    intercept_: NDArray[np.float32]

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = 1e-5,
        *,
        classes: Sequence[Any] | None = None,
        balance: str = "none",
        ledger: str = "",
        device: str = "cpu",
        random_state: int | np.random.RandomState | None = 0,
        public_scaling: bool = False,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.classes = classes
        self.balance = balance
        self.ledger = ledger
        self.device = device
        self.random_state = random_state
        self.public_scaling = public_scaling

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # on the few rows that scikit-learn checks with
        return tags

    def _data(self, features: NDArray[Any], labels: NDArray[Any], names: tuple[str, ...]) -> Data:
        check_classification_targets(labels)
        declared = None if self.classes is None else np.unique(column_or_1d(self.classes)).tolist()
        return Data(features, labels, classes=declared, column_names=names)

    @property
    def _asked(self) -> dict[str, Any]:
        return {"balance": self.balance}

    def _take(self, result: StudyResult) -> None:
        self.classes_ = np.asarray(result.model.classes)
        weights, intercept = weights_and_intercept(result)
        self.coef_, self.intercept_ = _of_two(weights.T).T, _of_two(intercept)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of every class, in the order of `classes_`."""
        rows = self._rows(X)
        return self.result_.model.predict_proba(rows)

    def decision_function(self, X: Any) -> NDArray[np.float32]:
        """The logit of every class; of two classes, how far the second is ahead."""
        rows = self._rows(X)
        logits = _of_two(self.result_.model.decision_function(rows))
        return logits[:, 0] if len(self.classes_) == 2 else logits


def _of_two(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Of two classes how far the second is ahead, along the last axis; of more, all of them."""
    return values[..., 1:] - values[..., :1] if values.shape[-1] == 2 else values
