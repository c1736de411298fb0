"""Pictures by the name a user gives: a folder, a file, or a data set that dptune knows."""

from pathlib import Path

from dptune.errors import InvalidInput
from dptune.pictures.folders import class_folders
from dptune.pictures.packed import packed
from dptune.pictures.pictures import PictureSet


def find_pictures(source: str | Path, root: str | Path | None = None) -> PictureSet:
    """The pictures that `source` names: a folder of class folders, or an .npz."""
    path = Path(source)
    if path.is_dir():
        return class_folders(path)
    if path.is_file() and path.suffix == ".npz":
        return packed(path)
    raise InvalidInput(f"there are no pictures at {str(source)!r}.")
