"""The split of a total budget: sweeps of cheap trials, their scores, and a final run with the rest.

Prices add as mu^2, so the final run's share is a subtraction, which reads no data and spends
nothing. `price_stages` serves every study; `split_budget` answers what a study would leave for its
final run.

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

# Shares of a study's mu^2: all scores by default, a census, and the check of the final model.
DEFAULT_SCORE_SHARE = 0.005
CENSUS_SHARE = 0.001
CHECK_SHARE = 0.001
ERROR_SHARE = 0.005  # the check of regression, whose errors are small beside a row's bound
# Share of all mu^2 that is kept for the rounding of payments. A study pays run by run and segment
# by segment. A plan has few sums, and a whole epsilon of 1 must still read as 1.0000.
_STUDY_MARGIN, _PLAN_MARGIN = 1e-12, 4e-15
# Relative margin for the mu and the noise of a sampled score; it exceeds their rounding.
_SAMPLE_MARGIN = 1e-9


@dataclass(frozen=True)
class Stage:
    """`trials` runs of equal price that are trained together, and the score that compares them."""

    name: str
    trials: int
    mu_squared: float
    score: NoisyCount | None = None

    @property
    def mu(self) -> float:
        return math.sqrt(self.mu_squared)


@dataclass(frozen=True)
class PricedStages:
    """All payments of a study. The final stage is one run, or several that compete."""

    census: NoisyCount | None
    sweeps: tuple[Stage, ...]
    final: Stage
    check: NoisyCount | None


@dataclass(frozen=True)
class _Scoring:
    """The price limit of a stage's scores.

    It is `mu_squared`. If that is None, scores may cost as much as the trials: they count other
    rows, so only the larger of both prices is paid. With a `sampling_rate`, scores count a sample
    of the rows, with failure probability `slack`.
    """

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
        """The price of all trials of a stage and their scores."""
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
    margin: float = _STUDY_MARGIN,
) -> PricedStages:
    """The price of each part of a study, fixed before any trial runs.

    Args:
        budget: what all parts together may cost.
        sweeps: the stages of trials before the final run.
        score_share: share of all mu^2 that stages of several trials split equally for their scores.
        held_out: scores count held-out rows, and cost as much as the trials.
        finalists: runs that share what is left.
        histograms: noisy histograms counted before the first trial.
        checks: noisy counts that check the final model: one for accuracy, three for regression.
        aside: the price of everything that comes before the study's own events.
        slack: the failure probability of each run.
        score_rate: with it, scores count a sample of the rows.
        score_slack: the failure probability of each stage's sampled scores.
        set_aside: the least part of delta that the ledger keeps for failures.
        margin: share of mu^2 kept for rounding.

    Guarantees: all parts together fit in `budget`.

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
    left = everything * (1 - margin) - math.fsum(spent)
    final = Stage("final run", 1, left)
    if left > 0 and finalists > 1:
        unscored = Stage("runs", finalists, left / finalists)
        final = scoring.add_score(unscored)
        left -= scoring.price(final) - scoring.price(unscored)  # what is left pays the scores, too
        final = replace(final, mu_squared=left / finalists * (1 - margin))
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
    """Centred counts that compare `trials` models and cost `mu_squared`; None for a single model.

    With a `sampling_rate` they count a sample of the rows, with failure probability `slack`.
    """
    if trials < 2:
        return None
    unit = pricing.price(NoisyCount(counts=trials, noise=1.0, centered=True)).mu_squared
    if sampling_rate is not None:
        mu = rounding.below(math.sqrt(mu_squared)) * (1 - _SAMPLE_MARGIN)
        step = calibrate_sampled(mu=mu, slack=slack, steps=1, sampling_rate=sampling_rate)
        noise = math.sqrt(unit) * step.noise_multiplier * (1 + _SAMPLE_MARGIN)
        return NoisyCount(counts=trials, noise=noise, centered=True, sampling_rate=sampling_rate)
    noise = math.sqrt(unit / mu_squared)
    counts = NoisyCount(counts=trials, noise=noise, centered=True)
    while pricing.price(counts).mu_squared > mu_squared:  # rounding must not exceed the price
        noise = math.nextafter(noise, math.inf)
        counts = NoisyCount(counts=trials, noise=noise, centered=True)
    return counts


def _counts(counts: int, mu_squared: float) -> NoisyCount | None:
    """That many counts or histograms for `mu_squared`; None for zero counts."""
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
    """`count` runs of one kind and the price of each. A slot that is `alone` has its own bound on
    epsilon, and no mu that composes with others."""

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
        """The price of the whole study, including the final run."""
        return _together(self.slots)

    def guarantee(self) -> Guarantee:
        """The guarantee of a study that follows this plan."""
        one_step = [calibrate_full_batch(mu=slot.mu, steps=1) for slot in self.slots]
        releases, public = ["the final model"], ["the number of rows"]
        caveats = [
            "this is a plan; the guarantee holds for a study that runs exactly like it",
            "the whole plan fits in a ledger that was opened with --slack 0; other ledgers keep a "
            "part of delta for sampled runs",
        ]
        if len(self.slots) > 1:
            releases.append("the models and settings of all trials")
        else:
            caveats.append("there is no search: no setting may be chosen by looking at these rows")
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
        # The prices fit, so their epsilon must not exceed the budget by rounding.
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
    """The price of each slot and the epsilon of the final run.

    `score` says how trials are compared. "noisy" counts correct rows, centred within each sweep;
    the sweeps share `score_share` of the budget's mu^2 for it. "public" uses public rows, at no
    privacy cost.
    """
    validate.one_of(("noisy", "public"), score=score)
    share = validate.strictly_between(1e-12, 1, score_share=score_share)
    mus = [gdp.mu_from_epsilon(sweep.epsilon, budget.delta) for sweep in sweeps]
    stages = [
        Stage(f"sweep {number}", sweep.trials, mu * mu)
        for number, (sweep, mu) in enumerate(zip(sweeps, mus, strict=True), start=1)
    ]
    share = share if score == "noisy" else 0.0
    priced = price_stages(budget, stages, score_share=share, margin=_PLAN_MARGIN)
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
    # Rounded up, so that slots paid one by one cost no more than this.
    return total(Price(rounding.above(slot.count * slot.mu_squared)) for slot in slots)
