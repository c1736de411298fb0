"""A private linear classifier by scikit-learn's conventions: search and training in one `fit`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from dptune.errors import InvalidInput
from dptune.estimator.base import FRESH, DPLinearEstimator, weights_and_intercept
from dptune.estimator.class_weights import decide_balance, declared_weights
from dptune.search.space import Space

if TYPE_CHECKING:
    from dptune.columns import Columns
    from dptune.data import Data
    from dptune.estimator.rows import Rows
    from dptune.study.result import StudyResult

EXPECTED_FAILED_CHECKS = {
    "check_classifier_data_not_an_array": FRESH,
    "check_fit_idempotent": FRESH,
    "check_supervised_y_2d": FRESH,
}
"""Checks of scikit-learn that contradict what dptune promises; for its `check_estimator` and
`parametrize_with_checks`, with `public_scaling=True` and `classes="public"` because their rows and
labels are public."""


class DPLinearClassifier(ClassifierMixin, DPLinearEstimator):  # type: ignore[misc]
    """A differentially private linear classifier on rows scaled to unit length.

    `epsilon` and `delta` are the total for one `fit`: its search for hyperparameters, every score
    that the search compares, and the model. The next `fit` on the same rows spends as much again,
    and so does every fold and candidate of `cross_val_score`, `GridSearchCV` or `learning_curve`:
    `guarantee_` says what fits of this process that share rows cost together. With a ledger, a
    `fit` that exceeds its budget, or on rows that it does not know, is refused.

    A `fit` that raises leaves an earlier one as it was.

    Args:
        epsilon: the budget of one `fit`.
        delta: the same. Default: 1e-5, or one in ten times the number of rows if that is less.
        classes: all classes; "paid" estimates their names privately, "public" takes those that
            occur. Default: "paid" for texts, "public" for numbers.
        columns: what the columns of a frame hold, by name, as in `Data.from_columns`: numbers,
            categories, dates, gaps. Default: all are numbers.
        ranges: (low, high) of every column, from general knowledge, if all are numbers; "paid"
            estimates them privately within the same budget.
        range_share: which share of the budget, of mu squared, estimates undeclared ranges; 0 for
            none, "auto" for as much as they are worth.
        curves: the degree of polynomial features of columns that have a range; 1 for none, "auto"
            for as high a degree as the rows allow.
        bias: whether every row has a constant feature of 1 with a weight of its own.
        balance: "classes" to make every class count alike, however rare; "none" for every row.
        class_weight: "balanced" is the same as balance="classes"; or weights by class, from general
            knowledge, of which only the ratios count.
        space: a `Space`: where to look for learning rate and steps.
        recipe: fields of every `TrainPlan` that are not searched.
        ledger: address of the ledger to pay from. Default: spending is not recorded.
        allow_large_epsilon: accept an epsilon above 20.
        allow_large_delta: accept a delta above one in the number of rows.
        device: cpu or cuda.
        random_state: for public choices of the search only. Noise is fresh in every `fit`, or it
            could be subtracted.
        public_scaling: say True if the scale of the columns comes from public numbers. Otherwise
            rows that look scaled by their own mean or range are refused.

    Attributes:
        guarantee_: the promise for everything the fitted estimator holds.
        trials_: every trial of the search, with its noisy score.
        result_: the `StudyResult`: the model and all other paid outputs, such as `result_.check`.
        classes_: labels, sorted, in the order of the columns of `predict_proba`.
        n_features_in_: the number of columns.
        feature_names_in_: their names, if `X` had any.
        coef_: weights of prepared rows (`result_.model.preprocessing`) without their constant
            column: one row a class; for two classes one row, of the second against the first.
            One column for every feature that `X` becomes, and one more if the length of rows is
            kept in one.
        intercept_: one number for each row of `coef_`, to be added: what the constant column or the
            bias adds. 0 if there is neither.

    """

    classes: Sequence[Any] | str | None
    balance: str
    class_weight: Mapping[Any, float] | str | None

    classes_: NDArray[Any]
    coef_: NDArray[np.float32]
    intercept_: NDArray[np.float32]

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        classes: Sequence[Any] | str | None = None,
        columns: "Mapping[str, Any] | Columns | None" = None,
        ranges: Sequence[tuple[float, float]] | str | None = None,
        range_share: float | str = "auto",
        curves: int | str = "auto",
        bias: bool = False,
        balance: str = "none",
        class_weight: Mapping[Any, float] | str | None = None,
        space: Space | None = None,
        recipe: Mapping[str, Any] | None = None,
        ledger: str = "",
        allow_large_epsilon: bool = False,
        allow_large_delta: bool = False,
        device: str = "cpu",
        random_state: int | np.random.RandomState | None = 0,
        public_scaling: bool = False,
    ) -> None:
        self._keep(locals())

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # on the few rows that scikit-learn checks with
        return tags

    def _data(self, rows: "Rows", labels: NDArray[Any]) -> "Data":
        from dptune.data.classes import explain_no_classes

        check_classification_targets(labels)
        if self.classes is None and (reason := explain_no_classes(labels)):
            raise InvalidInput(
                f"{reason}. If there are other classes, give all of them: classes=[...]; if these "
                "are values, use DPLinearRegressor(target_range=(low, high))."
            )
        declared = self.classes
        if declared is not None and not isinstance(declared, str):
            declared = np.unique(column_or_1d(declared)).tolist()
        return rows.data(labels, classes=declared)

    def _asked(self, data: "Data") -> dict[str, Any]:
        asked = super()._asked(data) | {"balance": decide_balance(self.class_weight, self.balance)}
        weights = declared_weights(self.class_weight, data.classes)
        if weights is not None:
            if "class_weights" in asked["recipe"]:
                raise InvalidInput(
                    "class_weight is also in the recipe, as class_weights; give one."
                )
            asked["recipe"]["class_weights"] = weights
        return asked

    def _take(self, result: "StudyResult") -> None:
        self.classes_ = np.asarray(result.model.classes)
        weights, intercept = weights_and_intercept(result)
        self.coef_, self.intercept_ = _reduce_two(weights.T).T, _reduce_two(intercept)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """A share for every class, in the order of `classes_`, which add up to 1.

        Rank rows by them; do not read them as frequencies. Clipping and noise scale the logits, so
        shares are often far too close to 0 or 1. Calibrate them on public rows if you need
        frequencies.
        """
        rows = self._rows(X)
        return self.result_.model.predict_proba(rows)

    def decision_function(self, X: Any) -> NDArray[np.float32]:
        """The logit of every class; for two classes, that of the second minus that of the
        first."""
        rows = self._rows(X)
        logits = _reduce_two(self.result_.model.decision_function(rows))
        return logits[:, 0] if len(self.classes_) == 2 else logits


def _reduce_two(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Along the last axis: for two classes, the second minus the first; for more, all of them."""
    return values[..., 1:] - values[..., :1] if values.shape[-1] == 2 else values
