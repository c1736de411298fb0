"""A private linear classifier by scikit-learn's conventions: search and training in one `fit`."""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from dptune import _validate
from dptune.config import default_delta
from dptune.data import Data
from dptune.privacy import Budget, Guarantee
from dptune.study import StudyResult, tune
from dptune.trial import Trial


class DPLinearClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear classifier on rows scaled to unit length, differentially private as a whole.

    `epsilon` and `delta` are the total for one `fit`: its search for hyperparameters, every score
    that the search compares, and the model. The next `fit` on the same rows spends as much again,
    and so does every fold and candidate of `cross_val_score`, `GridSearchCV` or `learning_curve`.
    Name a ledger to have what does not fit in its budget, and rows it does not know, refused.

    A `fit` that raises, refused or not, leaves an earlier one as it was.

    Args:
        epsilon: the budget of one `fit`.
        delta: the same; None for one in ten times the number of rows.
        classes: all labels there can be; by default those that occur, which are then released.
        ledger: address of the ledger to pay from; by default nothing is kept of what was spent.
        device: cpu or cuda.
        random_state: a whole number, for public choices of the search only. Noise is fresh in
            every `fit`, or it could be subtracted.

    Attributes:
        guarantee_: the promise for everything the fitted estimator holds.
        trials_: every trial of the search, with its noisy score.
        result_: the `StudyResult`: the model and what else was paid for.
        classes_: labels, sorted, in the order of the columns of `predict_proba`.
        n_features_in_: the number of columns.
        feature_names_in_: their names, where `X` had any.

    """

    guarantee_: Guarantee
    trials_: tuple[Trial, ...]
    result_: StudyResult
    classes_: NDArray[Any]

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = 1e-5,
        *,
        classes: Sequence[Any] | None = None,
        ledger: str = "",
        device: str = "cpu",
        random_state: int = 0,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.classes = classes
        self.ledger = ledger
        self.device = device
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.classifier_tags.poor_score = True  # on the few rows that scikit-learn checks with
        return tags

    def fit(self, X: Any, y: Any) -> "DPLinearClassifier":
        """Search and train on private rows, for (epsilon, delta) in all."""
        fitted = copy.copy(self)  # an error leaves the earlier fit whole: it was paid for
        features, labels = validate_data(fitted, X, y, ensure_min_samples=2)
        check_classification_targets(labels)
        declared = None if self.classes is None else np.unique(column_or_1d(self.classes)).tolist()
        names = tuple(getattr(fitted, "feature_names_in_", ()))
        data = Data(features, labels, classes=declared, column_names=names)
        delta = default_delta(data.count) if self.delta is None else self.delta
        fitted.result_ = tune(
            None,
            data,
            budget=Budget(self.epsilon, delta),
            ledger=self.ledger,
            seed=_validate.whole(0, random_state=self.random_state),
            device=self.device,
        )
        fitted.guarantee_ = fitted.result_.guarantee
        fitted.trials_ = fitted.result_.trials
        fitted.classes_ = np.asarray(data.classes)
        self.__dict__ = fitted.__dict__
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable label of every row."""
        rows = self._rows(X)
        return self.result_.model.predict(rows)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of every class, in the order of `classes_`."""
        rows = self._rows(X)
        return self.result_.model.predict_proba(rows)

    def decision_function(self, X: Any) -> NDArray[np.float32]:
        """The logit of every class; of two classes, how far the second is ahead."""
        rows = self._rows(X)
        logits = self.result_.model.decision_function(rows)
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def _rows(self, X: Any) -> NDArray[Any]:
        check_is_fitted(self)
        rows: NDArray[Any] = validate_data(self, X, reset=False)
        return rows
