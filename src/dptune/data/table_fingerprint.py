"""Fingerprints of tables of texts and numbers, as `fingerprint` makes them of arrays and files."""

import hashlib

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from dptune.data.fingerprint import fingerprint_arrays


def fingerprint_table(table: pa.Table, labels: ArrayLike) -> str:
    """Digest of the names and values of all columns, with texts and gaps, and of labels, in any
    library and any pieces."""
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
    """Where the text of each value begins and ends, and all texts joined; a gap is a letter that no
    text has."""
    try:
        texts = piece.cast(pa.large_string())
    except pa.ArrowException:  # lists and the like, which are not trained on
        written = [None if value is None else repr(value) for value in piece.to_pylist()]
        texts = pa.array(written, pa.large_string())
    texts = texts.fill_null("\0")
    _, places, letters = texts.buffers()
    offsets = np.frombuffer(places, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    begin, end = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    return offsets, memoryview(letters or b"")[begin:end]
