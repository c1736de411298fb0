"""Rows of what other libraries give, as arrays: loaders of batches, data sets of single rows, lists
of pairs, scikit-learn's Bunch.

What a message shows is shapes and types, never values.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dptune.data.arrays import as_array, as_features
from dptune.data.classes import name_classes
from dptune.data.disk import DiskRows
from dptune.errors import InvalidInput


def gather(batches: Any, which: str) -> tuple[NDArray[Any], list[Any]]:
    """All features, (rows, *shape of a row), and their labels. Fractions become float32; whole
    numbers, such as pixels or numbers of words, stay as they are."""
    tables: list[NDArray[Any]] = []
    labels: list[Any] = []  # of any type: NumPy would make text of [1, "a"]
    for place, item in enumerate(_items(batches, which)):
        where = f"item {place} (from 0) of the {which} rows"
        table, several = _batch(item, where)
        if tables and table.shape[1:] != tables[0].shape[1:]:
            raise InvalidInput(
                f"{where} holds rows of shape {table.shape[1:]}, those before it of shape "
                f"{tables[0].shape[1:]}; bring all rows to one shape first (crop, resize or pad)."
            )
        tables.append(table)
        labels += several
    if not labels:
        raise InvalidInput(f"there are no {which} rows: {type(batches).__name__} gave none.")
    return np.concatenate(tables), labels


def _items(batches: Any, which: str) -> Iterator[Any]:
    """As many items as `batches` says it has: an endless stream could not be gathered."""
    kind = type(batches).__name__
    if isinstance(batches, Mapping | str | bytes) or not (
        hasattr(batches, "__iter__") or hasattr(batches, "__getitem__")
    ):
        raise InvalidInput(
            f"the {which} rows must be what gives (features, labels): a DataLoader, a Dataset or "
            f"a list of pairs; got {kind}."
        )
    try:
        count = len(batches)
    except TypeError:
        raise InvalidInput(
            f"the {which} rows are a {kind} without a length, which may never end; if it ends, "
            "give list(it), else cut it first: list(itertools.islice(it, BATCHES))."
        ) from None
    if hasattr(batches, "__getitem__"):  # which need not say where it ends
        return (batches[place] for place in range(count))
    return _counted(batches, count, f"the {which} rows")


def _counted(batches: Any, count: int, what: str) -> Iterator[Any]:
    given = 0
    for item in batches:
        given += 1
        if given > count:
            break
        yield item
    if given != count:
        received = "more" if given > count else f"{given}"
        raise InvalidInput(
            f"{what} say that they are {count} batches, and gave {received}; give a list of them."
        )


def _batch(item: Any, where: str) -> tuple[NDArray[Any], list[Any]]:
    """Several rows, or one, whose label is no list."""
    if not isinstance(item, tuple | list) or len(item) != 2:
        kind = type(item).__name__
        if isinstance(item, Mapping):
            kind += f" with {', '.join(map(str, item))}"
        elif isinstance(item, tuple | list):
            kind += f" of {len(item)}"
        raise InvalidInput(
            f"{where} must be a pair (features, labels); got {kind}. Give pairs, as in "
            "[(b['image'], b['label']) for b in loader]; whole arrays go to Data(features, labels)."
        )
    features = as_array(item[0], f"the features of {where}")
    labels = _labels(item[1], f"the labels of {where}")
    if labels.ndim == 0:
        features, labels = features[None], labels[None]
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise InvalidInput(
            f"the labels of {where} have shape {labels.shape}, and a row has one label; of one-hot "
            "rows, labels.argmax(1) makes class numbers."
        )
    if features.shape[:1] != labels.shape:
        raise InvalidInput(
            f"{where} has features of shape {features.shape} and {len(labels)} labels; the first "
            "axis must be the rows, one label each (of a single row, a label that is no list)."
        )
    if len(labels) > 0:
        features = as_features(features, f"the features of {where}")
    return features.astype(np.float32) if features.dtype.kind == "f" else features, labels.tolist()


def _labels(values: Any, what: str) -> NDArray[Any]:
    if not isinstance(values, tuple | list):
        return as_array(values, what)
    plain = [each.item() if isinstance(each, Tensor) else each for each in values]
    return np.fromiter(plain, dtype=object, count=len(plain))


def read_bunch(bunch: Any, facts: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """Features and labels of a scikit-learn Bunch, and the facts about them. If it names its
    classes, the names become the labels."""
    if not hasattr(bunch, "data") or not hasattr(bunch, "target"):
        raise InvalidInput(
            "Data.of takes a scikit-learn Bunch with .data and .target; got "
            f"{type(bunch).__name__}. Give arrays to Data(features, labels)."
        )
    names = list(getattr(bunch, "target_names", ()))
    undeclared = facts.get("task", "classes") == "classes" and facts.get("classes") is None
    if not undeclared or len(names) < 2:  # a single name is that of a column, not of a class
        return bunch.data, bunch.target, facts
    facts = facts | {"classes": names}
    for which in ("test", "public"):
        if isinstance(facts.get(which), tuple | list):  # chunks hold numbers
            features, numbers = facts[which]
            facts[which] = features, name_classes(numbers, names)
    facts["shifts"] = {
        name: shift
        if isinstance(shift.features, DiskRows)
        else replace(shift, labels=name_classes(shift.labels, names))
        for name, shift in (facts.get("shifts") or {}).items()
    }
    return bunch.data, name_classes(bunch.target, names), facts
