"""Texts, or rows in their place, that a model is to predict."""

import numpy as np
from numpy.typing import NDArray

from dptune.data.made_by import is_of_texts, is_of_words
from dptune.errors import InvalidInput
from dptune.study.new_texts import new_texts
from dptune.study.trained_model import TrainedModel
from dptune.texts import Encoder, Texts


def read_new_texts(
    source: str, model: TrainedModel, folder: str, device: str
) -> Texts | NDArray[np.float32]:
    """Texts that a model of texts is to predict; features of them where it was trained on such."""
    if not is_of_texts(model.made_by):
        raise InvalidInput(
            f"the model in {folder} was not trained on texts; give new rows with --data, or "
            "pictures with --images."
        )
    texts = new_texts(Encoder.of(model.made_by), source)
    if is_of_words(model.made_by):
        return texts
    from dptune.cli.text_features import features_of_new_texts

    return features_of_new_texts(texts, model.made_by, device)


def must_take_rows(model: TrainedModel, folder: str) -> None:
    if is_of_words(model.made_by):
        raise InvalidInput(
            f"the model in {folder} was trained on texts; give new ones with --text."
        )
