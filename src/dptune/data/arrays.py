"""Numbers and labels as checked NumPy arrays: nothing missing, nothing infinite, labels of one
kind."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dptune.errors import InvalidInput
from dptune.table_files import listed

_FEW_ROWS = 5  # that are named one by one


def as_array(values: Any, what: str) -> NDArray[Any]:
    """A NumPy array, without a copy if possible."""
    from scipy.sparse import issparse

    if values is None:
        raise InvalidInput(f"{what} are missing; got None.")
    if issparse(values) or (isinstance(values, torch.Tensor) and values.layout != torch.strided):
        raise InvalidInput(
            f"{what} are sparse, which engines cannot take; make them dense (.toarray()), or "
            "project them on fewer columns first."
        )
    if np.ma.is_masked(values):
        raise InvalidInput(f"{what} have masked values; fill them or remove those rows first.")
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        values = values.float() if values.dtype == torch.bfloat16 else values  # unknown to NumPy
    elif hasattr(values, "to_numpy"):
        values = values.to_numpy()
    try:
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError):
        raise InvalidInput(
            f"{what} cannot be made an array: {type(values).__name__} with rows of different "
            "lengths, or not of numbers."
        ) from None


def as_features(values: Any, what: str, names: Sequence[str] = ()) -> NDArray[Any]:
    """Finite numbers in their own type: a table (rows, columns), or rows of another shape. `names`
    are those of the columns, if they have some."""
    array = as_array(values, what)
    if array.ndim < 2 or 0 in array.shape:
        raise InvalidInput(
            f"{what} must be a table of shape (rows, columns), or rows of another shape; got shape "
            f"{array.shape}."
        )
    if array.dtype.kind == "O":  # pandas, where columns differ in type
        array = _numbers(array, what)
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise InvalidInput(
            f"{what} must be numbers of up to 64 bits; found {array.dtype}. Turn such columns into "
            "numbers, leave them out, or declare what all columns are (columns=)."
        )
    if not bool(np.isfinite(array).all()):
        named = names or names_of(values)
        where = _where_not_finite(array, named)
        declare = ", or declare what stands for them (columns=)" if named else ""
        raise InvalidInput(
            f"{what} hold values that are missing or not finite (NaN, infinity){where}; remove or "
            f"fill them first{declare}."
        )
    return array


def _where_not_finite(array: NDArray[Any], names: Sequence[str]) -> str:
    """Which columns of a table, by name if they have one."""
    if array.ndim != 2:
        return ""
    wrong = np.flatnonzero(~np.isfinite(array).all(0)).tolist()
    named = len(names) == array.shape[1]  # else refused later
    columns = [names[place] if named else str(place + 1) for place in wrong]
    counted = "" if named else ", counted from 1"
    return f" in column{'s' * (len(columns) > 1)} {listed(columns)}{counted}"


def _numbers(array: NDArray[Any], what: str) -> NDArray[Any]:
    try:
        if not any(isinstance(value, str | bytes) for value in array.ravel().tolist()):
            return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        pass
    raise InvalidInput(
        f"{what} must be numbers; found text, or values that are missing or no numbers. Turn such "
        "columns into numbers, leave them out, or declare what all columns are (columns=)."
    )


def names_of(values: Any) -> tuple[str, ...]:
    """The names of columns by `.columns`, as in pandas, or `.column_names`, as in Arrow; empty
    unless all are text."""
    columns = getattr(values, "column_names", None) or getattr(values, "columns", ())
    names = tuple(columns) if isinstance(columns, Iterable) else ()
    # str, because NumPy has a text type of its own.
    return tuple(map(str, names)) if all(isinstance(name, str) for name in names) else ()


def places(names: Sequence[str], others: Sequence[str], what: str) -> list[int]:
    """The place of each column in a table with the same columns in any order."""
    missing = list(Counter(names) - Counter(others))
    more = list(Counter(others) - Counter(names))  # a name that occurs twice among them
    if missing or more:
        problems = [
            f"{verb} the columns {listed(some)}"
            for verb, some in (("lacks", missing), ("has besides", more))
            if some
        ]
        raise InvalidInput(
            f"{what} {' and '.join(problems)}; columns are matched by name, so give those that the "
            f"model was trained on: {listed(names)}."
        )
    numbers = {name: number for number, name in enumerate(others)}
    return [numbers[name] for name in names]


def _column(values: Any, what: str) -> NDArray[Any]:
    """Labels, one a row and none missing: booleans, whole numbers, other numbers or text."""
    if isinstance(values, list | tuple):
        # Because NumPy would turn [1, "a"] into text.
        values = np.fromiter(values, dtype=object, count=len(values))
    array = as_array(values, what)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or len(array) == 0:
        raise InvalidInput(f"{what} must be one a row; got shape {array.shape}.")
    if array.dtype.kind == "O":
        array = of_one_kind(array, what)
    if array.dtype.kind == "U":
        _none_missing(array == "", what)
    elif array.dtype.kind == "f":
        _none_missing(~np.isfinite(array), what)
    return array


def _none_missing(missing: NDArray[np.bool_], what: str) -> None:
    if missing.any():
        raise InvalidInput(
            f"{what} are missing {in_rows(missing)}: empty, NaN or infinite. Correct or "
            "remove these rows first."
        )


def in_rows(some: NDArray[np.bool_]) -> str:
    """How many rows these are, and the first of them: for the screen of their holder."""
    places = np.flatnonzero(some)
    count = len(places)
    shown = ", ".join(f"{place + 1:,}" for place in places[:_FEW_ROWS].tolist())
    more = ", ..." if count > _FEW_ROWS else ""
    return f"in {count:,} row{'s' * (count > 1)} ({shown}{more}, counted from 1)"


def of_one_kind(array: NDArray[Any], what: str) -> NDArray[Any]:
    """Labels that came as objects: none missing, all booleans, all numbers or all text."""
    of_rows = [_kind(value) for value in array.tolist()]
    _none_missing(np.array([kind == "missing" for kind in of_rows]), what)
    kinds = set(of_rows)
    try:
        if len(kinds) == 1:
            (kind,) = kinds
            return array.astype({"bool": bool, "int": np.int64, "text": str, "float": float}[kind])
        if kinds == {"int", "float"}:
            return array.astype(np.float64)
    except (KeyError, OverflowError):
        pass
    raise InvalidInput(
        f"{what} must be all whole numbers, all text or all booleans; found "
        f"{' and '.join(sorted(kinds))}."
    )


def _kind(value: object) -> str:
    if isinstance(value, bool | np.bool_):
        return "bool"
    if isinstance(value, str):
        return "text"
    if isinstance(value, Integral):
        return "int"
    if isinstance(value, Real):
        return "float" if math.isfinite(value) else "missing"
    # pandas has two more words for None.
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return "missing"
    return type(value).__name__


def are_whole(numbers: NDArray[Any]) -> bool:
    """Whether all numbers are whole, and none is too large to tell."""
    return bool(((numbers == np.round(numbers)) & (np.abs(numbers) <= 2**53)).all())


def as_class_labels(values: Any, what: str) -> NDArray[Any]:
    labels = _column(values, what)
    if labels.dtype.kind == "f":
        if not are_whole(labels):
            raise InvalidInput(
                f"{what} must name classes, and found numbers that are not whole; to predict "
                "values, say task='values' and give a target_range (in [data] of a --config file, "
                "or in Python)."
            )
    elif labels.dtype.kind not in "biuU":
        raise InvalidInput(f"{what} must be whole numbers, text or booleans; found {labels.dtype}.")
    return labels


def as_values(values: Any, what: str) -> NDArray[Any]:
    numbers = _column(values, what)
    if numbers.dtype.kind not in "iuf":
        raise InvalidInput(
            f"{what} must be numbers for task='values'; found {numbers.dtype}. To predict "
            "classes, say task='classes' (in [data] of a --config file, or in Python)."
        )
    return numbers.astype(np.float64)
