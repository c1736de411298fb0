"""ImageNet-1k as ILSVRC 2012 has it: folders of classes in train, and val either so or flat."""

import csv
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from dptune.pictures.folders import class_folders, unlabelled
from dptune.pictures.pictures import Pictures, PictureSet, Remark
from dptune.table_files import reading

_SOLUTION = "LOC_val_solution.csv"
_TRUTH = "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt"


def imagenet(folder: Path, variant: str) -> PictureSet | None:
    """A class is called by its WordNet number."""
    if not any((folder / "train").glob("n[0-9]*/")):
        return None
    found = class_folders(folder)
    if "test" not in found.parts and (folder / "val").is_dir():
        labels = _labels_of_val(folder)
        if labels:
            flat = partial(_flat, folder / "val", labels, found)
            return PictureSet("imagenet", {**found.parts, "test": flat})
    return PictureSet("imagenet", found.parts)


def _labels_of_val(folder: Path) -> Mapping[str, str]:
    """From the name of a file, without its suffix, to its class."""
    # ILSVRC/Data/CLS-LOC lies three folders below the table.
    for place in (folder, *folder.resolve().parents[:3]):
        if (place / _SOLUTION).is_file():
            return _from_solution(place / _SOLUTION)
        if (place / _TRUTH).is_file():
            return _from_development_kit(place / _TRUTH)
    return {}


def _from_solution(table: Path) -> Mapping[str, str]:
    with reading(table), table.open(encoding="utf-8", newline="") as file:
        return {row["ImageId"]: row["PredictionString"].split()[0] for row in csv.DictReader(file)}


def _from_development_kit(truth: Path) -> Mapping[str, str]:
    """Line i is the number of picture i's class; which class that is stands beside it."""
    from scipy.io import loadmat

    meta = truth.parent / "meta.mat"
    with reading(meta):
        synsets = loadmat(meta, squeeze_me=True)["synsets"]
        names = {int(each["ILSVRC2012_ID"]): str(each["WNID"]) for each in synsets}
    with reading(truth):
        numbers = [int(line) for line in truth.read_text().split()]
        return {
            f"ILSVRC2012_val_{picture:08d}": names[number]
            for picture, number in enumerate(numbers, start=1)
        }


def _flat(val: Path, labels: Mapping[str, str], trained: PictureSet) -> Pictures:
    listed = unlabelled(val)
    classes = {name: number for number, name in enumerate(trained.part("train").classes)}
    found = [classes.get(labels.get(Path(path).stem, "")) for path in listed.paths]
    remarks = [
        Remark(listed.name(number), "its class is not known", left_out=True)
        for number, label in enumerate(found)
        if label is None
    ]
    return replace(
        listed,
        classes=tuple(classes),
        labels=np.array([label for label in found if label is not None], np.int64),
        paths=tuple(
            path for path, label in zip(listed.paths, found, strict=True) if label is not None
        ),
        remarks=(*listed.remarks, *remarks),
    )
