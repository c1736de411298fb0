"""What happens to features before an engine sees them.

Every step here is either a function of one row alone, or uses numbers that are public or paid for:
nothing else about the private rows enters.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune import validate
from dptune.columns.encoding import Encoding
from dptune.data.tables import directions, slices_of, table_of, wide_chunks
from dptune.errors import InvalidInput
from dptune.table_files import listed

# The largest number that bfloat16 holds, and so float32 too: no row becomes infinite, and is
# refused, after it was paid for.
LARGEST = 2.0**127 * (2 - 2.0**-7)
_ROWS_OF_NUMBERS = ("shift", "scale", "center")
_ARRAYS = (*_ROWS_OF_NUMBERS, "whitening")
_FACTS = ("logarithms", "unit_rows", "rescale", "anchor", "constant", "reach")
# How many times as long as rows are on average a whitened row may be before it is cut.
_WHITENED_REACH = 1.5
_GRID_BITS = 26  # two such factors, summed up to the product of their lengths, fit in float64


@dataclass(frozen=True, eq=False)
class Preprocessing:
    """In this order: the raw codes of declared columns made numbers by `encoding`,
    (x - shift) / scale with public numbers, every number x taken as asinh(x) with `logarithms`, a
    column added that holds `anchor` in every row, each row divided by its norm, a private mean
    subtracted, each row multiplied by a whitening matrix from a private second moment, a column
    added that holds `constant`. `rescale`: rows are divided by their norm again before they are
    whitened and at the end, which older models did not do. A row of zeros has no direction and
    stays zero when scaled.

    With such a column, scaling loses nothing that a linear model could tell: which of its outputs
    is largest is the same for a row and for any multiple of it.

    With a `reach`, rows are not scaled to unit length but divided by it, and whatever is longer
    than 1 then is cut to that, there and after every later step: a value is not the same for a row
    and for a multiple of it, so their lengths must stay as far as they can.
    """

    shift: NDArray[Any] | None = None
    scale: NDArray[Any] | None = None
    unit_rows: bool = True
    center: NDArray[Any] | None = None
    whitening: NDArray[Any] | None = None
    anchor: float = 0.0
    constant: float = 0.0
    rescale: bool = False
    reach: float = 0.0
    encoding: Encoding | None = None
    logarithms: bool = False

    def __post_init__(self) -> None:
        if (self.shift is None) != (self.scale is None):
            raise InvalidInput(
                "shift and scale go together, and one of them is missing; make both from public "
                "rows with standardization(), or from known ranges with from_ranges()."
            )
        for name in _ROWS_OF_NUMBERS:
            if getattr(self, name) is not None:
                validate.store(self, **{name: _numbers(getattr(self, name), name, "one a column")})
        if self.whitening is not None:
            validate.store(self, whitening=_matrix(self.whitening))
        if self.scale is not None and not bool((self.scale > 0).all()):
            raise InvalidInput("scale must be above 0 in every column; a constant column takes 1.")
        validate.store(
            self,
            logarithms=validate.flag(logarithms=self.logarithms),
            unit_rows=validate.flag(unit_rows=self.unit_rows),
            anchor=validate.non_negative(anchor=self.anchor, at_most=1e30),
            constant=validate.non_negative(constant=self.constant, at_most=1e3),
            rescale=validate.flag(rescale=self.rescale),
            reach=validate.non_negative(reach=self.reach, at_most=1e30),
        )
        if self.reach and (self.unit_rows or self.rescale or self.anchor):
            raise InvalidInput(
                "rows with a reach keep their length below it; leave unit_rows, rescale and anchor "
                "out, which are for rows that are scaled to unit length."
            )
        if len(set(self._columns_taken().values())) > 1:
            found = ", ".join(f"{name} {len(array)}" for name, array in self.arrays().items())
            also = ", and one more after an anchor" if self.anchor else ""
            raise InvalidInput(f"all of them need the same number of columns{also}; got {found}.")
        bounded = self.rescale or self.reach
        if (self.whitening is not None or self.constant) and not bounded:
            raise InvalidInput(
                "a whitening matrix and a constant need rows that are scaled to unit length again "
                "around them; set rescale=True, or a reach."
            )

    def apply(self, features: NDArray[Any]) -> NDArray[np.float32]:
        """The features an engine trains and predicts on."""
        features = table_of(features)
        self._must_fit(features.shape[1])
        done = np.empty((len(features), self.columns(features.shape[1])), dtype=np.float32)
        start = 0
        for chunk in self._encoded(features):
            done[start : start + len(chunk)] = self._applied(chunk)
            start += len(chunk)
        return done

    def _encoded(self, features: NDArray[Any]) -> Iterator[NDArray[np.float64]]:
        """Finite numbers, a few thousand rows at a time: in raw codes, gaps are no numbers."""
        if self.encoding is None:
            yield from wide_chunks(features)
            return
        for part in slices_of(features):
            yield from wide_chunks(self.encoding.apply(features[part]))

    def _must_fit(self, found: int) -> None:
        if self.encoding is not None:
            declared = len(self.encoding.columns.kept)
            if found != declared:
                raise InvalidInput(
                    f"the rows have {found} columns, and {declared} are declared; they must be "
                    "coded by the same declaration."
                )
            found = self.encoding.width
        for name, columns in self._columns_taken().items():
            if columns != found:
                raise InvalidInput(
                    f"the features have {found} columns, {name} is for {columns}; they "
                    "must come from the same columns."
                )

    def apply_to_all(self, features: NDArray[Any]) -> NDArray[np.float32]:
        """The same where rows have copies: (rows, copies, columns), or just (rows, columns)."""
        done = self.apply(features.reshape(-1, features.shape[-1]))
        return done.reshape(*features.shape[:-1], -1)

    def _applied(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(over="ignore"):
            if self.shift is not None and self.scale is not None:
                rows = np.nan_to_num((rows - self.shift) / self.scale)  # infinite: the largest
            if self.logarithms:
                rows = np.arcsinh(rows)
            if self.reach:
                return self._cut(rows)
            if self.anchor:
                rows = _beside(rows, self.anchor)
            if self.unit_rows:
                rows, _ = directions(rows)
            if self.center is not None:
                rows = np.nan_to_num(rows - self.center)
            if self.rescale and (self.center is not None or self.whitening is not None):
                rows, _ = directions(rows)
            if self.whitening is not None:
                rows = np.nan_to_num(_whitened(rows, self.whitening))
            if self.constant:
                rows = _beside(rows, self.constant)
            if self.whitening is not None or self.constant:
                rows, _ = directions(rows)
        return rows.clip(-LARGEST, LARGEST)

    def _cut(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """The steps after the public ones where rows have a reach; none comes out longer than 1."""
        rows = _inside(rows, self.reach)
        if self.center is not None:
            rows = _inside(rows - self.center, 1.0)
        if self.whitening is not None:
            rows = _inside(np.nan_to_num(_whitened(rows, self.whitening)), _WHITENED_REACH)
        if self.constant:
            rows = _beside(rows, self.constant) / math.hypot(1.0, self.constant)
        return rows

    @property
    def constant_beside(self) -> float:
        """What stands beside whitened rows: with a reach, as it comes out, the same in every row;
        else the constant before it is scaled along with its row."""
        return self.constant / math.hypot(1.0, self.constant) if self.reach else self.constant

    @property
    def shrinks_whitened(self) -> float:
        """What whitened rows, of length 1 on average, are divided by."""
        return _WHITENED_REACH if self.reach else 1.0

    def encoded(self, given: int) -> int:
        """How many features so many columns are before anything else is done to them."""
        return given if self.encoding is None else self.encoding.width

    def columns(self, given: int) -> int:
        """How many come out where so many go in; columns that are encoded come out as many as were
        declared."""
        return self.encoded(given) + bool(self.anchor) + bool(self.constant)

    def _columns_taken(self) -> dict[str, int]:
        """By array, of the features it is for."""
        late = {"center", "whitening"} if self.anchor else set()
        return {name: len(array) - (name in late) for name, array in self.arrays().items()}

    @property
    def changes_nothing(self) -> bool:
        numbers = self.arrays() or self.anchor or self.constant or self.reach
        return not (self.unit_rows or self.logarithms or numbers or self.encoding is not None)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What to store, together with `facts`, so that `from_arrays` gives the same again."""
        found = {name: getattr(self, name) for name in _ARRAYS}
        return {name: array for name, array in found.items() if array is not None}

    def facts(self) -> dict[str, Any]:
        """All that is no array."""
        facts = {name: getattr(self, name) for name in _FACTS}
        return facts if self.encoding is None else facts | {"encoding": self.encoding.to_plain()}

    @staticmethod
    def from_arrays(
        arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]
    ) -> "Preprocessing":
        """What older models' `facts` lack, they did not do."""
        unknown = sorted(set(arrays) - set(_ARRAYS))
        if unknown:
            raise InvalidInput(
                f"preprocessing is made of {', '.join(_ARRAYS)}; found also {listed(unknown)}."
            )
        known: dict[str, Any] = {name: facts[name] for name in _FACTS if name in facts}
        if facts.get("encoding") is not None:
            known["encoding"] = Encoding.of(facts["encoding"])
        return Preprocessing(**known, **dict[str, Any](arrays))

    def in_words(self) -> str:
        """One phrase for statements and model cards."""
        steps = []
        if self.encoding is not None:
            steps.append("columns coded one row at a time, by what is declared or paid for")
        if self.shift is not None:
            steps.append("columns shifted and scaled by public numbers")
        if self.logarithms:
            steps.append("numbers taken by their logarithm, asinh(x)")
        if self.anchor:
            steps.append(f"a column of {self.anchor:.3g} put beside them")
        if self.unit_rows:
            steps.append("rows scaled to unit length")
        if self.reach:
            steps.append(f"rows divided by {self.reach:.3g}, longer ones cut to length 1")
        if self.center is not None:
            steps.append("a private mean subtracted")
        if self.whitening is not None:
            steps.append("directions evened out by a private second moment")
        if self.constant:
            steps.append(f"a column of {self.constant:.3g} put beside them")
        if self.rescale and len(steps) > 1:
            steps.append("rows scaled to unit length again")
        return ", ".join(steps) or "features as given"


