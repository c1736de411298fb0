"""What may be done to the features of one row: every map needs that row alone, and numbers that are
public or paid for. A model applies a list of them, stores it, describes it and exports it."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dptune import validate
from dptune.columns.encoding import Encoding
from dptune.data.tables import directions
from dptune.errors import InvalidInput

Numbers = NDArray[np.float64]
_GRID_BITS = 26  # two such factors, summed up to the product of their lengths, fit in float64


@dataclass(frozen=True)
class Encode:
    """Codes of declared columns become numbers. Only the first map may be this one."""

    encoding: Encoding
    kind: ClassVar[str] = "encode"

    def __call__(self, rows: Numbers) -> Numbers:
        return np.asarray(self.encoding.apply(rows), dtype=np.float64)

    def in_words(self) -> str:
        return "columns encoded one row at a time, from what is declared or paid for"


@dataclass(frozen=True, eq=False)
class Scale:
    """(x - shift) / scale, with public numbers; what is infinite becomes the largest number."""

    shift: Numbers
    scale: Numbers
    kind: ClassVar[str] = "scale"

    def __post_init__(self) -> None:
        validate.store(
            self,
            shift=_numbers(self.shift, "shift", "one a column"),
            scale=_numbers(self.scale, "scale", "one a column"),
        )
        if self.shift.shape != self.scale.shape:
            raise InvalidInput(
                "shift and scale need the same number of columns; got "
                f"{len(self.shift)} and {len(self.scale)}."
            )
        if not bool((self.scale > 0).all()):
            raise InvalidInput("scale must be above 0 in every column; a constant column takes 1.")

    def __call__(self, rows: Numbers) -> Numbers:
        return np.nan_to_num((rows - self.shift) / self.scale)

    def in_words(self) -> str:
        return "columns shifted and scaled by public numbers"


@dataclass(frozen=True)
class Asinh:
    """asinh(x) for every number x: about its logarithm where it is large."""

    kind: ClassVar[str] = "asinh"

    def __call__(self, rows: Numbers) -> Numbers:
        return np.arcsinh(rows)

    def in_words(self) -> str:
        return "numbers log-scaled, asinh(x)"


@dataclass(frozen=True)
class Append:
    """One more column, at the end, which holds this value in every row."""

    value: float
    kind: ClassVar[str] = "append"

    def __post_init__(self) -> None:
        validate.store(self, value=validate.positive(value=self.value, at_most=1e30))

    def __call__(self, rows: Numbers) -> Numbers:
        return np.concatenate([rows, np.full((len(rows), 1), self.value)], 1)

    def in_words(self) -> str:
        return f"a constant column of {self.value:.3g} appended"


@dataclass(frozen=True)
class UnitLength:
    """Rows divided by their length; a row of zeros stays as it is."""

    kind: ClassVar[str] = "unit_length"

    def __call__(self, rows: Numbers) -> Numbers:
        return directions(rows)[0]

    def in_words(self) -> str:
        return "rows scaled to unit length"


@dataclass(frozen=True)
class ClipLength:
    """Rows divided by `reach`; those longer than it end at length 1."""

    reach: float
    kind: ClassVar[str] = "clip_length"

    def __post_init__(self) -> None:
        validate.store(self, reach=validate.positive(reach=self.reach, at_most=1e30))

    def __call__(self, rows: Numbers) -> Numbers:
        ahead, lengths = directions(rows)
        return np.where(lengths[:, None] > self.reach, ahead, rows / self.reach)

    def in_words(self) -> str:
        divided = "" if self.reach == 1 else f"divided by {self.reach:.3g} and "
        return f"rows {divided}clipped to length 1"


@dataclass(frozen=True)
class Divide:
    """Every number divided by the same one."""

    by: float
    kind: ClassVar[str] = "divide"

    def __post_init__(self) -> None:
        validate.store(self, by=validate.positive(by=self.by, at_most=1e30))

    def __call__(self, rows: Numbers) -> Numbers:
        return rows / self.by

    def in_words(self) -> str:
        return f"rows divided by {self.by:.3g}"


@dataclass(frozen=True, eq=False)
class Subtract:
    """A private mean is subtracted."""

    mean: Numbers
    kind: ClassVar[str] = "subtract"

    def __post_init__(self) -> None:
        validate.store(self, mean=_numbers(self.mean, "mean", "one a column"))

    def __call__(self, rows: Numbers) -> Numbers:
        return np.nan_to_num(rows - self.mean)

    def in_words(self) -> str:
        return "a private mean subtracted"


@dataclass(frozen=True, eq=False)
class Multiply:
    """Rows of length 1 at most times a matrix that a private second moment gave.

    Both are rounded to whole numbers whose products add up exactly, so that a row becomes the same
    in whatever order they are added, and whatever its neighbours in a table are.
    """

    matrix: Numbers
    kind: ClassVar[str] = "multiply"

    def __post_init__(self) -> None:
        matrix = _numbers(self.matrix, "matrix", "columns times columns", dimensions=2)
        if matrix.shape[0] != matrix.shape[1]:
            raise InvalidInput(f"matrix must be columns times columns; got shape {matrix.shape}.")
        validate.store(self, matrix=matrix)

    def __call__(self, rows: Numbers) -> Numbers:
        largest = np.abs(self.matrix).max() or 1.0
        inside = self.matrix / largest
        _, longest = np.frexp(np.linalg.norm(inside, axis=0).max())  # below 2^longest
        bits = _GRID_BITS - int(longest)
        whole: Numbers = np.rint(np.ldexp(inside, bits))
        exact = np.rint(np.ldexp(rows, _GRID_BITS)) @ whole
        return np.nan_to_num(np.ldexp(exact, -_GRID_BITS - bits) * largest)

    def in_words(self) -> str:
        return "rows whitened by a private second moment"


RowMap = Encode | Scale | Asinh | Append | UnitLength | ClipLength | Divide | Subtract | Multiply
_KINDS: dict[str, type[RowMap]] = {
    kind.kind: kind
    for kind in (Encode, Scale, Asinh, Append, UnitLength, ClipLength, Divide, Subtract, Multiply)
}


def columns_taken(row_map: RowMap) -> int | None:
    """How many columns a map takes; None where it takes any number of them."""
    arrays = [array for array in vars(row_map).values() if isinstance(array, np.ndarray)]
    return len(arrays[0]) if arrays else None


def to_plain(row_map: RowMap) -> tuple[dict[str, Any], dict[str, Numbers]]:
    """A map as plain data, and its arrays by name, from which `of_plain` makes it again."""
    plain: dict[str, Any] = {"kind": row_map.kind}
    arrays = {}
    for each in fields(row_map):
        value = getattr(row_map, each.name)
        if isinstance(value, np.ndarray):
            arrays[each.name] = value
        else:
            plain[each.name] = value.to_plain() if isinstance(value, Encoding) else value
    return plain, arrays


def of_plain(plain: Mapping[str, Any], arrays: Mapping[str, Any]) -> RowMap:
    """The map again."""
    options = {**plain, **arrays}
    kind = _KINDS[options.pop("kind")]
    if kind is Encode:
        options["encoding"] = Encoding.of(options["encoding"])
    return kind(**options)


def _numbers(values: Any, name: str, layout: str, dimensions: int = 1) -> Numbers:
    """A copy nobody can change: predictions must use the numbers of training."""
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"{name} must be numbers, {layout}; got {values!r}.") from None
    if array.ndim != dimensions or array.size == 0 or not bool(np.isfinite(array).all()):
        raise InvalidInput(f"{name} must be finite numbers, {layout}; got shape {array.shape}.")
    array.setflags(write=False)
    return array
