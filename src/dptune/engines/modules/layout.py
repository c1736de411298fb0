"""Which layer of a module is recorded how, found out by running it on made-up rows."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from dptune.engines.modules.ghost import Piece
from dptune.engines.modules.layers import Rule, multiplies, rule_of
from dptune.engines.modules.recording import Call, recorded
from dptune.errors import InvalidInput


@dataclass
class Layer:
    """One layer that is recorded, and the parameters whose gradients come from it."""

    module: nn.Module
    own: dict[str, str]  # its own name of a parameter -> the module's
    rule: Rule | None  # None: torch.func
    by_row: list[tuple[bool, ...]] = field(default_factory=list)  # for torch.func: arguments
    looped: bool = False  # torch.func cannot run it for many rows at once


@dataclass(frozen=True)
class Layout:
    layers: dict[str, Layer] = field(default_factory=dict)
    # Parameters of which every row gets a copy for the pass: those that begin with a dimension
    # of 1, where rows would be.
    expanded: list[str] = field(default_factory=list)
    # Layers whose input is the same for all rows, such as numbers of positions: widened for the
    # pass, so that each row has its own.
    widened: set[str] = field(default_factory=set)
    narrowed: set[str] = field(default_factory=set)  # those that need inputs as precise as outputs

    def run_again(self) -> dict[str, nn.Module]:
        """Parameters without a rule, and the layer that is run again for each."""
        again = [layer for layer in self.layers.values() if layer.rule is None]
        return {name: layer.module for layer in again for name in layer.own.values()}


@dataclass(frozen=True)
class _Seen:
    """Calls of every layer with so many rows, and with one less."""

    rows: int
    many: Mapping[str, list[Call]]
    fewer: Mapping[str, list[Call]]

    def pairs(self, name: str) -> list[tuple[Call, Call]]:
        many, fewer = self.many.get(name, []), self.fewer.get(name, [])
        # Called once a row, say, it is not known which call is whose.
        return list(zip(many, fewer, strict=True)) if len(many) == len(fewer) else []

    def begins_with_rows(self, shape: torch.Size, fewer: torch.Size) -> bool:
        """Whether the first dimension grows with the rows, and nothing else does."""
        grows = bool(shape) and shape[0] * (self.rows - 1) == fewer[0] * self.rows
        return grows and shape[1:] == fewer[1:]

    def input_is_by_row(self, name: str) -> bool:
        return all(self.begins_with_rows(*_input_shapes(*pair)) for pair in self.pairs(name))

    def input_is_for_all(self, name: str) -> bool:
        pairs = [_input_shapes(*pair) for pair in self.pairs(name)]
        return all(shape == fewer and len(shape) > 0 for shape, fewer in pairs)

    def pieces_per_row(self, name: str) -> set[int]:
        """How many lines of its inputs are one row's, in each of its calls."""
        return {call.input.shape[0] // self.rows for call, _ in self.pairs(name)}

    def arguments_by_row(self, name: str) -> list[tuple[bool, ...]] | None:
        """For every call which arguments have a part for every row; None if that is not clear."""
        found = []
        for call, other in self.pairs(name):
            sides = []
            for value, fewer in zip(call.arguments, other.arguments, strict=True):
                if not isinstance(value, Tensor):
                    sides.append(False)
                elif self.begins_with_rows(value.shape, fewer.shape):
                    sides.append(True)
                elif value.shape == fewer.shape:
                    sides.append(False)
                else:
                    return None
            for gradient, fewer in zip(call.gradients, other.gradients, strict=True):
                if gradient is None or fewer is None:
                    continue  # nothing uses this output
                if not self.begins_with_rows(gradient.shape, fewer.shape):
                    return None
            found.append(tuple(sides))
        return found or None


def find_layout(
    module: nn.Module,
    trained: Mapping[str, nn.Parameter],
    objective: Callable[[int], Tensor],
    rows: int,
    expand: bool,
    lifted: Mapping[str, int],
) -> Layout:
    """`objective(count)` runs the module on so many made-up rows and gives what it learns from.
    `lifted` says of parameters whose own layer does not do how many layers further up to run."""
    around = {place for name in trained for place in _upwards(name.rpartition(".")[0])}
    modules = {name: one for name, one in module.named_modules() if name in around}
    seen = []
    for count in (rows, rows - 1):
        with recorded(modules, {}) as recording:
            of_rows = objective(count)
        recording.differentiate(of_rows, [])
        seen.append(_shapes(recording.calls))
    known = _Seen(rows, *seen)
    layout = Layout()
    others = []
    for name in trained:
        owner, _, own = name.rpartition(".")
        # Other names are those of what a weight is made of.
        plain = own in ("weight", "bias") and name not in lifted and known.pairs(owner)
        rule = rule_of(modules[owner]) if plain else None
        for_all = rule is not None and known.input_is_for_all(owner)
        if rule is None or not (for_all or known.input_is_by_row(owner)):
            others.append(name)
            continue
        per_row = None if for_all else known.pieces_per_row(owner)
        as_seen = _for_as_many(rule, owner, per_row)
        layout.layers.setdefault(owner, Layer(modules[owner], {}, as_seen)).own[own] = name
        if multiplies(rule):
            layout.narrowed.add(owner)
        if for_all:
            layout.widened.add(owner)
    for name in others:
        owner, shape = name.rpartition(".")[0], trained[name].shape
        if expand and rule_of(modules[owner]) is None and len(shape) > 2 and shape[0] == 1:
            layout.expanded.append(name)
            continue
        place, sides = _nearest(known, owner, lifted.get(name, 0))
        # A layer of a known kind may have to be run again, too, for what lies below it.
        known_kind = place in layout.layers and layout.layers[place].rule is not None
        key = f"{place} (again)" if known_kind else place
        layer = layout.layers.setdefault(key, Layer(modules[place], {}, None, sides))
        layer.own[name.removeprefix(f"{place}.")] = name
    return layout


def _shapes(calls: Mapping[str, list[Call]]) -> dict[str, list[Call]]:
    """The same without any number: those of all layers at once are many."""

    def bare(value: Any) -> Any:
        return value.to("meta") if isinstance(value, Tensor) else value

    return {
        name: [
            Call([*map(bare, call.arguments)], call.structure, [], [*map(bare, call.gradients)])
            for call in several
        ]
        for name, several in calls.items()
    }


def _nearest(known: _Seen, owner: str, further: int) -> tuple[str, list[tuple[bool, ...]]]:
    """The layer itself, or the nearest above it, that is called with rows and answers with rows; or
    so many such layers further up, the module itself at the most."""
    found = [
        (place, sides) for place in _upwards(owner) if (sides := known.arguments_by_row(place))
    ]
    return found[min(further, len(found) - 1)]


def _upwards(name: str) -> Iterator[str]:
    while name:
        yield name
        name = name.rpartition(".")[0]
    yield ""


def _for_as_many(rule: Rule, name: str, per_row: set[int] | None) -> Rule:
    """The same for inputs with as many lines a row as made-up rows had. Where what rows hold
    decides how many there are, it is unknown whose they are."""

    def checked(layer: Any, calls: list[Call], rows: int, wanted: set[str]) -> dict[str, Piece]:
        for call in calls:
            lines = len(call.input)
            if per_row is not None and lines not in {rows * each for each in per_row}:
                # Neither number is said: both are secret.
                raise InvalidInput(
                    f"layer {name!r} must get as many inputs for every row as made-up rows had, "
                    f"{' or '.join(map(str, sorted(per_row)))}; now it got others. Something "
                    "before it picks inputs by what they hold (routing to experts, leaving out "
                    "padding): let it take all of them and hide what does not count, or freeze it."
                )
        return rule(layer, calls, rows, wanted)

    return checked


def _input_shapes(call: Call, fewer: Call) -> tuple[torch.Size, torch.Size]:
    return call.input.shape, fewer.input.shape


def widening(pieces: int) -> Callable[[Tensor], Tensor]:
    """What gives each of so many pieces its own copy of an input that is the same for all."""

    def widen(shared: Tensor) -> Tensor:
        alone = shared if shared.shape[0] == 1 else shared[None]
        return alone.expand(pieces, *alone.shape[1:])

    return widen
