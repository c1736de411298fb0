"""Select and join the texts of a unit, never with those of another unit."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from dptune.texts.cutting import Piece


def first_of_each(units: Sequence[Any], most: int) -> list[list[int]]:
    """The numbers of the first `most` texts of each unit, in order of the units' first texts.

    Guarantees: the selected texts of a unit depend on that unit alone.
    """
    texts_of: dict[Any, list[int]] = {}
    for number, unit in enumerate(units):
        numbers = texts_of.setdefault(unit, [])
        if len(numbers) < most:
            numbers.append(number)
    return list(texts_of.values())


def packed(
    pieces: Iterator[Piece], counts: Sequence[int], rows: int, length: int
) -> Iterator[Piece]:
    """Join the texts of each unit, `counts` of them, and cut them into `rows` rows. Tokens beyond
    these rows are dropped; rows that are not filled stay empty."""
    for count in counts:
        stream = [word for ids, _ in islice(pieces, count) for word in ids][: rows * length]
        for start in range(0, rows * length, length):
            ids = stream[start : start + length]
            yield ids, ids
