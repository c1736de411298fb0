"""A total (epsilon, delta), and the mu^2 that fits in it."""

from dataclasses import dataclass
from functools import cached_property

from dptune import gdp, validate


@dataclass(frozen=True)
class Budget:
    """A total (epsilon, delta) for everything that touches the data.

    >>> round(Budget(1.0, 1e-5).mu, 6)
    0.268051
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        epsilon = validate.positive(epsilon=self.epsilon, at_most=gdp.LARGEST_EPSILON)
        delta = validate.strictly_between(gdp.SMALLEST_DELTA, 1, delta=self.delta)
        validate.store(self, epsilon=epsilon, delta=delta)

    @cached_property
    def mu(self) -> float:
        """The same budget as a Gaussian DP parameter, rounded down."""
        return gdp.mu_from_epsilon(self.epsilon, self.delta)

    def mu_squared(self, slack: float = 0.0) -> float:
        """The mu^2 that fits after failure probabilities of `slack` in total are taken off delta;
        0 where they use all of it."""
        if slack == 0.0:
            return self.mu * self.mu
        delta = delta_beside(slack, self.delta)
        return gdp.mu_from_epsilon(self.epsilon, delta) ** 2 if delta > 0 else 0.0


def delta_beside(slack: float, delta: float) -> float:
    """The delta left for the Gaussian part: delta = slack + (1 - slack) * this, rounded down."""
    return (delta - slack) / (1.0 - slack) * (1.0 - 1e-15) if slack < 1.0 else 0.0
