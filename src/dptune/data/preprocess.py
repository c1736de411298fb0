"""What happens to features before an engine sees them: a list of row maps, as one value."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dptune import validate
from dptune.columns.encoding import Encoding
from dptune.data.earlier_models import maps_of_earlier_model
from dptune.data.row_maps import (
    Append,
    Encode,
    RowMap,
    Scale,
    UnitLength,
    columns_taken,
    of_plain,
    to_plain,
)
from dptune.data.tables import slices_of, table_of, wide_chunks
from dptune.errors import InvalidInput

# The largest number that bfloat16 holds, and so float32 too: no row becomes infinite, and is
# refused, after it was paid for.
LARGEST = 2.0**127 * (2 - 2.0**-7)
Kind = TypeVar("Kind", bound=RowMap)


@dataclass(frozen=True, eq=False, init=False)
class Preprocessing:
    """Row maps, applied one after another.

    Attributes:
        maps: in their order.

    """

    maps: tuple[RowMap, ...]

    def __init__(
        self,
        maps: Sequence[RowMap] | None = None,
        *,
        encoding: Encoding | None = None,
        unit_rows: bool = True,
    ) -> None:
        """Of these maps; without any, rows are encoded by `encoding`, if there is one, and scaled
        to unit length, if `unit_rows` asks for that."""
        if maps is None:
            scaled = (UnitLength(),) if validate.flag(unit_rows=unit_rows) else ()
            maps = scaled if encoding is None else (Encode(encoding), *scaled)
        object.__setattr__(self, "maps", tuple(maps))
        if any(isinstance(each, Encode) for each in self.maps[1:]):
            raise InvalidInput("only the first of the row maps may encode columns.")
        taken = self._columns_taken()
        if len({columns for _, columns in taken}) > 1:
            found = ", ".join(f"{kind} {columns}" for kind, columns in taken)
            raise InvalidInput(
                f"the row maps need the same number of columns, not counting those that are "
                f"appended on the way; got {found}."
            )

    @property
    def encoding(self) -> Encoding | None:
        """Of declared columns; None where features are plain numbers."""
        first = self.find(Encode)
        return None if first is None else first.encoding

    def find(self, kind: type[Kind]) -> Kind | None:
        """The first map of this kind, if there is one."""
        return next((each for each in self.maps if isinstance(each, kind)), None)

    def with_encoding(self, encoding: Encoding) -> "Preprocessing":
        """The same with another encoding of the same columns."""
        return Preprocessing((Encode(encoding), *self.maps[1:]))

    def apply(self, features: NDArray[Any]) -> NDArray[np.float32]:
        """The features an engine trains and predicts on."""
        features = table_of(features)
        self._must_fit(features.shape[1])
        done = np.empty((len(features), self.columns(features.shape[1])), dtype=np.float32)
        start = 0
        for chunk in self._encoded(features):
            rows = chunk
            with np.errstate(over="ignore"):
                for row_map in self.maps[self.encoding is not None :]:
                    rows = row_map(rows)
            done[start : start + len(chunk)] = rows.clip(-LARGEST, LARGEST)
            start += len(chunk)
        return done

    def apply_to_all(self, features: NDArray[Any]) -> NDArray[np.float32]:
        """The same where rows have copies: (rows, copies, columns), or just (rows, columns)."""
        done = self.apply(features.reshape(-1, features.shape[-1]))
        return done.reshape(*features.shape[:-1], -1)

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
        for kind, columns in self._columns_taken():
            if columns != found:
                raise InvalidInput(
                    f"the features have {found} columns, {kind} is for {columns}; they "
                    "must come from the same columns."
                )

    def encoded(self, given: int) -> int:
        """How many features so many columns are before anything else is done to them."""
        return given if self.encoding is None else self.encoding.width

    def columns(self, given: int) -> int:
        """How many features come out where so many columns go in; columns that are encoded come out
        as many as were declared."""
        return self.encoded(given) + sum(isinstance(each, Append) for each in self.maps)

    def _columns_taken(self) -> list[tuple[str, int]]:
        """By the kinds of maps that take a fixed number of columns, how many these were before any
        column was appended."""
        taken, appended = [], 0
        for each in self.maps:
            columns = columns_taken(each)
            if columns is not None:
                taken.append((each.kind, columns - appended))
            appended += isinstance(each, Append)
        return taken

    @property
    def changes_nothing(self) -> bool:
        return not self.maps

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What to store, together with `facts`, so that `from_arrays` gives the same again."""
        return {
            f"{place}.{name}": array
            for place, each in enumerate(self.maps)
            for name, array in to_plain(each)[1].items()
        }

    def facts(self) -> dict[str, Any]:
        """All that is no array."""
        return {"row_maps": [to_plain(each)[0] for each in self.maps]}

    @staticmethod
    def from_arrays(
        arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]
    ) -> "Preprocessing":
        """What was stored, also by earlier versions."""
        if "row_maps" not in facts:
            return Preprocessing(maps_of_earlier_model(arrays, facts))
        of_map: list[dict[str, NDArray[Any]]] = [{} for _ in facts["row_maps"]]
        for name, array in arrays.items():
            place, _, field = name.partition(".")
            of_map[int(place)][field] = array
        return Preprocessing(list(map(of_plain, facts["row_maps"], of_map)))

    def in_words(self) -> str:
        """One phrase for statements and model cards."""
        return ", ".join(each.in_words() for each in self.maps) or "features as given"


def standardization(public_features: NDArray[Any]) -> Scale:
    """Columns of mean 0 and deviation 1 over PUBLIC rows; a constant column keeps its scale."""
    wide = np.concatenate(list(wide_chunks(table_of(public_features))))
    largest = np.abs(wide).max(0)
    largest[largest == 0] = 1
    inside = wide / largest  # in [-1, 1], so that no square overflows
    deviation = inside.std(0) * largest
    # Rounding gives a constant column a tiny deviation, which would blow it up.
    constant = (wide.max(0) == wide.min(0)) | (deviation == 0)
    return Scale(shift=inside.mean(0) * largest, scale=np.where(constant, 1.0, deviation))


def from_ranges(ranges: Sequence[tuple[float, float]]) -> Scale:
    """Columns mapped to [-1, 1] from DECLARED ranges, never those found in private rows. Values
    outside are not clipped: they land outside [-1, 1], and scaling the row bounds them."""
    low, high = np.array(ranges, dtype=np.float64).T / 2  # halves: no sum or difference overflows
    return Scale(shift=low + high, scale=high - low)
