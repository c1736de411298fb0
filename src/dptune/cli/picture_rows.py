"""Features of pictures as rows."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune.cli import picture_screen
from dptune.cli.feature_rows import FeatureRows, plan_features
from dptune.data.made_by import recorded_backbones, rows_in_words
from dptune.errors import InvalidInput
from dptune.features.from_pictures import find_networks, gather, has_test_pictures
from dptune.features.in_memory import features_of
from dptune.features.network import Networks, found_again
from dptune.pictures.folders import unlabelled
from dptune.pictures.pictures import Pictures
from dptune.pictures.stored import FilePictures


def open_pictures(
    beside: Mapping[str, Any],
    *,
    images: str,
    backbone: Sequence[str] | None,
    features: str,
    size: int | None,
    root: str | None,
    device: str,
    precision: str | None = None,
) -> tuple[Mapping[str, Pictures], Networks]:
    """Open the pictures, those `beside` them, and the networks that make features of them."""
    if not backbone:
        raise InvalidInput(
            "pictures need a public network that computes their features; name one with --backbone "
            "(dptune backbones lists those at hand)."
        )
    parts = gather(
        images,
        test=beside["test"],
        public=beside["public"],
        shifts=beside["shifts"] or (),
        root=root,
    )
    picture_screen.say_loading(backbone)
    networks = find_networks(
        backbone, features=features, size=size, device=device, precision=precision
    )
    return parts, networks


def find_rows(
    beside: Mapping[str, Any],
    *,
    images: str,
    backbone: Sequence[str] | None,
    features: str,
    size: int | None,
    root: str | None,
    name: str | None,
    device: str,
) -> FeatureRows:
    """Find the pictures and networks that were asked for; features are made later."""
    parts, networks = open_pictures(
        beside,
        images=images,
        backbone=backbone,
        features=features,
        size=size,
        root=root,
        device=device,
    )
    return plan_features(
        images,
        parts,
        networks,
        name=name,
        words=[features] * (features != "pooled") + ([f"{size}px"] if size else []),
        unused_test=beside["test"] is None and has_test_pictures(images, root),
    )


def features_of_new_pictures(
    images: str, made_by: Mapping[str, Any] | None, model: str, device: str
) -> tuple[list[str], NDArray[np.float32]]:
    """Names and features of the pictures to predict."""
    if made_by is None or rows_in_words(made_by) != "pictures":
        was, option = ("rows", "--data") if made_by is None else ("texts", "--text")
        raise InvalidInput(
            f"the model in {model} was trained on {was}, not on pictures; give new {was} with "
            f"{option}."
        )
    path = Path(images)
    pictures = _alone(path) if path.is_file() else unlabelled(path)
    picture_screen.say_loading([backbone["name"] for backbone in recorded_backbones(made_by)])
    networks = found_again(made_by, device=device)
    with picture_screen.live_view() as watch:
        features = features_of(pictures, networks, watch=watch)
    picture_screen.show_not_predicted(features.remarks)
    return [pictures.name(number) for number in features.kept], features.rows


def _alone(file: Path) -> FilePictures:
    """One picture, without a class."""
    return FilePictures(
        classes=(), labels=np.zeros(1, np.int64), folder=file.parent, paths=(file.name,)
    )
