"""Tell tables of texts and numbers apart by content, as `fingerprint` does arrays and files."""

import hashlib

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from dptune.data.fingerprint import fingerprint_arrays


def fingerprint_table(table: pa.Table, labels: ArrayLike) -> str:
    """Digest of the names and values of all columns, texts and gaps among them, and of labels;
    whichever library holds them, and in whatever pieces."""
    digest = hashlib.sha256(fingerprint_arrays(labels).encode())
    for name, column in zip(table.column_names, table.columns, strict=True):
        lengths, texts = hashlib.sha256(), hashlib.sha256()
        for piece in column.chunks:
            offsets, letters = _as_texts(piece)
            lengths.update(np.diff(offsets).tobytes())
            texts.update(letters)
        digest.update(f"{name!r}{lengths.hexdigest()}{texts.hexdigest()}".encode())
    return digest.hexdigest()


def _as_texts(piece: pa.Array) -> tuple[NDArray[np.int64], memoryview]:
    """Where the text of each value begins and ends, and all texts in a row; a gap is a letter that
    no text has."""
    try:
        texts = piece.cast(pa.large_string())
    except pa.ArrowException:  # lists and the like, which nobody trains on
        known = [None if value is None else repr(value) for value in piece.to_pylist()]
        texts = pa.array(known, pa.large_string())
    texts = texts.fill_null("\0")
    _, places, letters = texts.buffers()
    offsets = np.frombuffer(places, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    begin, end = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    return offsets, memoryview(letters or b"")[begin:end]
