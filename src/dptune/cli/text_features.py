"""Features of texts as rows."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune.cli import picture_screen
from dptune.cli.feature_rows import FeatureRows, plan_features
from dptune.cli.text_rows import TextOptions
from dptune.data.made_by import recorded_backbones
from dptune.data.readers import DEFAULT_LABEL
from dptune.errors import InvalidInput
from dptune.features.from_texts import (
    features_of_texts,
    find_language_networks,
    gather_texts,
    has_test_texts,
)
from dptune.features.network import Networks
from dptune.hub import ModelPlace
from dptune.own_code import pretrained_name
from dptune.pictures.pictures import Pictures
from dptune.texts import Texts
from dptune.texts.encoder import DEFAULT_LENGTH


def open_texts(
    beside: Mapping[str, Any],
    *,
    text: str,
    column: Sequence[str] | None,
    label: str | None,
    model: str | None,
    features: str,
    length: int | None,
    device: str,
    precision: str | None = None,
) -> tuple[Mapping[str, Pictures], Networks]:
    """Open the texts, those `beside` them, and the model that makes features of them."""
    if not column:
        raise InvalidInput("say which column holds the texts: --column NAME.")
    if model is None:
        raise InvalidInput(
            "texts need a public language model that makes features of them: --model FOLDER, or "
            "--model NAME@REVISION from the Hugging Face hub."
        )
    model = str(ModelPlace.of(pretrained_name(model)))
    parts = gather_texts(
        text,
        column,
        label or DEFAULT_LABEL,
        test=beside["test"],
        public=beside["public"],
        shifts=beside["shifts"] or (),
    )
    picture_screen.say_loading([model])
    networks = find_language_networks(
        model,
        columns=column,
        features=features,
        length=DEFAULT_LENGTH if length is None else length,
        device=device,
        precision=precision,
    )
    return parts, networks


def find_text_rows(
    beside: Mapping[str, Any], *, texts: TextOptions, name: str | None, device: str
) -> FeatureRows:
    """Find the texts and the model that were asked for; features are made later."""
    if texts.data is None or texts.features is None:
        raise InvalidInput("name the private texts with --data.")
    features = texts.features.value
    parts, networks = open_texts(
        beside,
        text=texts.data,
        column=texts.column,
        label=texts.label,
        model=texts.model,
        features=features,
        length=texts.length,
        device=device,
    )
    length = [] if texts.length is None else [f"{texts.length}-tokens"]
    return plan_features(
        texts.data,
        parts,
        networks,
        name=name,
        words=[features] * (features != "mean") + length,
        unused_test=beside["test"] is None and has_test_texts(texts.data),
    )


def features_of_new_texts(
    texts: Texts, made_by: Mapping[str, Any], device: str
) -> NDArray[np.float32]:
    """Make a row of features for every text to predict."""
    picture_screen.say_loading([backbone["name"] for backbone in recorded_backbones(made_by)])
    with picture_screen.live_view() as watch:
        return features_of_texts(texts, made_by, device=device, watch=watch)
