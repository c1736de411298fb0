"""Rows of Parquet files that are too large for memory: coded anew whenever they are read."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from pyarrow import parquet
from torch import Tensor

from dptune.columns import Coder
from dptune.data.declared_files import Declared, as_targets
from dptune.data.disk import DiskRows
from dptune.data.rows import Chunk, TargetFacts
from dptune.errors import InvalidInput
from dptune.table_files import reading, without_index

# Bytes of codes, 4 each, by public numbers that files report without reading a row.
LARGE = 1 << 30
_IN_HAND = 1 << 25  # bytes of codes that are read ahead; every reader holds far more
_ROWS_AT_ONCE = 1 << 16


class ParquetRows(DiskRows):
    """The row groups of files that make one table, like the chunks of `DiskRows`. They are read
    when they are opened, so that every error is found before anything is paid, and in every step.
    """

    def __init__(self, files: Sequence[Path], declared: Declared, folder: Path) -> None:
        self._declared, self.folder = declared, folder
        facts = declared.facts
        if facts is None:
            raise InvalidInput(
                f"{str(folder)!r} holds more rows than are kept in memory, so they are read anew "
                f"every step: declare its label {declared.label!r} among the columns, as a "
                "category with all its values or a number with its range."
            )
        self._label, self.features = facts, declared.features
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
        self.vocabularies = self._checked()
        self._declared = replace(declared, told=None)  # the callback lives in this process

    def chunks(self) -> Iterator[Chunk]:
        """Row groups in pieces: what an engine makes of a whole group would take more memory."""
        size = 1 << (14 if self.device.type == "cpu" else 16)
        for chunk in super().chunks():
            for start in range(0, len(chunk.targets), size):
                part = slice(start, start + size)
                yield Chunk(chunk.features[part], chunk.targets[part], chunk.norms[part])

    def _watched(self) -> list[Path]:
        return [file for file, _, _ in self._groups]

    def _checked(self) -> dict[str, tuple[str, ...]]:
        """The private names of categories without declared values; or all problems."""
        declared, seen = self._declared, 0
        coder = self._coder(declared.vocabularies)
        for number in range(len(self._groups)):
            for codes in self._coded(number, coder):
                self._labels(codes)
                seen += len(codes)
            declared.tell(seen)
        if not seen:
            raise InvalidInput(f"{str(self.folder)!r} holds no rows, only the names of columns.")
        return coder.finish()

    def _mapped(self, number: int) -> tuple[Tensor, Tensor, Tensor]:
        features = np.empty((self._groups[number][2], 1, len(self._places)), np.float32)
        labels, start = [], 0
        for codes in self._coded(number, self._coder(self.vocabularies)):
            features[start : start + len(codes), 0] = codes[:, self._places]
            labels.append(self._labels(codes))
            start += len(codes)
        # Codes have no norms; the features made of them do.
        norms = torch.full(features.shape[:2], math.inf)
        return torch.from_numpy(features), torch.from_numpy(np.concatenate(labels)), norms

    def _coded(self, number: int, coder: Coder) -> Iterator[NDArray[np.float32]]:
        """Codes of a few rows at a time, since Arrow holds several copies of them."""
        file, group, _ = self._groups[number]
        with reading(file), parquet.ParquetFile(file) as opened:
            names = without_index(opened.schema_arrow.names)
            some = {"row_groups": [group], "columns": names, "use_threads": False}
            for batch in opened.iter_batches(_ROWS_AT_ONCE, **some):
                yield coder.add(pa.Table.from_batches([batch]))

    def _coder(self, vocabularies: Any) -> Coder:
        columns, where = self._declared.columns, repr(str(self.folder))
        return Coder(columns, where=where, vocabularies=vocabularies)

    def _labels(self, codes: NDArray[np.float32]) -> NDArray[Any]:
        place = self._declared.columns.kept.index(self._declared.label)
        where = repr(str(self.folder))
        return as_targets(codes[:, place], self._label, self._declared.label, where)


def is_large(files: Sequence[Path], declared: Declared) -> bool:
    """Whether rows of Parquet files are read anew every step instead of being kept."""
    rows = sum(count for file in files for _, _, count in _groups_of(file))
    return 4 * rows * len(declared.features.kept) > LARGE


def _groups_of(file: Path) -> list[tuple[Path, int, int]]:
    """Its row groups with their number and count of rows, without empty ones."""
    with reading(file), parquet.ParquetFile(file) as opened:
        about = opened.metadata
        counts = [about.row_group(n).num_rows for n in range(about.num_row_groups)]
    return [(file, number, count) for number, count in enumerate(counts) if count]
