"""From events to prices, and from budgets to noise.

The currency is (mu^2, slack): a mechanism costs (mu^2, slack) when it is dominated by mu-GDP
composed with a failure of probability `slack`, that is, for every epsilon and in both directions

    delta(epsilon) <= slack + (1 - slack) * delta_gdp(mu, epsilon).

Such prices add, also when later events are chosen from earlier outputs, as long as each price was
fixed before its event ran (Smith & Thakurta 2022; Koskela, Tobaben & Honkela 2023). Where nothing
at all was chosen from outputs, `direct_epsilon` composes privacy loss distributions, which is
tighter for sampled runs. Renyi DP is here for comparison, and for sealed searches where it is
tighter than our own bounds (`sealed`, `subset`), or the only one.

>>> round(price(FullBatchRun(steps=100, noise_multiplier=37.3063)).mu, 6)
0.268051
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import brentq
from scipy.special import erfinv, expit, ndtr, ndtri

from dptune import gdp, rounding, validate
from dptune.accounting import sampled, sealed, subset
from dptune.errors import InvalidInput, UnpricedEvent
from dptune.privacy import (
    Budget,
    Composition,
    Event,
    FullBatchRun,
    Guarantee,
    NoisyCount,
    Parallel,
    Price,
    PrivateMean,
    RandomStopping,
    SampledRun,
    SubsetSearch,
    delta_beside,
    total,
)

if TYPE_CHECKING:
    from dp_accounting import dp_event, rdp

# A price found by search is below its target by at most this much, relative.
_CALIBRATION_TOLERANCE = 1e-4
# Less noise than this protects nobody, even where the budget would allow it.
_LEAST_NOISE = 0.1
# So many times the noise of a good guess, and more would not help.
_MOST_NOISE = 1e9
# The optimal order for a budget of epsilon 0.01 lies near 2,500, beyond the usual tables.
_RDP_ORDERS = [1 + x / 10 for x in range(1, 100)] + [
    float(round(11 * 1.12**k)) for k in range(67) if 11 * 1.12**k < 20_000
]


Sealed = RandomStopping | SubsetSearch


_RUNS_OF_A_LEDGER = 20  # sampled runs, as many as usually have room


def default_slack(delta: float) -> float:
    """The failure probability of one sampled run or sealed search: ten use a percent of delta."""
    return 1e-3 * delta


def slack_set_aside(delta: float) -> float:
    """How much of delta a ledger keeps for failures unless told otherwise: enough for twenty
    sampled runs, for an eighth of a percent of mu at epsilon 1."""
    return _RUNS_OF_A_LEDGER * default_slack(delta)


def slack_of_one(set_aside: float) -> float:
    """What one sampled run or sealed search takes of it unless told otherwise."""
    return set_aside / _RUNS_OF_A_LEDGER


def needs_slack(event: Event) -> int:
    """How many parts of `event` can only be priced outside a failure probability."""
    if isinstance(event, Composition):
        return sum(needs_slack(part) for part in event.parts)
    return int(isinstance(event, SampledRun | Sealed))


def price(event: Event, *, slack: float = 0.0) -> Price:
    """What `event` costs. Gaussian events are exact and need no slack; `slack` is shared equally
    by the parts that do. An event nobody can price is an error, never a guess."""
    parts = _flatten([event])
    sharing = sum(needs_slack(part) for part in parts)
    if sharing:
        if slack == 0:
            raise InvalidInput(
                f"a {event.kind} with sampling or random stopping is priced outside a failure "
                "probability; give a slack above 0, for example 1e-3 * delta."
            )
        slack = validate.strictly_between(0, 1, slack=slack) / sharing
    return total(_part_price(part, slack) for part in parts)


def epsilon(spent: Price, delta: float) -> float:
    """The epsilon at `delta` of everything that was paid for with `spent`."""
    delta = validate.strictly_between(0, 1, delta=delta)
    left = delta_beside(spent.slack, delta)
    if left <= 0:
        raise InvalidInput(
            f"failure probabilities of {spent.slack:.3g} already use up delta = {delta:g}; report "
            "at a larger delta."
        )
    return gdp.epsilon_from_mu(spent.mu, left)


def epsilon_of(events: Sequence[Event], spent: Price, delta: float) -> float:
    """The epsilon of `events`, for which `spent` was paid: by the sum of prices or, for a sealed
    search that is alone, by its own bound."""
    search = _sealed_alone(events)
    return sealed_bound(search, delta).epsilon if search else epsilon(spent, delta)


def fits(events: Sequence[Event], spent: Price, budget: Budget, slack: float) -> bool:
    """Whether `events`, for which `spent` was paid, stay within `budget`, of whose delta `slack`
    was set aside for failures before the first of them ran.

    mu^2 and slack are two limits, never traded for each other: who may choose between them after
    seeing outputs can exceed the budget (docs/accounting.md).
    """
    if spent.slack > slack:
        return False
    if spent.mu_squared <= budget.mu_squared(slack):
        return True
    search = _sealed_alone(events)
    return search is not None and sealed_bound(search, budget.delta).epsilon <= budget.epsilon


def _sealed_alone(events: Sequence[Event]) -> Sealed | None:
    match _flatten(events):
        case [RandomStopping() | SubsetSearch() as search]:
            return search
    return None


@dataclass(frozen=True)
class SealedBound:
    """The least epsilon we can prove for a sealed search, how, and what the published bound is."""

    epsilon: float
    accountant: str
    published: float  # infinite where Renyi DP gives none
    source: str = "Papernot & Steinke 2022"

    @property
    def remark(self) -> str:
        published = (
            f"would have been epsilon {rounding.cost(self.published)}; both hold, and the smaller "
            "is promised (docs/accounting.md)"
        )
        if math.isinf(self.published):
            published = "gives no bound here"
        elif self.published == self.epsilon:
            published = "is the one used"
        return f"the published bound (Renyi DP, {self.source}) {published}"


class _TooLoud(UnpricedEvent):
    """A sealed search whose trials have too little noise to be bounded."""

    def __init__(self) -> None:
        super().__init__(
            "a sealed search with so little noise, or at so small a delta, cannot be priced; add "
            "noise to its trials, take fewer steps, or use a larger delta or slack."
        )


@lru_cache(maxsize=256)  # a ledger asks again for every statement
def sealed_bound(search: Sealed, delta: float) -> SealedBound:
    """The tightest bound we know for a sealed search by itself: our own or the published one.

    Bounds by privacy profiles (Koskela, Redberg & Wang 2024) are never below the ratio bound, so
    they are not asked.
    """
    delta = validate.strictly_between(0, 1, delta=delta)
    if isinstance(search, SubsetSearch):
        return _subset_bound(search, delta)
    steps, mu = _steps_and_gaussian(_trial_parts(search))
    if not steps:
        return _gaussian_sealed_bound(search, mu, delta)
    if (ratio := search.density_ratio) is not None:
        return _adaptive_bound(search, ratio, _renyi_curve(search.trial), delta)
    trials, (trial, by_ratio) = _trial_count(search), _ratio_bound(search, delta)
    try:
        if trials.is_poisson and trial is None:
            published = rdp_epsilon([search], delta)
        else:
            renyi = _renyi_curve(search.trial)
            published = sealed.renyi_epsilon(trials, renyi, delta, trial=trial)
    except UnpricedEvent:
        published = math.inf
    return _by_ratio_or_renyi(by_ratio, published)


def _ratio_bound(search: RandomStopping, delta: float) -> tuple[sealed.SampledTrial | None, float]:
    """One trial with sampled runs, and epsilon by the ratio bound: infinite where there is none."""
    trials, (steps, mu) = _trial_count(search), _steps_and_gaussian(_trial_parts(search))
    try:
        # Cut tails are small against delta over the mean, the smallest delta that is read.
        curve = sampled.trade_off(steps, gaussian_mu=mu, failure=delta / trials.mean)
        trial = sealed.SampledTrial(curve)
        return trial, sealed.ratio_epsilon(trials, trial, delta)
    except UnpricedEvent:
        return None, math.inf


def _quick_bound(search: Sealed, delta: float) -> float:
    """Epsilon without Renyi DP of sampled runs, which takes a second and seldom decides."""
    match search:
        case RandomStopping(density_ratio=None) if _steps_and_gaussian(_trial_parts(search))[0]:
            return _ratio_bound(search, delta)[1]
    return sealed_bound(search, delta).epsilon


def _gaussian_sealed_bound(search: RandomStopping, mu: float, delta: float) -> SealedBound:
    if mu > gdp.LARGEST_MU:
        raise _TooLoud
    if (ratio := search.density_ratio) is not None:
        curve = sealed.RenyiCurve.gaussian(_above_zero(mu))
        return _adaptive_bound(search, ratio, curve, delta)
    trials = _trial_count(search)
    by_ratio, published = (
        sealed.gaussian_epsilon(trials, mu, delta, bound) for bound in ("ratio", "renyi")
    )
    return _by_ratio_or_renyi(by_ratio, published)


def _by_ratio_or_renyi(by_ratio: float, published: float) -> SealedBound:
    return _tighter(
        SealedBound(
            by_ratio,
            "the ratio of trade-off curves, for the best of a random number of trials",
            published,
        ),
        "Renyi DP of a random number of trials",
    )


def _adaptive_bound(
    search: RandomStopping, density_ratio: float, trial: sealed.RenyiCurve, delta: float
) -> SealedBound:
    trials = _trial_count(search)
    found = sealed.adaptive_epsilon(trials, trial, delta, density_ratio=density_ratio)
    if found == math.inf:
        raise _TooLoud
    words = "Renyi DP of a random number of trials that learn from earlier ones (DP-HyPO)"
    return SealedBound(found, words, found, "Wang et al. 2023")


def _subset_bound(event: SubsetSearch, delta: float) -> SealedBound:
    search, final_mu = _searched_and_final(event)
    rate, disjoint = event.sampling_rate, event.disjoint
    orders = np.arange(2.0, subset.LARGEST_ORDER + 1)
    first, second = search.renyi(orders), sealed.GaussianTrial(final_mu).renyi(orders)
    renyi = subset.renyi(first, second, sampling_rate=rate, disjoint=disjoint)
    published = sealed.RenyiCurve(*renyi).epsilon(delta)
    seen = "the other rows" if disjoint else "all rows"
    words = f"a dominating pair for a search on a secret sample and a final run on {seen}"
    ours = _pair(event, delta).epsilon(delta)
    return _tighter(
        SealedBound(ours, words, published, "Koskela & Kulkarni 2023"),
        "Renyi DP of a search on a secret sample and a final run",
    )


def _pair(event: SubsetSearch, delta: float) -> subset.Pair:
    """Search and final run, to be read at `delta`."""
    search, final_mu = _searched_and_final(event)
    return subset.Pair.of(
        _outcomes(search, delta),
        final_mu,
        sampling_rate=event.sampling_rate,
        disjoint=event.disjoint,
    )


def _outcomes(mechanism: sealed.Trial | subset.Pair, delta: float) -> subset.Outcomes:
    largest = mechanism.epsilon(max(1e-6 * delta, 1e-90))  # proof is far below delta
    return subset.outcomes(mechanism.delta, largest)


def _searched_and_final(
    event: SubsetSearch,
) -> tuple[sealed.GaussianTrial | sealed.GaussianSearch, float]:
    search = _full_batch_search(event.search)
    final_mu = _above_zero(_full_batch_mu(_flatten([event.final])))
    if max(search.mu, final_mu) > gdp.LARGEST_MU:
        raise _TooLoud
    return search, final_mu


def _tighter(ours: SealedBound, renyi: str) -> SealedBound:
    """Ours, unless the published bound, by `renyi`, is below."""
    if ours.epsilon < math.inf and ours.epsilon <= ours.published:
        return ours
    if ours.published == math.inf:
        raise _TooLoud
    return replace(ours, epsilon=ours.published, accountant=f"{renyi} ({ours.source})")


def _above_zero(mu: float) -> float:
    """What reveals nothing is taken for what reveals next to nothing."""
    return max(mu, 1e-12)


def _full_batch_search(event: Event) -> sealed.GaussianTrial | sealed.GaussianSearch:
    match _flatten([event]):
        case [RandomStopping(density_ratio=ratio) as search]:
            mu = _above_zero(_full_batch_mu(_trial_parts(search)))
            return sealed.GaussianSearch(trials=_trial_count(search), mu=mu, density_ratio=ratio)
        case parts:
            return sealed.GaussianTrial(_above_zero(_full_batch_mu(parts)))


def _full_batch_mu(parts: Sequence[Event]) -> float:
    for part in parts:
        if isinstance(part, SampledRun | Sealed):
            raise UnpricedEvent(
                "a search on a sample of the rows, and its final run, are priced for runs that see "
                f"all the rows they are given in every step; got a {part.kind}. Use full-batch "
                "runs, counts and means, or one random-stopping of them as the search."
            )
    return _steps_and_gaussian(parts)[1]


def _trial_count(search: RandomStopping) -> sealed.TrialCount:
    return sealed.TrialCount.named(search.distribution, search.expected_trials, search.shape)


def _trial_parts(search: RandomStopping) -> list[Event]:
    parts = _flatten([search.trial])
    for part in parts:
        if isinstance(part, Parallel | Sealed):
            raise UnpricedEvent(
                f"a trial of a sealed search may not contain a {part.kind} event; describe each "
                "trial as runs, counts and means, one after another."
            )
    return parts


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


def direct_epsilon(events: Iterable[Event], delta: float) -> float:
    """Epsilon of all events through one privacy loss distribution.

    Guarantees: an upper bound, provided no event was chosen from the output of another; steps,
    rates and noise of all of them were fixed before the first one ran.
    """
    delta = validate.strictly_between(0, 1, delta=delta)
    steps, gaussian_mu = _steps_and_gaussian(events)
    if not steps:
        return gdp.epsilon_from_mu(gaussian_mu, delta)
    return sampled.trade_off(steps, gaussian_mu=gaussian_mu, failure=delta).epsilon(delta)


def rdp_epsilon(events: Iterable[Event], delta: float) -> float:
    """Epsilon through dp-accounting's Renyi DP: looser than the other accountants here."""
    delta = validate.strictly_between(0, 1, delta=delta)
    with _renyi_accountant(events) as accountant:
        return float(accountant.get_epsilon(delta)) * (1 + 1e-12)


