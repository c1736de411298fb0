"""Pictures in the place of rows: features are made first, in a folder that the study reads."""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune.cli import picture_screen
from dptune.data import Data
from dptune.data.extracted import SHIFT, Extracted, holds_features, origins_of_pictures
from dptune.data.shift import Shift
from dptune.errors import InvalidInput
from dptune.features.extraction import (
    Extraction,
    FolderTaken,
    fingerprint_of_pictures,
    write_features,
)
from dptune.features.from_pictures import find_networks, gather, has_test_pictures, place_of
from dptune.features.in_memory import features_of
from dptune.features.network import Networks, found_again, short_name
from dptune.pictures.folders import unlabelled
from dptune.pictures.pictures import Pictures
from dptune.pictures.stored import FilePictures, shown

_LONGEST = 60  # letters in the name of a folder, of which file systems take 255 bytes
_ON_FILES = re.compile(r"\.(py|onnx|safetensors)$")


@dataclass(frozen=True, eq=False, repr=False)
class PictureRows:
    """Pictures that were found, the networks for them, and where their features are or will be."""

    images: str
    place: str  # the name of the folder of features
    name: str
    parts: Mapping[str, Pictures]
    networks: Networks
    folder: Path  # where features are expected
    unused_test_pictures: bool

    @property
    def source(self) -> dict[str, Any]:
        """What `load_data` will be told, if features are made where they are expected."""
        return self._source_in(self.folder)

    def _source_in(self, folder: Path) -> dict[str, Any]:
        inside = {name: str(folder / name) for name in self.parts}
        return {
            "source": str(folder),
            "test": inside.get("test"),
            "public": inside.get("public"),
            "shifts": [path for name, path in inside.items() if name.startswith(SHIFT)] or None,
            "name": self.name,
        }

    def make(self) -> dict[str, Any]:
        """Make the features that are not there yet; what `load_data` is told of them."""
        source = place_of(self.images)
        with picture_screen.live_view() as watch:
            extraction = _in_first_free_folder(
                self.place,
                lambda folder: write_features(
                    self.parts, self.networks, folder, source=source, watch=watch
                ),
            )
        picture_screen.show_extraction(extraction, to_tune=False)
        return self._source_in(extraction.folder)

    def stand_in(
        self,
        *,
        name: str,
        rows: int | None = None,
        classes: Sequence[Any] | None = None,
        **_: Any,
    ) -> Data:
        """In the place of `load_data`: no features are made, and only what is public is true."""
        trained, made_by = self.parts["train"], self.networks.made_by
        columns = sum(backbone["columns"] for backbone in made_by["backbones"])
        # Other rows in every part, since those of one may not be those of another.
        features = {
            part: np.full((2, columns), number, np.float32)
            for number, part in enumerate(self.parts)
        }
        labels = [trained.classes[0]] * 2
        return Data(
            features["train"],
            labels,
            name=name,
            classes=trained.classes if classes is None else classes,
            rows=len(trained) if rows is None else rows,
            test=(features["test"], labels) if "test" in features else None,
            public=(features["public"], labels) if "public" in features else None,
            shifts={
                part.removeprefix(SHIFT): Shift(table, np.array(labels))
                for part, table in features.items()
                if part.startswith(SHIFT)
            },
            made_by=made_by,
            origins=origins_of_pictures(rows, classes),
        )

    def fingerprint(self) -> str:
        """What a ledger will know the features by; reads every picture to train on."""
        return fingerprint_of_pictures(self.parts["train"])


def find_rows(
    asked: Mapping[str, Any],
    *,
    images: str,
    name: str | None,
    backbone: Sequence[str] | None,
    features: str,
    size: int | None,
    root: str | None,
    device: str,
) -> PictureRows:
    """The pictures and networks that were asked for; nothing is made of them yet."""
    for option in ("source", "label"):
        if asked[option] is not None:
            said = "data" if option == "source" else option
            raise InvalidInput(f"--images and --{said} do not go together; leave one out.")
    if not backbone:
        raise InvalidInput(
            "pictures need a public network that makes features of them; name one with --backbone "
            "(dptune backbones lists those at hand)."
        )
    parts = gather(
        images, test=asked["test"], public=asked["public"], shifts=asked["shifts"] or (), root=root
    )
    picture_screen.say_loading(backbone)
    networks = find_networks(backbone, features=features, size=size, device=device)
    words = [_called(images), *map(_without_suffixes, backbone)]
    words += [features] * (features != "pooled") + ([f"{size}px"] if size else [])
    wanted = Extracted(networks.made_by, place_of(images), parts["train"].classes, {})
    place = "-".join(map(_word, words))[:_LONGEST]
    return PictureRows(
        images=images,
        place=place,
        name=name or _called(images),
        parts=parts,
        networks=networks,
        folder=_folder(place, wanted),
        unused_test_pictures=asked["test"] is None and has_test_pictures(images, root),
    )


def features_of_new_pictures(
    images: str, made_by: Mapping[str, Any] | None, model: str, device: str
) -> tuple[list[str], NDArray[np.float32]]:
    """Names and features of pictures that a model of pictures is to predict."""
    if made_by is None:
        raise InvalidInput(
            f"the model in {model} was trained on rows, not on pictures; give new rows with --data."
        )
    path = Path(images)
    pictures = _alone(path) if path.is_file() else unlabelled(path)
    picture_screen.say_loading([backbone["name"] for backbone in made_by["backbones"]])
    networks = found_again(made_by, device=device)
    with picture_screen.live_view() as watch:
        found = features_of(pictures, networks, watch=watch)
    picture_screen.show_not_predicted(found.remarks)
    return [pictures.name(number) for number in found.kept], found.rows


def _alone(file: Path) -> FilePictures:
    """One picture, of no class."""
    return FilePictures(
        classes=(), labels=np.zeros(1, np.int64), folder=file.parent, paths=(file.name,)
    )


def _numbered(name: str) -> Iterator[Path]:
    """features/NAME, features/NAME-2, ..."""
    for number in itertools.count(1):
        yield Path("features") / (name if number == 1 else f"{name}-{number}")


def _folder(name: str, wanted: Extracted) -> Path:
    """Where these features are to be expected: the first that is free or holds such."""
    return next(
        folder
        for folder in _numbered(name)
        if not folder.exists()
        or (holds_features(folder) and Extracted.read(folder).same_but_parts(wanted))
    )


def _in_first_free_folder(name: str, made_in: Callable[[Path], Extraction]) -> Extraction:
    """Those that hold other features stay as they are."""
    for folder in _numbered(name):
        with suppress(FolderTaken):
            return made_in(folder)
    raise AssertionError  # there are numbers enough


def _called(images: str) -> str:
    """What a study of these pictures is called."""
    path = Path(images)
    if path.is_dir():
        path = path.resolve()
    return shown(path.stem if path.is_file() else path.name) or "pictures"


def _without_suffixes(backbone: str) -> str:
    return ":".join(_ON_FILES.sub("", part) for part in short_name(backbone).split(":"))


def _word(text: str) -> str:
    """As the name of a folder."""
    return re.sub(r"[^\w.-]+", "-", text).strip("-.") or "pictures"
