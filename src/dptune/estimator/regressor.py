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
"""The same for `DPLinearRegressor`, with `public_scaling=True` and a `target_range`, which
scikit-learn's checks do not know of."""


class DPLinearRegressor(RegressorMixin, DPLinearEstimator):  # type: ignore[misc]
    """A differentially private linear regression: least squares on rows that are clipped to a
    typical length.

    What one `fit` spends, and all other arguments and attributes, are as for `DPLinearClassifier`.

    Args:
        target_range: (low, high) that targets lie between, from general knowledge and not from the
            rows; those outside are clipped to it. It must be given: the smallest and the largest
            target are the values of two people, and the noise is in proportion to the range.

    Attributes:
        result_: as for the classifier; `result_.check` has a noisy root mean squared error on the
            training rows.
        coef_: weights of prepared rows, in units of the target.
        intercept_: one number, to be added.

    """

    target_range: tuple[float, float] | None

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
        self._keep(locals())

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
                "target_range is missing: the smallest and the largest target in these rows are "
                "the values of two people, so they are never taken from the rows. Give (low, high) "
                "that such a target lies between in general: "
                "DPLinearRegressor(target_range=(0, 20000))."
            )
        return rows.data(labels, task="values", target_range=self.target_range)

    def _take(self, result: "StudyResult") -> None:
        weights, intercept = weights_and_intercept(result)
        low, high = result.model.target_range or (-1.0, 1.0)
        half, middle = np.float32((high - low) / 2), np.float32((high + low) / 2)
        self.coef_, self.intercept_ = weights[0] * half, intercept[0] * half + middle
