"""How a total budget is split: sweeps of cheap trials, their scores, one final run with the rest.

Prices add as mu^2, so what is left for the final run is a subtraction (no data is needed, and
nothing is spent by asking).

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
from dptune.accounting.budget import Budget
from dptune.accounting.calibration import calibrate_full_batch
from dptune.accounting.guarantees import Guarantee, guarantee
from dptune.errors import BudgetExceeded
from dptune.privacy import NoisyCount, Price, total

DEFAULT_SCORE_SHARE = 0.005


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
                "noise": self.scores[0].noise if self.scores else None,
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
    sweep, for which `score_share` of the budget's mu^2 is set aside; or on "public" rows, for
    nothing.
    """
    validate.one_of(("noisy", "public"), score=score)
    score_share = validate.strictly_between(1e-12, 1, score_share=score_share)
    everything = budget.mu_squared()
    scores = _scores(sweeps, score_share * everything) if score == "noisy" else ()
    slots = []
    for number, sweep in enumerate(sweeps, start=1):
        mu = gdp.mu_from_epsilon(sweep.epsilon, budget.delta)
        slots.append(Slot(f"sweep {number}", sweep.trials, sweep.epsilon, mu * mu))
    compared = [number for number, sweep in enumerate(sweeps, start=1) if sweep.trials > 1]
    for number, counts in zip(compared, scores, strict=False):
        paid = pricing.price(counts)
        epsilon = pricing.epsilon(paid, budget.delta)
        slots.append(Slot(f"scores of sweep {number}", 1, epsilon, paid.mu_squared))
    search = _together(slots)
    left = everything - search.mu_squared
    while left > 0:
        final = Slot("final run", 1, gdp.epsilon_from_mu(math.sqrt(left), budget.delta), left)
        split = BudgetSplit(budget, (*slots, final), score, scores)
        if split.spent.mu_squared <= everything:
            return split
        left = math.nextafter(left, 0.0)  # the sum may not exceed the budget by a rounding either
    raise BudgetExceeded(
        f"the search alone costs epsilon {rounding.cost(pricing.epsilon(search, budget.delta))} of "
        f"{budget.epsilon:g} at delta {budget.delta:g} and leaves nothing for the final run; use "
        "fewer or cheaper trials, or a larger budget."
    )


def _scores(sweeps: Sequence[Sweep], mu_squared: float) -> tuple[NoisyCount, ...]:
    """One centred count vector a sweep, all with the noise that makes them cost `mu_squared`."""
    at_unit_noise = [
        NoisyCount(counts=sweep.trials, noise=1.0, centered=True)
        for sweep in sweeps
        if sweep.trials > 1  # a single trial has nothing to be compared with
    ]
    if not at_unit_noise:
        return ()
    noise = math.sqrt(total(map(pricing.price, at_unit_noise)).mu_squared / mu_squared)
    return tuple(replace(score, noise=noise) for score in at_unit_noise)


def _together(slots: Sequence[Slot]) -> Price:
    # The product is rounded; paid one by one, the slots must not come to more.
    return total(Price(rounding.above(slot.count * slot.mu_squared)) for slot in slots)
