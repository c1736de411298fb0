"""Pictures in folders: one folder per class, optionally in folders train and test; or no classes.

Names of folders are public. Whether a file is listed depends on that file alone.
"""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from dptune.errors import InvalidInput
from dptune.pictures.pictures import PictureSet, Remark
from dptune.pictures.stored import FilePictures, shown

NO_PICTURES = "a class without pictures"  # the remark on an empty folder
_TRAIN = ("train", "training")
_TEST = ("test", "testing", "val", "validation", "valid")  # the first that has classes


def class_folders(folder: Path) -> PictureSet:
    """FOLDER/CLASS/..., or FOLDER/train/CLASS/... with FOLDER/test/CLASS/... beside it."""
    parts = _splits(folder) or {"train": folder}
    classes = sorted({name for part in parts.values() for name in _subfolders(part)})
    name = folder.resolve().name or "pictures"
    what = f"{str(folder)!r} must hold a folder for each class, with its pictures in it"
    advice = (
        f"Make it {name}/CLASS/picture.jpg, or {name}/train/CLASS/picture.jpg and "
        f"{name}/test/CLASS/picture.jpg."
    )
    if not classes:
        raise InvalidInput(f"{what}; found no folders. {advice}")
    if len(classes) == 1:
        only = shown(classes[0])
        raise InvalidInput(f"{what}, and at least two of them; found only {only!r}. {advice}")
    listed = {part: partial(_labelled, folder, path, classes) for part, path in parts.items()}
    return PictureSet(name, listed)


def unlabelled(folder: Path) -> FilePictures:
    """List every picture under the folder, without classes, to predict."""
    if not os.path.isdir(folder):
        raise InvalidInput(f"there is no folder {str(folder)!r} to take pictures from.")
    remarks: list[Remark] = []
    paths = sorted(_files(folder, "", remarks))
    if not paths:
        raise InvalidInput(f"{str(folder)!r} holds no pictures: no file that is not hidden.")
    labels = np.zeros(len(paths), np.int64)
    return FilePictures(
        classes=(), labels=labels, remarks=tuple(remarks), folder=folder, paths=tuple(paths)
    )


def _splits(folder: Path) -> dict[str, Path]:
    """The folders called train and test, if they hold folders: these may be names of classes."""
    named = {name.casefold(): name for name in _subfolders(folder)}

    def first(names: tuple[str, ...]) -> Path | None:
        paths = (folder / named[name] for name in names if name in named)
        return next((path for path in paths if _subfolders(path)), None)

    train, test = first(_TRAIN), first(_TEST)
    if train is None:
        return {}
    return {"train": train} | ({} if test is None else {"test": test})


def _labelled(root: Path, folder: Path, classes: list[str]) -> FilePictures:
    remarks: list[Remark] = []
    paths, labels = [], []
    within = "" if folder == root else f"{folder.name}/"
    if folder != root and folder.name.casefold() in _TRAIN:
        for entry in _entries(root, "", remarks):
            if entry.name.casefold() not in (*_TRAIN, *_TEST):
                what = f"beside the folder {folder.name}, so in no part"
                remarks.append(Remark(shown(entry.name), what, left_out=True))
    names = set(classes)
    for entry in _entries(folder, within, remarks):
        if entry.name not in names:
            what = "beside the folders of the classes, so of no class"
            remarks.append(Remark(shown(within + entry.name), what, left_out=True))
    for number, name in enumerate(classes):
        files = sorted(_files(root, f"{within}{name}", remarks))
        if not files:
            remarks.append(Remark(shown(within + name), NO_PICTURES, left_out=False))
        paths += files
        labels += [number] * len(files)
    return FilePictures(
        classes=tuple(map(shown, classes)),
        labels=np.array(labels, np.int64),
        remarks=tuple(remarks),
        folder=root,
        paths=tuple(paths),
    )


def _files(root: Path, within: str, remarks: list[Remark]) -> Iterator[str]:
    """The paths in `root` of all files under `within`, with its subfolders."""
    for entry in _entries(root / within, within, remarks):
        path = f"{within}/{entry.name}" if within else entry.name
        if entry.is_dir(follow_symlinks=False):
            yield from _files(root, path, remarks)
        elif _is_folder(entry):  # links can form a cycle
            what = "a link to a folder is not followed"
            remarks.append(Remark(shown(path), what, left_out=True))
        else:  # a picture that cannot be read, such as a broken link, still counts
            yield path


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _subfolders(folder: Path) -> list[str]:
    return [entry.name for entry in _entries(folder, "", []) if _is_folder(entry)]


def _entries(folder: Path, within: str, remarks: list[Remark]) -> list[os.DirEntry[str]]:
    """The entries of a folder that are not hidden, sorted."""
    try:
        with os.scandir(folder) as scan:  # tells files from folders without a call for each
            entries = [entry for entry in scan if not entry.name.startswith(".")]
    except FileNotFoundError:
        return []  # only the other part has this class
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        remarks.append(Remark(shown(within) or str(folder), what, left_out=True))
        return []
    return sorted(
        (entry for entry in entries if entry.name != "__MACOSX"), key=lambda entry: entry.name
    )
