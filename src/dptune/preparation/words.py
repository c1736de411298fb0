"""All sentences about preparation: templates by step and by what it decided or came to. Nothing
else in dptune compares or composes them.

In templates `{price}` is the share of the budget, `{columns}` a number of columns, and `{why}` one
of the reasons.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dptune.data.rows import MOST_COLUMNS_OF_A_TABLE

_LOST = "interrupted after payment"
FREE = "(no privacy cost)"
_OF_ONE_SCALE = f"more than {MOST_COLUMNS_OF_A_TABLE} columns are taken for features of one scale"

REASONS = {
    "as asked": "as asked",
    "alone": "a sealed search is priced well only where it is alone",
    "share is 0": "{name} is 0",
    "too few rows": "{rows:,} rows are too few at this budget",
    "too many columns": "{columns} are too many for {rows:,} rows at this budget",
    "too many features": "{features:,} {what} are too many for {rows:,} rows at this budget",
    "too many weights": "they would need too many weights for {rows:,} rows at this budget",
    "features of one scale": _OF_ONE_SCALE,
    "unmeasured": "not measured for a {trains}",
    "not unit length": "rows are not scaled to unit length",
    "not rescaled": "rows are not scaled to unit length again",
    "for classes": "only for classification",
    "one column": "there is one column",
    "linear and unit length": "only for linear models and rows of unit length",
    "ranges known": "every number has a range, gets one, or is of one scale",
}


@dataclass(frozen=True)
class Words:
    """What is said of one step; nothing for a key that is missing.

    Attributes:
        plans: what will be done, by the key of the decision; also of results that have no sentence
            of their own.
        skipped: why not, by the key of the reason; "" for all others.
        results: what was done, by the key of the outcome.
        notes: what must be noted of a result, by its key.
        releases: what is released of the statistic.

    """

    plans: Mapping[str, str] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    results: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    releases: str = ""


_NO_POLYNOMIALS = "no polynomial features in {columns}: {why}"
_ROUGHLY = "no polynomial features in {columns}, whose ranges are only estimated roughly: {why}"
_WITHOUT = "no polynomial features in {columns}, whose ranges are not estimated: {why}"
_DECLARE = "(declare ranges if their scales differ much)"
_OR_BUY = (
    "(if their scales differ much, declare ranges, or set range_share = {hint:g} and curves = 1)"
)
_NOT_SCALED = f"columns are not scaled one by one: {_OF_ONE_SCALE}"
_TO_BE_SURE = ", and a test for that would cost {price} of the budget"

WORDS: dict[str, Words] = {
    "names of categories": Words(
        plans={"done": "category names in {columns} estimated privately: {price}"},
        results={"lost": f"category names in {{columns}} {_LOST}: {{price}}"},
        notes={
            "lost": f"the names of categories were {_LOST}: every category counts as other",
        },
        releases="names of categories that many rows have, in {columns}",
    ),
    "ranges of columns": Words(
        plans={
            "done": "scaled by private ranges of {columns}: {price}",
            "scales": (
                "scaled by private ranges of {columns} if their scales differ much, paid for in "
                "either case: {price}"
            ),
            "dear scales": (
                "scaled by private ranges of {columns} if their scales differ much, paid for in "
                "either case (range_share = 0 under [preparation] avoids that): {price}"
            ),
            "left": "no range estimated for {columns}: {why}",
            "left with a hint": (
                "no range estimated for {columns}: {why} (range_share = {enough:g} and curves = 1 "
                "would)"
            ),
        },
        results={
            "same scale": (
                "not scaled by private ranges of {columns}, which are of one scale: {price}"
            ),
            "other scales": (
                "scaled by private ranges of {columns}, whose scales differ much: {price}"
            ),
            "lost": f"not scaled by private ranges of {{columns}}, {_LOST}: {{price}}",
        },
        notes={
            "lost": (
                f"the ranges of columns were {_LOST}: columns are taken as they are, without "
                "polynomial features"
            ),
        },
        releases="ranges of {columns}, from noisy ranks of the rows",
    ),
    "polynomial features": Words(
        plans={
            "done": f"polynomial features of degree {{degree}} in {{columns}} {FREE}",
            "without two": (
                f"polynomial features of degree {{degree}} in {{columns}}, except those with only "
                f"two values {FREE}"
            ),
            "rising": (
                "polynomial features of degree {degree} in {columns}, up to {up_to} if some have "
                f"only two values {FREE}"
            ),
            "room": (
                "polynomial features up to degree {up_to} in those of {columns} with more than two "
                f"values, {{room}} in all {FREE}"
            ),
            "heavy tails": f"heavy-tailed columns log-scaled {FREE}",
            "heavy tails in some": f"heavy tails in {{columns}} log-scaled {FREE}",
        },
        skipped={
            "as asked": _NO_POLYNOMIALS.format(columns="{columns}", why="as asked"),
            "unworthy": _NO_POLYNOMIALS,
            "unworthy, with a hint": f"{_NO_POLYNOMIALS} {_OR_BUY}",
            "unworthy, declare them": f"{_NO_POLYNOMIALS} {_DECLARE}",
            "no ranges": _WITHOUT,
            "no ranges, with a hint": f"{_WITHOUT} {_OR_BUY}",
            "no ranges, declare them": f"{_WITHOUT} {_DECLARE}",
            "rough ranges": _ROUGHLY,
            "features of one scale": f"{_NOT_SCALED} (declare ranges if they are not)",
            "features of one scale, dear to tell": (
                f"{_NOT_SCALED}{_TO_BE_SURE} (declare ranges if they are not)"
            ),
            "features of one scale, with a hint": (
                f"{_NOT_SCALED}{_TO_BE_SURE} (if they are not, declare ranges, or estimate rough "
                "ones with range_share = {hint:g})"
            ),
        },
        results={
            "done": f"polynomial features of degree {{degree}} in {{columns}} {FREE}",
            "some": (
                "polynomial features of degree {degree} in {curved} of {columns}; the others have "
                f"only two values, or no range {FREE}"
            ),
            "none": "no polynomial features: none of {columns} has more than two values",
            "none, no room": (
                "no polynomial features in {columns}: too few features are allowed for those with "
                "more than two values, or there are none"
            ),
            "none, ranges lost": (
                f"no polynomial features in {{columns}}: their ranges were {_LOST}"
            ),
        },
    ),
    "rows of unlike numbers": Words(
        plans={
            "done": (
                "log-scaled if a noisy count says that columns are of very different scale, paid "
                "for in either case: {price}"
            ),
        },
        skipped={
            "too dear": (
                "not log-scaled: to tell whether columns are of very different scale takes more "
                "rows or budget"
            ),
        },
        results={
            "taken": (
                "log-scaled: columns are of very different scale in {percent:.0f} % of the rows, "
                "by a noisy count: {price}"
            ),
            "not taken": (
                "not log-scaled: columns are of very different scale in {percent:.0f} % of the "
                "rows, by a noisy count: {price}"
            ),
            "lost": f"not log-scaled: the noisy count for that was {_LOST}: {{price}}",
        },
        notes={
            "lost": (
                f"the count of rows with columns of very different scale was {_LOST}: rows are not "
                "log-scaled"
            ),
        },
        releases="a noisy count of rows whose columns are of very different scale",
    ),
    "row lengths": Words(
        plans={"clipped": "clipped to their typical length, by noisy counts of lengths: {price}"},
        results={
            "hidden": "typical length hidden by the noise on its counts, and not used: {price}",
            "lost": f"typical length not used: the counts of lengths were {_LOST}: {{price}}",
        },
        notes={
            "lost": f"the counts of row lengths were {_LOST}: rows lose their length",
            "hidden": "the row lengths are hidden by their noise: rows lose their length",
        },
        releases="noisy counts of rows by length",
    ),
    "private mean": Words(
        plans={"done": "centred with a private mean: {price}"},
        skipped={"": "not centred: {why}"},
        results={
            "done": "centred with a private mean, {length:.2f} of a row long: {price}",
            "lost": f"not centred: the private mean was {_LOST}: {{price}}",
        },
        notes={"lost": f"the private mean was {_LOST}: rows are not centred"},
        releases="a noisy mean of the rows",
    ),
    "second moment": Words(
        plans={"done": "whitened with a private second moment: {price}"},
        skipped={"": "not whitened: {why}"},
        results={
            "done": (
                "whitened with a private second moment, the largest direction from {before:.0f} % "
                "to {after:.0f} % of a row: {price}"
            ),
            "lost": f"not whitened: the private second moment was {_LOST}: {{price}}",
        },
        notes={"lost": f"the second moment was {_LOST}: rows are not whitened"},
        releases="a noisy second moment of the rows",
    ),
}


def columns_in_words(names: Any) -> str:
    """How many.

    >>> columns_in_words(("age", "income"))
    '2 columns'
    """
    return "1 column" if len(names) == 1 else f"{len(names):,} columns"


def reason_in_words(reason: Any) -> str:
    """Why something is not done."""
    return filled(REASONS[reason.key], reason.values)


def filled(template: str, values: Mapping[str, Any]) -> str:
    """The sentence, with values as people read them."""
    shown = dict(values)
    if "columns" in shown:
        shown["columns"] = columns_in_words(shown["columns"])
    if "curved" in shown:
        shown["curved"] = len(shown["curved"])
    if "share" in shown:
        shown["price"] = f"{100 * shown['share']:g} % of the budget"
    if "{why}" in template:
        shown["why"] = reason_in_words(shown["why"])
    return template.format(**shown)
