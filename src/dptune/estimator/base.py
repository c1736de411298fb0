"""What private linear estimators have in common by scikit-learn's conventions: one `fit` is one
study, search and training, and says what it promises."""

import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state
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

FRESH = "it compares the predictions of two fits, and noise is fresh in every fit"


class DPLinearEstimator(BaseEstimator):  # type: ignore[misc]
    """A study by `fit`, for subclasses that make `Data` of features and labels (`_data`), and name
    in `__init__` what every study is asked: epsilon, delta, ledger, device, random_state,
    public_scaling."""

    epsilon: float
    delta: float | None
    ledger: str
    device: str
    random_state: int | np.random.RandomState | None
    public_scaling: bool
    guarantee_: Guarantee
    trials_: tuple[Trial, ...]
    result_: StudyResult

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Search and train on private rows, for (epsilon, delta) in all."""
        fitted = copy.copy(self)  # an error leaves the earlier fit whole: it was paid for
        features, labels = validate_data(fitted, X, y, ensure_min_samples=2, **self._checks)
        names = tuple(getattr(fitted, "feature_names_in_", ()))
        self._must_not_be_scaled_by_itself(features)
        data = self._data(features, labels, names)
        delta = default_delta(data.count) if self.delta is None else self.delta
        result = tune(
            data,
            budget=Budget(self.epsilon, delta),
            ledger=self.ledger,
            seed=self._seed(),
            device=self.device,
            **self._asked,
        )
        fitted.guarantee_ = self._promise(result.guarantee, features)
        fitted.result_ = replace(result, model=replace(result.model, guarantee=fitted.guarantee_))
        fitted.trials_ = result.trials
        fitted._take(result)
        self.__dict__ = fitted.__dict__
        return self

    @property
    def _checks(self) -> dict[str, Any]:
        """What scikit-learn is to check of labels, beside the rest."""
        return {}

    @property
    def _asked(self) -> dict[str, Any]:
        """Of `tune`, what is the subclass's own."""
        return {}

    def _data(self, features: NDArray[Any], labels: NDArray[Any], names: tuple[str, ...]) -> Data:
        raise NotImplementedError

    def _take(self, result: StudyResult) -> None:
        """Keep what the subclass shows of a result."""
        raise NotImplementedError

    def predict(self, X: Any) -> NDArray[Any]:
        """What the model says of every row."""
        rows = self._rows(X)
        return self.result_.model.predict(rows)

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


def weights_and_intercept(result: StudyResult) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Of prepared rows, one row an output, before a constant is put beside them; and what that
    adds."""
    model, preprocessing = result.model.model, result.model.preprocessing
    assert isinstance(model, LinearModel)
    weights, constant = model.weights.numpy(), preprocessing.constant_beside
    if not constant:
        return weights, np.zeros(len(weights), np.float32)
    return weights[:, :-1], weights[:, -1] * np.float32(constant)
