"""Features of texts in the place of rows."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune.cli import picture_screen
from dptune.cli.feature_rows import FeatureRows, feature_rows
from dptune.cli.text_rows import NO_COLUMN, TextOptions, named_model
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
    """The texts and the model that were asked for, and what was asked for `beside` them."""
    if not column:
        raise InvalidInput(NO_COLUMN)
    if model is None:
        raise InvalidInput(
            "texts need a public language model that makes features of them: --model FOLDER, or "
            "--model NAME@REVISION from the Hugging Face hub."
        )
    model = str(named_model(model))
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
    asked: Mapping[str, Any],
    texts: TextOptions,
    *,
    name: str | None,
    features: str,
    device: str,
) -> FeatureRows:
    """The texts and the model that were asked for; nothing is made of them yet."""
    assert texts.text is not None
    if asked["source"] is not None:
        raise InvalidInput("--text and --data do not go together; leave one out.")
    for option, value in texts.of_training.items():
        if value is not None:
            raise InvalidInput(
                f"{option} is for language models that are trained, and with --features the model "
                "stays as it is; leave one out."
            )
    parts, networks = open_texts(
        asked,
        text=texts.text,
        column=texts.column,
        label=asked["label"],
        model=texts.model,
        features=features,
        length=texts.length,
        device=device,
    )
    length = [] if texts.length is None else [f"{texts.length}-tokens"]
    return feature_rows(
        texts.text,
        parts,
        networks,
        name=name,
        words=[features] * (features != "mean") + length,
        unused_test=asked["test"] is None and has_test_texts(texts.text),
    )


def features_of_new_texts(
    texts: Texts, made_by: Mapping[str, Any], device: str
) -> NDArray[np.float32]:
    """A row for every text that a model of such features is to predict."""
    picture_screen.say_loading([backbone["name"] for backbone in recorded_backbones(made_by)])
    with picture_screen.live_view() as watch:
        return features_of_texts(texts, made_by, device=device, watch=watch)
