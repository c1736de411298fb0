"""Hugging Face data sets with a column of pictures: saved folders, and the hub."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dptune.errors import InvalidInput
from dptune.hub import datasets_package, load_from_disk, load_from_hub
from dptune.pictures.checks import check_labels
from dptune.pictures.pictures import Content, Pictures, PictureSet
from dptune.pictures.stored import Listed, Numbers, read_picture
from dptune.table_files import listed, reading

SAVED_TO_DISK = ("dataset_dict.json", "state.json")
_IMAGES, _LABELS = ("image", "img"), ("label", "labels", "fine_label")
_TEST = ("test", "validation", "val", "valid")


@dataclass(frozen=True)
class OnHub:
    """A data set on the hub, with facts that its own description lacks."""

    name: str
    config: str | None = None
    label: str | None = None
    group: str | None = None  # a column; groups are pairs of class and its value
    classes: tuple[str, ...] = ()
    splits: Mapping[str, str] = field(default_factory=dict)  # from "test" to the name on the hub


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ColumnPictures(Listed):
    """A column of encoded pictures, read row by row."""

    rows: Any  # a datasets.Dataset of this column alone, not decoded
    column: str

    def name(self, number: int) -> str:
        return str(number)

    def content(self, number: int) -> Content:
        stored = self.rows[number][self.column]
        if stored is None:
            return b""
        if stored["bytes"] is not None:
            return bytes(stored["bytes"])
        return read_picture(Path(stored["path"] or ""))


def from_saved(folder: Path) -> PictureSet:
    return _from_splits(load_from_disk(folder), OnHub(str(folder)), folder.name)


def from_hub(where: OnHub) -> PictureSet:
    return _from_splits(load_from_hub(where.name, where.config), where, where.name)


def _from_splits(splits: dict[str, Any], where: OnHub, name: str) -> PictureSet:
    parts = {}
    for part, usual in (("train", ("train",)), ("test", _TEST)):
        names = (where.splits[part],) if part in where.splits else usual
        split = next((each for each in names if each in splits), None)
        if split is not None:
            parts[part] = partial(_part, splits[split], where, name)
    return PictureSet(name, parts)


def _part(split: Any, where: OnHub, name: str) -> Pictures:
    datasets = datasets_package()
    kinds = split.features
    images = [each for each, kind in kinds.items() if isinstance(kind, datasets.Image)]
    image = _one(images, _IMAGES, "pictures", kinds, name)
    labelled = [each for each, kind in kinds.items() if isinstance(kind, datasets.ClassLabel)]
    usual = (where.label,) if where.label else _LABELS
    label = _one(labelled, usual, "labels (ClassLabel, which names the classes)", kinds, name)
    names = tuple(kinds[label].names)
    classes = where.classes if len(where.classes) == len(names) else names
    with reading(Path(name)):
        labels = _numbers(split, label)
        check_labels(labels, classes)
        groups: tuple[str, ...] = ()
        grouped = None
        if where.group is not None:
            others = tuple(kinds[where.group].names)
            groups = tuple(f"{each} on {other}" for each in classes for other in others)
            grouped = labels * len(others) + _numbers(split, where.group)
        rows = split.select_columns([image]).cast_column(image, datasets.Image(decode=False))
    return ColumnPictures(
        classes=classes,
        labels=labels,
        groups=groups,
        grouped=grouped,
        rows=rows.with_format(None),
        column=image,
    )


def _one(
    fitting: list[str], usual: tuple[str, ...], what: str, kinds: Mapping[str, Any], name: str
) -> str:
    best = [each for each in usual if each in fitting]
    if best or len(fitting) == 1:
        return (best or fitting)[0]
    columns = listed(list(kinds))
    raise InvalidInput(
        f"{name!r} must have one column of {what}, called {' or '.join(usual)} if there are "
        f"several; found the columns {columns}."
    )


def _numbers(split: Any, column: str) -> Numbers:
    stored = split.with_format("arrow").select_columns([column])[:].column(column)
    if stored.null_count:
        raise ValueError(f"the column {column!r} has missing values")
    return np.asarray(stored.to_numpy()).astype(np.int64)
