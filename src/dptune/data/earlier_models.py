"""How models of earlier versions prepare rows: they stored flags and arrays, and no row maps."""

import math
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from dptune.columns.encoding import Encoding
from dptune.data.row_maps import (
    Append,
    Asinh,
    ClipLength,
    Divide,
    Encode,
    Multiply,
    RowMap,
    Scale,
    Subtract,
    UnitLength,
)
from dptune.errors import InvalidInput
from dptune.table_files import listed

_ARRAYS = ("shift", "scale", "center", "whitening")
# How many times as long as rows are on average a whitened row could be before it was cut.
_WHITENED_REACH = 1.5


def maps_of_earlier_model(
    arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]
) -> list[RowMap]:
    """The maps that do the same to the bit. What `facts` lack, the model did not do."""
    unknown = sorted(set(arrays) - set(_ARRAYS))
    if unknown:
        raise InvalidInput(
            f"preprocessing is made of {', '.join(_ARRAYS)}; found also {listed(unknown)}."
        )
    maps: list[RowMap] = []
    if facts.get("encoding") is not None:
        maps.append(Encode(Encoding.of(facts["encoding"])))
    if "shift" in arrays:
        maps.append(Scale(arrays["shift"], arrays["scale"]))
    if facts.get("logarithms"):
        maps.append(Asinh())
    if facts.get("reach"):
        return maps + _clipped(arrays, facts)
    if facts.get("anchor"):
        maps.append(Append(facts["anchor"]))
    if facts.get("unit_rows", True):
        maps.append(UnitLength())
    if "center" in arrays:
        maps.append(Subtract(arrays["center"]))
    if facts.get("rescale") and ("center" in arrays or "whitening" in arrays):
        maps.append(UnitLength())
    if "whitening" in arrays:
        maps.append(Multiply(arrays["whitening"]))
    if facts.get("constant"):
        maps.append(Append(facts["constant"]))
    if "whitening" in arrays or facts.get("constant"):
        maps.append(UnitLength())
    return maps


def _clipped(arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> list[RowMap]:
    """Of rows that kept their length below 1: clipped after every map."""
    maps: list[RowMap] = [ClipLength(facts["reach"])]
    if "center" in arrays:
        maps += [Subtract(arrays["center"]), ClipLength(1.0)]
    if "whitening" in arrays:
        maps += [Multiply(arrays["whitening"]), ClipLength(_WHITENED_REACH)]
    if constant := facts.get("constant"):
        maps += [Append(constant), Divide(math.hypot(1.0, constant))]
    return maps
