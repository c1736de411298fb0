"""Features that were scaled by statistics of their own rows, as far as the rows show it.

A scaler that was fitted on private rows carries exact statistics of them into the model, which are
not paid for. An estimator in a pipeline sees only what the step before leaves: columns whose means
are 0 up to rounding, or that all end at the same two numbers. Other numbers do not show that,
except for rare chance and designed experiments.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

_ROUNDING = 1e-5  # of a column's size: float32 and a mean of a hundred deviations
_FEWEST_ROWS = 30  # fewer are balanced by chance, or by design, too easily


def own_scale(features: NDArray[Any]) -> str:
    """Describe what all columns have in common after such a scaler; empty if there is no sign."""
    lowest, highest = features.min(0), features.max(0)
    varying = lowest < highest  # a constant column says nothing
    if len(features) < _FEWEST_ROWS or not varying.any():
        return ""
    if _is_centred(features, varying):
        return "every column has mean 0 to rounding, as after StandardScaler or PCA"
    if _has_common_ends(features, lowest, highest, varying):
        return "all columns end at the same two values, as after MinMaxScaler"
    return ""


def _is_centred(features: NDArray[Any], varying: NDArray[np.bool_]) -> bool:
    with np.errstate(over="ignore"):
        squares = np.einsum("ij,ij->j", features, features, dtype=np.float64)
        mean = features.mean(0, dtype=np.float64)[varying]
    size = np.sqrt(squares[varying] / len(features))
    # A single column has mean 0 by chance more easily, but rarely deviation 1 as well.
    by_chance = len(size) == 1 and abs(size[0] - 1) > _ROUNDING
    centred = np.isfinite(size).all() and (np.abs(mean) <= _ROUNDING * size).all()
    return bool(centred) and not by_chance


def _has_common_ends(
    features: NDArray[Any],
    lowest: NDArray[Any],
    highest: NDArray[Any],
    varying: NDArray[np.bool_],
) -> bool:
    low, high = lowest[varying].astype(float), highest[varying].astype(float)
    # A single column has no others to agree with, so it is compared with the usual range.
    ends = (low[0], high[0]) if len(low) > 1 else (0.0, 1.0)
    off = max(np.abs(low - ends[0]).max(), np.abs(high - ends[1]).max())
    if off > _ROUNDING * (ends[1] - ends[0]):
        return False
    # At the ends of a public range, as of pixels or of yes and no, there are many rows.
    alone = [(features == end).sum(0)[varying] == 1 for end in (lowest, highest)]
    return bool(np.mean(alone) > 0.5)