@lru_cache(maxsize=64)  # the same at every delta, and slow
def _renyi_curve(event: Event) -> sealed.RenyiCurve:
    with _renyi_accountant([event]) as accountant:
        values = np.asarray(accountant.rdp, dtype=float)
        orders = np.asarray(accountant.orders, dtype=float)
    # An order that did not converge is no bound.
    return sealed.RenyiCurve(orders, np.where(np.isnan(values), math.inf, values))


@contextmanager
def _renyi_accountant(events: Iterable[Event]) -> Iterator["rdp.RdpAccountant"]:
    from absl import logging
    from dp_accounting import rdp  # slow to import

    accountant = rdp.RdpAccountant(_RDP_ORDERS)
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)  # orders that do not converge are left out, not wrong
    try:
        for event in events:
            accountant.compose(_to_dp_event(event))
        yield accountant
    except (ValueError, ArithmeticError) as error:
        raise UnpricedEvent(
            f"Renyi DP cannot price this within double precision ({error}); use more usual noise, "
            "steps or rates."
        ) from None
    finally:
        logging.set_verbosity(verbosity)


def calibrate_full_batch(*, mu: float, steps: int) -> FullBatchRun:
    """The run of `steps` full-batch steps with the least noise that costs at most mu."""
    return FullBatchRun(steps=steps, noise_multiplier=gdp.noise_multiplier(mu, steps))


