"""An adversary who chooses the score of a sealed search, and sees the winner alone."""

import math
from collections.abc import Callable, Iterator

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

POISSON = math.inf  # the shape of a Poisson number of trials


class Adversary:
    """Two neighbours' trials on a line of cells, and any order of the cells as the score.

    Cells merge outcomes, so what is found is a lower bound on what the search reveals. The winner's
    distribution is exact: it lies in the cells up to one with probability f(P[cells up to it]).
    """

    def __init__(self, one: np.ndarray, other: np.ndarray, mean: float, shape: float) -> None:
        self.one, self.other = one, other
        self.generating = by_formula(mean, shape)[1]
        self.nothing = float(self.generating(np.array(0.0)))

    def _winner(self, masses: np.ndarray, order: np.ndarray) -> np.ndarray:
        up_to = np.minimum(np.cumsum(masses[order]), 1.0)
        return np.diff(self.generating(up_to), prepend=self.nothing)

    def epsilon(self, order: np.ndarray, delta: float) -> float:
        """The largest epsilon at which the winner reveals more than delta, in either direction."""
        one, other = self._winner(self.one, order), self._winner(self.other, order)
        found = 0.0
        for first, second in ((one, other), (other, one)):
            low, high = 0.0, 40.0
            for _ in range(45):
                middle = (low + high) / 2
                shown = np.maximum(first - math.exp(middle) * second, 0).sum()
                low, high = (middle, high) if shown > delta else (low, middle)
            found = max(found, low)
        return found

    def orders(self, seed: int) -> Iterator[np.ndarray]:
        """Cells are sorted by likelihood ratio. The dangerous winner is typical of one neighbour,
        and so is what it beats: it stands between those and the rest."""
        cells = np.arange(self.one.size)
        yield from (cells, cells[::-1])
        for direction in (cells, cells[::-1]):
            masses = self.one[direction]
            tail = np.cumsum(masses)
            for share in (1e-7, 1e-6, 1e-5, 1e-3):
                winners = direction[: np.searchsorted(tail, share) + 1]
                for below in (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95):
                    end = max(np.searchsorted(tail, below), winners.size)
                    beaten, rest = direction[winners.size : end], direction[end:]
                    yield np.concatenate([beaten, winners, rest])
                    yield np.concatenate([rest, winners, beaten])
        chance = np.random.default_rng(seed)
        for _ in range(60):  # cells at random, then a few blocks at random
            yield chance.permutation(cells)
            cuts = np.sort(chance.choice(cells[1:], size=4, replace=False))
            blocks = np.split(cells, cuts)
            yield np.concatenate([blocks[i] for i in chance.permutation(5)])

    def found(self, delta: float, seed: int = 7) -> float:
        return max(self.epsilon(order, delta) for order in self.orders(seed))


def cells_of(mu: float) -> tuple[np.ndarray, np.ndarray]:
    """N(0,1) and N(mu,1) on 1,500 cells; differences are taken in whichever tail is the smaller."""
    ends = np.concatenate([[-np.inf], np.linspace(-7, 7 + mu, 1_499), [np.inf]])

    def masses(shift: float) -> np.ndarray:
        at = ends - shift
        return np.where(at[1:] < 0, np.diff(norm.cdf(at)), -np.diff(norm.sf(at)))

    return masses(0.0), masses(mu)


def by_formula(mean: float, shape: float) -> tuple[float, Callable[[np.ndarray], np.ndarray]]:
    """gamma and the generating function, from the textbook and not from `sealed`."""
    if shape == POISSON:
        return math.nan, lambda x: np.exp(mean * (x - 1))

    def excess(gamma: float) -> float:
        if shape == 0:
            return (1 / gamma - 1) / math.log(1 / gamma) - mean
        return shape * (1 - gamma) / (gamma * (1 - gamma**shape)) - mean

    gamma = brentq(excess, 1e-12, 1 - 1e-9, xtol=1e-16, rtol=1e-15)
    if shape == 0:
        return gamma, lambda x: np.log1p(-(1 - gamma) * x) / math.log(gamma)
    scale = gamma**-shape - 1
    return gamma, lambda x: ((1 - (1 - gamma) * x) ** -shape - 1) / scale
