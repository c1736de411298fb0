"""Some texts with their labels, and whose they are."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False, repr=False)  # no repr: it would print texts
class Texts:
    """One text in every column for each row of a file, in the file's order.

    `labels` and `units` (whose each row is) are as the file has them. `starts` say where the last
    column, an answer, begins in the first. `classes` are the names of numbered labels.
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
        """Numbers that two rows share whose texts in these columns are the same, whatever the case
        and the white space; below 2^24, so that they are exact in single precision."""
        found = np.empty((self.count, 4), np.uint32)
        for row, texts in zip(
            found, zip(*(self.columns[name] for name in columns), strict=True), strict=True
        ):
            plain = "\0".join(" ".join(text.casefold().split()) for text in texts)
            row[:] = np.frombuffer(hashlib.sha256(plain.encode()).digest()[:16], np.uint32) >> 8
        return found

    def fingerprint(self) -> str:
        """Digest of everything, for texts that are in no file."""
        digest = hashlib.sha256()
        for part in (*self.columns.values(), self.labels, self.units, self.starts):
            for value in part or ():
                digest.update(json.dumps(value, default=str).encode() + b"\n")
            digest.update(b"\0")
        return digest.hexdigest()
