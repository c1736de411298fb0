"""Waterbirds, fMoW and Camelyon17, as WILDS stores them: a table lists the files. The parts are
"train", "test" of the same origin, and "shift" of another."""

import csv
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from dptune.pictures.checks import check_labels
from dptune.pictures.known.class_names import BIRDS, FMOW, TISSUE
from dptune.pictures.pictures import Pictures, PictureSet
from dptune.pictures.stored import FilePictures
from dptune.table_files import reading

Picture = tuple[str, int, int]  # path, label, group

_BIRD_GROUPS = tuple(f"{bird} on {place}" for bird in BIRDS for place in ("land", "water"))
_HOSPITALS = tuple(f"hospital {number}" for number in range(5))
_NEW, _FOR_VALIDATION = "2", "1"  # hospitals that WILDS holds out
_REGIONS = ("Asia", "Europe", "Africa", "Americas", "Oceania", "Other")  # in the order of WILDS


def waterbirds(folder: Path, variant: str) -> PictureSet | None:
    """Training: birds mostly before their usual background. Test: all four pairs."""
    if not _has_columns(folder / "metadata.csv", "img_filename", "y", "split", "place"):
        return None
    return _set("waterbirds", folder, BIRDS, _BIRD_GROUPS, _birds, ("train", "test"))


def _birds(folder: Path, part: str) -> Iterator[Picture]:
    for row in table_rows(folder / "metadata.csv"):
        if row["split"] == {"train": "0", "test": "2"}[part]:
            bird, place = int(row["y"]), int(row["place"])
            yield row["img_filename"], bird, 2 * bird + place


def camelyon17(folder: Path, variant: str) -> PictureSet | None:
    """Training: three hospitals. Test: other patches of these. Shift: a new hospital."""
    if not _has_columns(folder / "metadata.csv", "patient", "node", "tumor", "center", "split"):
        return None
    return _set("camelyon17", folder, TISSUE, _HOSPITALS, _patches, ("train", "test", "shift"))


def _patches(folder: Path, part: str) -> Iterator[Picture]:
    for row in table_rows(folder / "metadata.csv"):
        patient, node, hospital = row["patient"].zfill(3), row["node"], row["center"]
        if hospital == _NEW:
            where = "shift"
        elif hospital == _FOR_VALIDATION:
            continue
        else:
            where = "train" if row["split"] == "0" else "test"
        if where == part:
            place = f"patient_{patient}_node_{node}"
            file = f"patch_{place}_x_{row['x_coord']}_y_{row['y_coord']}.png"
            yield f"patches/{place}/{file}", int(row["tumor"]), int(hospital)


def fmow(folder: Path, variant: str) -> PictureSet | None:
    """Training: the Americas before 2013. Test: other pictures of these. Shift: Europe and Africa
    from 2016 on."""
    if not _has_columns(
        folder / "rgb_metadata.csv", "split", "category", "country_code", "timestamp"
    ) or not _has_columns(folder / "country_code_mapping.csv", "alpha-3", "region"):
        return None
    return _set("fmow", folder, FMOW, _REGIONS, _places, ("train", "test", "shift"))


def _places(folder: Path, part: str) -> Iterator[Picture]:
    countries = table_rows(folder / "country_code_mapping.csv")
    regions = {row["alpha-3"]: row["region"] for row in countries}
    for number, row in enumerate(table_rows(folder / "rgb_metadata.csv")):
        region = regions.get(row["country_code"], "Other") or "Other"
        year = int(row["timestamp"][:4])
        if part == "shift":
            belongs = region in ("Europe", "Africa") and row["split"] == "test" and year >= 2016
        else:
            belongs = region == "Americas" and row["split"] == part and year < 2013
        if belongs:
            label = FMOW.index(row["category"])
            yield f"images/rgb_img_{number}.png", label, _REGIONS.index(region)


def _set(
    name: str,
    folder: Path,
    classes: tuple[str, ...],
    groups: tuple[str, ...],
    pictures: Callable[[Path, str], Iterator[Picture]],
    parts: tuple[str, ...],
) -> PictureSet:
    return PictureSet(
        name, {part: partial(_part, folder, classes, groups, pictures, part) for part in parts}
    )


def _part(
    folder: Path,
    classes: tuple[str, ...],
    groups: tuple[str, ...],
    pictures: Callable[[Path, str], Iterator[Picture]],
    part: str,
) -> Pictures:
    with reading(folder):
        listed = list(pictures(folder, part))
        paths, labels, grouped = zip(*listed, strict=True) if listed else ((), (), ())
        numbers = np.array(labels, np.int64)
        check_labels(numbers, classes)
        group_numbers = np.array(grouped, np.int64)
        check_labels(group_numbers, groups)
    return FilePictures(
        classes=classes,
        labels=numbers,
        groups=groups,
        grouped=group_numbers,
        folder=folder,
        paths=paths,
    )


def table_rows(table: Path) -> Iterator[dict[str, str]]:
    with table.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file)
        for row in rows:
            if None in row.values():
                raise ValueError(f"line {rows.line_num} has fewer values than there are columns")
            yield row


def _has_columns(table: Path, *columns: str) -> bool:
    if not table.is_file():
        return False
    with reading(table), table.open(encoding="utf-8-sig", newline="") as file:
        return set(columns) <= set(next(csv.reader(file), []))
