"""Fingerprints of data sets.

A plain hash of private rows is itself an output: anyone who guesses the rows can check the guess.
So a ledger keeps these digests only under a secret key of its own, and nothing that may be
published contains them.
"""

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from dptune.errors import InvalidInput


def fingerprint_file(path: str | Path) -> str:
    """Digest of a file's bytes."""
    try:
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            empty = file.tell() == 0
    except OSError as error:
        raise InvalidInput(
            f"the data file {str(path)!r} cannot be read: {error.strerror}. Give the path of the "
            "private data that the run will use."
        ) from None
    if empty:
        raise InvalidInput(
            f"the data file {str(path)!r} is empty; give the path of the private data."
        )
    return digest


def fingerprint_arrays(*arrays: ArrayLike) -> str:
    """Digest of arrays: their types, shapes and values, in order."""
    digest = hashlib.sha256()
    for array in map(np.asarray, arrays):
        if array.dtype.hasobject:  # bytes of an object array are addresses, not values
            raise InvalidInput(
                f"an array of Python objects (dtype {array.dtype}) has no stable fingerprint; "
                "convert it to numbers or fixed-width text first."
            )
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def fingerprint_folder(folder: str | Path) -> str:
    """Digest of the names and bytes of all files in a folder, in sorted order."""
    folder, digest = Path(folder), hashlib.sha256()
    # Hugging Face keeps scratch files, called cache-, beside the data.
    files = [path for path in folder.rglob("*") if path.is_file()]
    files = sorted(path for path in files if not path.name.startswith("cache-"))
    if not files:
        raise InvalidInput(f"{str(folder)!r} is no folder with files in it.")
    for path in files:
        try:
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise InvalidInput(f"{str(path)!r} cannot be read: {error.strerror}.") from None
        digest.update(f"{path.relative_to(folder).as_posix()}\0{content}\n".encode())
    return digest.hexdigest()
