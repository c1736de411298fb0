"""What happens to features before an engine sees them.

Every step here is either a function of one row alone, or uses numbers that are public or paid for:
nothing else about the private rows enters.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune import validate
from dptune.errors import InvalidInput

_CHUNK = 4096  # rows widened to float64 at a time
# The largest number that bfloat16 holds, and so float32 too: no row becomes infinite, and is
# refused, after it was paid for.
LARGEST = 2.0**127 * (2 - 2.0**-7)
_UNIT = 2.0**-24
_EXACT_ROWS = 2**29  # of multiples of the unit up to 1, in float64
_BELOW_ONE = 1 - 1e-9  # norms are rounded sums: aimed at from a little below, 1 is never exceeded
_ARRAYS = ("shift", "scale", "center")


@dataclass(frozen=True, eq=False)
class Preprocessing:
    """In this order: (x - shift) / scale with public numbers, each row divided by its norm, a
    private mean subtracted. A row of zeros has no direction and stays zero when scaled."""

    shift: NDArray[Any] | None = None
    scale: NDArray[Any] | None = None
    unit_rows: bool = True
    center: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        if (self.shift is None) != (self.scale is None):
            raise InvalidInput(
                "shift and scale go together, and one of them is missing; make both from public "
                "rows with standardization(), or from known ranges with from_ranges()."
            )
        for name in _ARRAYS:
            if getattr(self, name) is not None:
                validate.store(self, **{name: _row_of_numbers(getattr(self, name), name)})
        if self.scale is not None and not bool((self.scale > 0).all()):
            raise InvalidInput("scale must be above 0 in every column; a constant column takes 1.")
        if len({len(array) for array in self.arrays().values()}) > 1:
            found = ", ".join(f"{name} {len(array)}" for name, array in self.arrays().items())
            raise InvalidInput(f"all of them need the same number of columns; got {found}.")
        validate.store(self, unit_rows=validate.flag(unit_rows=self.unit_rows))

    def apply(self, features: NDArray[Any]) -> NDArray[np.float32]:
        """The features an engine trains and predicts on."""
        features = _table(features)
        for name, array in self.arrays().items():
            if len(array) != features.shape[1]:
                raise InvalidInput(
                    f"the features have {features.shape[1]} columns, {name} has {len(array)}; they "
                    "must come from the same columns."
                )
        done = np.empty(features.shape, dtype=np.float32)
        start = 0
        for chunk in _wide_chunks(features):
            done[start : start + len(chunk)] = self._applied(chunk)
            start += len(chunk)
        return done

    def _applied(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(over="ignore"):
            if self.shift is not None and self.scale is not None:
                rows = np.nan_to_num((rows - self.shift) / self.scale)  # infinite: the largest
            if self.unit_rows:
                rows, _ = _directions(rows)
            if self.center is not None:
                rows = rows - self.center
        return rows.clip(-LARGEST, LARGEST)

    @property
    def changes_nothing(self) -> bool:
        return not self.unit_rows and not self.arrays()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What to store, together with `unit_rows`, so that `from_arrays` gives the same again."""
        found = {name: getattr(self, name) for name in _ARRAYS}
        return {name: array for name, array in found.items() if array is not None}

    @staticmethod
    def from_arrays(arrays: Mapping[str, NDArray[Any]], *, unit_rows: bool) -> "Preprocessing":
        unknown = sorted(set(arrays) - set(_ARRAYS))
        if unknown:
            raise InvalidInput(
                f"preprocessing is made of {', '.join(_ARRAYS)}; found also {', '.join(unknown)}."
            )
        return Preprocessing(unit_rows=unit_rows, **arrays)

    def in_words(self) -> str:
        """One phrase for statements and model cards."""
        steps = []
        if self.shift is not None:
            steps.append("columns shifted and scaled by public numbers")
        if self.unit_rows:
            steps.append("rows scaled to unit length")
        if self.center is not None:
            steps.append("a private mean subtracted")
        return ", ".join(steps) or "features as given"


def standardization(public_features: NDArray[Any]) -> Preprocessing:
    """Columns of mean 0 and deviation 1 over PUBLIC rows; a constant column keeps its scale."""
    wide = np.concatenate(list(_wide_chunks(_table(public_features))))
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


def private_mean(
    tables: Iterable[NDArray[Any]],
    columns: int,
    noise_multiplier: float,
    rows: int,
    stream_normal: Callable[[tuple[int, ...]], NDArray[np.float64]],
) -> NDArray[np.float64]:
    """The mean row of all `tables`, with noise: what `PrivateMean(noise_multiplier=...)` pays for.

    Rows longer than 1 are clipped and all are rounded towards zero, to multiples of 2^-24, so that
    the sum is exact and one row moves it by at most 1. `rows` is the PUBLIC number of rows;
    `stream_normal` gives fresh standard normal numbers of a shape.
    """
    noise_multiplier = validate.positive(at_most=1e100, noise_multiplier=noise_multiplier)
    rows = validate.whole(1, rows=rows)
    noise = stream_normal((columns,))
    # A single number for all columns would be subtracted as easily as it was added.
    if noise.shape != (columns,) or noise.dtype != np.float64:
        raise InvalidInput(
            f"stream_normal must give float64 numbers of shape {(columns,)}; got {noise.dtype} of "
            f"shape {noise.shape}."
        )
    total, summed = np.zeros(columns), 0
    for chunk in (chunk for table in tables for chunk in _wide_chunks(_table(table))):
        summed += len(chunk)
        if summed > _EXACT_ROWS:
            raise InvalidInput(
                f"sums of up to {_EXACT_ROWS:,} rows are exact; got more. Use fewer."
            )
        directions, lengths = _directions(chunk)
        long = lengths[:, None] > _BELOW_ONE
        total += np.trunc(np.where(long, directions * _BELOW_ONE, chunk) / _UNIT).sum(0) * _UNIT
    return (total + noise_multiplier * noise) / rows


def _table(features: NDArray[Any]) -> NDArray[Any]:
    features = np.asarray(features)
    if features.ndim != 2 or 0 in features.shape or features.dtype.kind not in "biuf":
        raise InvalidInput(
            "features must be a table of numbers of shape (rows, columns); got "
            f"{features.dtype} of shape {features.shape}."
        )
    return features


def _wide_chunks(features: NDArray[Any]) -> Iterator[NDArray[np.float64]]:
    for start in range(0, len(features), _CHUNK):
        chunk = features[start : start + _CHUNK].astype(np.float64)
        if not bool(np.isfinite(chunk).all()):
            raise InvalidInput(
                "the features hold values that are not finite; remove or replace those rows first."
            )
        yield chunk


def _directions(
    rows: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rows of length 1, and the lengths they had. Dividing by the largest entry first keeps squares
    from overflowing or vanishing."""
    largest = np.abs(rows).max(1, keepdims=True)
    largest[largest == 0] = 1
    inside = rows / largest
    norms = np.linalg.norm(inside, axis=1, keepdims=True)
    with np.errstate(over="ignore"):
        lengths = (largest * norms)[:, 0]
    norms[norms == 0] = 1
    return inside / norms, lengths


def _row_of_numbers(values: Any, name: str) -> NDArray[np.float64]:
    """A copy nobody can change: predictions must use the numbers of training."""
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"{name} must be numbers, one a column; got {values!r}.") from None
    if array.ndim != 1 or array.size == 0 or not bool(np.isfinite(array).all()):
        raise InvalidInput(f"{name} must be finite numbers, one a column; got shape {array.shape}.")
    array.setflags(write=False)
    return array
