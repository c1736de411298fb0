"""A private linear regression by scikit-learn's conventions: search and training in one `fit`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils import Tags

from dptune.errors import InvalidInput
from dptune.estimator.base import FRESH, DPLinearEstimator, weights_and_intercept
from dptune.search.space import Space

if TYPE_CHECKING:
    from dptune.columns import Columns
    from dptune.data import Data
    from dptune.estimator.rows import Rows
    from dptune.study.result import StudyResult

EXPECTED_FAILED_CHECKS_OF_VALUES = {
    "check_fit_idempotent": FRESH,
    "check_regressor_data_not_an_array": FRESH,
    "check_regressors_int": FRESH,
    "check_supervised_y_2d": FRESH,
}
"""The same of `DPLinearRegressor`, with `public_scaling=True` and a `target_range`, which
scikit-learn's checks do not know of."""


class DPLinearRegressor(RegressorMixin, DPLinearEstimator):  # type: ignore[misc]
    """A linear regression, differentially private as a whole: least squares on rows that are cut to
    a usual length.

    What one `fit` spends, and what the next does, is as for `DPLinearClassifier`.

    Args:
        target_range: (low, high) that targets lie between, from general knowledge and not from the
            rows; those outside are clipped to it. It must be given: the smallest and the largest
            target are two people's values, and the noise is in proportion to the range.
        epsilon: the budget of one `fit`.
        delta: the same; by default 1e-5, or one in ten times the number of rows where that is less.
        columns: what the columns of a frame hold, by name; without it, all are numbers.
        ranges: (low, high) of every column, from knowledge, where all are numbers; "paid" to buy
            them from the same budget.
        range_share: which share of the budget, of mu squared, buys ranges that nobody declared; 0
            for none, "auto" for as much as they are worth.
        curves: of which degree the model draws curves over columns that have a range; 1 for
            straight lines, "auto" for as high a one as the rows bear.
        bias: whether there is a weight that every row sees as 1.
        space: a `Space`: where to look for learning rate and steps.
        recipe: fields of every `TrainPlan` that are not searched.
        ledger: address of the ledger to pay from; by default nothing is kept of what was spent.
        allow_large_epsilon: accept an epsilon above 20.
        allow_large_delta: accept a delta above one in the number of rows.
        device: cpu or cuda.
        random_state: for public choices of the search only. Noise is fresh in every `fit`, or it
            could be subtracted.
        public_scaling: say True where the scale of the columns comes from numbers that are nobody's
            secret. Otherwise rows that look scaled by their own mean or range are refused.

    Attributes:
        guarantee_: the promise for everything the fitted estimator holds.
        trials_: every trial of the search, with its noisy score.
        result_: the `StudyResult`: the model and what else was paid for, such as `result_.check`,
            which has a noisy root mean squared error on the training rows.
        n_features_in_: the number of columns.
        feature_names_in_: their names, where `X` had any.
        coef_: weights of prepared rows (`result_.model.preprocessing`), before a constant is put
            beside them, in units of the target.
        intercept_: one number, to be added.

    """

    coef_: NDArray[np.float32]
    intercept_: np.float32

    def __init__(
        self,
        target_range: tuple[float, float] | None = None,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        columns: "Mapping[str, Any] | Columns | None" = None,
        ranges: Sequence[tuple[float, float]] | str | None = None,
        range_share: float | str = "auto",
        curves: int | str = "auto",
        bias: bool = False,
        space: Space | None = None,
        recipe: Mapping[str, Any] | None = None,
        ledger: str = "",
        allow_large_epsilon: bool = False,
        allow_large_delta: bool = False,
        device: str = "cpu",
        random_state: int | np.random.RandomState | None = 0,
        public_scaling: bool = False,
    ) -> None:
        self.target_range = target_range
        self.epsilon = epsilon
        self.delta = delta
        self.columns = columns
        self.ranges = ranges
        self.range_share = range_share
        self.curves = curves
        self.bias = bias
        self.space = space
        self.recipe = recipe
        self.ledger = ledger
        self.allow_large_epsilon = allow_large_epsilon
        self.allow_large_delta = allow_large_delta
        self.device = device
        self.random_state = random_state
        self.public_scaling = public_scaling

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # on the few rows that scikit-learn checks with
        return tags

    @property
    def _checks(self) -> dict[str, Any]:
        return {"y_numeric": True}

    def _data(self, rows: "Rows", labels: NDArray[Any]) -> "Data":
        if self.target_range is None:
            raise InvalidInput(
                "target_range is missing: the ends of the target in these rows are two people's "
                "values, so they are never taken from the rows. Give (low, high) that such a "
                "target lies between in general: DPLinearRegressor(target_range=(0, 20000))."
            )
        return rows.data(labels, task="values", target_range=self.target_range)

    def _take(self, result: "StudyResult") -> None:
        weights, intercept = weights_and_intercept(result)
        low, high = result.model.target_range or (-1.0, 1.0)
        half, middle = np.float32((high - low) / 2), np.float32((high + low) / 2)
        self.coef_, self.intercept_ = weights[0] * half, intercept[0] * half + middle
