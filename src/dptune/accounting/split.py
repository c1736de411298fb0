"""How a total budget is split: sweeps of cheap trials, their scores, one final run with the rest.

Prices add as mu^2, so what is left for the final run is a subtraction (no data is needed, and
nothing is spent by asking). `price_stages` does the sums of every study; `split_budget` is the same
for people who ask what a study would leave.

>>> plan = split_budget(Budget(1.0, 1e-5), [Sweep(3, 0.1), Sweep(3, 0.2)], score="public")
>>> round(plan.final.epsilon, 4)
0.884
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from dptune import gdp, rounding, validate
from dptune.accounting import pricing
from dptune.accounting.budget import Budget, delta_beside
from dptune.accounting.calibration import calibrate_full_batch, calibrate_sampled
from dptune.accounting.guarantees import Guarantee, guarantee
from dptune.errors import BudgetExceeded
from dptune.privacy import FREE, NoisyCount, Price, total

# Of a study's mu^2: what all scores cost unless told otherwise, what a census costs, and what a
# check of the final model costs.
DEFAULT_SCORE_SHARE = 0.005
CENSUS_SHARE = 0.001
CHECK_SHARE = 0.001
ERROR_SHARE = 0.005  # the same of values, whose errors are small beside what a row may add
# Of all mu^2: what payments, rounded up one by one, may exceed their sum by. A study pays run by
# run and in legs; the sums of a plan are few, and a whole epsilon of 1 must still read as 1.0000.
_ROOM_OF_A_STUDY, _ROOM_OF_A_PLAN = 1e-12, 4e-15
# Of the mu and of the noise of a sampled score: more than both are rounded by.
_ROOM_OF_A_SAMPLE = 1e-9


@dataclass(frozen=True)
class Stage:
    """`trials` runs of one price that are trained together, and what comparing them costs."""

    name: str
    trials: int
    mu_squared: float
    score: NoisyCount | None = None

    @property
    def mu(self) -> float:
        return math.sqrt(self.mu_squared)


@dataclass(frozen=True)
class PricedStages:
    """What a study pays for. The final stage is one run, or several of which the best is taken."""

    census: NoisyCount | None
    sweeps: tuple[Stage, ...]
    final: Stage
    check: NoisyCount | None


@dataclass(frozen=True)
class _Scoring:
    """What the scores of a stage may cost: `mu_squared`; or, where that is None, as much as its
    trials, because they count rows that those never see and only the dearer of both is paid. With a
    `sampling_rate` they count a sample of the rows, outside a failure of probability `slack`."""

    mu_squared: float | None
    sampling_rate: float | None = None
    slack: float = 0.0

    def add_score(self, stage: Stage) -> Stage:
        allowed = self.mu_squared
        if allowed is None:
            allowed = stage.trials * stage.mu_squared
        if not allowed:
            return replace(stage, score=None)
        counts = score_counts(stage.trials, allowed, self.sampling_rate, self.slack)
        return replace(stage, score=counts)

    def price(self, stage: Stage) -> float:
        """Of all trials of a stage and their scores."""
        trials = rounding.above(stage.trials * stage.mu_squared)
        scores = 0.0
        if stage.score:
            scores = pricing.price(stage.score, slack=self.slack).mu_squared
        return max(trials, scores) if self.mu_squared is None else trials + scores


def price_stages(
    budget: Budget,
    sweeps: Sequence[Stage],
    *,
    score_share: float,
    held_out: bool = False,
    finalists: int = 1,
    histograms: int = 0,
    checks: int = 0,
    aside: Price = FREE,
    slack: float = 0.0,
    score_rate: float | None = None,
    score_slack: float = 0.0,
    set_aside: float = 0.0,
    room: float = _ROOM_OF_A_STUDY,
) -> PricedStages:
    """What each part of a study costs: fixed now, whatever the trials will show.

    Stages of several trials share `score_share` of all mu^2 equally for their scores; with
    `held_out`, scores count rows apart and cost what the trials do. `finalists` runs share what is
    left, `histograms` are counted before the first trial, and after the last one the final model is
    checked by so many `checks`: one of correct rows, or three of the errors of values. `aside` is
    what something else costs that comes first, `slack` the failure probability of every run,
    `set_aside` how much of delta a ledger keeps for such failures at least, `room` the share of
    mu^2 that is kept for roundings. With a `score_rate` scores count a sample of the rows, and
    `score_slack` is the failure probability of each stage's.

    Guarantees: all of it together fits in `budget`.
    """
    runs = finalists + sum(sweep.trials for sweep in sweeps)
    compared = sum(sweep.trials > 1 for sweep in sweeps) + (finalists > 1)
    failures = max(runs * slack + compared * score_slack + aside.slack, set_aside)
    everything = budget.mu_squared(failures)
    if everything <= 0:
        raise BudgetExceeded(
            f"the failure probabilities of {runs} runs, {failures:.3g} together, use up delta = "
            f"{budget.delta:g}; use fewer trials, or a larger delta. Nothing was spent."
        )
    allowed = None if held_out else score_share * everything / max(compared, 1)
    scoring = _Scoring(allowed, score_rate, score_slack)
    priced = tuple(map(scoring.add_score, sweeps))
    census = _counts(histograms, CENSUS_SHARE * everything)
    check = _counts(checks, (CHECK_SHARE if checks == 1 else ERROR_SHARE) * everything)
    spent = [aside.mu_squared, *map(scoring.price, priced)]
    spent += [pricing.price(counts).mu_squared for counts in (census, check) if counts]
    left = everything * (1 - room) - math.fsum(spent)
    final = Stage("final run", 1, left)
    if left > 0 and finalists > 1:
        unscored = Stage("runs", finalists, left / finalists)
        final = scoring.add_score(unscored)
        left -= scoring.price(final) - scoring.price(unscored)  # scores are paid from the same
        final = replace(final, mu_squared=left / finalists * (1 - room))
    if left <= 0:
        needed = min(math.sqrt(everything - left), gdp.LARGEST_MU)
        epsilon = gdp.epsilon_from_mu(needed, delta_beside(failures, budget.delta))
        raise BudgetExceeded(
            f"the search alone costs epsilon {rounding.cost(epsilon)} of {budget.epsilon:g} at "
            f"delta {budget.delta:g} and leaves nothing for the final run; use fewer or cheaper "
            "trials, or a larger budget. Nothing was spent."
        )
    return PricedStages(census, priced, final, check)


def score_counts(
    trials: int, mu_squared: float, sampling_rate: float | None = None, slack: float = 0.0
) -> NoisyCount | None:
    """Centred counts of `trials` models that cost `mu_squared`; None for a single model, which has
    nothing to be compared with. With a `sampling_rate` they count a sample of the rows, and cost
    that outside a failure of probability `slack`."""
    if trials < 2:
        return None
    unit = pricing.price(NoisyCount(counts=trials, noise=1.0, centered=True)).mu_squared
    if sampling_rate is not None:
        mu = rounding.below(math.sqrt(mu_squared)) * (1 - _ROOM_OF_A_SAMPLE)
        step = calibrate_sampled(mu=mu, slack=slack, steps=1, sampling_rate=sampling_rate)
        noise = math.sqrt(unit) * step.noise_multiplier * (1 + _ROOM_OF_A_SAMPLE)
        return NoisyCount(counts=trials, noise=noise, centered=True, sampling_rate=sampling_rate)
    noise = math.sqrt(unit / mu_squared)
    counts = NoisyCount(counts=trials, noise=noise, centered=True)
    while pricing.price(counts).mu_squared > mu_squared:  # never above by a rounding
        noise = math.nextafter(noise, math.inf)
        counts = NoisyCount(counts=trials, noise=noise, centered=True)
    return counts


def _counts(counts: int, mu_squared: float) -> NoisyCount | None:
    """That many counts, or histograms, for `mu_squared`; None where there is nothing to count."""
    return NoisyCount(counts=counts, noise=math.sqrt(counts / mu_squared)) if counts else None


@dataclass(frozen=True)
class Sweep:
    """`trials` runs at `epsilon` each (at the total budget's delta)."""

    trials: int
    epsilon: float

    def __post_init__(self) -> None:
        trials = validate.whole(1, trials=self.trials)
        epsilon = validate.positive(epsilon=self.epsilon, at_most=gdp.LARGEST_EPSILON)
        validate.store(self, trials=trials, epsilon=epsilon)


@dataclass(frozen=True)
class Slot:
    """`count` runs of one kind, and what each of them costs. A slot that is `alone` has a bound of
    its own for its epsilon, and no mu that could be added to another."""

    purpose: str
    count: int
    epsilon: float
    mu_squared: float
    alone: bool = False

    @property
    def mu(self) -> float:
        return math.sqrt(self.mu_squared)

    def share_of(self, budget: Budget) -> float:
        """Share of the budget's mu^2 that all `count` runs use."""
        return self.count * self.mu_squared / budget.mu_squared()

    def to_dict(self, budget: Budget) -> dict[str, Any]:
        share = self.share_of(budget)
        return {**asdict(self), "mu": None if self.alone else self.mu, "share": share}


@dataclass(frozen=True)
class BudgetSplit:
    """Every slot of a study, the final run last. Their prices together fit in the budget."""

    budget: Budget
    slots: tuple[Slot, ...]
    score: str
    scores: tuple[NoisyCount, ...]

    @property
    def final(self) -> Slot:
        return self.slots[-1]

    @property
    def spent(self) -> Price:
        """Of the whole study, final run included."""
        return _together(self.slots)

    def guarantee(self) -> Guarantee:
        """What a study that follows this plan may promise."""
        one_step = [calibrate_full_batch(mu=slot.mu, steps=1) for slot in self.slots]
        releases, public = ["the final model"], ["the number of rows"]
        caveats = [
            "a plan: true of a study that is run exactly like this",
            "a ledger has room for all of it if it was opened with --slack 0; others keep a part "
            "of delta for sampled runs",
        ]
        if len(self.slots) > 1:
            releases.append("the models and settings of all trials")
        else:
            caveats.append("there is no search: nothing may be chosen by looking at these rows")
        if self.scores:
            releases.append("their noisy scores")
        elif self.score == "public":
            public.append("the rows that score the trials")
        promise = guarantee(
            one_step,
            self.budget.delta,
            spent=self.spent,
            covers_search=True,
            covers_selection=True,
            releases=tuple(releases),
            public_facts=tuple(public),
            caveats=tuple(caveats),
        )
        # The prices fit, so neither does their epsilon exceed the budget by a rounding.
        return replace(promise, epsilon=min(promise.epsilon, self.budget.epsilon))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "budget": {**asdict(self.budget), "mu": self.budget.mu},
            "slots": [slot.to_dict(self.budget) for slot in self.slots],
            "score": {
                "kind": self.score,
                "noise": [counts.noise for counts in self.scores],
            },
            "final": self.final.to_dict(self.budget),
            "guarantee": self.guarantee().to_dict(),
        }


