"""Events, prices and receipts, as frozen values.

An event describes only how private rows are used; the accountant turns it into a price. Ledgers
store events for years. So a kind is never removed and never changes its meaning. It never gains a
field either, unless a record without that field keeps its old meaning.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Protocol, get_args

from dptune import validate
from dptune.errors import InvalidInput, UnpricedEvent


@dataclass(frozen=True)
class Price:
    """The price of an event: mu^2 of Gaussian DP, with failure probability `slack`."""

    mu_squared: float
    slack: float = 0.0

    @property
    def mu(self) -> float:
        return math.sqrt(self.mu_squared)


FREE = Price(0.0)


def total(prices: Iterable[Price]) -> Price:
    """The price of all of them together, in any order and with adaptive choices."""
    parts = list(prices)
    return Price(
        math.fsum(price.mu_squared for price in parts), math.fsum(price.slack for price in parts)
    )


@dataclass(frozen=True, kw_only=True)
class FullBatchRun:
    """`steps` sums over all rows, each row clipped to norm 1, with noise `noise_multiplier`."""

    kind: ClassVar[str] = "full-batch-run"
    steps: int
    noise_multiplier: float

    def __post_init__(self) -> None:
        steps = validate.whole(1, steps=self.steps)
        validate.store(
            self, steps=steps, noise_multiplier=_noise(noise_multiplier=self.noise_multiplier)
        )


@dataclass(frozen=True, kw_only=True)
class SampledRun:
    """The same over Poisson samples: every row joins each step with probability `sampling_rate`."""

    kind: ClassVar[str] = "sampled-run"
    steps: int
    noise_multiplier: float
    sampling_rate: float

    def __post_init__(self) -> None:
        steps = validate.whole(1, steps=self.steps)
        rate = validate.strictly_between(0, 1, sampling_rate=self.sampling_rate)
        noise = _noise(noise_multiplier=self.noise_multiplier)
        validate.store(self, steps=steps, noise_multiplier=noise, sampling_rate=rate)


@dataclass(frozen=True, kw_only=True)
class ZerothOrderRun:
    """`steps` sums of loss differences over all rows or, with a `sampling_rate`, over Poisson
    samples. In each step a row adds one number for each of `directions` public random directions.
    These numbers are together clipped to norm 1, and each sum has noise `noise_multiplier`."""

    kind: ClassVar[str] = "zeroth-order-run"
    steps: int
    noise_multiplier: float
    sampling_rate: float | None = None
    directions: int = 1

    def __post_init__(self) -> None:
        validate.store(
            self,
            steps=validate.whole(1, steps=self.steps),
            noise_multiplier=_noise(noise_multiplier=self.noise_multiplier),
            sampling_rate=_rate(self.sampling_rate),
            directions=validate.whole(1, directions=self.directions),
        )


@dataclass(frozen=True, kw_only=True)
class NoisyCount:
    """`counts` counts of rows, with Gaussian noise `noise` on each. A row adds from 0 to 1 to each.

    `centered`: only the differences from their common mean are released, which one row changes
    less. A histogram whose cells share no row is one count. With a `sampling_rate`, one secret
    Poisson sample of the rows is counted, the same for all `counts`. Otherwise, as in older
    records, all rows are counted.
    """

    kind: ClassVar[str] = "noisy-count"
    counts: int = 1
    noise: float
    centered: bool = False
    sampling_rate: float | None = None

    def __post_init__(self) -> None:
        validate.store(
            self,
            counts=validate.whole(1, counts=self.counts),
            noise=_noise(noise=self.noise),
            centered=validate.flag(centered=self.centered),
            sampling_rate=_rate(self.sampling_rate),
        )


@dataclass(frozen=True, kw_only=True)
class PrivateMean:
    """One sum of rows clipped to norm 1, with noise; divided by a public number."""

    kind: ClassVar[str] = "private-mean"
    noise_multiplier: float

    def __post_init__(self) -> None:
        validate.store(self, noise_multiplier=_noise(noise_multiplier=self.noise_multiplier))


@dataclass(frozen=True, kw_only=True)
class PrivateSecondMoment:
    """One sum of x x' over rows x clipped to norm 1, plus a symmetric matrix of Gaussian noise:
    standard deviation `noise_multiplier` on the diagonal, `noise_multiplier` / sqrt(2) off it;
    divided by a public number."""

    kind: ClassVar[str] = "private-second-moment"
    noise_multiplier: float

    def __post_init__(self) -> None:
        validate.store(self, noise_multiplier=_noise(noise_multiplier=self.noise_multiplier))


@dataclass(frozen=True, kw_only=True)
class NoisyRanks:
    """For each of `columns` columns, the number of rows below each of several public marks.

    The counts of rows between marks are multiplied by a public matrix whose columns have norm at
    most 1, and every entry has Gaussian noise `noise`. For each column, a row counts in at most one
    interval, so it changes the exact values by at most 1 in norm.
    """

    kind: ClassVar[str] = "noisy-ranks"
    columns: int
    noise: float

    def __post_init__(self) -> None:
        columns = validate.whole(1, columns=self.columns)
        validate.store(self, columns=columns, noise=_noise(noise=self.noise))


@dataclass(frozen=True, kw_only=True)
class ThresholdedCount:
    """`counts` histograms over secret names, such as the categories of a column.

    A row has at most one name in each. Every name that occurs is counted with Gaussian noise
    `noise`. It is released with its noisy count if that is at least `threshold`; of other names
    nothing is released.
    """

    kind: ClassVar[str] = "thresholded-count"
    counts: int = 1
    noise: float
    threshold: float

    def __post_init__(self) -> None:
        threshold = validate.positive(at_most=1e100, threshold=self.threshold)
        if threshold <= 1:
            raise InvalidInput(
                "a threshold must be above 1, or a name that only one row has would be released "
                f"in half of all cases or more; got {threshold:g}."
            )
        validate.store(
            self,
            counts=validate.whole(1, counts=self.counts),
            noise=_noise(noise=self.noise),
            threshold=threshold,
        )


@dataclass(frozen=True, kw_only=True)
class Composition:
    """Several events that all happen, as one event."""

    kind: ClassVar[str] = "composition"
    parts: tuple["Event", ...]

    def __post_init__(self) -> None:
        parts = tuple(self.parts)
        if not parts:
            raise InvalidInput("a composition needs at least one part; got none.")
        for part in parts:
            _must_be_event(part)
        validate.store(self, parts=parts)


@dataclass(frozen=True, kw_only=True)
class Parallel:
    """Several events on disjoint parts of the rows, by a public rule. A row is in only one part, so
    the price is that of the most expensive event."""

    kind: ClassVar[str] = "parallel"
    parts: tuple["Event", ...]

    def __post_init__(self) -> None:
        validate.store(self, parts=Composition(parts=self.parts).parts)


def _noise(**named: object) -> float:
    return validate.positive(at_most=1e100, **named)


def _rate(sampling_rate: object) -> float | None:
    """The checked rate; None means all rows."""
    if sampling_rate is None:
        return None
    return validate.strictly_between(0, 1, sampling_rate=sampling_rate)


def _must_be_event(value: object) -> None:
    if not isinstance(value, Event):
        raise InvalidInput(f"an event must consist of dptune's events; got {value!r}.")


STOPPING_DISTRIBUTIONS = ("geometric", "logarithmic", "poisson", "negative-binomial")


@dataclass(frozen=True, kw_only=True)
class RandomStopping:
    """A random number of trials; only the best one is ever released.

    `trial` is the event of one trial, including its score. The number of trials is drawn from
    `distribution` with mean `expected_trials` (Papernot & Steinke 2022) and must stay secret, as
    must the losing trials. Only a negative binomial needs a `shape`; the other distributions fix
    theirs, and their records may lack the field.

    Without a `density_ratio`, as in older records, every trial draws its settings independently of
    the others. With a ratio C/c, a trial may draw them from a density that depends on earlier
    trials but stays between c and C times a public one (DP-HyPO, Wang et al. 2023).
    """

    kind: ClassVar[str] = "random-stopping"
    trial: "Event"
    expected_trials: float
    distribution: str = "geometric"
    shape: float | None = None
    density_ratio: float | None = None

    def __post_init__(self) -> None:
        _must_be_event(self.trial)
        validate.one_of(STOPPING_DISTRIBUTIONS, distribution=self.distribution)
        trials = validate.strictly_between(1, 1e9, expected_trials=self.expected_trials)
        shape = self.shape
        if self.distribution == "negative-binomial":
            shape = validate.strictly_between(-1, 1000, shape=shape)
        elif shape is not None:
            raise InvalidInput(
                f"a {self.distribution} number of trials must have no shape of its own; got "
                f"{shape!r}. Leave it out, or use negative-binomial."
            )
        ratio = self.density_ratio
        if ratio is not None:
            ratio = validate.positive(density_ratio=ratio, at_most=1e100)
            if ratio < 1 or self.distribution == "poisson":
                raise InvalidInput(
                    "trials that learn from earlier ones need a density_ratio of at least 1 and a "
                    "geometric, logarithmic or negative-binomial number of trials; got "
                    f"{ratio:g} and {self.distribution}."
                )
        validate.store(self, expected_trials=trials, shape=shape, density_ratio=ratio)


@dataclass(frozen=True, kw_only=True)
class SubsetSearch:
    """A search on a secret sample of the rows, then a final run (Koskela & Kulkarni 2023).

    Every row joins the sample with probability `sampling_rate`, once for the whole `search`. Then
    `final`, which may be chosen from the search's output, runs on the rows outside the sample
    (`disjoint`) or on all rows. The sample must stay secret, and nothing may be computed from its
    size.
    """

    kind: ClassVar[str] = "subset-search"
    search: "Event"
    final: "Event"
    sampling_rate: float
    disjoint: bool

    def __post_init__(self) -> None:
        _must_be_event(self.search)
        _must_be_event(self.final)
        rate = validate.strictly_between(0, 1, sampling_rate=self.sampling_rate)
        disjoint = validate.flag(disjoint=self.disjoint)
        validate.store(self, sampling_rate=rate, disjoint=disjoint)


Event = (
    FullBatchRun
    | SampledRun
    | ZerothOrderRun
    | NoisyCount
    | PrivateMean
    | PrivateSecondMoment
    | NoisyRanks
    | ThresholdedCount
    | Composition
    | Parallel
    | RandomStopping
    | SubsetSearch
)
_EVENT_KINDS: dict[str, type[Event]] = {kind.kind: kind for kind in get_args(Event)}


def event_to_dict(event: Event) -> dict[str, Any]:
    """Plain data for JSON, with the kind first."""
    plain: dict[str, Any] = {"kind": event.kind}
    for one in fields(event):
        value = getattr(event, one.name)
        if isinstance(value, tuple):
            value = [event_to_dict(part) for part in value]
        elif isinstance(value, Event):
            value = event_to_dict(value)
        if value is not None:  # older records lack the field, which means None
            plain[one.name] = value
    return plain


def event_from_dict(plain: Mapping[str, Any]) -> Event:
    """The inverse of `event_to_dict`; an unknown kind or field is an error."""
    values = dict(plain)
    kind = values.pop("kind", None)
    if kind not in _EVENT_KINDS:
        raise UnpricedEvent(
            f"there is no event of kind {kind!r} (kinds: {', '.join(_EVENT_KINDS)}); a newer "
            "dptune may have written it, so update dptune."
        )
    if "parts" in values:
        values["parts"] = tuple(event_from_dict(part) for part in values["parts"])
    for name in ("trial", "search", "final"):
        if name in values:
            values[name] = event_from_dict(values[name])
    try:
        return _EVENT_KINDS[kind](**values)
    except TypeError as error:
        raise UnpricedEvent(
            f"an event of kind {kind!r} does not have these fields: {error}."
        ) from None


class Issuer(Protocol):
    """The ledger of a receipt, which checks that its payment still counts."""

    def must_be_in_force(self, receipt: "Receipt", fingerprint: str) -> None:
        """Refuse a receipt unless its payment was made here, for the rows of `fingerprint`, and was
        started. A payment that is only reserved may still be voided."""


@dataclass(frozen=True)
class Receipt:
    """Proof of payment for an event. `entry` is the hash of the ledger entry, and `issuer` the
    ledger, which checks the receipt before private rows open."""

    payment: int
    dataset: str
    event: Event
    price: Price
    entry: str
    issuer: Issuer | None = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"issuer": None}  # a pickled receipt leaves its ledger behind
