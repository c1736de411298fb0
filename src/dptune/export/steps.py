"""A linear model as what every format can write: row maps, weights and what is added."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune.data.row_maps import Encode, RowMap
from dptune.engines.linear import LinearModel
from dptune.errors import InvalidInput
from dptune.study.trained_model import TrainedModel

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Written:
    """All that a linear model is: what is done to encoded rows, then weights (outputs, columns) and
    what is added to their products. Outputs are logits of classes, or the value itself."""

    maps: tuple[RowMap, ...]
    weights: Numbers
    added: Numbers


def written(model: TrainedModel) -> Written:
    """The model in parts; refused where it is not linear."""
    if not isinstance(model, TrainedModel):
        raise InvalidInput(
            f"export takes a dptune.TrainedModel, and got a {type(model).__name__}: give "
            "result.model, or dptune.load(folder)."
        )
    linear = model.model
    if not isinstance(linear, LinearModel):
        raise InvalidInput(
            f"only linear models are exported, and this is a {model.engine.traits.trains}; save "
            "its weights with PyTorch, or use dptune.load where it serves."
        )
    weights = linear.weights.double().numpy()
    added = np.zeros(len(weights)) if linear.bias is None else linear.bias.double().numpy()
    if model.target_range is not None:
        low, high = model.target_range
        half = (high - low) / 2
        weights, added = weights * half, low + (added + 1) * half
    maps = tuple(each for each in model.preprocessing.maps if not isinstance(each, Encode))
    return Written(maps, weights, added)


def class_labels(model: TrainedModel) -> NDArray[Any]:
    """What `predict` answers with, in the order of the outputs."""
    return np.asarray(model.classes)
