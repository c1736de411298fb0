"""Names of categories that nobody declared: those that many rows have, by noisy counts."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from scipy.special import ndtri

from dptune import accounting
from dptune.columns.kinds import Category
from dptune.columns.private_categories import private_categories
from dptune.preparation import declared
from dptune.preparation.step import Case, Decision, Outcome, PrivateRows, Reason, State, Step
from dptune.preparation.words import reason_in_words
from dptune.privacy import ThresholdedCount

CATEGORIES = "names of categories"
# Where the user names no share: what finds names in this part of all rows, within reason.
_SEEN = 0.02
# Names in fewer than this part of all rows may stay hidden; were it more, counting is vain.
MOST_HIDDEN = 0.25


@dataclass(frozen=True, kw_only=True)
class CategoriesDecision(Decision):
    """For the columns of these names."""

    columns: tuple[str, ...] = ()


class Categories(Step):
    """Names of categories, from noisy counts with a threshold."""

    name: ClassVar[str] = CATEGORIES
    file: ClassVar[str] = "categories.json"

    def decide(self, case: Case, earlier: Mapping[str, Any]) -> CategoriesDecision:
        asked = case.options.category_share
        columns = tuple(
            name
            for name, column in case.kept.items()
            if isinstance(column, Category) and column.paid
        )
        if not columns:
            declared.must_be_unasked(category_share=asked)
            return CategoriesDecision(skipped=Reason("not for these rows"))
        if asked == 0 or case.alone:
            why = Reason("alone") if asked else Reason("share is 0", {"name": "category_share"})
            declared.must_be_free(columns, "list of names", reason_in_words(why))
        share = asked if not isinstance(asked, str) else usual_share(case, len(columns), _SEEN)
        if isinstance(asked, str) and least_rows(case, len(columns), share) > (
            MOST_HIDDEN * case.rows
        ):
            why = declared.too_many(case, columns)
            declared.must_be_free(columns, "list of names", reason_in_words(why))
        event = accounting.calibrate_thresholded(
            mu=math.sqrt(share * case.budget.mu_squared()), slack=case.slack, counts=len(columns)
        )
        return CategoriesDecision(
            share=share, event=event, columns=columns, planned=Reason("done", {"columns": columns})
        )

    def options(self, decision: CategoriesDecision) -> dict[str, Any]:
        return {"category_share": decision.share}

    def measure(
        self, case: Case, decision: CategoriesDecision, state: State, rows: PrivateRows
    ) -> Mapping[str, Sequence[str]]:
        assert state.encoding is not None and isinstance(decision.event, ThresholdedCount)
        kinds = [case.kept[name] for name in decision.columns]
        vocabularies = rows.vocabularies()
        names = private_categories(
            declared.codes_of(decision.columns, state.encoding, rows),
            [vocabularies[name] for name in decision.columns],
            [kind.slots for kind in kinds if isinstance(kind, Category)],
            decision.event.noise,
            decision.event.threshold,
            rows.normal,
        )
        return dict(zip(decision.columns, map(list, names), strict=True))

    def read(self, case: Case, decision: CategoriesDecision, state: State, stored: Any) -> Any:
        names = {column: stored[column] for column in decision.columns}
        for each in names.values():
            if not isinstance(each, list) or not all(isinstance(name, str) for name in each):
                raise ValueError("it must have a list of names for each column")
            if len(set(each)) < len(each):
                raise ValueError("names of a column must be all different")
        return names

    def apply(
        self,
        case: Case,
        decision: CategoriesDecision,
        statistic: Mapping[str, Sequence[str]],
        state: State,
    ) -> tuple[State, Outcome]:
        assert state.encoding is not None
        return state.with_encoding(state.encoding.with_categories(statistic)), Outcome()


def usual_share(case: Case, counts: int, part: float) -> float:
    """What finds names that this part of all rows has, in so many columns."""
    noise = max(part * case.rows - 1, 1e-9) / _deviations(case, counts)
    return declared.usual_share(case, counts, noise)


def least_rows(case: Case, counts: int, share: float) -> float:
    """Names that so many rows have are found as often as not."""
    return 1 + _deviations(case, counts) * case.noise_of_counts(counts, share)


def _deviations(case: Case, counts: int) -> float:
    """Of the noise on each of so many counts, up to the threshold that hides the name of a row."""
    return -float(ndtri(accounting.default_slack(case.budget.delta) / counts))