def split_budget(
    budget: Budget,
    sweeps: Sequence[Sweep],
    *,
    score: str = "noisy",
    score_share: float = DEFAULT_SCORE_SHARE,
) -> BudgetSplit:
    """What each slot costs and what the final run gets.

    `score` says how trials are compared: "noisy" counts of correct rows, centred within each
    sweep, for which `score_share` of the budget's mu^2 is set aside and shared by the sweeps; or on
    "public" rows, for nothing.
    """
    validate.one_of(("noisy", "public"), score=score)
    share = validate.strictly_between(1e-12, 1, score_share=score_share)
    mus = [gdp.mu_from_epsilon(sweep.epsilon, budget.delta) for sweep in sweeps]
    stages = [
        Stage(f"sweep {number}", sweep.trials, mu * mu)
        for number, (sweep, mu) in enumerate(zip(sweeps, mus, strict=True), start=1)
    ]
    share = share if score == "noisy" else 0.0
    priced = price_stages(budget, stages, score_share=share, room=_ROOM_OF_A_PLAN)
    slots = [
        Slot(stage.name, stage.trials, sweep.epsilon, stage.mu_squared)
        for sweep, stage in zip(sweeps, priced.sweeps, strict=True)
    ]
    scores = {f"scores of {stage.name}": stage.score for stage in priced.sweeps if stage.score}
    for purpose, counts in scores.items():
        paid = pricing.price(counts)
        epsilon = pricing.epsilon(paid, budget.delta)
        slots.append(Slot(purpose, 1, epsilon, paid.mu_squared))
    left = priced.final
    epsilon = gdp.epsilon_from_mu(left.mu, budget.delta)
    final = Slot(left.name, 1, epsilon, left.mu_squared)
    return BudgetSplit(budget, (*slots, final), score, tuple(scores.values()))


def _together(slots: Sequence[Slot]) -> Price:
    # The product is rounded; paid one by one, the slots must not come to more.
    return total(Price(rounding.above(slot.count * slot.mu_squared)) for slot in slots)
