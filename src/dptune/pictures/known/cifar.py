"""CIFAR-10 and CIFAR-100, CIFAR-10.1 (new pictures), CIFAR-10-C and CIFAR-100-C (corrupted)."""

from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dptune.errors import InvalidInput
from dptune.pictures.checks import check_labels, whole_numbers
from dptune.pictures.known.class_names import CIFAR10, CIFAR100
from dptune.pictures.mapped import JoinedRows, mapped_npy, mapped_records
from dptune.pictures.pictures import Pictures, PictureSet
from dptune.pictures.stored import Numbers, RowPictures, Rows
from dptune.pictures.unpickle import unpickle
from dptune.table_files import listed, reading

_FILES10 = {"train": [f"data_batch_{number}" for number in range(1, 6)], "test": ["test_batch"]}
_FILES100 = {"train": ["train"], "test": ["test"]}
_COLOURS_FIRST, _COLOURS_LAST = (3, 32, 32), (1, 2, 0)


def cifar10(folder: Path, variant: str) -> PictureSet | None:
    return _cifar("cifar10", folder, _FILES10, CIFAR10, before=1)


def cifar100(folder: Path, variant: str) -> PictureSet | None:
    """CIFAR-100 by fine labels."""
    return _cifar("cifar100", folder, _FILES100, CIFAR100, before=2)


def _cifar(
    name: str, folder: Path, files: dict[str, list[str]], classes: tuple[str, ...], before: int
) -> PictureSet | None:
    """Read the Python version (pickles), or the binary one: `before` bytes of labels, of which the
    last is used, then the pixels."""
    for suffix, part in (("", _pickled), (".bin", _binary)):
        paths = {
            which: [folder / (file + suffix) for file in names] for which, names in files.items()
        }
        whole = {which: each for which, each in paths.items() if all(p.is_file() for p in each)}
        if "train" in whole:
            return PictureSet(
                name,
                {which: partial(part, each, classes, before) for which, each in whole.items()},
            )
    return None


def _pickled(paths: list[Path], classes: tuple[str, ...], before: int) -> Pictures:
    pixels: list[Rows] = []
    labels: list[NDArray[np.int64]] = []
    for path in paths:
        with reading(path):
            stored = unpickle(path)
            given = stored["labels" if before == 1 else "fine_labels"]
            labels.append(whole_numbers(np.array(given)))
            check_labels(labels[-1], classes)
            rows = stored["data"].reshape(len(labels[-1]), *_COLOURS_FIRST)
            pixels.append(rows.transpose(0, 2, 3, 1))
    return RowPictures(classes=classes, labels=np.concatenate(labels), pixels=JoinedRows(pixels))


def _binary(paths: list[Path], classes: tuple[str, ...], before: int) -> Pictures:
    pixels: list[Rows] = []
    labels: list[Numbers] = []
    for path in paths:
        with reading(path):
            rows = mapped_records(path, before, _COLOURS_FIRST, _COLOURS_LAST)
            labels.append(rows.bytes_before().astype(np.int64))
            check_labels(labels[-1], classes)
            pixels.append(rows)
    return RowPictures(classes=classes, labels=np.concatenate(labels), pixels=JoinedRows(pixels))


def cifar101(folder: Path, variant: str) -> PictureSet | None:
    data, labels = (folder / f"cifar10.1_{variant}_{what}.npy" for what in ("data", "labels"))
    if not (data.is_file() and labels.is_file()):
        return None
    return PictureSet("cifar10.1", {"test": partial(_npy, data, labels, CIFAR10)})


def cifar10_c(folder: Path, variant: str) -> PictureSet | None:
    return _corrupted("cifar10-c", folder, variant, CIFAR10)


def cifar100_c(folder: Path, variant: str) -> PictureSet | None:
    return _corrupted("cifar100-c", folder, variant, CIFAR100)


def _corrupted(
    name: str, folder: Path, corruption: str, classes: tuple[str, ...]
) -> PictureSet | None:
    """Read CORRUPTION.npy: the test pictures at five severities."""
    labels = folder / "labels.npy"
    names = sorted(path.stem for path in folder.glob("*.npy") if path != labels)
    if not labels.is_file() or not names:
        return None
    if corruption not in names:
        raise InvalidInput(
            f"{name} needs the name of a corruption, as in {name}:{names[0]}; got "
            f"{corruption!r}. There are {listed(names)} in {str(folder)!r}."
        )
    data = folder / f"{corruption}.npy"
    part = partial(_npy, data, labels, classes, severities=5)
    return PictureSet(f"{name}:{corruption}", {"test": part})


def _npy(data: Path, labels: Path, classes: tuple[str, ...], severities: int = 0) -> Pictures:
    with reading(labels):
        numbers = whole_numbers(np.load(labels, allow_pickle=False))
        check_labels(numbers, classes)
    with reading(data):
        pixels = mapped_npy(data)
        if len(pixels) != len(numbers) or (severities and len(pixels) % severities):
            raise ValueError(f"{len(pixels)} pictures for {len(numbers)} labels")
    groups = tuple(f"severity {number}" for number in range(1, severities + 1))
    each = len(numbers) // max(severities, 1)
    grouped = np.repeat(np.arange(severities, dtype=np.int64), each) if severities else None
    return RowPictures(
        classes=classes, labels=numbers, groups=groups, grouped=grouped, pixels=pixels
    )
