"""scikit-learn's `class_weight` in what a study knows: its own balance, or weights as declared."""

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from dptune.errors import InvalidInput

BALANCED = "balanced"


def settled_balance(class_weight: Any, balance: str) -> str:
    """What to tell a study: "balanced" is another word for its own."""
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
    """By class, in order, the largest 1: no row may count more than it is paid for. None where no
    weights are declared; classes without one have 1, as scikit-learn does it."""
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
