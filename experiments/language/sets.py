"""Public sets of texts as `Data`: rows of whole numbers of one public length."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dptune.data import Data
from dptune.errors import InvalidInput

PADDING = -1
# Of the rows that train. Test rows are as long as the file has them: a model takes any length.
LENGTHS = {"sst2": 32, "subj": 48, "trec": 32, "newsgroups20": 128, "ag_news": 64, "qnli": 96}
_LONGEST = 512


@dataclass(frozen=True)
class Part:
    """Some rows of a set."""

    words: NDArray[np.int32]
    labels: NDArray[np.int64]

    def first(self, limit: int | None) -> "Part":
        return Part(self.words[:limit], self.labels[:limit])


def part_of(name: str, root: str, part: str, length: int = _LONGEST) -> Part | None:
    """The part of a set, padded to `length`, or to its longest row where that is shorter."""
    file = Path(root) / f"{name}.npz"
    if not file.exists():
        raise InvalidInput(
            f"{file} is not there; make it with python -m experiments language prepare."
        )
    with np.load(file, allow_pickle=False) as arrays:
        if f"{part}_words" not in arrays:
            return None
        words, lengths = arrays[f"{part}_words"], arrays[f"{part}_lengths"]
        labels = arrays[f"{part}_labels"].astype(np.int64)
    return Part(padded(words, lengths, min(length, int(lengths.max()))), labels)


def padded(words: NDArray[np.int16], lengths: NDArray[np.uint16], length: int) -> NDArray[np.int32]:
    """Sequences that lie end to end as rows of one length. What is longer is cut, and ends as it
    ended before: with the word that separates texts."""
    table = np.full((len(lengths), length), PADDING, dtype=np.int32)
    ends = np.cumsum(lengths, dtype=np.int64)
    for row, (end, count) in enumerate(zip(ends.tolist(), lengths.tolist(), strict=True)):
        kept = min(count, length)
        table[row, :kept] = words[end - count : end - count + kept]
        table[row, kept - 1] = words[end - 1]
    return table


@lru_cache(maxsize=2)  # cells of one set come one after another
def private_rows(name: str, root: str, length: int, limit: int | None) -> Data:
    """The training rows. Test rows are not among them: they are longer."""
    train = part_of(name, root, "train", length)
    assert train is not None
    classes = range(int(train.labels.max()) + 1)
    some = train.first(limit)
    return Data(some.words, some.labels, name=name, classes=classes)
