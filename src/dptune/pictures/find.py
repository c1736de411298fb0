"""Find pictures by name: a folder, a file, the hub, or a known data set."""

import os
import re
from contextlib import suppress
from pathlib import Path

from dptune.errors import InvalidInput, MissingExtra
from dptune.hub import datasets_package, hub_is_near
from dptune.pictures.folders import class_folders
from dptune.pictures.hugging_face import SAVED_TO_DISK, OnHub, from_hub, from_saved
from dptune.pictures.known.sets import KNOWN, KnownSet
from dptune.pictures.packed import packed
from dptune.pictures.pictures import PictureSet

HUB = "hub:"
ROOT = "DPTUNE_PICTURES"  # the environment variable


def find_pictures(source: str | Path, root: str | Path | None = None) -> PictureSet:
    """Find the pictures of `source`: a folder with one folder per class, or in the usual layout of
    a known set; an .npz; hub:NAME; or a known NAME or NAME:VARIANT. Known names are looked up in
    `root` (default: the folder in DPTUNE_PICTURES, or the current one) and then on the hub."""
    text = str(source)
    if text.startswith(HUB):
        return from_hub(OnHub(text.removeprefix(HUB)))
    name, _, variant = text.partition(":")
    known = next((each for each in KNOWN if plain_name(name) in _names(each)), None)
    if known is None or isinstance(source, Path):
        return _at(Path(source))
    if variant and not known.variants:
        raise InvalidInput(f"{known.name} has no variants; got {text!r}. Use {known.name}.")
    variant = variant or known.variant
    folder = Path(root if root is not None else os.environ.get(ROOT) or ".")
    return _under(folder, known, variant) or _from_hub_or_fail(folder, known, variant)


def _at(path: Path) -> PictureSet:
    # Functions of os.path accept any name; those of Path fail if it is too long.
    if os.path.isdir(path):
        return _in_folder(path)
    if os.path.isfile(path) and path.suffix == ".npz":
        return packed(path)
    names = ", ".join(each.name for each in KNOWN)
    what = "is neither a folder nor an .npz" if os.path.exists(path) else "does not exist"
    raise InvalidInput(
        f"pictures must be a folder, an .npz, {HUB}NAME, or one of {names}; {str(path)!r} {what}."
    )


def _in_folder(folder: Path) -> PictureSet:
    if _is_saved(folder):
        return from_saved(folder)
    for known in sorted(KNOWN, key=lambda each: _mentions(folder, each), reverse=True):
        found = known.read(folder, known.variant)
        if found is not None:
            return found
    return class_folders(folder)


def _mentions(folder: Path, known: KnownSet) -> int:
    """The longest name of a set in the path; MNIST and Fashion-MNIST use the same file names."""
    path = plain_name(str(folder.absolute()))
    return max((len(name) for name in _names(known) if name in path), default=0)


def _under(root: Path, known: KnownSet, variant: str) -> PictureSet | None:
    names = _names(known)
    exact = {name + plain_name(variant) for name in names}
    if variant == known.variant:
        exact |= names
    entries = sorted(root.iterdir()) if os.path.isdir(root) else []
    for path in entries:
        if path.suffix == ".npz" and plain_name(path.stem) in exact:
            return packed(path, known.classes.get(variant, ()))
    named = [path for path in entries if path.is_dir() and plain_name(path.name) in names | exact]
    places = [place / folder for place in named for folder in (".", *known.folders)]
    for place in (*places, *(root / folder for folder in known.folders)):
        found = known.read(place, variant) if os.path.isdir(place) else None
        if found is not None:
            return found
    for place in named:
        if plain_name(place.name) in exact:
            if _is_saved(place):
                return from_saved(place)
            with suppress(InvalidInput):
                found = class_folders(place)
                # Otherwise these are other folders, such as raw and processed with a missing file.
                if len(found.part("train").classes) == len(known.classes.get(variant, ())):
                    return found
    return None


def _from_hub_or_fail(root: Path, known: KnownSet, variant: str) -> PictureSet:
    called = f"{known.name}:{variant}" if variant else known.name
    tried = "It is not on the hub in a form that dptune reads."
    if known.hub is not None:
        tried = f"The hub has it as {known.hub.name}, but the hub cannot be reached from here."
        try:
            datasets_package()  # without this package the hub need not be reached
            if hub_is_near():
                return from_hub(known.hub)
        except (InvalidInput, MissingExtra) as error:
            tried = f"The hub has it as {known.hub.name}, but {error}"
    usual = "".join(f", no {folder}" for folder in known.folders if folder != ".")
    variants = f" {known.name}:VARIANT can be {known.variants}." if known.variants else ""
    raise InvalidInput(
        f"the data set {called} was not found in {str(root.absolute())!r} (--root or {ROOT} name "
        f"another folder): no {known.name}.npz, no {known.name}{usual} with its files. These "
        f"layouts are read: {known.files}; a folder {known.name} with a folder for each class; an "
        f".npz of pictures.{variants} Get it from {known.source} (licence: {known.licence}) and "
        f"unpack it there. {tried}"
    )


def _is_saved(folder: Path) -> bool:
    return any((folder / name).is_file() for name in SAVED_TO_DISK)


def plain_name(name: str) -> str:
    """Normalise a name: CIFAR-10, cifar_10 and cifar10 are the same."""
    return re.sub(r"[-_. ]", "", name).casefold()


def _names(known: KnownSet) -> set[str]:
    return {plain_name(name) for name in (known.name, *known.other_names)}