def calibrate_sampled(*, mu: float, slack: float, steps: int, sampling_rate: float) -> SampledRun:
    """The sampled run with the least noise whose price is at most (mu^2, slack)."""
    mu = validate.positive(mu=mu, at_most=gdp.LARGEST_MU)
    run = _sampled_at(steps, sampling_rate)
    guess = central_limit_noise(mu, steps, sampling_rate)
    return run(_least_noise(lambda noise: price(run(noise), slack=slack).mu, mu, guess))


def calibrate_sealed(
    search_at: Callable[[float], Sealed], budget: Budget, *, published: bool = False
) -> float:
    """The largest mu for which `search_at(mu)`, an event whose parts grow with mu, fits in `budget`
    when it is alone: by the tightest bound we know, or by the published one."""

    def tightest(search: Sealed) -> float:
        return sealed_bound(search, budget.delta).epsilon

    def by_renyi(search: Sealed) -> float:
        return sealed_bound(search, budget.delta).published

    def quick(search: Sealed) -> float:
        return _quick_bound(search, budget.delta)

    def largest(cost: Callable[[Sealed], float]) -> float:
        return 1 / _least_noise(
            lambda noise: cost(search_at(1 / noise)),
            budget.epsilon,
            guess=1 / budget.mu,
            least=1 / gdp.LARGEST_MU,
        )

    if not published:
        mu = largest(quick)
        if mu > 0 and quick(search_at(mu)) == tightest(search_at(mu)):
            return mu
    mu = largest(by_renyi if published else tightest)
    if mu > 0:
        return mu
    tiny = search_at(budget.mu / _MOST_NOISE)
    raise InvalidInput(
        f"a sealed search within epsilon {budget.epsilon:g} at delta {budget.delta:g} was asked "
        f"for, and with trials that reveal next to nothing it costs {tightest(tiny):.4f} already; "
        "let trials learn less from each other (a density_ratio nearer to 1), or allow a "
        "larger epsilon."
    )


