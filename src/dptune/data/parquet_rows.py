"""Rows of Parquet files that are too many for memory: coded anew whenever they are read."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pyarrow import parquet
from torch import Tensor

from dptune.columns import Coder
from dptune.data.declared_files import Declared, as_targets
from dptune.data.disk import DiskRows
from dptune.data.rows import TargetFacts
from dptune.errors import InvalidInput
from dptune.table_files import PANDAS_INDEX, reading

# Of codes, 4 bytes each: by numbers that files tell without reading a row, which are public.
LARGE = 1 << 30
_IN_HAND = 1 << 26  # bytes of codes that are read ahead; Arrow holds a few times as much


class ParquetRows(DiskRows):
    """The row groups of files that make one table, as `DiskRows` has the chunks of a folder. They
    are read once when they are opened, so that all that is wrong with them is said before anything
    is paid, and then every step.

    `told` hears how many rows were looked at.
    """

    def __init__(
        self,
        files: Sequence[Path],
        declared: Declared,
        folder: Path,
        told: Callable[[int], None] | None = None,
    ) -> None:
        self._declared, self.folder = declared, folder
        facts = declared.facts
        if facts is None:
            raise InvalidInput(
                f"{str(folder)!r} holds more rows than are kept in memory, so they are read anew "
                f"every step: declare its label {declared.label!r} among the columns, as a "
                "category with all its values or a number with its range."
            )
        self._label = facts
        self._groups = [group for file in files for group in _groups_of(file)]
        self._places = [n for n, name in enumerate(declared.columns.kept) if name != declared.label]
        self._set_up(
            counts=[rows for _, _, rows in self._groups],
            copies=1,
            shape=(len(self._places),),
            targets=TargetFacts(0.0, len(facts.classes) - 1.0, True, 1)
            if facts.classes
            else TargetFacts(*(facts.target_range or (-math.inf, math.inf)), False, 1),
            precision="float32",
            device="cpu",
        )
        # A row group may hold a million rows, and each reader has one in hand.
        largest = 4 * self.columns * max((rows for _, _, rows in self._groups), default=1)
        self._readers = max(1, min(self._readers, _IN_HAND // max(1, largest)))
        self._opened = self._files()
        self.vocabularies = self._checked(told)

    def _watched(self) -> list[Path]:
        return [file for file, _, _ in self._groups]

    def _checked(self, told: Callable[[int], None] | None) -> dict[str, tuple[str, ...]]:
        """The names of categories that are to be bought, which are private; or all problems."""
        declared, seen = self._declared, 0
        coder = self._coder(declared.vocabularies)
        for number in range(len(self._groups)):
            codes = coder.add(self._table(number))
            self._labels(codes)
            seen += len(codes)
            if told is not None:
                told(seen)
        if not seen:
            raise InvalidInput(f"{str(self.folder)!r} holds no rows, only the names of columns.")
        return coder.finish()

    def _mapped(self, number: int) -> tuple[Tensor, Tensor, Tensor]:
        codes = self._coder(self.vocabularies).add(self._table(number))
        features = torch.from_numpy(codes[:, self._places][:, None])
        # Codes have no norm; what is made of them has.
        norms = torch.full(features.shape[:2], math.inf)
        return features, torch.from_numpy(self._labels(codes)), norms

    def _coder(self, vocabularies: Any) -> Coder:
        columns, where = self._declared.columns, repr(str(self.folder))
        return Coder(columns, where=where, vocabularies=vocabularies)

    def _labels(self, codes: NDArray[np.float32]) -> NDArray[Any]:
        place = self._declared.columns.kept.index(self._declared.label)
        where = repr(str(self.folder))
        return as_targets(codes[:, place], self._label, self._declared.label, where)

    def _table(self, number: int) -> Any:
        file, group, _ = self._groups[number]
        with reading(file), parquet.ParquetFile(file) as opened:
            return opened.read_row_group(group, columns=_names(opened), use_threads=False)


def is_large(files: Sequence[Path], declared: Declared) -> bool:
    """Whether rows of Parquet files are read anew every step instead of being kept."""
    rows = sum(count for file in files for _, _, count in _groups_of(file))
    return 4 * rows * len(declared.features.kept) > LARGE


def _groups_of(file: Path) -> list[tuple[Path, int, int]]:
    with reading(file), parquet.ParquetFile(file) as opened:
        known = opened.metadata
        return [(file, n, known.row_group(n).num_rows) for n in range(known.num_row_groups)]


def _names(file: parquet.ParquetFile) -> list[str]:
    return [name for name in file.schema_arrow.names if not name.startswith(PANDAS_INDEX)]
