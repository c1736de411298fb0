"""Trained models made by hand: what a study would give, without one."""

from typing import Any

import numpy as np
import torch

from dptune.accounting import Guarantee
from dptune.data.preprocess import Preprocessing
from dptune.engines.linear import LinearEngine, LinearModel
from dptune.study.trained_model import TrainedModel

PROMISE = Guarantee(
    epsilon=1.0,
    delta=1e-5,
    mu=0.2,
    slack=0.0,
    replace_one_epsilon=2.0,
    sampler="every row in every step",
    accountant="none",
    covers_search=True,
    covers_selection=True,
    releases=("the model",),
)


def linear_model(
    preprocessing: Preprocessing, columns: int, classes: tuple[Any, ...] = (), **more: Any
) -> TrainedModel:
    """With drawn weights, for rows of so many columns; without classes, one of values."""
    draws = np.random.default_rng(len(classes))
    outputs = len(classes) or 1
    loss = "softmax" if classes else "squared"
    inside = preprocessing.columns(columns)
    bias = more.pop("bias", False)
    model = LinearModel(
        torch.from_numpy(draws.normal(size=(outputs, inside)).astype(np.float32)),
        torch.from_numpy(draws.normal(size=outputs).astype(np.float32)) if bias else None,
        loss,
    )
    facts: dict[str, Any] = {
        "engine": LinearEngine(outputs=outputs, loss=loss, bias=bias),
        "model": model,
        "shape": (columns,),
        "preprocessing": preprocessing,
        "loss": loss,
        "classes": classes,
        "target_range": None if classes else (-3.0, 8.0),
        "guarantee": PROMISE,
        "trials": (),
    }
    return TrainedModel(**facts | more)


def all_steps(columns: int = 4) -> Preprocessing:
    """Everything that is done to rows."""
    draws = np.random.default_rng(5)
    return Preprocessing(
        shift=draws.normal(size=columns),
        scale=draws.uniform(0.5, 2, columns),
        anchor=1.5,
        center=0.1 * draws.normal(size=columns + 1),
        whitening=draws.normal(size=(columns + 1, columns + 1)),
        constant=0.25,
        rescale=True,
    )


PREPARATIONS = {
    "as given": Preprocessing(unit_rows=False),
    "unit rows": Preprocessing(),
    "scaled": Preprocessing(shift=np.arange(4.0), scale=np.full(4, 1e3), unit_rows=False),
    "all steps": all_steps(),
}


def hard_rows() -> Any:
    """Usual ones, a row of zeros, and very long ones."""
    rows = np.random.default_rng(0).normal(size=(40, 4)) * [1, 10, 100, 1000]
    return np.concatenate([rows, np.zeros((1, 4)), rows[:3] * 1e12]).astype(np.float32)
