"""What a noisy count of correct rows says of the final model: whether it is better than none."""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from dptune import gdp
from dptune.search.base import Census

_TRIVIAL = "than always answering the most frequent class"
BETTER = "better"
NO_BETTER = f"no better {_TRIVIAL}"
UNKNOWN = "cannot be told at this budget"
_SURE = 3.0  # standard deviations: one model in 700 that is no better is called better
_WORTH = 0.1  # of all there is to gain: a model that gains no more is no better
_HEART = 0.25  # of it: what is gained by heart is no better up to here, and more is not known


@dataclass(frozen=True)
class FinalCheck:
    """Shares of the training rows, both noisy: those that the final model gets right, and those of
    the most frequent class; with the standard deviation of the noise on each. Where rows are
    weighted by class, so are the shares. `by_heart` is what a model may gain on the rows it was
    trained on though there is nothing to be learned."""

    accuracy: float
    error: float
    majority: float
    majority_error: float
    by_heart: float = 0.0

    @property
    def verdict(self) -> str:
        """What of it is sure: better, no better, or neither."""
        gain = self.accuracy - self.majority
        if gain > self._unsure + self.by_heart:
            return BETTER
        room = max(1 - self.majority, 0.0)
        worth = max(_WORTH * room, min(self.by_heart, _HEART * room))
        return NO_BETTER if gain + self._unsure <= worth else UNKNOWN

    @property
    def _unsure(self) -> float:
        """How far their difference may be off."""
        return _SURE * math.hypot(self.error, self.majority_error)

    @property
    def in_words(self) -> str:
        """The verdict, and the numbers behind it."""
        said = {
            BETTER: f"the final model is better {_TRIVIAL}",
            NO_BETTER: f"the final model is {NO_BETTER}",
            UNKNOWN: f"whether the final model is better {_TRIVIAL} {UNKNOWN}",
        }[self.verdict]
        if self._unsure >= 1:
            return f"{said}: the noise is larger than the number of rows"
        shares = (
            f"{_percent(self.accuracy)} of the training rows right, beside "
            f"{_percent(self.majority)}"
        )
        known = f"difference is known up to {100 * self._unsure:.1f} points"
        if self.verdict == replace(self, by_heart=0.0).verdict:
            return f"{said}: {shares}; their {known}"
        return (
            f"{said}: {shares}; a model of so many weights may know up to "
            f"{100 * self.by_heart:.1f} points of it by heart, and the {known}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**asdict(self), "verdict": self.verdict, "words": self.in_words}


def _percent(share: float) -> str:
    """Noise may bring a share beyond what there is, which people need not read."""
    if 0 <= share <= 1:
        return f"{100 * share:.1f} %"
    return f"about {100 if share > 1 else 0} %"


def final_check(
    correct: float,
    noise: float,
    census: Census,
    weighing: Census | None,
    rows: int,
    *,
    parameters: int,
    mu: float,
) -> FinalCheck:
    """From noisy counts: `correct` rows, with their weights if a census is `weighing` them, and
    those by class, of publicly so many `rows`, by a model of so many `parameters` that is private
    with `mu`."""
    share = weighing.effective_share if weighing else 1.0
    weights = (weighing.weights if weighing else None) or (1.0,) * len(census.classes)
    counts = [(w * count, w) for w, count in zip(weights, census.classes, strict=True)]
    most, weight = max(counts)
    everything = rows * share
    return FinalCheck(
        accuracy=correct / everything,
        error=noise / everything,
        majority=most / everything,
        majority_error=weight * census.noise / everything,
        # Of labels that are coins, each parameter fits about the root of the rows' share; and that
        # a row was trained on cannot show more often than its privacy allows.
        by_heart=min(0.5 * math.sqrt(parameters / everything), gdp.delta_from_mu(mu, 0.0)),
    )