def calibrate_direct(
    *,
    epsilon: float,
    delta: float,
    steps: int,
    sampling_rate: float,
    beside: Sequence[Event] = (),
    runs: int = 1,
) -> SampledRun:
    """The sampled run with the least noise such that `runs` of it and the events `beside` them fit
    in (epsilon, delta) by direct composition."""
    epsilon = validate.positive(epsilon=epsilon, at_most=gdp.LARGEST_EPSILON)
    run = _sampled_at(steps, sampling_rate)
    others = direct_epsilon(beside, delta) if beside else 0.0
    if others >= epsilon:
        raise InvalidInput(
            f"the other events alone cost epsilon {others:.4f} of {epsilon:g}; nothing is left for "
            "this run."
        )
    guess = central_limit_noise(gdp.mu_from_epsilon(epsilon, delta), runs * steps, sampling_rate)

    def cost(noise: float) -> float:
        return direct_epsilon([*beside, *[run(noise)] * runs], delta)

    return run(_least_noise(cost, epsilon, guess))


def guarantee(
    events: Sequence[Event],
    delta: float,
    *,
    covers_search: bool | None,
    covers_selection: bool | None,
    releases: tuple[str, ...],
    spent: Price | None = None,
    adaptive: bool = True,
    public_facts: tuple[str, ...] = (),
    caveats: tuple[str, ...] = (),
) -> Guarantee:
    """The statement for all of `events` together.

    `spent` is what was paid for them where that is on record, else they are priced here.
    `adaptive=False` claims that no event was chosen from another's output, which allows direct
    composition; the statement then says that it rests on this.
    """
    parts = _flatten(events)
    sharing = sum(needs_slack(part) for part in parts)
    searches = [part for part in parts if isinstance(part, Sealed)]
    if spent is None:
        spent = total(price(part, slack=default_slack(delta)) for part in parts)
    notes = list(caveats)
    bound, replaced = epsilon_of(parts, spent, delta), replace_one_epsilon(spent, delta)
    if not sharing:
        accountant = "Gaussian DP, exact"
    elif (search := _sealed_alone(parts)) is not None:
        by = sealed_bound(search, delta)
        accountant = by.accountant
        notes.append(by.remark)
        replaced = min(replaced, _replace_one_sealed(search, delta))
    elif not adaptive and not searches:
        accountant = "one privacy loss distribution for all runs, composed directly"
        bound = direct_epsilon(parts, delta)
        notes.append(
            "direct composition is valid because steps, sampling rates and noise of every run were "
            "fixed before the first output was seen"
        )
    else:
        kinds = ["each sampled run"] if sharing > len(searches) else []
        kinds += ["each sealed search"] if searches else []
        accountant = f"Gaussian DP that dominates {' and '.join(kinds)}"
    notes += dict.fromkeys(note for search in searches for note in _conditions(search))
    if searches and len(parts) > 1:
        notes.append("a sealed search in company counts by a Gaussian above it: valid, but loose")
    return Guarantee(
        epsilon=bound,
        delta=delta,
        mu=spent.mu,
        slack=spent.slack,
        replace_one_epsilon=replaced,
        sampler=describe_sampler(parts),
        accountant=accountant,
        covers_search=covers_search,
        covers_selection=covers_selection,
        releases=releases,
        public_facts=public_facts,
        caveats=tuple(notes),
    )