def standardization(public_features: NDArray[Any]) -> Preprocessing:
    """Columns of mean 0 and deviation 1 over PUBLIC rows; a constant column keeps its scale."""
    wide = np.concatenate(list(wide_chunks(table_of(public_features))))
    largest = np.abs(wide).max(0)
    largest[largest == 0] = 1
    inside = wide / largest  # in [-1, 1], so that no square overflows
    deviation = inside.std(0) * largest
    # Rounding gives a constant column a tiny deviation, which would blow it up.
    constant = (wide.max(0) == wide.min(0)) | (deviation == 0)
    return Preprocessing(shift=inside.mean(0) * largest, scale=np.where(constant, 1.0, deviation))


def from_ranges(ranges: Sequence[tuple[float, float]]) -> Preprocessing:
    """Columns mapped to [-1, 1] from DECLARED ranges, never those found in private rows. Values
    outside are not clipped: they land outside [-1, 1], and scaling the row bounds them."""
    low, high = np.array(ranges, dtype=np.float64).T / 2  # halves: no sum or difference overflows
    return Preprocessing(shift=low + high, scale=high - low)


def _inside(rows: NDArray[np.float64], reach: float) -> NDArray[np.float64]:
    """The rows divided by `reach`; longer ones end at length 1."""
    ahead, lengths = directions(rows)
    return np.where(lengths[:, None] > reach, ahead, rows / reach)


