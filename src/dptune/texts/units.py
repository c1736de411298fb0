"""Which texts of a unit enter, and how a unit's texts are joined: never with those of another."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from dptune.texts.cutting import Piece


def first_of_each(units: Sequence[Any], most: int) -> list[list[int]]:
    """The numbers of each unit's first `most` texts, units in the order in which they come.

    Guarantees: which texts of a unit enter depends on that unit alone.
    """
    found: dict[Any, list[int]] = {}
    for number, unit in enumerate(units):
        numbers = found.setdefault(unit, [])
        if len(numbers) < most:
            numbers.append(number)
    return list(found.values())


def packed(
    pieces: Iterator[Piece], counts: Sequence[int], rows: int, length: int
) -> Iterator[Piece]:
    """The texts of each unit, `counts` of them, joined one after the other and cut into so many
    rows; what is beyond them is dropped, and rows that are not filled stay empty."""
    for count in counts:
        stream = [word for ids, _ in islice(pieces, count) for word in ids][: rows * length]
        for start in range(0, rows * length, length):
            ids = stream[start : start + length]
            yield ids, ids
