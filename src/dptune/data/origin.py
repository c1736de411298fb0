"""Where rows come from, if files, pictures or texts were read for them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune import validate
from dptune.data.made_by import must_be_whole
from dptune.errors import InvalidInput
from dptune.plain_data import read_json


@dataclass(frozen=True, eq=False, repr=False)  # no repr: a fingerprint is private
class Origin:
    """What a reader of rows from elsewhere knows of them.

    fingerprint: what a ledger knows the rows by. Default: the digest of all values.
    made_by: which public backbone or tokenizer made the rows: its "name", and whatever else finds
        it again, as plain data. It is stored with the model.
    numbers: which of all rows each one is, if some are empty, such as pictures that cannot be read.
        Held-out rows are chosen by these numbers, so an empty row moves no other row.
    in_words: where the facts "rows" and "classes" come from, if neither is declared by the user.
    """

    fingerprint: str | None = None
    made_by: Mapping[str, Any] | None = None
    numbers: Any = None
    in_words: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        if self.fingerprint is not None:
            validate.text(fingerprint=self.fingerprint)
        if self.made_by is not None:
            object.__setattr__(self, "made_by", _as_plain_data(self.made_by))

    def numbers_of(self, rows: int) -> NDArray[np.int64] | None:
        """The number of each of the `rows`; None if no row is empty."""
        if self.numbers is None:
            return None
        numbers = np.asarray(self.numbers)
        if (
            numbers.dtype.kind not in "iu"
            or numbers.shape != (rows,)
            or numbers[0] < 0
            or (np.diff(numbers) < 1).any()
        ):
            raise InvalidInput(
                f"numbers must be {rows} whole numbers, one a row, that grow from 0 on."
            )
        return numbers.astype(np.int64)


OF_ARRAYS = Origin()  # of which no more is known


def _as_plain_data(made_by: Mapping[str, Any]) -> dict[str, Any]:
    """A copy as JSON returns it, so that a stored model has the same."""
    if not isinstance(made_by, Mapping) or "name" not in made_by:
        raise InvalidInput(
            'made_by must be a mapping with a "name", that of what made the features; got '
            f"{made_by!r}."
        )
    validate.text(made_by=made_by["name"])
    try:
        plain: dict[str, Any] = read_json(json.dumps(dict(made_by), allow_nan=False), "it")
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"made_by must be plain texts, numbers, lists and mappings: {error}."
        ) from None
    must_be_whole(plain)
    return plain
