"""Preprocessing as models of earlier versions stored it: flags and arrays."""

from typing import Any

import numpy as np

from dptune.columns import Encoding
from dptune.data.preprocess import Preprocessing
from dptune.data.row_maps import Append, Asinh, Multiply, Subtract

_ARRAYS = ("shift", "scale", "center", "whitening")


def earlier(encoding: Encoding | None = None, **stored: Any) -> Preprocessing:
    """What an earlier version did with these flags and arrays."""
    arrays = {name: np.asarray(stored.pop(name)) for name in _ARRAYS if name in stored}
    if encoding is not None:
        stored["encoding"] = encoding.to_plain()
    return Preprocessing.from_arrays(arrays, stored)


def mean_of(preprocessing: Preprocessing) -> Any:
    """The mean that is subtracted, if there is one."""
    found = preprocessing.find(Subtract)
    return None if found is None else found.mean


def matrix_of(preprocessing: Preprocessing) -> Any:
    """The matrix that whitens rows, if there is one."""
    found = preprocessing.find(Multiply)
    return None if found is None else found.matrix


def is_log_scaled(preprocessing: Preprocessing) -> bool:
    return preprocessing.find(Asinh) is not None


def appended(preprocessing: Preprocessing) -> list[float]:
    """The constants that are appended."""
    return [each.value for each in preprocessing.maps if isinstance(each, Append)]
