"""What epsilon becomes where a row is exchanged for another, not just emptied."""

import math

from scipy.special import ndtr, ndtri

from dptune import gdp
from dptune.accounting.bounds import Sealed, gaussian_bound, sealed_bound, trial_steps_and_mu
from dptune.errors import UnpricedEvent
from dptune.privacy import Price, RandomStopping


def replace_one_epsilon(spent: Price, delta: float) -> float:
    """An epsilon that also holds when a row is exchanged for another, not just emptied.

    Two zero-out steps lead from one to the other, so mu doubles (Dong, Roth & Su 2022, Thm 2.14).
    The failure is passed twice, the second time through a mu-GDP test: with h(a) = (1-s)
    Phi(PhiInv(a/(1-s)) + mu), concave and so subadditive, the failures add up to s + h(s).
    """
    s = spent.slack
    failures = s + (1 - s) * float(ndtr(ndtri(s / (1 - s)) + spent.mu)) if 0 < s < 0.5 else 2 * s
    left = delta - failures
    if left <= gdp.SMALLEST_DELTA or 2 * spent.mu > gdp.LARGEST_MU:
        return math.inf
    return gdp.epsilon_from_mu(2 * spent.mu, left)


def replace_one_sealed_epsilon(search: Sealed, delta: float) -> float:
    """The same for a sealed search that is alone.

    Trials that are mu-GDP are 2 mu-GDP then, and the search is bounded from that; densities they
    draw settings from depend on outputs alone. Else it is group privacy of the search: 2 epsilon
    at delta1 (1 + e^epsilon), for a delta1 that keeps this below delta.
    """
    if isinstance(search, RandomStopping):
        steps, mu = trial_steps_and_mu(search)
        if not steps:
            over = 2 * mu > gdp.LARGEST_MU
            return math.inf if over else gaussian_bound(search, 2 * mu, delta).epsilon
    guess, least = 2 * sealed_bound(search, delta).epsilon, math.inf
    for _ in range(2):  # an epsilon that holds is a better guess
        if guess > 100:
            break
        try:
            bound = sealed_bound(search, delta / (1 + math.exp(guess))).epsilon
        except UnpricedEvent:
            break
        if bound > guess:
            break
        guess = least = bound
    return 2 * least
