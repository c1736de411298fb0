"""scikit-learn's `class_weight` as a study takes it: its own balance, or declared weights."""

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from dptune.errors import InvalidInput

BALANCED = "balanced"


def decide_balance(class_weight: Any, balance: str) -> str:
    """The balance of a study; "balanced" is scikit-learn's word for "classes"."""
    if class_weight is None:
        return balance
    if balance != "none":
        raise InvalidInput(
            f"class_weight={class_weight!r} and balance={balance!r} both weigh classes; give one."
        )
    if isinstance(class_weight, str) and class_weight != BALANCED:
        raise InvalidInput(
            f'class_weight must be None, "{BALANCED}" or weights by class; got {class_weight!r}.'
        )
    return "classes" if class_weight == BALANCED else "none"


def declared_weights(class_weight: Any, classes: Sequence[Any]) -> tuple[float, ...] | None:
    """Weights in the order of the classes, scaled so that the largest is 1: no row may count more
    than it is paid for. None if no weights are declared; classes without one have 1, as in
    scikit-learn."""
    if class_weight is None or isinstance(class_weight, str):
        return None
    if not isinstance(class_weight, Mapping):
        raise InvalidInput(
            f'class_weight must be None, "{BALANCED}" or weights by class; got '
            f"{type(class_weight).__name__}."
        )
    unknown = [label for label in class_weight if label not in classes]
    if unknown:
        raise InvalidInput(f"class_weight names {unknown[0]!r}, which is no class.")
    weights = [class_weight.get(label, 1.0) for label in classes]
    for weight in weights:
        if not isinstance(weight, Real) or not 0 < float(weight) < math.inf:
            raise InvalidInput(f"weights of classes must be numbers above 0; got {weight!r}.")
    return tuple(float(weight) / float(max(weights)) for weight in weights)
