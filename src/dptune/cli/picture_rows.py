"""Pictures in the place of rows: features are made first, in a folder that the study reads."""

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune.cli import picture_screen
from dptune.data.extracted import SHIFT
from dptune.errors import InvalidInput
from dptune.features.extraction import Extraction, FolderTaken, write_features
from dptune.features.from_pictures import find_networks, gather, place_of
from dptune.features.in_memory import features_of
from dptune.features.network import found_again, short_name
from dptune.pictures.folders import unlabelled
from dptune.pictures.stored import shown

_LONGEST = 60  # letters in the name of a folder, of which file systems take 255 bytes


def rows_of_pictures(
    asked: Mapping[str, Any],
    *,
    images: str,
    backbone: Sequence[str] | None,
    features: str,
    size: int | None,
    root: str | None,
    device: str,
) -> dict[str, Any]:
    """What `load_data` is told, for features of these pictures; they are made where they are not
    there yet."""
    for name in ("source", "label"):
        if asked[name] is not None:
            option = "data" if name == "source" else name
            raise InvalidInput(f"--images and --{option} do not go together; leave one out.")
    if not backbone:
        raise InvalidInput(
            "pictures need a public network that makes features of them; name one with --backbone "
            "(dptune backbones lists those at hand)."
        )
    parts = gather(
        images, test=asked["test"], public=asked["public"], shifts=asked["shifts"] or (), root=root
    )
    networks = find_networks(backbone, features=features, size=size, device=device)
    source = place_of(images)
    name = "-".join(map(_word, [Path(images).stem, *map(short_name, backbone)]))[:_LONGEST]
    with picture_screen.live_view() as watch:
        extraction = _in_first_free_folder(
            name, lambda folder: write_features(parts, networks, folder, source=source, watch=watch)
        )
    picture_screen.show_extraction(extraction, to_tune=False)
    folder = extraction.folder
    inside = {name: str(folder / name) for name in parts}
    return {
        "source": str(folder),
        "test": inside.get("test"),
        "public": inside.get("public"),
        "shifts": [path for name, path in inside.items() if name.startswith(SHIFT)] or None,
        "name": shown(Path(images).stem) or "pictures",
    }


def features_of_new_pictures(
    images: str, made_by: Mapping[str, Any] | None, model: str, device: str
) -> tuple[list[str], NDArray[np.float32]]:
    """Names and features of pictures that a model of pictures is to predict."""
    if made_by is None:
        raise InvalidInput(
            f"the model in {model} was trained on rows, not on pictures; give new rows with --data."
        )
    pictures = unlabelled(Path(images))
    networks = found_again(made_by, device=device)
    with picture_screen.live_view() as watch:
        found = features_of(pictures, networks, watch=watch)
    picture_screen.show_left_out(found.remarks)
    return [pictures.name(number) for number in found.kept], found.rows


def _in_first_free_folder(name: str, made_in: Callable[[Path], Extraction]) -> Extraction:
    """In features/NAME, features/NAME-2, ...: those that hold other features stay as they are."""
    for number in itertools.count(1):
        with suppress(FolderTaken):
            return made_in(Path("features") / (name if number == 1 else f"{name}-{number}"))
    raise AssertionError  # there are numbers enough


def _word(text: str) -> str:
    """As the name of a folder."""
    return re.sub(r"[^\w.-]+", "-", text).strip("-.") or "pictures"
