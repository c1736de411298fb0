"""Rows centred by a private mean."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dptune.data.row_maps import Append, Subtract
from dptune.preparation import gates
from dptune.preparation.moments import private_mean, shrunk
from dptune.preparation.step import Case, Decision, Outcome, PrivateRows, Reason, State, Step
from dptune.preparation.unit_length import bounded, keeps_lengths
from dptune.privacy import PrivateMean

MEAN = "private mean"


class Centring(Step):
    """A private mean is subtracted where its noise is small beside rows."""

    name: ClassVar[str] = MEAN
    file: ClassVar[str] = "models/mean.safetensors"

    def decide(self, case: Case, earlier: Mapping[str, Any]) -> Decision:
        asked, why = case.options.center_share, gates.never(case)
        share = gates.center_share(case) if why is None else 0.0
        if not isinstance(asked, str):
            share = asked
        if not share:
            why = why or (None if gates.center_share(case) else gates.too_many_features(case))
            return Decision(skipped=why or Reason("as asked"))
        return Decision(share=share, event=PrivateMean(noise_multiplier=case.noise(share)))

    def options(self, decision: Decision) -> dict[str, Any]:
        return {"center_share": decision.share}

    def shape(self, case: Case, decision: Decision, state: State) -> tuple[int, ...]:
        return (state.columns(case),)

    def measure(
        self, case: Case, decision: Decision, state: State, rows: PrivateRows
    ) -> NDArray[np.float64]:
        assert isinstance(decision.event, PrivateMean)
        noise = decision.event.noise_multiplier
        tables = rows.tables(state.maps)
        return private_mean(tables, state.columns(case), noise, case.rows, rows.normal)

    def apply(
        self, case: Case, decision: Decision, statistic: NDArray[np.float64], state: State
    ) -> tuple[State, Outcome]:
        assert isinstance(decision.event, PrivateMean)
        noise, mean = decision.event.noise_multiplier / case.rows, statistic
        if case.options.shrink_mean and not gates.is_clear(case, decision.share):
            mean = shrunk(mean, noise)
        length = _length(statistic, noise, anchored=_is_anchored(state))
        return bounded(case, state.then(Subtract(mean))), Outcome(values={"length": length})


def _is_anchored(state: State) -> bool:
    return state.has(Append) and not keeps_lengths(state)


def _length(mean: NDArray[np.float64], noise: float, *, anchored: bool) -> float:
    """Of the mean beside that of rows, freed of its noise and of the column that keeps lengths."""
    own = mean[:-1] if anchored else mean
    squared = float(own @ own) - len(own) * noise**2
    beside = 1 - float(mean[-1]) ** 2 if anchored else 1.0
    return math.sqrt(min(max(squared, 0.0) / max(beside, 1e-9), 1.0))
