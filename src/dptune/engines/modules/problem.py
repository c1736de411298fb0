"""What keeps a module from being trained privately, in words."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from torch import nn

from dptune.errors import InvalidInput

WHOLE = "the module"
Names = Collection[str]
_OF_ONE = ("lazy", "precision", "shared")  # which are about parameters


@dataclass(frozen=True)
class Problem:
    """Something that must change before the module is trained."""

    layer: str
    kind: str
    what: str
    advice: str  # empty where `what` says it

    def __str__(self) -> str:
        word = "" if self.layer == WHOLE else "parameter " if self.kind in _OF_ONE else "layer "
        return f"{word}{self.layer}: " + "; ".join(filter(None, (self.what, self.advice)))


NOTHING_TRAINED = Problem(
    WHOLE,
    "frozen",
    "none of its parameters is trained",
    "let some want a gradient (requires_grad_), or say which in `trained`",
)


def together(found: Iterable[Problem]) -> list[Problem]:
    """One problem for all layers that have the same."""
    layers = defaultdict[tuple[str, str, str], list[str]](list)
    for each in found:
        layers[each.kind, each.what, each.advice].append(each.layer)
    return [Problem(listed(names), *same) for same, names in layers.items()]


def must_be_none(found: Iterable[Problem], hint: str = "") -> None:
    """Refuse a module with problems, all of them named."""
    if said := " ".join(f"{each}." for each in together(found)):
        raise InvalidInput(
            f"this module cannot be trained privately, so nothing was paid. {said}{hint}"
        )


def listed(names: Sequence[str]) -> str:
    """Some names, and how many there are."""
    shown = ", ".join(names[:6])
    return shown if len(names) <= 6 else f"{shown}, ... ({len(names)} in all)"


def wanting_gradients(module: nn.Module) -> list[str]:
    """The names of its parameters that do."""
    return [name for name, parameter in module.named_parameters() if parameter.requires_grad]
