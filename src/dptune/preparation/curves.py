"""Polynomial features over the numbers and dates of a table, in place of straight lines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from dptune.errors import InvalidInput
from dptune.preparation import allowance as allowances
from dptune.preparation.allowance import Allowance
from dptune.preparation.options import AUTO
from dptune.preparation.ranges import RANGES, RangesDecision, decide_columns, enough_for_ranges
from dptune.preparation.step import Case, Decision, Outcome, Reason, State, Step
from dptune.preparation.words import reason_in_words

CURVES = "polynomial features"
SOME, NONE, NO_ROOM, NONE_LOST = "some", "none", "none, no room", "none, ranges lost"  # results
ROOM, RISING, WITHOUT_TWO = "room", "rising", "without two"  # plans


@dataclass(frozen=True, kw_only=True)
class CurvesDecision(Decision):
    """What is allowed."""

    allowed: Allowance = field(default_factory=Allowance)

    @property
    def room(self) -> int:
        """For so many features more than straight lines make."""
        return self.allowed.room


class Curves(Step):
    """They are drawn over columns that turn out to have more than two values: over two, a curve is
    only the same line again."""

    name: ClassVar[str] = CURVES

    def decide(self, case: Case, earlier: Mapping[str, Any]) -> CurvesDecision:
        ranges: RangesDecision = earlier[RANGES]
        allowed = allowances.allowance(case, ranges.columns, rough=ranges.rough)
        _must_be_possible(case, ranges, allowed)
        if not allowed.room:
            return CurvesDecision(skipped=_why_none(case, ranges, allowed), allowed=allowed)
        key = "done"
        if allowed.degree == 1:
            key = ROOM
        elif allowed.up_to > allowed.degree:
            key = RISING
        elif ranges.columns:
            key = WITHOUT_TWO
        values = {**vars(allowed), "degree": allowed.degree}
        return CurvesDecision(
            features=allowed.room if case.facts.named is not None else 0,
            planned=Reason(key, values),
            also=(Reason("heavy tails"),) if ranges.columns else (),
            allowed=allowed,
        )

    def options(self, decision: CurvesDecision) -> dict[str, Any]:
        allowed = decision.allowed
        more = allowed.room > (allowed.degree - 1) * len(allowed.columns)
        return {
            "curves": allowed.degree,
            "curves_up_to": allowed.up_to if allowed.up_to > allowed.degree else None,
            "curves_room": allowed.room if more else None,
        }

    def apply(
        self, case: Case, decision: CurvesDecision, statistic: None, state: State
    ) -> tuple[State, Outcome]:
        allowed, encoding = decision.allowed, state.encoding
        assert encoding is not None
        found = state.outcomes.get(RANGES, Outcome()).values
        straight = {*found.get("two", ()), *encoding.undecided}
        names = [name for name in allowed.columns if name not in straight]
        encoding = encoding.with_curves(names, allowed.degree_over(len(names)))
        curved = tuple(encoding.degrees)
        values = {
            "degree": max(encoding.degrees.values(), default=1),
            "curved": curved,
            "columns": allowed.columns,
            "room": allowed.room,
        }
        result = "done"
        if RANGES in state.outcomes:
            lost = RANGES in state.lost
            if not curved:
                none = NONE if allowed.degree > 1 else NO_ROOM
                result = NONE_LOST if lost else none
            elif len(curved) < len(allowed.columns):
                result = SOME
        else:
            values = dict(decision.planned.values)
            result = decision.planned.key
        heavy = found.get("heavy", ())
        also = (Reason("heavy tails in some", {"columns": heavy}),) if heavy else ()
        return state.with_encoding(encoding), Outcome(result, values, also)


def _why_none(case: Case, ranges: RangesDecision, allowed: Allowance) -> Reason:
    """Why columns that could have polynomial features, or be scaled, do not or are not."""
    facts, asked = case.facts, case.options
    scaled = bool(asked.ranges or asked.standardize)
    without_ranges = facts.as_given and not scaled
    if (without_ranges or facts.named is None) and facts.rather_features:
        if scaled or ranges.columns or allowances.against(case):
            return Reason("not for these rows")
        return _taken_for_features(case)
    columns = tuple(case.kept) if without_ranges else allowed.columns
    if not columns:
        return Reason("not for these rows")
    preparation = replace(asked, curves=AUTO, curves_up_to=None, curves_room=None, range_share=AUTO)
    usual = replace(case, options=preparation)
    values: dict[str, Any] = {"columns": columns, "rows": case.rows}
    if not allowances.allowance_over(usual, columns, estimated=without_ranges).room:
        why = allowances.against(case)
        values["why"] = why or Reason("too many weights", {"rows": case.rows})
        key = "unworthy"
    else:
        usually = decide_columns(usual)
        if not usually.against or not (without_ranges or usually.rough):
            return Reason("as asked", values)
        key = "rough ranges" if ranges.columns else "no ranges"
        values["why"] = usually.against
    if without_ranges and not ranges.columns:
        values["hint"] = enough_for_ranges(case, len(columns), for_scales=True)
        key += ", with a hint" if values["hint"] else ", declare them"
    return Reason(key, values)


def _taken_for_features(case: Case) -> Reason:
    """That columns are, why that is not looked at, and what to do if they are not."""
    if not case.facts.as_given:
        return Reason("features of one scale")
    rough, sure = (
        enough_for_ranges(case, case.straight, for_scales=for_scales)
        for for_scales in (True, False)
    )
    price = "more than half" if sure is None else f"{100 * sure:.3g} %"
    key = "features of one scale, " + ("dear to tell" if rough is None else "with a hint")
    return Reason(key, {"price": price, "hint": rough})


def _must_be_possible(case: Case, ranges: RangesDecision, allowed: Allowance) -> None:
    """Refuse a degree that the user named where there can be no curves."""
    degree = case.options.curves if isinstance(case.options.curves, int) else 1
    if degree > 1 and not case.engine.linear_in_rows:
        raise InvalidInput(
            f"polynomial features of degree {degree} are asked for (curves), and they are for "
            f"linear models, not for a {case.engine.trains}; leave curves out."
        )
    if degree > 1 and not allowed.columns:
        why = f" ({reason_in_words(ranges.against)})" if ranges.against else ""
        raise InvalidInput(
            f"polynomial features of degree {degree} are asked for (curves), and no number or date "
            f"has a range, declared or estimated{why}; "
            f"{_ways_to_a_range(case, ranges.left)}, or leave curves out."
        )


def _ways_to_a_range(case: Case, left: Sequence[str]) -> str:
    """Of rows without any; `left` are numbers of a table that could have one."""
    wanted = len(left)
    if case.facts.named is None or case.facts.as_given:
        ways = "declare them as ranges under [preparation]"
        wanted = 0 if case.facts.named is None else case.straight
    elif left:
        ways = "declare ranges under [columns]"
    else:
        ways = 'declare ranges under [columns], ask for them with range = "paid"'
    enough = enough_for_ranges(case, wanted, for_scales=False)
    return f"{ways}, estimate them with range_share = {enough:g}" if wanted and enough else ways
