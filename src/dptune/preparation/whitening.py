"""Rows whitened by a private second moment: a matrix evens out their directions, and says how much
of them one direction holds afterwards. Both use released and public numbers alone."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dptune import validate
from dptune.data.row_maps import ClipLength, Multiply
from dptune.errors import InvalidInput
from dptune.preparation import gates
from dptune.preparation.moments import private_second_moment
from dptune.preparation.step import Case, Decision, Outcome, PrivateRows, Reason, State, Step
from dptune.preparation.unit_length import keeps_lengths
from dptune.privacy import PrivateSecondMoment

SECOND_MOMENT = "second moment"
# How many times as long as rows are on average a whitened row may be before it is clipped.
_WHITENED_REACH = 1.5
# The largest eigenvalue of symmetric noise is about sqrt(2 columns) times its deviation on the
# diagonal: eigenvalues below that are mostly noise.
_NOISE_LEVEL = 1.4
# Of the mean eigenvalue of rows of unit length, 1/columns: keeps directions that hold next to
# nothing from being blown up where the noise is small.
_EMPTY_LEVEL = 0.3


def whiten_share(case: Case) -> float:
    """Of mu^2, what is paid for a second moment; 0 where none is measured."""
    asked = case.options.whiten_share
    if not isinstance(asked, str):
        return asked
    return 0.0 if _against(case) else gates.WHITEN_SHARE


def _against(case: Case) -> Reason | None:
    """Why it is not worth its price; None where it is."""
    if why := gates.never(case):
        return why
    if not case.options.rescale:
        return Reason("not rescaled")
    noisy = gates.noisy_moment(case, case.columns)
    return gates.too_many_features(case) if noisy else None


class Whitening(Step):
    """Rows are multiplied by a matrix where the noise on it is small enough."""

    name: ClassVar[str] = SECOND_MOMENT
    file: ClassVar[str] = "models/second_moment.safetensors"

    def decide(self, case: Case, earlier: Mapping[str, Any]) -> Decision:
        share = whiten_share(case)
        if not share:
            return Decision(skipped=_against(case) or Reason("as asked"))
        return Decision(share=share, event=PrivateSecondMoment(noise_multiplier=case.noise(share)))

    def options(self, decision: Decision) -> dict[str, Any]:
        return {"whiten_share": decision.share}

    def shape(self, case: Case, decision: Decision, state: State) -> tuple[int, ...]:
        return (state.columns(case),) * 2

    def measure(
        self, case: Case, decision: Decision, state: State, rows: PrivateRows
    ) -> NDArray[np.float64]:
        assert isinstance(decision.event, PrivateSecondMoment)
        noise = decision.event.noise_multiplier
        tables = rows.tables(state.maps)
        return private_second_moment(tables, state.columns(case), noise, case.rows, rows.normal)

    def apply(
        self, case: Case, decision: Decision, statistic: NDArray[np.float64], state: State
    ) -> tuple[State, Outcome]:
        assert isinstance(decision.event, PrivateSecondMoment)
        noise = decision.event.noise_multiplier
        made = WhiteningMatrix.of(statistic, noise, case.rows)
        state, curvature = state.then(Multiply(made.matrix)), made.curvature
        if keeps_lengths(state):
            state = state.then(ClipLength(_WHITENED_REACH))
            curvature /= _WHITENED_REACH**2
        values = {"before": 100 * made.largest, "after": 100 * curvature}
        return replace(state, curvature=curvature), Outcome(values=values)


@dataclass(frozen=True, eq=False)
class WhiteningMatrix:
    """`matrix`: V diag(1 / sqrt(eigenvalue + level)) V', symmetric, to multiply rows with, and
    divided by what makes them about as long as they were, on average.

    `largest` is what one direction held of the rows before, an eigenvalue up to 1; `curvature`
    about the same of the rows that were multiplied by the matrix and then scaled to unit length:
    from 1/columns to 1. Noise that drowns most directions also counts as theirs, so then it may be
    as little as half of it.
    """

    matrix: NDArray[np.float64]
    largest: float
    curvature: float

    @staticmethod
    def of(second_moment: NDArray[Any], noise_multiplier: float, rows: int) -> "WhiteningMatrix":
        """From what `private_second_moment` released with this noise over this PUBLIC number of
        rows."""
        moment = _moment(second_moment)
        level = _level(len(moment), noise_multiplier, rows)
        eigenvalues, vectors = np.linalg.eigh(moment)
        real = np.maximum(eigenvalues, 0)
        left = real / (real + level)  # what whitening makes of them
        made = (vectors / np.sqrt(real + level)) @ vectors.T
        # Rows of unit length leave no less than if one direction held all of them, whatever noise
        # says.
        length = math.sqrt(max(left.sum(), 1 / (1 + level)))
        curvature = 1.0  # where nothing is known: no rows of unit length have more
        if left.any():
            curvature = float(np.clip(left.max() / left.sum(), 1 / len(left), 1.0))
        return WhiteningMatrix((made + made.T) / (2 * length), min(float(real[-1]), 1.0), curvature)


def _level(columns: int, noise_multiplier: float, rows: int) -> float:
    """What is added to every eigenvalue."""
    noise_multiplier = validate.positive(at_most=1e100, noise_multiplier=noise_multiplier)
    rows = validate.whole(1, rows=rows)
    return _NOISE_LEVEL * math.sqrt(columns) * noise_multiplier / rows + _EMPTY_LEVEL / columns


def _moment(second_moment: NDArray[Any]) -> NDArray[np.float64]:
    moment = np.asarray(second_moment, dtype=np.float64)
    square = moment.ndim == 2 and moment.size and moment.shape[0] == moment.shape[1]
    if not square or not bool(np.isfinite(moment).all()) or bool((moment != moment.T).any()):
        raise InvalidInput(
            "a second moment must be a symmetric matrix of finite numbers; got shape "
            f"{moment.shape}. Take what private_second_moment gave."
        )
    return moment
