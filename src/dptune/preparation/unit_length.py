"""Rows of unit length: before anything private is measured of them, and again at the end."""

from collections.abc import Mapping
from typing import Any, ClassVar

from dptune.data.row_maps import Append, ClipLength, Multiply, UnitLength
from dptune.preparation.step import Case, Decision, Outcome, Reason, State, Step


def keeps_lengths(state: State) -> bool:
    """Whether rows are clipped to length 1, and not scaled to it."""
    return state.has(ClipLength)


def bounded(case: Case, state: State) -> State:
    """Rows of length 1 at most, after something was subtracted from them."""
    if keeps_lengths(state):
        return state.then(ClipLength(1.0))
    rescaled = case.options.unit_rows and case.options.rescale
    return state.then(UnitLength()) if rescaled else state


class UnitRows(Step):
    """Rows scaled to unit length, unless they were clipped to it."""

    name: ClassVar[str] = "unit length"

    def decide(self, case: Case, earlier: Mapping[str, Any]) -> Decision:
        return Decision(skipped=None if case.options.unit_rows else Reason("as asked"))

    def apply(
        self, case: Case, decision: Decision, statistic: None, state: State
    ) -> tuple[State, Outcome]:
        return (state if keeps_lengths(state) else state.then(UnitLength())), Outcome()


class LastUnitLength(Step):
    """The same at the end, where a later step may have changed their length."""

    name: ClassVar[str] = "unit length again"

    def decide(self, case: Case, earlier: Mapping[str, Any]) -> Decision:
        return Decision()

    def apply(
        self, case: Case, decision: Decision, statistic: None, state: State
    ) -> tuple[State, Outcome]:
        last = state.maps[-1:]
        changed = bool(last) and isinstance(last[0], Append | Multiply)
        return (state.then(UnitLength()) if changed else state), Outcome()