def _conditions(search: Sealed) -> Iterator[str]:
    """What a sealed search's promise rests on."""
    inside: Event = search
    if isinstance(search, SubsetSearch):
        yield (
            "the sample of rows that was searched on, its size included, stays secret, and nothing "
            "was computed from that size"
        )
        (inside, *_) = _flatten([search.search])
    if isinstance(inside, RandomStopping):
        yield "the number of trials and the losing trials of a sealed search stay secret"
        if inside.density_ratio is not None:
            yield (
                "trials drew their settings from densities between c and C times a public one, "
                f"with C/c at most {inside.density_ratio:g}"
            )


def _replace_one_sealed(search: Sealed, delta: float) -> float:
    """An epsilon for two zero-out steps.

    Trials that are mu-GDP are 2 mu-GDP then, and the search is bounded from that; densities they
    draw settings from depend on outputs alone. Else it is group privacy of the search: 2 epsilon
    at delta1 (1 + e^epsilon), for a delta1 that keeps this below delta.
    """
    if isinstance(search, RandomStopping):
        steps, mu = _steps_and_gaussian(_trial_parts(search))
        if not steps:
            over = 2 * mu > gdp.LARGEST_MU
            return math.inf if over else _gaussian_sealed_bound(search, 2 * mu, delta).epsilon
    guess, found = 2 * sealed_bound(search, delta).epsilon, math.inf
    for _ in range(2):  # what was found is a better guess
        if guess > 100:
            break
        try:
            bound = sealed_bound(search, delta / (1 + math.exp(guess))).epsilon
        except UnpricedEvent:
            break
        if bound > guess:
            break
        guess = found = bound
    return 2 * found


