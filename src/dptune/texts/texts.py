"""Texts with their labels and their units (the person or group that each belongs to)."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False, repr=False)  # no repr: it would print texts
class Texts:
    """One text in every column for each row of a file, in the order of the file.

    `labels` and `units` are as in the file. `starts` are the positions of the last column, an
    answer, in the first. `classes` are the names of numbered labels.
    """

    columns: Mapping[str, Sequence[str]]
    labels: Sequence[Any] | None = None
    units: Sequence[Any] | None = None
    starts: Sequence[int] | None = None
    classes: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        return len(next(iter(self.columns.values())))

    def prints(self, columns: Sequence[str]) -> NDArray[np.uint32]:
        """Hashes of the texts in these columns, up to case and white space; below 2^24, so that
        they are exact in float32."""
        prints = np.empty((self.count, 4), np.uint32)
        for row, texts in zip(
            prints, zip(*(self.columns[name] for name in columns), strict=True), strict=True
        ):
            plain = "\0".join(" ".join(text.casefold().split()) for text in texts)
            row[:] = np.frombuffer(hashlib.sha256(plain.encode()).digest()[:16], np.uint32) >> 8
        return prints

    def fingerprint(self) -> str:
        """The digest of everything, for texts that are not in a file."""
        digest = hashlib.sha256()
        for part in (*self.columns.values(), self.labels, self.units, self.starts):
            for value in part or ():
                digest.update(json.dumps(value, default=str).encode() + b"\n")
            digest.update(b"\0")
        return digest.hexdigest()
