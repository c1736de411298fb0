"""The guarantee for what was spent: the whole statement, as a record and in words."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dptune import gdp, rounding, validate
from dptune.accounting.bounds import Sealed, lone_search, sealed_bound
from dptune.accounting.composition import direct_epsilon, flatten
from dptune.accounting.pricing import default_slack, epsilon_of, needs_slack, price
from dptune.accounting.replace_one import (
    replace_one_direct_epsilon,
    replace_one_epsilon,
    replace_one_sealed_epsilon,
)
from dptune.errors import InvalidInput
from dptune.privacy import (
    Event,
    FullBatchRun,
    Parallel,
    Price,
    RandomStopping,
    SampledRun,
    SubsetSearch,
    ThresholdedCount,
    ZerothOrderRun,
    total,
)

LARGEST_MEANINGFUL_EPSILON = 20.0  # a larger one protects no row in any provable way
# The unit of privacy.
ONE_ROW, ONE_PICTURE, ONE_TEXT, ONE_PERSON = "one row", "one picture", "one text", "one person"
NEIGHBOURS = {
    ONE_ROW: "zero-out: neighbouring data sets differ in one row, which one of them replaces by an "
    "empty row that contributes nothing; the number of rows is public",
    ONE_PICTURE: "zero-out: neighbouring data sets differ in one picture, which one of them "
    "replaces by an empty row that contributes nothing (as it does with unreadable pictures); the "
    "number of pictures is public",
    ONE_TEXT: "zero-out: neighbouring data sets differ in one text, which one of them replaces, "
    "with the rest of its row of the file, by an empty one that contributes nothing; the number of "
    "texts is public",
    ONE_PERSON: "zero-out: neighbouring data sets differ in everything that one person wrote, in "
    "any number of rows of the file, which one of them replaces by nothing; the number of people "
    "is public",
}
_SEVERAL = {
    ONE_ROW: "a person with several rows",
    ONE_PICTURE: "a person in several pictures",
    ONE_TEXT: "a person with several texts",
    ONE_PERSON: "a group of several people",
}

_COVERED = {
    True: "covered",
    False: "NOT covered",
    None: "covered if each trial and each score is among the payments",
}


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """The whole privacy statement: (epsilon, delta), neighbours, and all assumptions.

    Guarantees: all that `releases` names, taken together, is (epsilon, delta)-differentially
    private for `neighbours`, if what `public_facts` and `caveats` say holds.
    """

    epsilon: float
    delta: float
    mu: float
    slack: float
    neighbours: str = NEIGHBOURS[ONE_ROW]
    replace_one_epsilon: float
    unit: str = ONE_ROW
    sampler: str
    accountant: str
    covers_search: bool | None  # None: covered if its trials are among the events
    covers_selection: bool | None
    releases: tuple[str, ...]
    public_facts: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        plain = asdict(self)
        if math.isinf(self.replace_one_epsilon):  # JSON has no infinity
            plain["replace_one_epsilon"] = None
        return plain

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2)

    @staticmethod
    def from_dict(plain: Mapping[str, Any]) -> "Guarantee":
        """The inverse of `to_dict`; refuses values that no statement has."""
        values = dict(plain)
        for name in ("releases", "public_facts", "caveats"):
            values[name] = tuple(values[name])
        finite = ["epsilon", "delta", "mu", "slack", "replace_one_epsilon"]
        if values["replace_one_epsilon"] is None:
            values[finite.pop()] = math.inf
        for name in finite:
            validate.non_negative(**{name: values[name]})
        validate.strictly_between(0, 1, delta=values["delta"])
        validate.one_of(tuple(NEIGHBOURS), unit=values.get("unit", ONE_ROW))
        for name in ("covers_search", "covers_selection"):
            if values[name] is not None:
                validate.flag(**{name: values[name]})
        made = Guarantee(**values)
        texts = [made.sampler, made.accountant, made.neighbours]
        texts += [*made.releases, *made.public_facts, *made.caveats]
        if not all(isinstance(text, str) for text in texts):
            raise InvalidInput("a sentence of this guarantee is not text; restore its file.")
        return made

    def sections(self) -> list[tuple[str, str]]:
        """The statement as (heading, sentence) pairs."""
        epsilon = rounding.cost(self.epsilon)
        replaced = f"epsilon would be {rounding.cost(self.replace_one_epsilon)}"
        if math.isinf(self.replace_one_epsilon):
            replaced = "we can state no finite epsilon"
            if self.slack:
                replaced += ": the failure probability, counted for both rows, may exceed delta"
        failure = ""
        if self.slack:
            failure = f", with failure probability {rounding.cost(self.slack)}"
        promise = (
            f"({epsilon}, {rounding.probability(self.delta)})-differential privacy for {self.unit}"
        )
        if self.covers_search and self.covers_selection is False:
            promise = (
                f"NONE: trials were chosen by unpaid scores. With paid scores it would be {promise}"
            )
        sections = [
            ("Promise", promise),
            ("In plain words", self._in_plain_words()),
            ("Neighbours", self.neighbours),
            (
                "Replace-one",
                f"if neighbours exchanged a {self._noun} for another one, {replaced}",
            ),
            ("Gaussian DP", self._mu_prefix() + f"mu {rounding.cost(self.mu, 5)}{failure}"),
            ("Rows enter by", self.sampler),
            ("Accountant", self.accountant),
            ("Search", f"the search for hyperparameters is {_COVERED[self.covers_search]}"),
            ("Selection", f"choosing among trials is {_COVERED[self.covers_selection]}"),
            ("May be released", "; ".join(self.releases) or "nothing"),
        ]
        if self.public_facts:
            sections.append(("Taken as public", "; ".join(self.public_facts)))
        return sections + [("Note", caveat) for caveat in self.caveats]

    def _mu_prefix(self) -> str:
        """Where the epsilon has a tighter bound of its own, mu only serves for composition."""
        finite = self.mu <= gdp.LARGEST_MU and self.slack < self.delta
        by_mu = gdp.epsilon_from_mu(self.mu, self.delta) if finite else math.inf
        return "composed with other payments it counts as " if by_mu > 1.001 * self.epsilon else ""

    def _in_plain_words(self) -> str:
        if self.epsilon > LARGEST_MEANINGFUL_EPSILON:
            return f"so large an epsilon protects no {self._noun} in any provable way"
        factor = rounding.cost(math.exp(self.epsilon), 2)
        return (
            f"leaving out any one {self._noun} changes the probability of any outcome by at most a "
            f"factor of {factor}, plus {rounding.probability(self.delta)}{self._odds_sentence()}; "
            f"{self._group_sentence()}"
        )

    def _group_sentence(self) -> str:
        """Replacing k units one after the other: k times epsilon, and a delta that grows by the
        factor of the sum of e^(i epsilon) over i < k."""
        return (
            f"{_SEVERAL[self.unit]} is protected less: with k of them epsilon is at most k times "
            "as large, and delta at most k e^((k - 1) epsilon) times"
        )

    def _odds_sentence(self) -> str:
        """The probability that an observer's odds move by more than e^epsilon; it is far larger
        than delta."""
        if not self.mu <= gdp.LARGEST_MU or self.slack >= 0.5:
            return ""
        at_most = gdp.largest_exceedance(self.mu, self.epsilon, self.slack)
        exact = ""
        if not self.slack and not self._mu_prefix():
            gaussian = rounding.cost(gdp.gaussian_exceedance(self.mu, self.epsilon), 2)
            exact = f" ({gaussian} for a single Gaussian release)"
        return (
            f". An observer's odds that the {self._noun} was in the data move towards the truth by "
            f"more than that factor with probability at most {rounding.cost(at_most, 2)}{exact}"
        )

    @property
    def _noun(self) -> str:
        return self.unit.removeprefix("one ")

    def in_words(self) -> str:
        """The statement as text, one line a section."""
        return "\n".join(f"{heading}: {sentence}." for heading, sentence in self.sections())


def guarantee(
    events: Sequence[Event],
    delta: float,
    *,
    covers_search: bool | None,
    covers_selection: bool | None,
    releases: tuple[str, ...],
    spent: Price | None = None,
    adaptive: bool = True,
    unit: str = ONE_ROW,
    public_facts: tuple[str, ...] = (),
    caveats: tuple[str, ...] = (),
) -> Guarantee:
    """The statement for all of `events` together.

    `spent` is the recorded payment for them; without it they are priced here. `adaptive=False`
    claims that no event was chosen from another's output. That allows direct composition, and the
    statement names it as an assumption.
    """
    parts = flatten(events)
    sharing = sum(needs_slack(part) for part in parts)
    searches = [part for part in parts if isinstance(part, Sealed)]
    thresholded = any(isinstance(part, ThresholdedCount) for part in parts)
    if spent is None:
        spent = total(price(part, slack=default_slack(delta)) for part in parts)
    notes = list(caveats)
    bound, replaced = epsilon_of(parts, spent, delta), replace_one_epsilon(spent, delta)
    if not sharing:
        accountant = "Gaussian DP, exact"
        if thresholded:
            accountant += ", except for the failure probability of a threshold"
    elif (search := lone_search(parts)) is not None:
        tightest = sealed_bound(search, delta)
        accountant = tightest.accountant
        notes.append(tightest.remark)
        replaced = min(replaced, replace_one_sealed_epsilon(search, delta))
    elif not adaptive and not searches:
        accountant = "one privacy loss distribution for all runs, composed directly"
        bound = direct_epsilon(parts, delta)
        replaced = min(replaced, replace_one_direct_epsilon(parts, delta))
        notes.append(
            "direct composition assumes that steps, sampling rates and noise of every run were "
            "fixed before the first output was seen"
        )
    else:
        kinds = ["each sampled run"] if sharing > len(searches) else []
        kinds += ["each sealed search"] if searches else []
        kinds += ["each count with a threshold"] if thresholded else []
        accountant = f"Gaussian DP that dominates {' and '.join(kinds)}"
    notes += dict.fromkeys(note for search in searches for note in _conditions(search))
    if searches and len(parts) > 1:
        notes.append(
            "composed with other events, a sealed search is priced by a dominating Gaussian, which "
            "is valid but loose"
        )
    return Guarantee(
        epsilon=bound,
        delta=delta,
        mu=spent.mu,
        slack=spent.slack,
        replace_one_epsilon=replaced,
        unit=unit,
        neighbours=NEIGHBOURS[unit],
        sampler=describe_sampler(parts),
        accountant=accountant,
        covers_search=covers_search,
        covers_selection=covers_selection,
        releases=releases,
        public_facts=public_facts,
        caveats=tuple(notes),
    )


def _conditions(search: Sealed) -> Iterator[str]:
    """The assumptions behind the bound of a sealed search."""
    inside: Event = search
    if isinstance(search, SubsetSearch):
        yield (
            "the sample of rows used for the search and its size stay secret, and nothing was "
            "computed from that size"
        )
        (inside, *_) = flatten([search.search])
    if isinstance(inside, RandomStopping):
        yield "the number of trials and the losing trials of a sealed search stay secret"
        if inside.density_ratio is not None:
            yield (
                "trials drew their settings from densities between c and C times a public one, "
                f"with C/c at most {inside.density_ratio:g}"
            )


def describe_sampler(events: Iterable[Event]) -> str:
    """How rows enter these events, in words."""
    rates: set[float] = set()
    whole = counted = False
    words: list[str] = []
    stack = list(flatten(events))
    while stack:
        part = stack.pop()
        if isinstance(part, RandomStopping):
            stack += flatten([part.trial])
        elif isinstance(part, Parallel):
            stack += flatten(part.parts)
        elif isinstance(part, SubsetSearch):
            rest = "all the others" if part.disjoint else "all rows"
            words.append(
                f"a search with one secret Poisson sample (rate {part.sampling_rate:g}) in every "
                f"step, then {rest} in every step"
            )
        elif isinstance(part, SampledRun | ZerothOrderRun) and part.sampling_rate is not None:
            rates.add(part.sampling_rate)
        elif isinstance(part, FullBatchRun | ZerothOrderRun):
            whole = True
        else:
            counted = True
    # Full-batch steps and counts both use all rows: one phrase covers both.
    whole = whole or (counted and not rates)
    words += ["all rows in every step (full batch)"] if whole else []
    if rates:
        words.append(f"Poisson sampling at rate {', '.join(f'{rate:g}' for rate in sorted(rates))}")
        words += ["all rows in counts and sums"] if counted and not whole else []
    return "; ".join(words) or "no rows were used"
