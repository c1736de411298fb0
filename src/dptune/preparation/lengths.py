"""How long rows are, as a rule: noisy counts of rows by length.

Rows of a regression are clipped to that length. Rows that will be whitened get a constant column
about as long as they are, before they are scaled to unit length, which else loses their length.
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dptune.data.row_maps import Append, ClipLength
from dptune.data.tables import directions, table_of, wide_chunks
from dptune.noise import add_noise
from dptune.preparation import gates
from dptune.preparation.options import AUTO
from dptune.preparation.step import Case, Decision, Outcome, PrivateRows, Reason, State, Step
from dptune.preparation.whitening import whiten_share
from dptune.privacy import NoisyCount
from dptune.validate import Normal

LENGTHS = "row lengths"
CLIPPED, APPENDED = "clipped", "appended"  # plans
HIDDEN = "hidden"  # a result: no length stands out of the noise
_SHARE = 0.001  # of mu^2
_NORM_EXPONENTS = np.arange(-40.0, 40.5, 0.5)  # of two
CELLS = len(_NORM_EXPONENTS)


def clips(case: Case) -> bool:
    """Whether rows are clipped to their typical length, and not scaled to it."""
    asked = case.options.shorten
    if asked == AUTO:
        values = case.options.rescale and case.facts.loss == "squared"
        return values and gates.impossible(case) is None
    return asked is True


class Lengths(Step):
    """Clipped rows, or a column that keeps their length."""

    name: ClassVar[str] = LENGTHS
    file: ClassVar[str] = "models/lengths.safetensors"

    def decide(self, case: Case, earlier: Mapping[str, Any]) -> Decision:
        clipped = clips(case)
        if not (clipped or (whiten_share(case) and case.engine.wants_constant)):
            return Decision(skipped=Reason("not for these rows"))
        return Decision(
            share=_SHARE,
            event=NoisyCount(noise=case.noise(_SHARE)),
            planned=Reason(CLIPPED if clipped else APPENDED),
        )

    def options(self, decision: Decision) -> dict[str, Any]:
        return {"shorten": decision.planned.key == CLIPPED}

    def shape(self, case: Case, decision: Decision, state: State) -> tuple[int, ...]:
        return (CELLS,)

    def measure(
        self, case: Case, decision: Decision, state: State, rows: PrivateRows
    ) -> NDArray[np.float64]:
        assert isinstance(decision.event, NoisyCount)
        return private_lengths(rows.tables(state.maps), decision.event.noise, rows.normal)

    def apply(
        self, case: Case, decision: Decision, statistic: NDArray[np.float64], state: State
    ) -> tuple[State, Outcome]:
        assert isinstance(decision.event, NoisyCount)
        typical = typical_length(statistic, decision.event.noise)
        if not typical:
            return state, Outcome(HIDDEN)
        clipped = decision.planned.key == CLIPPED
        row_map = ClipLength(typical) if clipped else Append(typical)
        return state.then(row_map), Outcome(decision.planned.key)


def private_lengths(
    tables: Iterable[NDArray[Any]], noise: float, stream_normal: Normal
) -> NDArray[np.float64]:
    """Noisy counts of rows by length: a row is in one cell, so they are one `NoisyCount`."""
    by_length = np.zeros(CELLS)  # exact, whatever the order: noise comes last
    for chunk in (chunk for table in tables for chunk in wide_chunks(table_of(table))):
        by_length += counts_by_length(directions(chunk)[1])
    return add_noise(by_length, noise, stream_normal)


def typical_length(noisy: NDArray[np.float64], noise: float) -> float | None:
    """The median length, from cells that stand out of the noise; None where none does."""
    clear = np.where(noisy > 4 * noise, noisy, 0.0)
    if not clear.any():
        return None
    middle = int(np.searchsorted(np.cumsum(clear), clear.sum() / 2))
    return float(2.0 ** _NORM_EXPONENTS[middle])


def counts_by_length(lengths: NDArray[np.float64]) -> NDArray[np.int64]:
    """How many rows are about as long as each cell says."""
    with np.errstate(divide="ignore"):  # a row of zeros is among the shortest
        places = np.rint(2 * (np.log2(lengths) - _NORM_EXPONENTS[0]))
    cells = np.clip(places, 0, CELLS - 1).astype(int)
    return np.bincount(cells, minlength=CELLS)
