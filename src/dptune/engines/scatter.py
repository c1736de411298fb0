"""Whether an engine clips rows and adds the plan's noise, as far as runs on made-up rows show.

Only dptune's own engines are known to do both. Of others this finds, before anything is paid, noise
that is missing, of another size, drawn once for several steps or only added to some weights; rows
that are not clipped; and numbers beside the weights that tell of rows without noise.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from scipy.special import chdtri
from torch import Tensor

from dptune.data.rows import DataFacts, Rows
from dptune.engines.base import Engine
from dptune.engines.randomness import Randomness
from dptune.errors import InvalidInput
from dptune.plan import TrainPlan

STEPS = 4  # noise that is drawn once for all of them scatters twice as much as it should
CLIP = 2.0**-7  # no engine's usual one, and far below gradients of made-up rows
_NOISE = 1e6  # in clip norms: far more than three rows can add
_LEAST_NOISE = 1e-9  # what a private plan must have
_RUNS, _DRAWN = 5, 200  # at least so many runs, and numbers that a deviation is measured with
_SILENT = 1e-4  # of the deviation of one step: five honest draws lie so close in one of 1e16 cases
_FALSE_ALARM = 1e-9  # how likely a deviation is refused that is what the plan says
_ROUNDING = 0.05  # of a variance, beside that

_ADD_NOISE = (
    "Draw noise of standard deviation plan.noise anew in every step, add it to every number of the "
    "sum of clipped gradients, divide by plan.divisor, and pack the weights as they are."
)

Tensors = Mapping[str, Tensor]


def is_own(engine: Engine[Any]) -> bool:
    """Whether the engine is dptune's own, whose tests say that it clips and adds noise."""
    return type(engine).__module__.partition(".")[0] == __name__.partition(".")[0]


def must_scatter(
    engine: Engine[Any], facts: DataFacts, rows: Rows, others: Rows, recipe: TrainPlan
) -> None:
    """Refuse an engine whose released numbers do not scatter as a plan says on made-up `rows`, are
    moved by more than the clip norm by a row, or tell without noise whether `others` were there
    instead. An engine that runs no plans of plain gradient steps need only scatter at all.

    Guarantees: an engine that does what plans say is refused once in a hundred million studies at
    most.
    """
    plan = replace(
        recipe,
        rows=facts.count,
        steps=STEPS,
        learning_rate=facts.count / (_NOISE * CLIP),  # a step's noise is 1 on every weight
        noise_multiplier=_NOISE,
        clip_norm=CLIP,
        sampling_rate=None,
        optimizer="sgd",
        momentum=0.0,
        weight_decay=0.0,
        schedule="constant",
        averaging="none",
        tail=None,
        free_steps=0,
        class_weights=None,
    )
    plain = _runs(engine, plan)
    if not plain:
        plan = replace(recipe, steps=STEPS, noise_multiplier=_NOISE, sampling_rate=None)
    parameters = engine.parameters(facts)
    runs = max(_RUNS, 1 + math.ceil(_DRAWN / parameters))
    drawn = [_packed(engine, plan, rows) for _ in range(runs)]
    squares = {name: _squares(name, drawn) for name in drawn[0]}
    noisy = {name: ~_same(name, drawn) for name in squares}  # where no scale is known
    if plain:
        noisy = {name: each > _SILENT**2 for name, each in squares.items()}
    silent = parameters - sum(int(which.sum()) for which in noisy.values())
    if silent > 0:
        raise InvalidInput(
            f"the engine {engine.name} trains {parameters:,} numbers, and {runs} runs of a plan "
            f"with much noise released {silent:,} of them without noise. {_ADD_NOISE}"
        )
    if plain:
        tail = _FALSE_ALARM / (2 * len(noisy))
        weights = {
            name: which
            for name, which in noisy.items()
            if which.any()
            and _is_as_planned(
                float(squares[name][which].sum()) / STEPS, (runs - 1) * int(which.sum()), tail
            )
        }
        trained = sum(int(which.sum()) for which in weights.values())
        if trained < parameters:
            shown = (_in_words(name, squares[name], which, runs) for name, which in noisy.items())
            raise InvalidInput(
                f"of the {parameters:,} numbers that the engine {engine.name} trains, only "
                f"{trained:,} scatter as the noise of its plan says: after {STEPS} steps their "
                f"standard deviation should be {math.sqrt(STEPS):g}, and it is "
                f"{', '.join(filter(None, shown))}. {_ADD_NOISE}"
            )
        _must_clip(engine, plan, rows, weights, parameters)
    _must_tell_nothing(engine, drawn, _packed(engine, plan, others))


