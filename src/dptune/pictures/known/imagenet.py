"""ImageNet-1k (ILSVRC 2012): folders of classes in train, and in val, which may also be flat."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from dptune.pictures.folders import class_folders, unlabelled
from dptune.pictures.known.matlab import read_matlab
from dptune.pictures.known.tables import table_rows
from dptune.pictures.pictures import Pictures, PictureSet, Remark
from dptune.table_files import reading

_SOLUTION = "LOC_val_solution.csv"
_TRUTH = "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt"


def imagenet(folder: Path, variant: str) -> PictureSet | None:
    """Read ImageNet; classes have the names of their WordNet numbers."""
    if not any((folder / "train").glob("n[0-9]*/")):
        return None
    folders = class_folders(folder)
    if "test" not in folders.parts and (folder / "val").is_dir():
        labels = _labels_of_val(folder)
        if labels:
            flat = partial(_flat, folder / "val", labels, folders)
            return PictureSet("imagenet", {**folders.parts, "test": flat})
    return PictureSet("imagenet", folders.parts)


def _labels_of_val(folder: Path) -> Mapping[str, str]:
    """The class of each file, by its name without the suffix."""
    # ILSVRC/Data/CLS-LOC is three folders below the table.
    for place in (folder, *folder.resolve().parents[:3]):
        if (place / _SOLUTION).is_file():
            return _from_solution(place / _SOLUTION)
        if (place / _TRUTH).is_file():
            return _from_development_kit(place / _TRUTH)
    return {}


def _from_solution(table: Path) -> Mapping[str, str]:
    with reading(table):
        rows = table_rows(table)
        return {row["ImageId"]: row["PredictionString"].partition(" ")[0] for row in rows}


def _from_development_kit(truth: Path) -> Mapping[str, str]:
    """Read the class numbers, one line per picture; meta.mat has the names of the classes."""
    meta = truth.parent / "meta.mat"
    with reading(meta):
        synsets = read_matlab(meta, "synsets")["synsets"]
        names = {int(each["ILSVRC2012_ID"].item()): str(each["WNID"]) for each in synsets}
    with reading(truth):
        numbers = [int(line) for line in truth.read_text().split()]
        return {
            f"ILSVRC2012_val_{picture:08d}": names[number]
            for picture, number in enumerate(numbers, start=1)
        }


def _flat(val: Path, labels: Mapping[str, str], trained: PictureSet) -> Pictures:
    listed = unlabelled(val)
    classes = {name: number for number, name in enumerate(trained.part("train").classes)}
    numbers = [classes.get(labels.get(Path(path).stem, "")) for path in listed.paths]
    remarks = [
        Remark(listed.name(number), "its class is not known", left_out=True)
        for number, label in enumerate(numbers)
        if label is None
    ]
    return replace(
        listed,
        classes=tuple(classes),
        labels=np.array([label for label in numbers if label is not None], np.int64),
        paths=tuple(
            path for path, label in zip(listed.paths, numbers, strict=True) if label is not None
        ),
        remarks=(*listed.remarks, *remarks),
    )
