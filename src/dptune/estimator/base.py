"""What private linear estimators have in common by scikit-learn's conventions: one `fit` is one
study with search and training, and has one guarantee."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.validation import check_is_fitted, validate_data

from dptune import own_code, validate
from dptune.accounting import Budget, Guarantee
from dptune.errors import InvalidInput
from dptune.estimator import earlier_fits
from dptune.estimator.own_scale import own_scale
from dptune.privacy import Price
from dptune.search.space import Space

if TYPE_CHECKING:  # what reads and trains takes seconds to load, so only fit and predict do
    from dptune.columns import Columns
    from dptune.data import Data, Preprocessing
    from dptune.estimator.rows import Rows
    from dptune.search.trial import Trial
    from dptune.study.config import Preparation
    from dptune.study.result import StudyResult

_USUAL_DELTA = 1e-5
FRESH = "it compares the predictions of two fits, and noise is fresh in every fit"


class DPLinearEstimator(BaseEstimator):  # type: ignore[misc]
    """`fit` runs a study. Subclasses make `Data` of rows and labels (`_data`), and list the
    parameters of a study in `__init__`, as scikit-learn wants them."""

    epsilon: float
    delta: float | None
    columns: "Mapping[str, Any] | Columns | None"
    ranges: Sequence[tuple[float, float]] | str | None
    range_share: float | str
    curves: int | str
    bias: bool
    space: Space | None
    recipe: Mapping[str, Any] | None
    ledger: str
    allow_large_epsilon: bool
    allow_large_delta: bool
    device: str
    random_state: int | np.random.RandomState | None
    public_scaling: bool

    guarantee_: Guarantee
    trials_: "tuple[Trial, ...]"
    result_: "StudyResult"

    def _keep(self, given: Mapping[str, Any]) -> None:
        """Keep every parameter under its name, unchecked until `fit`."""
        self.__dict__.update({name: value for name, value in given.items() if name != "self"})

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Search and train on private rows, for (epsilon, delta) in all."""
        from dptune.engines.linear import LinearEngine
        from dptune.study.config import default_delta
        from dptune.study.study import tune

        own_code.must_not_be_importing("fit")
        fitted = copy.copy(self)  # an error leaves the earlier fit whole: it was paid for
        rows, labels = fitted._read(X, y)
        compared = rows.compared()
        self._must_not_be_scaled_by_itself(rows.scales(compared))
        data = self._data(rows, labels)
        delta = min(_USUAL_DELTA, default_delta(data.count)) if self.delta is None else self.delta
        result = tune(
            data,
            budget=Budget(self.epsilon, delta),
            engine=LinearEngine(bias=self.bias),
            space=self._space(),
            preparation=self._preparation(),
            ledger=self.ledger,
            allow_large_epsilon=self.allow_large_epsilon,
            allow_large_delta=self.allow_large_delta,
            seed=self._seed(),
            device=self.device,
            **self._asked(data),
        )
        fitted.guarantee_ = self._promise(result.guarantee, compared)
        fitted.result_ = replace(result, model=replace(result.model, guarantee=fitted.guarantee_))
        fitted.trials_ = result.trials
        fitted._take(result)
        self.__dict__ = fitted.__dict__
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """A prediction for every row."""
        rows = self._rows(X)
        return self.result_.model.predict(rows)

    @property
    def _checks(self) -> dict[str, Any]:
        """What scikit-learn checks of labels in addition."""
        return {}

    def _data(self, rows: "Rows", labels: NDArray[Any]) -> "Data":
        raise NotImplementedError

    def _asked(self, data: "Data") -> dict[str, Any]:
        """Arguments of `tune` that a subclass may change."""
        if not isinstance(self.recipe, Mapping | None):
            raise InvalidInput(f"recipe must be fields of plans by name; got {self.recipe!r}.")
        return {"recipe": dict(self.recipe or {})}

    def _take(self, result: "StudyResult") -> None:
        """Set the attributes of the subclass from a result."""
        raise NotImplementedError

    def _read(self, X: Any, y: Any) -> "tuple[Rows, NDArray[Any]]":
        """Rows to learn from, and their labels; sets the names of columns."""
        from dptune.estimator.rows import labels_of_one_kind, must_be_numbers, must_have_rows

        must_have_rows(X)
        y = labels_of_one_kind(y)
        if self.columns is None:
            must_be_numbers(X)
            checked, labels = validate_data(
                self,
                X,
                y,
                accept_sparse="csr",
                ensure_all_finite=False,
                ensure_min_samples=2,
                **self._checks,
            )
            rows = self._numbers(checked)
        else:
            rows = self._table(X)
            validate_data(self, X, skip_check_array=True)  # which sets names
            labels = column_or_1d(y, warn=True)
            check_consistent_length(rows.features, labels)
        return rows, labels

    def _rows(self, X: Any) -> Any:
        """Rows to predict, as the model takes them."""
        from dptune.estimator.rows import must_be_numbers

        check_is_fitted(self)
        if self.columns is not None:
            return self._table(X).features
        must_be_numbers(X)
        checked = validate_data(self, X, accept_sparse="csr", ensure_all_finite=False, reset=False)
        return self._numbers(checked).features

    def _table(self, X: Any) -> "Rows":
        from dptune.estimator.rows import rows_of_columns

        if self.ranges is not None:
            raise InvalidInput("the ranges of declared columns stand in columns; leave ranges out.")
        assert self.columns is not None
        return rows_of_columns(X, self.columns)

    def _numbers(self, table: Any) -> "Rows":
        from dptune.estimator.rows import rows_of_numbers

        names = tuple(getattr(self, "feature_names_in_", ()))
        return rows_of_numbers(table, names, self.ranges)

    def _space(self) -> Space | None:
        if not isinstance(self.space, Space | None):
            raise InvalidInput(f"space must be a dptune.Space; got {self.space!r}.")
        return self.space

    def _preparation(self) -> "Preparation":
        from dptune.study.config import Preparation

        asked = Preparation(range_share=self.range_share, curves=self.curves)
        if self.ranges is None or isinstance(self.ranges, str):
            return asked
        return replace(asked, ranges=self.ranges)  # type: ignore[arg-type]  # it makes tuples

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
        if validate.flag(public_scaling=self.public_scaling) or not features.size:
            return
        if sign := own_scale(features):
            raise InvalidInput(
                f"{sign} fitted on these very rows: such exact statistics of private rows are not "
                "paid for, and no guarantee would cover them. Scale by public rows or known ranges "
                "(docs/guide/estimator.md); if you did that, say so with public_scaling=True."
            )

    def _promise(self, promise: Guarantee, compared: NDArray[Any]) -> Guarantee:
        """The guarantee of the study, with all caveats of this estimator."""
        if self.public_scaling:
            public = (*promise.public_facts, "the numbers that scale the columns, as declared")
            promise = replace(promise, public_facts=public)
        price = Price(promise.mu**2, promise.slack)
        return earlier_fits.add_earlier_fits(
            promise, earlier_fits.OF_THIS_PROCESS.add(compared, price)
        )


def _constant_of(preprocessing: "Preprocessing") -> float:
    """What stands beside prepared rows: as it comes out, the same in every row, or, where rows are
    scaled to unit length last, before that; 0 where there is none."""
    from dptune.data.row_maps import Append, Divide, UnitLength

    match preprocessing.maps[-2:]:
        case (_, Append(value)) | (Append(value), UnitLength()):
            return value
        case (Append(value), Divide(by)):
            return value / by
    return 0.0


def weights_and_intercept(
    result: "StudyResult",
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The weights of prepared rows without their constant column, one row an output; and what that
    column or the bias adds."""
    from dptune.engines.linear import LinearModel

    model, preprocessing = result.model.model, result.model.preprocessing
    assert isinstance(model, LinearModel)
    weights, constant = model.weights.numpy(), _constant_of(preprocessing)
    added: NDArray[np.float32] = np.zeros(len(weights), np.float32)
    if model.bias is not None:
        added = model.bias.numpy()
    if constant:
        added = np.asarray(added + weights[:, -1] * constant, np.float32)
        weights = weights[:, :-1]
    return weights, added
