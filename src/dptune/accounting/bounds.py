"""The price of a sealed search: the tightest bound we know when it is the only event, and a
dominating Gaussian when it is composed with others. The mathematics is in `sealed` and `subset`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.special import erfinv, expit, ndtri

from dptune import gdp, rounding, validate
from dptune.accounting import sampled, sealed, subset
from dptune.accounting.composition import flatten, sampled_and_gaussian
from dptune.accounting.renyi import RenyiCurve, rdp_epsilon, renyi_curve
from dptune.accounting.trial_count import TrialCount
from dptune.errors import UnpricedEvent
from dptune.privacy import Event, Parallel, RandomStopping, SampledRun, SubsetSearch

Sealed = RandomStopping | SubsetSearch


@dataclass(frozen=True)
class SealedBound:
    """The smallest epsilon we can prove for a sealed search, its proof, and the published bound."""

    epsilon: float
    accountant: str
    published: float  # infinite where Renyi DP gives no bound
    source: str = "Papernot & Steinke 2022"

    @property
    def remark(self) -> str:
        published = (
            f"is epsilon {rounding.cost(self.published)}; both bounds hold, and the guarantee "
            "states the smaller one (docs/design/accounting.md)"
        )
        if math.isinf(self.published):
            published = "gives no bound here"
        elif self.published == self.epsilon:
            published = "is the one used"
        return f"the published bound (Renyi DP, {self.source}) {published}"


class SearchTooRevealing(UnpricedEvent):
    """A sealed search whose trials have too little noise to be bounded."""

    def __init__(self) -> None:
        super().__init__(
            "a sealed search with so little noise, or at so small a delta, cannot be priced; add "
            "noise to its trials, take fewer steps, or use a larger delta or slack."
        )


@lru_cache(maxsize=1024)  # a ledger needs it again for every statement
def sealed_bound(search: Sealed, delta: float) -> SealedBound:
    """The tightest bound we know for a sealed search as the only event: our own or the published.

    Bounds by privacy profiles (Koskela, Redberg & Wang 2024) are never below the ratio bound, so
    they are not computed.
    """
    delta = validate.strictly_between(0, 1, delta=delta)
    if isinstance(search, SubsetSearch):
        return _subset_bound(search, delta)
    steps, mu = trial_steps_and_mu(search)
    if not steps:
        return gaussian_bound(search, mu, delta)
    if (ratio := search.density_ratio) is not None:
        return _adaptive_bound(search, ratio, renyi_curve(search.trial), delta)
    trials, (trial, by_ratio) = TrialCount.of(search), _ratio_bound(search, delta)
    try:
        if trials.is_poisson and trial is None:
            published = rdp_epsilon([search], delta)
        else:
            renyi = renyi_curve(search.trial)
            published = sealed.renyi_epsilon(trials, renyi, delta, trial=trial)
    except UnpricedEvent:
        published = math.inf
    return _random_stopping_bound(by_ratio, published)


@lru_cache(maxsize=1024)  # a study is calibrated again when it is resumed
def quick_epsilon(search: Sealed, delta: float) -> float:
    """Epsilon without Renyi DP of sampled runs, which takes a second and is rarely the smaller."""
    match search:
        case RandomStopping(density_ratio=None) if trial_steps_and_mu(search)[0]:
            return _ratio_bound(search, delta)[1]
    return sealed_bound(search, delta).epsilon


def composable_mu(search: Sealed, slack: float) -> float:
    """A mu such that G_mu dominates a sealed search, except with failure probability `slack`.

    It follows from the whole privacy profile. Where we know only one point of the profile, it is
    the mu whose trade-off curve passes through the corner of randomised response, which dominates
    every (epsilon, slack)-DP mechanism.
    """
    mu = _randomized_response_mu(sealed_bound(search, slack).epsilon)
    if not math.isfinite(mu):
        raise SearchTooRevealing
    try:
        if isinstance(search, SubsetSearch):
            ratios = _likelihood_ratios(_dominating_pair(search, slack), slack)
        else:
            ratios = _likelihood_ratios(_full_batch_search(search), slack)
        return min(mu, ratios.curve().mu(slack))
    except UnpricedEvent:  # the trials are sampled, or the profile is too far from Gaussian
        return mu


def _randomized_response_mu(epsilon: float) -> float:
    """The mu with Phi(-mu/2) = 1 / (1 + e^epsilon)."""
    if epsilon < 1:  # near one half the quantile loses digits
        return math.sqrt(8) * float(erfinv(math.tanh(epsilon / 2)))
    return -2 * float(ndtri(expit(-epsilon)))


def lone_search(events: Sequence[Event]) -> Sealed | None:
    """The sealed search if it is the only event, else None."""
    match flatten(events):
        case [RandomStopping() | SubsetSearch() as search]:
            return search
    return None


def _ratio_bound(
    search: RandomStopping, delta: float
) -> tuple[sealed.SampledMechanism | None, float]:
    """One trial with sampled runs, and epsilon by the ratio bound (infinite if it has none)."""
    trials, (steps, mu) = TrialCount.of(search), trial_steps_and_mu(search)
    try:
        # Truncated tails are small against delta / mean, the smallest delta we evaluate.
        curve = sampled.trade_off(steps, gaussian_mu=mu, failure=delta / trials.mean)
        trial = sealed.SampledMechanism(curve)
        return trial, sealed.ratio_epsilon(trials, trial, delta)
    except UnpricedEvent:
        return None, math.inf


def gaussian_bound(search: RandomStopping, mu: float, delta: float) -> SealedBound:
    """The bound of `search` if its trials were mu-GDP."""
    if mu > gdp.LARGEST_MU:
        raise SearchTooRevealing
    if (ratio := search.density_ratio) is not None:
        curve = RenyiCurve.gaussian(_above_zero(mu))
        return _adaptive_bound(search, ratio, curve, delta)
    trials = TrialCount.of(search)
    by_ratio, published = (
        sealed.gaussian_epsilon(trials, mu, delta, bound) for bound in ("ratio", "renyi")
    )
    return _random_stopping_bound(by_ratio, published)


def _random_stopping_bound(by_ratio: float, published: float) -> SealedBound:
    return _smaller_bound(
        SealedBound(
            by_ratio,
            "the ratio of trade-off curves, for the best of a random number of trials",
            published,
        ),
        "Renyi DP of a random number of trials",
    )


def _adaptive_bound(
    search: RandomStopping, density_ratio: float, trial: RenyiCurve, delta: float
) -> SealedBound:
    trials = TrialCount.of(search)
    epsilon = sealed.adaptive_epsilon(trials, trial, delta, density_ratio=density_ratio)
    if epsilon == math.inf:
        raise SearchTooRevealing
    accountant = "Renyi DP of a random number of trials that learn from earlier ones (DP-HyPO)"
    return SealedBound(epsilon, accountant, epsilon, "Wang et al. 2023")


def _subset_bound(event: SubsetSearch, delta: float) -> SealedBound:
    search, final_mu = _search_and_final_mu(event)
    rate, disjoint = event.sampling_rate, event.disjoint
    orders = np.arange(2.0, subset.LARGEST_ORDER + 1)
    first, second = search.renyi(orders), sealed.GaussianMechanism(final_mu).renyi(orders)
    renyi = subset.renyi_divergences(first, second, sampling_rate=rate, disjoint=disjoint)
    published = RenyiCurve(*renyi).epsilon(delta)
    rows = "the other rows" if disjoint else "all rows"
    accountant = f"a dominating pair for a search on a secret sample and a final run on {rows}"
    ours = _dominating_pair(event, delta).epsilon(delta)
    return _smaller_bound(
        SealedBound(ours, accountant, published, "Koskela & Kulkarni 2023"),
        "Renyi DP of a search on a secret sample and a final run",
    )


def _dominating_pair(event: SubsetSearch, delta: float) -> subset.DominatingPair:
    """The dominating pair of search and final run, for evaluation at `delta`."""
    search, final_mu = _search_and_final_mu(event)
    return subset.DominatingPair.of(
        _likelihood_ratios(search, delta),
        final_mu,
        sampling_rate=event.sampling_rate,
        disjoint=event.disjoint,
    )


def _likelihood_ratios(
    mechanism: sealed.Mechanism | subset.DominatingPair, delta: float
) -> subset.LikelihoodRatios:
    # The probability of larger losses is far below delta.
    largest = mechanism.epsilon(max(1e-6 * delta, 1e-90))
    return subset.discretize(mechanism.delta, largest)


def _search_and_final_mu(
    event: SubsetSearch,
) -> tuple[sealed.GaussianMechanism | sealed.GaussianSearch, float]:
    search = _full_batch_search(event.search)
    final_mu = _above_zero(_full_batch_mu(flatten([event.final])))
    if max(search.mu, final_mu) > gdp.LARGEST_MU:
        raise SearchTooRevealing
    return search, final_mu


def _smaller_bound(ours: SealedBound, renyi: str) -> SealedBound:
    """Our bound, or the published one (by `renyi`) if that is smaller."""
    if ours.epsilon < math.inf and ours.epsilon <= ours.published:
        return ours
    if ours.published == math.inf:
        raise SearchTooRevealing
    return replace(ours, epsilon=ours.published, accountant=f"{renyi} ({ours.source})")


def _above_zero(mu: float) -> float:
    """A mu of zero is replaced by a tiny one, which the formulas can divide by."""
    return max(mu, 1e-12)


def _full_batch_search(event: Event) -> sealed.GaussianMechanism | sealed.GaussianSearch:
    match flatten([event]):
        case [RandomStopping(density_ratio=ratio) as search]:
            mu = _above_zero(_full_batch_mu(_trial_parts(search)))
            return sealed.GaussianSearch(trials=TrialCount.of(search), mu=mu, density_ratio=ratio)
        case parts:
            return sealed.GaussianMechanism(_above_zero(_full_batch_mu(parts)))


def _full_batch_mu(parts: Sequence[Event]) -> float:
    for part in parts:
        if isinstance(part, SampledRun | Sealed):
            raise UnpricedEvent(
                "a search on a sample of the rows, and its final run, may only contain runs that "
                f"use all of their rows in every step; got a {part.kind}. Use full-batch runs, "
                "counts and means, or one random-stopping of them as the search."
            )
    return sampled_and_gaussian(parts)[1]


def trial_steps_and_mu(search: RandomStopping) -> tuple[list[sampled.Step], float]:
    """The sampled steps of one trial, and the mu of its other events together."""
    return sampled_and_gaussian(_trial_parts(search))


def _trial_parts(search: RandomStopping) -> list[Event]:
    parts = flatten([search.trial])
    for part in parts:
        if isinstance(part, Parallel | Sealed):
            raise UnpricedEvent(
                f"a trial of a sealed search may not contain a {part.kind} event; describe each "
                "trial as runs, counts and means, one after another."
            )
    return parts
