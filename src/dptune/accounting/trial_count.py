"""The random number of trials of a sealed search: its distributions, and draws from them."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from functools import cached_property

from dptune import validate
from dptune.errors import InvalidInput
from dptune.privacy import RandomStopping

# Shapes of the named distributions; the Poisson distribution is the limit of a growing shape.
SHAPES = {"logarithmic": 0.0, "geometric": 1.0, "poisson": math.inf}
LARGEST_SHAPE = 1000.0
# Below gamma = exp(-500) the tail is so heavy that odds exceed double precision.
_LARGEST_LOG = 500.0
# The sampler's arithmetic: an error beyond 60 digits is negligible at every delta.
_EXACT = Context(prec=60, Emin=MIN_EMIN, Emax=MAX_EMAX)
_NEGLIGIBLE = Decimal("1e-58")


@dataclass(frozen=True, kw_only=True)
class TrialCount:
    """The distribution of the number of trials: truncated negative binomial on 1, 2, ... with
    `shape` above -1, where 1 is geometric and 0 logarithmic; or, for an infinite shape, Poisson."""

    mean: float
    shape: float

    def __post_init__(self) -> None:
        mean = validate.strictly_between(1, 1e9, mean=self.mean)
        shape = self.shape
        if shape != math.inf:
            shape = validate.strictly_between(-1, LARGEST_SHAPE, shape=shape)
            shape = 0.0 if abs(shape) < 1e-15 else shape  # the same in double precision
        validate.store(self, mean=mean, shape=shape)
        if shape != math.inf and self._mean_at(_LARGEST_LOG) < mean:
            raise InvalidInput(
                f"a mean of {mean:g} trials with shape {shape:g} has too heavy a tail for double "
                "precision; use a shape farther from -1 or a smaller mean."
            )

    @staticmethod
    def named(distribution: str, mean: float, shape: float | None = None) -> "TrialCount":
        """The distribution by its name in a `RandomStopping` event; only one name needs a shape."""
        if distribution in SHAPES:
            return TrialCount(mean=mean, shape=SHAPES[distribution])
        if shape is None:
            raise InvalidInput(
                f"a {distribution} number of trials needs a shape; got none. Give a shape above -1."
            )
        return TrialCount(mean=mean, shape=shape)

    @staticmethod
    def of(search: RandomStopping) -> "TrialCount":
        """The number of trials of a sealed search."""
        return TrialCount.named(search.distribution, search.expected_trials, search.shape)

    @property
    def is_poisson(self) -> bool:
        return self.shape == math.inf

    @property
    def gamma(self) -> float:
        """The parameter that gives the mean; for a geometric distribution, the probability of
        stopping after each trial."""
        return math.exp(-self.log_inverse_gamma)

    @property
    def odds(self) -> float:
        """The odds of gamma: gamma / (1 - gamma)."""
        return 1.0 / math.expm1(self.log_inverse_gamma)

    @cached_property
    def log_inverse_gamma(self) -> float:
        if self.is_poisson:
            raise InvalidInput(
                "gamma of a Poisson number of trials was requested, which has only a mean; use "
                "`mean`."
            )
        low, high = 1e-30, _LARGEST_LOG
        while low < (middle := math.sqrt(low * high)) < high:  # the mean grows with -log(gamma)
            low, high = (middle, high) if self._mean_at(middle) < self.mean else (low, middle)
        return high

    def _mean_at(self, log_inverse_gamma: float) -> float:
        return math.expm1(log_inverse_gamma) / self._span(log_inverse_gamma)

    def _span(self, log_inverse_gamma: float) -> float:
        """(1 - gamma^shape) / shape, or its limit for shape 0."""
        if self.shape == 0:
            return log_inverse_gamma
        return -math.expm1(-self.shape * log_inverse_gamma) / self.shape

    def derivative(self, x: float) -> float:
        """The derivative f'(x) of the generating function f(x) = E[x^K]."""
        if self.is_poisson:
            return self.mean * math.exp(self.mean * (x - 1.0))
        gamma = self.gamma
        return self.mean * math.pow(gamma / (gamma * x + (1.0 - x)), self.shape + 1.0)

    def probability(self, count: int) -> float:
        """P[K = count]."""
        count = validate.whole(0, count=count)
        for at, probability in self._probabilities():
            if at >= count:
                return float(probability) if at == count else 0.0
        raise AssertionError  # the recurrence has no end

    def draw(self, uniform: Callable[[], float]) -> int:
        """Draw a number of trials by inversion.

        `uniform` is called three times. It must return independent multiples of 2^-53 in [0, 1),
        for example `random.SystemRandom().random`.

        Guarantees: the distribution differs from the accounted one by at most 1e-45 in total
        variation. One double alone would leave 1e-16, which large epsilons multiply.
        """
        point = Decimal(0)
        for scale in (1, 2**53, 2**106):
            digits = uniform()
            if not 0.0 <= digits < 1.0:
                raise InvalidInput(f"uniform() must return numbers in [0, 1); got {digits!r}.")
            point = _EXACT.add(point, _EXACT.divide(Decimal(digits), Decimal(scale)))
        for count, probability in self._probabilities():
            point = _EXACT.subtract(point, probability)
            if point < 0 or (count > self.mean and probability < _NEGLIGIBLE):
                return count
        raise AssertionError  # the recurrence has no end

    def _probabilities(self) -> Iterator[tuple[int, Decimal]]:
        """All counts and their probabilities, computed by recurrence."""
        if self.is_poisson:
            count, continuing, shape = 0, Decimal(self.mean), Decimal(0)
            probability = _EXACT.exp(-continuing)
        else:
            log_inverse, shape = Decimal(self.log_inverse_gamma), Decimal(self.shape)
            continuing = _EXACT.subtract(Decimal(1), _EXACT.exp(-log_inverse))
            count, span = 1, log_inverse
            if shape:
                growth = _EXACT.exp(_EXACT.multiply(shape, log_inverse))
                span = _EXACT.divide(_EXACT.subtract(growth, Decimal(1)), shape)
            probability = _EXACT.divide(continuing, span)
        while True:
            yield count, probability
            grown = continuing if self.is_poisson else _EXACT.multiply(continuing, count + shape)
            count += 1
            probability = _EXACT.divide(_EXACT.multiply(probability, grown), Decimal(count))