def describe_sampler(events: Iterable[Event]) -> str:
    """How rows enter these events, in words."""
    rates: set[float] = set()
    whole = False
    words: list[str] = []
    stack = list(_flatten(events))
    while stack:
        part = stack.pop()
        if isinstance(part, RandomStopping):
            stack += _flatten([part.trial])
        elif isinstance(part, Parallel):
            stack += _flatten(part.parts)
        elif isinstance(part, SubsetSearch):
            rest = "all the others" if part.disjoint else "all rows"
            words.append(
                f"a search on one secret Poisson sample (rate {part.sampling_rate:g}), all of it "
                f"in every step, then {rest} in every step"
            )
        elif isinstance(part, SampledRun):
            rates.add(part.sampling_rate)
        else:
            whole = True
    words += ["all rows in every step (full batch)"] if whole else []
    if rates:
        words.append(f"Poisson sampling at rate {', '.join(f'{rate:g}' for rate in sorted(rates))}")
    return "; ".join(words) or "no rows were used"


def _flatten(events: Iterable[Event]) -> list[Event]:
    flat: list[Event] = []
    for event in events:
        flat += _flatten(event.parts) if isinstance(event, Composition) else [event]
    return flat


def _gaussian_mu_squared(event: Event) -> float:
    match event:
        case FullBatchRun(steps=steps, noise_multiplier=noise):
            return gdp.full_batch_mu_squared(steps, noise)
        case PrivateMean(noise_multiplier=noise):
            return gdp.full_batch_mu_squared(1, noise)
        case NoisyCount(counts=counts, noise=noise, centered=False):
            return gdp.full_batch_mu_squared(counts, noise)
        case NoisyCount(counts=counts, noise=noise, centered=True):
            # A row counted k times of n moves the centred counts by sqrt(k (n-k) / n).
            squared_sensitivity = (counts // 2) * (counts - counts // 2) / counts
            return squared_sensitivity * gdp.full_batch_mu_squared(1, noise)
        case Parallel(parts=parts):
            return max(
                rounding.above(math.fsum(map(_gaussian_mu_squared, _flatten([part]))))
                for part in parts
            )
    raise UnpricedEvent(
        f"no accountant here can price {event!r}; describe the mechanism as one of dptune's events."
    )


@lru_cache(maxsize=1024)  # runs of a study are alike, and planned, reserved and stated in turn
def _part_price(part: Event, slack: float) -> Price:
    if isinstance(part, SampledRun):
        mu = sampled.trade_off([_step(part)], failure=slack).mu(slack)
        return Price(rounding.above(mu * mu), slack)
    if isinstance(part, Sealed):
        mu = _mu_in_company(part, slack)
        return Price(mu * mu * (1 + 1e-12), slack)
    return Price(_gaussian_mu_squared(part))


def _mu_in_company(search: Sealed, slack: float) -> float:
    """A mu whose Gaussian dominates a sealed search outside a failure: by its whole profile, or, if
    we know only one point of that, by the mu on whose curve lies the corner of randomised response,
    which dominates everything (epsilon, slack)-DP."""
    mu = _corner_mu(sealed_bound(search, slack).epsilon)
    if not math.isfinite(mu):
        raise _TooLoud
    try:
        if isinstance(search, SubsetSearch):
            outcomes = _outcomes(_pair(search, slack), slack)
        else:
            outcomes = _outcomes(_full_batch_search(search), slack)
        return min(mu, outcomes.curve().mu(slack))
    except UnpricedEvent:  # of sampled trials, or too far from Gaussian
        return mu


def _corner_mu(epsilon: float) -> float:
    """The mu with Phi(-mu/2) = 1 / (1 + e^epsilon)."""
    if epsilon < 1:  # near one half the quantile would lose digits
        return math.sqrt(8) * float(erfinv(math.tanh(epsilon / 2)))
    return -2 * float(ndtri(expit(-epsilon)))


def _step(run: SampledRun) -> sampled.Step:
    return sampled.Step(
        sampling_rate=run.sampling_rate, noise_multiplier=run.noise_multiplier, count=run.steps
    )


def _steps_and_gaussian(events: Iterable[Event]) -> tuple[list[sampled.Step], float]:
    alike: dict[SampledRun, int] = {}  # runs of the same step are one run of more
    squares = []
    for part in _flatten(events):
        if isinstance(part, SampledRun):
            step = replace(part, steps=1)
            alike[step] = alike.get(step, 0) + part.steps
        else:
            squares.append(_gaussian_mu_squared(part))
    steps = [_step(replace(step, steps=count)) for step, count in alike.items()]
    return steps, rounding.above(math.sqrt(math.fsum(squares)))


def _to_dp_event(event: Event) -> "dp_event.DpEvent":
    from dp_accounting import dp_event

    match event:
        case Composition(parts=parts):
            return dp_event.ComposedDpEvent([_to_dp_event(part) for part in parts])
        case SampledRun(steps=steps, noise_multiplier=noise, sampling_rate=rate):
            step = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise))
            return dp_event.SelfComposedDpEvent(step, steps)
        case RandomStopping(trial=trial, expected_trials=mean, density_ratio=None):
            shape = _trial_count(event).shape
            if shape < 0:
                raise UnpricedEvent(
                    f"dp-accounting knows no sealed search of negative shape; got {shape:g}. Ask "
                    "sealed_bound instead."
                )
            return dp_event.RepeatAndSelectDpEvent(_to_dp_event(trial), mean, shape)
        case RandomStopping() | SubsetSearch():
            raise UnpricedEvent(
                f"dp-accounting knows no {event.kind} whose trials learn from each other or see a "
                "sample of the rows. Ask sealed_bound instead."
            )
    mu_squared = _gaussian_mu_squared(event)
    return dp_event.GaussianDpEvent(mu_squared**-0.5) if mu_squared else dp_event.NoOpDpEvent()


