"""A private linear classifier by scikit-learn's conventions: search and training in one `fit`."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from dptune import validate
from dptune.accounting import Budget, Guarantee
from dptune.data import Data
from dptune.engines.linear import LinearModel
from dptune.errors import InvalidInput
from dptune.estimator import earlier_fits
from dptune.estimator.own_scale import own_scale
from dptune.privacy import Price
from dptune.search.trial import Trial
from dptune.study.config import default_delta
from dptune.study.result import StudyResult
from dptune.study.study import tune

_FRESH = "it compares the predictions of two fits, and noise is fresh in every fit"
EXPECTED_FAILED_CHECKS = {
    "check_classifier_data_not_an_array": _FRESH,
    "check_fit_idempotent": _FRESH,
    "check_supervised_y_2d": _FRESH,
}
"""What scikit-learn's own checks find and we promise to the contrary; for its `check_estimator` and
`parametrize_with_checks`, with `public_scaling=True` because they scale rows that are no secret."""


class DPLinearClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
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

    guarantee_: Guarantee
    trials_: tuple[Trial, ...]
    result_: StudyResult
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
        tags.non_deterministic = True
        tags.classifier_tags.poor_score = True  # on the few rows that scikit-learn checks with
        return tags

    def fit(self, X: Any, y: Any) -> "DPLinearClassifier":
        """Search and train on private rows, for (epsilon, delta) in all."""
        fitted = copy.copy(self)  # an error leaves the earlier fit whole: it was paid for
        features, labels = validate_data(fitted, X, y, ensure_min_samples=2)
        check_classification_targets(labels)
        self._must_not_be_scaled_by_itself(features)
        declared = None if self.classes is None else np.unique(column_or_1d(self.classes)).tolist()
        names = tuple(getattr(fitted, "feature_names_in_", ()))
        data = Data(features, labels, classes=declared, column_names=names)
        delta = default_delta(data.count) if self.delta is None else self.delta
        result = tune(
            data,
            budget=Budget(self.epsilon, delta),
            balance=self.balance,
            ledger=self.ledger,
            seed=self._seed(),
            device=self.device,
        )
        fitted.guarantee_ = self._promise(result.guarantee, features)
        fitted.result_ = replace(result, model=replace(result.model, guarantee=fitted.guarantee_))
        fitted.trials_ = result.trials
        fitted.classes_ = np.asarray(data.classes)
        model = result.model.model
        assert isinstance(model, LinearModel)
        weights, constant = model.weights.numpy(), result.model.preprocessing.constant
        intercept = np.zeros(len(weights), np.float32)
        if constant:
            weights, intercept = weights[:, :-1], weights[:, -1] * np.float32(constant)
        fitted.coef_, fitted.intercept_ = _of_two(weights.T).T, _of_two(intercept)
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
        logits = _of_two(self.result_.model.decision_function(rows))
        return logits[:, 0] if len(self.classes_) == 2 else logits

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return validate.whole(0, random_state=self.random_state)
        try:
            return int(check_random_state(self.random_state).randint(2**31))
        except ValueError:
            raise InvalidInput(
                "random_state must be a whole number, a numpy RandomState or None; got "
                f"{self.random_state!r}."
            ) from None

    def _must_not_be_scaled_by_itself(self, features: NDArray[Any]) -> None:
        if not validate.flag(public_scaling=self.public_scaling) and (found := own_scale(features)):
            raise InvalidInput(
                f"{found} fitted on these very rows: nobody pays for such exact figures of private "
                "rows, and no guarantee would cover them. Scale by public rows or known ranges "
                "(docs/estimator.md); where that was done, say so with public_scaling=True."
            )

    def _promise(self, promise: Guarantee, features: NDArray[Any]) -> Guarantee:
        """What the study promises, and what must be said beside it."""
        if self.public_scaling:
            public = (*promise.public_facts, "the numbers that scale the columns, as declared")
            promise = replace(promise, public_facts=public)
        price = Price(promise.mu**2, promise.slack)
        return earlier_fits.beside(promise, earlier_fits.OF_THIS_PROCESS.add(features, price))

    def _rows(self, X: Any) -> NDArray[Any]:
        check_is_fitted(self)
        rows: NDArray[Any] = validate_data(self, X, reset=False)
        return rows


def _of_two(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Of two classes how far the second is ahead, along the last axis; of more, all of them."""
    return values[..., 1:] - values[..., :1] if values.shape[-1] == 2 else values
