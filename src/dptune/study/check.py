"""What noisy counts of correct rows, or of errors, say of the final model: better than none?"""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from dptune import gdp
from dptune.search.base import Census
from dptune.study.measure import middle_of

_TRIVIAL = "than always answering the most frequent class"
_ONE_CLASS = "than always answering one class"  # any: where all count alike, none is best
_CONSTANT = "than always answering the mean"
BETTER = "better"
NO_BETTER = f"no better {_TRIVIAL}"
NO_BETTER_WEIGHTED = f"no better {_ONE_CLASS}"
NO_BETTER_VALUES = f"no better {_CONSTANT}"
UNKNOWN = "inconclusive at this budget"
_SURE = 3.0  # standard deviations: one model in 700 that is no better is called better
_WORTH = 0.1  # of all there is to gain: a model that gains no more is no better
_MEMORISED = 0.25  # of it: what is memorised is no better up to here, and more is not known


@dataclass(frozen=True)
class FinalCheck:
    """Shares of the training rows, both noisy: those that the final model gets right, and those of
    the most frequent class; with the standard deviation of the noise on each. Where rows are
    weighted by class, so are the shares, so that the second is what answering one class gets, and
    `most_frequent` is the unweighted share of the largest class; else None. `memorised` is what a
    model may gain on the rows it was trained on though there is nothing to be learned."""

    accuracy: float
    error: float
    majority: float
    majority_error: float
    memorised: float = 0.0
    most_frequent: float | None = None

    @property
    def verdict(self) -> str:
        """What of it is sure: better, no better, or neither."""
        gain, room = self.accuracy - self.majority, max(1 - self.majority, 0.0)
        no_better = NO_BETTER if self.most_frequent is None else NO_BETTER_WEIGHTED
        return _verdict(gain, self._unsure, self.memorised, room, no_better)

    @property
    def warns(self) -> bool:
        """Whether the guarantee should say so."""
        return self.verdict in (NO_BETTER, NO_BETTER_WEIGHTED)

    @property
    def _unsure(self) -> float:
        """How far their difference may be off."""
        return _SURE * math.hypot(self.error, self.majority_error)

    @property
    def in_words(self) -> str:
        """The verdict, and the numbers behind it."""
        memory_decides = _memory_decides(self)
        than = _TRIVIAL if self.most_frequent is None else _ONE_CLASS
        said = _said(self.verdict, than, memory_decides)
        if self._unsure >= 1:
            return f"{said}: the noise is larger than the number of rows"
        right, beside = _percent(self.accuracy), _percent(self.majority)
        shares = f"{right} of the training rows right, beside {beside}"
        if self.most_frequent is not None:
            shares = (
                f"with every class counting alike, {right} right, beside {beside} (unweighted, "
                f"{_percent(self.most_frequent)} of the training rows are of the most frequent "
                "class)"
            )
        known = f"difference is known to within {100 * self._unsure:.1f} points"
        if not memory_decides:
            return f"{said}: {shares}; their {known}"
        return (
            f"{said}: {shares}; a model of so many weights may have memorised "
            f"up to {100 * self.memorised:.1f} points of it, and the {known}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        words = {"verdict": self.verdict, "words": self.in_words, "by": "a noisy count"}
        return {**asdict(self), **words}


@dataclass(frozen=True)
class ErrorCheck:
    """Mean squared errors over the training rows, in units of half the target's range and both
    noisy: of the final model, and of always answering `middle`, a noisy mean; with the standard
    deviation of the noise on each, the `half_range` itself, and what of the second a model may save
    on rows it was trained on though there is nothing to be learned."""

    squared_error: float
    constant_error: float
    error: float
    middle: float
    half_range: float
    memorised: float = 0.0

    @property
    def verdict(self) -> str:
        """What of it is sure: better, no better, or neither."""
        room = max(self.constant_error, 0.0)
        gain = self.constant_error - self.squared_error
        return _verdict(gain, self._unsure, self.memorised, room, NO_BETTER_VALUES)

    @property
    def warns(self) -> bool:
        """Whether the guarantee should say so."""
        return self.verdict == NO_BETTER_VALUES

    @property
    def _unsure(self) -> float:
        """How far their difference may be off."""
        return _SURE * math.sqrt(2) * self.error

    @property
    def rmse(self) -> float:
        """Of the model, in the target's own units; noise may leave nothing of it."""
        return self._in_units(self.squared_error)

    @property
    def in_words(self) -> str:
        """The verdict, and the numbers behind it."""
        memory_decides = _memory_decides(self)
        said = _said(self.verdict, _CONSTANT, memory_decides)
        if self._unsure >= 1:
            return f"{said}: the noise is larger than what all rows could be off by"
        sure = _SURE * self.error
        low, high = (self._in_units(self.squared_error + off) for off in (-sure, sure))
        about = f"{self.rmse:.4g} (from {low:.4g} to {high:.4g}, for the noise)"
        if not self.rmse:  # hidden by its noise
            about = f"at most {high:.4g}"
        return (
            f"{said}: its root mean squared error on the training rows is {about}, beside "
            f"{self._in_units(self.constant_error):.4g} of always answering {self.middle:.4g}"
        )

    def _in_units(self, squared: float) -> float:
        return math.sqrt(max(squared, 0.0)) * self.half_range

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        words = {"verdict": self.verdict, "words": self.in_words, "by": "noisy squared errors"}
        return {**asdict(self), "rmse": self.rmse, **words}


def _verdict(gain: float, unsure: float, memorised: float, room: float, no_better: str) -> str:
    """Better, no better, or neither: from what a model gains, and how much there is to gain."""
    if gain > unsure + memorised:
        return BETTER
    worth = max(_WORTH * room, min(memorised, _MEMORISED * room))
    return no_better if gain + unsure <= worth else UNKNOWN


def _memory_decides(check: FinalCheck | ErrorCheck) -> bool:
    """Whether the verdict would be another if nothing could be memorised."""
    return check.verdict != replace(check, memorised=0.0).verdict


def _said(verdict: str, than: str, memory_decides: bool) -> str:
    """A gain that may have been memorised may also be none of it."""
    maybe = "may be" if memory_decides else "is"
    return {
        BETTER: f"the final model is better {than}",
        UNKNOWN: f"whether the final model is better {than} is {UNKNOWN}",
    }.get(verdict, f"the final model {maybe} {verdict}")


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
    fewest = rows / len(counts)  # no class is the largest with fewer
    largest = max(*census.classes, fewest)
    return FinalCheck(
        accuracy=correct / everything,
        error=noise / everything,
        majority=(most if weighing else largest) / everything,
        majority_error=weight * census.noise / everything,
        # Of labels that are coins, each parameter fits about the root of the rows' share; and that
        # a row was trained on cannot show more often than its privacy allows.
        memorised=min(0.5 * math.sqrt(parameters / everything), gdp.delta_from_mu(mu, 0.0)),
        most_frequent=largest / rows if weighing else None,
    )


def error_check(
    counted: tuple[float, ...],
    noise: float,
    rows: int,
    target_range: tuple[float, float],
    *,
    parameters: int,
) -> ErrorCheck:
    """From what `measure_errors` counted over publicly so many `rows`."""
    close, of_constant, total = counted
    low, high = target_range
    constant_error = 1 - of_constant / rows
    return ErrorCheck(
        squared_error=1 - close / rows,
        constant_error=constant_error,
        error=noise / rows,
        middle=low + (middle_of(total, rows) + 1) / 2 * (high - low),
        half_range=(high - low) / 2,
        # Least squares with so many weights fits that part of what is mere noise.
        memorised=max(constant_error, 0.0) * min(parameters / rows, 1.0),
    )
