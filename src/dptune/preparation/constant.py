"""A constant column beside centred rows: their mean, which could tell classes of different size
apart, is gone. Regression always needs one: few targets are around the middle of their range."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from dptune.data.row_maps import Append, Divide
from dptune.preparation.centring import MEAN
from dptune.preparation.lengths import clips
from dptune.preparation.step import Case, Decision, Outcome, Reason, State, Step
from dptune.preparation.unit_length import keeps_lengths

# How large the constant is, at most, and how many times as large as the root of the mean square of
# a row's numbers; from how much signal on (mu times rows, for every weight) it is worth its noise.
_MOST, _TIMES, _LEAST_SIGNAL = 0.25, 2.0, 0.1


@dataclass(frozen=True, kw_only=True)
class ConstantDecision(Decision):
    """With this constant; none where the engine has a bias, whose column all rows share."""

    constant: float = 0.0


class Constant(Step):
    """A column that holds the same number in every row."""

    name: ClassVar[str] = "constant"

    def decide(self, case: Case, earlier: Mapping[str, Any]) -> ConstantDecision:
        if not case.engine.wants_constant:
            known = case.facts.loss == "squared"
            return ConstantDecision(skipped=None if known else Reason("bias"))
        if clips(case):
            return ConstantDecision(constant=_MOST)
        scaled = case.options.unit_rows and case.options.rescale
        if not scaled or not earlier[MEAN].share or case.signal < _LEAST_SIGNAL:
            return ConstantDecision(skipped=Reason("not for these rows"))
        return ConstantDecision(constant=min(_MOST, _TIMES / math.sqrt(case.columns)))

    def apply(
        self, case: Case, decision: ConstantDecision, statistic: None, state: State
    ) -> tuple[State, Outcome]:
        constant = decision.constant
        if not constant:
            return replace(state, curvature=state.curvature + 1.0), Outcome()
        curvature = max(state.curvature, constant**2) / (1 + constant**2)
        then = state.then(Append(constant))
        if keeps_lengths(state):
            then = then.then(Divide(math.hypot(1.0, constant)))
        return replace(then, curvature=curvature), Outcome()
