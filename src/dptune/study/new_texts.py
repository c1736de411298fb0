"""New texts for a model of texts, in whatever form they are given."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dptune.errors import InvalidInput
from dptune.texts import Encoder, Texts, read


def new_texts(encoder: Encoder, given: Any) -> Texts:
    """Texts to predict: a list of them, or of tuples where there are several columns; columns by
    name; or where they lie, as `read` takes it."""
    columns = encoder.columns[:-1] if encoder.task == "spans" else encoder.columns
    if isinstance(given, Texts):
        return given
    if isinstance(given, np.ndarray):
        given = given.tolist()
    if isinstance(given, Sequence) and not isinstance(given, str):
        rows = [tuple(row) if isinstance(row, list | tuple) else (row,) for row in given]
        if any(len(row) != len(columns) for row in rows):
            raise InvalidInput(
                f"this model takes texts of {len(columns)} columns ({', '.join(columns)}); give a "
                "list of texts for one column, of tuples for several."
            )
        given = {name: [row[i] for row in rows] for i, name in enumerate(columns)}
    elif hasattr(given, "columns"):  # a frame
        given = {name: given[name] for name in given.columns}
    answers = encoder.task == "words" and encoder.has_answers
    return read(given, columns, answers=answers, splits=("test", "train"), for_model=True)