def _sampled_at(steps: int, sampling_rate: float) -> Callable[[float], SampledRun]:
    """The sampled run of any noise; senseless steps and rates are refused at once."""
    run = SampledRun(steps=steps, noise_multiplier=1.0, sampling_rate=sampling_rate)
    return lambda noise: replace(run, noise_multiplier=noise)


def central_limit_noise(mu: float, steps: int, sampling_rate: float) -> float:
    """Noise at which the central limit of the sampled run is mu: a good guess, not a bound."""
    strength = min(mu / sampling_rate, 1e100)
    return 1 / math.sqrt(math.log1p(strength**2 / steps))


def _least_noise(
    cost: Callable[[float], float], target: float, guess: float, least: float = _LEAST_NOISE
) -> float:
    """The least noise with cost(noise) <= target; cost falls as noise grows.

    The answer always satisfies the target, and misses it by less than the calibration tolerance
    unless even the `least` noise would do. It is infinite where no noise satisfies it.
    """

    def excess(log_noise: float) -> float:
        try:
            spent = cost(math.exp(log_noise))
        except (sampled.TooLittleNoise, _TooLoud):
            return 1e3
        return min(math.log(spent / target), 1e3) if spent > 0 else -1e3

    floor, ceiling = math.log(least), math.log(guess * _MOST_NOISE)
    low = high = max(math.log(guess), floor)
    step = 0.05
    while excess(low) <= 0:
        if low == floor:
            return math.exp(low)
        low, step = max(low - step, floor), 2 * step
    step = 0.05
    while excess(high) > 0:
        if high >= ceiling:
            return math.inf
        high, step = min(high + step, ceiling), 2 * step
    root: float = brentq(excess, low, high, xtol=_CALIBRATION_TOLERANCE / 20)
    while excess(root) > 0:
        root += _CALIBRATION_TOLERANCE / 10
    return math.exp(root)