def _beside(rows: NDArray[np.float64], constant: float) -> NDArray[np.float64]:
    """The rows with one more column, which holds the constant."""
    return np.concatenate([rows, np.full((len(rows), 1), constant)], 1)


def _whitened(rows: NDArray[np.float64], whitening: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows of unit length times the matrix.

    Both are rounded to whole numbers whose products add up exactly, so that a row becomes the same
    in whatever order they are added, and whoever its neighbours in a table are.
    """
    largest = np.abs(whitening).max() or 1.0
    inside = whitening / largest
    _, longest = np.frexp(np.linalg.norm(inside, axis=0).max())  # below 2^longest
    bits = _GRID_BITS - int(longest)
    whole: NDArray[np.float64] = np.rint(np.ldexp(inside, bits))
    exact = np.rint(np.ldexp(rows, _GRID_BITS)) @ whole
    return np.ldexp(exact, -_GRID_BITS - bits) * largest


def _matrix(values: Any) -> NDArray[np.float64]:
    matrix = _numbers(values, "whitening", "columns times columns", dimensions=2)
    if matrix.shape[0] != matrix.shape[1]:
        raise InvalidInput(f"whitening must be columns times columns; got shape {matrix.shape}.")
    return matrix


def _numbers(values: Any, name: str, layout: str, dimensions: int = 1) -> NDArray[np.float64]:
    """A copy nobody can change: predictions must use the numbers of training."""
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"{name} must be numbers, {layout}; got {values!r}.") from None
    if array.ndim != dimensions or array.size == 0 or not bool(np.isfinite(array).all()):
        raise InvalidInput(f"{name} must be finite numbers, {layout}; got shape {array.shape}.")
    array.setflags(write=False)
    return array