def _runs(engine: Engine[Any], plan: TrainPlan) -> bool:
    if engine.traits.compares_losses:
        return False
    try:
        engine.check(plan)
    except InvalidInput:
        return False
    return True


def _packed(engine: Engine[Any], plan: TrainPlan, rows: Rows) -> Tensors:
    """What a run would release; one at a time, since some models fill a device."""
    (model,) = engine.fit_many([plan], rows, [Randomness()])
    return {name: part.detach().cpu() for name, part in engine.pack(model).items()}


def _same(name: str, drawn: Sequence[Tensors]) -> Tensor:
    """Which numbers of a tensor are the same in all runs."""
    first = drawn[0][name]
    same = torch.ones(first.shape, dtype=torch.bool)
    for one in drawn[1:]:
        same &= one[name] == first
    return same


def _squares(name: str, drawn: Sequence[Tensors]) -> Tensor:
    """Of every number of a tensor, the sum of squares around the mean of the runs."""
    if not drawn[0][name].is_floating_point():
        return torch.zeros(drawn[0][name].shape, dtype=torch.float64)
    mean = torch.stack([one[name].double() for one in drawn]).mean(0)
    squares = torch.zeros_like(mean)
    for one in drawn:
        squares += (one[name].double() - mean).square()
    return squares


def _in_words(name: str, squares: Tensor, noisy: Tensor, runs: int) -> str:
    if not noisy.any():
        return ""
    many = int(noisy.sum())
    deviation = math.sqrt(float(squares[noisy].sum()) / ((runs - 1) * many))
    without = f" with {noisy.numel() - many:,} of 0" * (many < noisy.numel())
    return f"{deviation:.3g} in {name}{without}"


def _is_as_planned(squares: float, freedom: int, tail: float) -> bool:
    low, high = float(chdtri(freedom, 1 - tail)), float(chdtri(freedom, tail))
    return (1 - _ROUNDING) * low <= squares <= (1 + _ROUNDING) * high


def _must_tell_nothing(engine: Engine[Any], drawn: Sequence[Tensors], other: Tensors) -> None:
    """What is the same in all runs on some rows must be the same on other rows."""
    for name, first in drawn[0].items():
        same = _same(name, drawn)
        if bool((first[same] != other[name][same]).any()):
            raise InvalidInput(
                f"what the engine {engine.name} packs as {name!r} depends on the rows and has no "
                "noise, so it would give rows away. Pack only what noisy steps have made."
            )


def _must_clip(
    engine: Engine[Any],
    plan: TrainPlan,
    rows: Rows,
    weights: Mapping[str, Tensor],
    parameters: int,
) -> None:
    """One step with next to no noise moves weights by at most the clip norm for every row. Among
    `weights` may be other tensors that happen to scatter alike: those that move most, as long as
    enough are left, are taken for them."""
    step = replace(plan, rows=1, steps=1, learning_rate=1.0, noise_multiplier=_LEAST_NOISE)
    begun = _packed(engine, replace(step, learning_rate=1e-300), rows)
    ended = _packed(engine, step, rows)
    moves, length = [], 0.0
    for name, which in weights.items():
        before, after = begun[name][which].double(), ended[name][which].double()
        moves.append((float((after - before).square().sum()), int(which.sum())))
        length += float(before.square().sum())
    too_many = sum(many for _, many in moves) - parameters
    squares = 0.0
    for square, many in sorted(moves, reverse=True):
        if many <= too_many:
            too_many -= many
        else:
            squares += square
    moved, most = math.sqrt(squares), rows.count * CLIP
    if not moved <= 1.001 * most + 1e-6 * math.sqrt(length):
        raise InvalidInput(
            f"{rows.count} rows moved the weights of the engine {engine.name} by {moved:.3g} in a "
            f"step whose clip norm of {CLIP:g} allows {most:.3g}: it does not clip the gradient of "
            "every row to plan.clip_norm."
        )
