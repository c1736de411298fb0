"""All steps of preparation in their order: what they decide, and what they make of rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dptune.columns.encoding import Encoding
from dptune.data.preprocess import from_ranges
from dptune.data.row_maps import Encode, Scale
from dptune.preparation.categories import Categories
from dptune.preparation.centring import Centring
from dptune.preparation.constant import Constant
from dptune.preparation.curves import CURVES, Curves
from dptune.preparation.lengths import Lengths
from dptune.preparation.logarithms import Logarithms
from dptune.preparation.options import Preparation
from dptune.preparation.ranges import Ranges
from dptune.preparation.step import LOST, Case, Decision, Outcome, State, Step
from dptune.preparation.unit_length import LastUnitLength, UnitRows
from dptune.preparation.whitening import Whitening
from dptune.privacy import Event

STEPS: tuple[Step, ...] = (
    Categories(),
    Ranges(),
    Curves(),
    Logarithms(),
    Lengths(),
    UnitRows(),
    Centring(),
    Whitening(),
    Constant(),
    LastUnitLength(),
)

# The statistic of a step whose decision has an event; None where it was paid for and is lost. A
# study pays for it and keeps it, benchmarks just measure it, reports read what was kept.
Statistics = Callable[[Step, Decision, State], Any]


@dataclass(frozen=True)
class Plan:
    """What is decided before a row is read; rows have at most as many features as `case` says."""

    case: Case
    steps: tuple[Step, ...]
    decisions: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        """The decision of the step of this name."""
        return self.decisions[name]

    @property
    def events(self) -> dict[str, Event]:
        """What is paid for, in its order."""
        return {name: each.event for name, each in self.decisions.items() if each.event}

    @property
    def options(self) -> Preparation:
        """The user's options with all that was left to dptune decided."""
        decided: dict[str, Any] = {}
        for step in self.steps:
            decided |= step.options(self[step.name])
        return replace(self.case.options, **decided)

    def must_be_of_use(self) -> None:
        """Refuse options that do nothing."""
        for step in self.steps:
            step.must_be_of_use(self.case, self.decisions)

    def start(self, encoding: Encoding | None, scale: Scale | None = None) -> State:
        """Before the first step: columns are encoded where that is of use, or scaled by public
        numbers, which for public rows are in `scale`."""
        curves, ranges = self[CURVES], self.case.options.ranges
        if encoding is not None and ranges and curves.room:
            encoding = encoding.with_ranges(dict(zip(encoding.columns.kept, ranges, strict=True)))
        elif ranges:
            scale = from_ranges(ranges)
        of_use = not self.case.facts.as_given or curves.room or self.decisions[Ranges.name].event
        encode = () if encoding is None or not of_use else (Encode(encoding),)
        return State(encode if scale is None else (*encode, scale))


def plan(case: Case, steps: Sequence[Step] = STEPS) -> Plan:
    """What every step will do, each knowing what the earlier ones decided."""
    decisions: dict[str, Any] = {}
    now = case
    for step in steps:
        decision = step.decide(now, decisions)
        decisions[step.name] = decision
        now = replace(now, columns=now.columns + decision.features)
    return Plan(now, tuple(steps), decisions)


def prepare(plan: Plan, statistics: Statistics, start: State) -> State:
    """The state after all steps. A statistic that is lost leaves rows as they are."""
    state = start
    for step in plan.steps:
        decision = plan[step.name]
        if decision.skipped:
            continue
        statistic = statistics(step, decision, state) if decision.event else None
        if decision.event and statistic is None:
            outcome = Outcome(LOST, also=decision.also)
            state = replace(state, lost=(*state.lost, step.name))
        else:
            state, outcome = step.apply(plan.case, decision, statistic, state)
        state = replace(state, outcomes={**state.outcomes, step.name: outcome})
    return state
