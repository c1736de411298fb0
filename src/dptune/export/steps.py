"""What a model does to a row of numbers, as a list of simple steps that every format can write."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune.data.preprocess import Preprocessing
from dptune.engines.linear import LinearModel
from dptune.errors import InvalidInput
from dptune.study.trained_model import TrainedModel

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Scaled:
    """(x - shift) / scale"""

    shift: Numbers
    scale: Numbers


@dataclass(frozen=True)
class Logarithms:
    """asinh(x) for every number x."""


@dataclass(frozen=True)
class Beside:
    """One more column, at the end, which holds the constant."""

    constant: float


@dataclass(frozen=True)
class UnitRows:
    """Rows divided by their length; a row of zeros stays as it is."""


@dataclass(frozen=True)
class Cut:
    """Rows divided by `reach`; those longer than it by their length."""

    reach: float


@dataclass(frozen=True)
class Turned:
    """x times the matrix."""

    matrix: Numbers


Step = Scaled | Logarithms | Beside | UnitRows | Cut | Turned


@dataclass(frozen=True)
class Written:
    """All that a linear model is: what is done to rows, then weights (outputs, columns) and what is
    added to their products. Outputs are logits of classes, or the value itself."""

    steps: tuple[Step, ...]
    weights: Numbers
    added: Numbers


def written(model: TrainedModel) -> Written:
    """The model in steps; refused where it is not linear."""
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
    done = model.preprocessing
    return Written(_steps(done, done.encoded(model.columns)), weights, added)


def _steps(done: Preprocessing, columns: int) -> tuple[Step, ...]:
    steps: list[Step] = []
    if done.shift is not None and done.scale is not None:
        steps.append(Scaled(done.shift, done.scale))
    if done.logarithms:
        steps.append(Logarithms())
    if done.reach:
        return (*steps, *_steps_with_reach(done, columns))
    if done.anchor:
        steps.append(Beside(done.anchor))
    if done.unit_rows:
        steps.append(UnitRows())
    if done.center is not None:
        steps.append(Scaled(done.center, np.ones_like(done.center)))
    if done.rescale and (done.center is not None or done.whitening is not None):
        steps.append(UnitRows())
    if done.whitening is not None:
        steps.append(Turned(done.whitening))
    if done.constant:
        steps.append(Beside(done.constant))
    if done.whitening is not None or done.constant:
        steps.append(UnitRows())
    return tuple(steps)


def _steps_with_reach(done: Preprocessing, columns: int) -> list[Step]:
    steps: list[Step] = [Cut(done.reach)]
    if done.center is not None:
        steps += [Scaled(done.center, np.ones_like(done.center)), Cut(1.0)]
    if done.whitening is not None:
        steps += [Turned(done.whitening), Cut(done.shrinks_whitened)]
    if done.constant:
        shrunk = np.full(columns, np.hypot(1.0, done.constant))
        steps += [Scaled(np.zeros(columns), shrunk), Beside(done.constant_beside)]
    return steps


def class_labels(model: TrainedModel) -> NDArray[Any]:
    """What `predict` answers with, in the order of the outputs."""
    return np.asarray(model.classes)
