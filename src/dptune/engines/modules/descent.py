"""A run of noisy steps over the flat weights of a module.

Each step sums clipped gradients of a Poisson sample, or of all rows, a physical batch at a time;
adds noise in float64; divides by the plan's public number; and only then rounds and moves. An
empty sample takes its noisy step all the same.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from dptune.data.rows import Chunk, Rows
from dptune.engines.checkpoint import Checkpoint
from dptune.engines.modules import blocks
from dptune.engines.modules.by_length import grouped
from dptune.engines.modules.flat_weights import FlatWeights
from dptune.engines.modules.gradients import RowGradients
from dptune.engines.modules.module_state import ModuleState
from dptune.engines.modules.step_total import StepTotal
from dptune.engines.optimizers import KINDS, Optimizer
from dptune.engines.per_row import add_noise_, drawn_rows, read_rows
from dptune.engines.randomness import Randomness, Stream, seed_torch
from dptune.errors import OwnCodeProblem
from dptune.plan import TrainPlan

Augment = Callable[[Tensor], Tensor]
_PIECE = 2**24  # weights that are moved at once: what noise and updates need beside the weights
_MODULE = "module.sha256"  # in a checkpoint, beside the weights


class Moves:
    """The update rule of a plan over a flat vector, piece by piece; `lamb` scales by layer."""

    def __init__(self, plan: TrainPlan, flat: FlatWeights) -> None:
        sizes = flat.sizes
        if plan.optimizer != "lamb":
            whole, rest = divmod(len(flat.vector), _PIECE)
            sizes = [_PIECE] * whole + [rest] * (rest > 0)
        self._plan, self._sizes = plan, sizes
        self._weights = [part[None, None] for part in torch.split(flat.vector, sizes)]
        self._rules: list[Optimizer] = [KINDS[plan.optimizer]([plan], w) for w in self._weights]
        self._average = flat.vector.clone() if plan.averaging != "none" else None
        self._vector = flat.vector

    def step(self, total: Tensor, noise: Stream, step: int) -> None:
        """Along the noisy mean of `total`, a sum in float64, which is used up."""
        plan = self._plan
        for part, weights, rule in zip(
            torch.split(total, self._sizes), self._weights, self._rules, strict=True
        ):
            noisy = add_noise_(part, plan.noise, noise)
            mean = noisy.div_(plan.divisor).to(torch.float32)
            rule.update_(weights, mean[None, None], step)
        if self._average is not None:
            self._average.lerp_(self._vector, plan.fresh_share(step))

    def released(self) -> Tensor:
        return self._vector if self._average is None else self._average

    def tensors(self) -> dict[str, Tensor]:
        """All that going on needs."""
        kept = {"weights": self._vector}
        for name in self._state:
            kept[name] = torch.cat([getattr(rule, name).flatten() for rule in self._rules])
        return kept if self._average is None else kept | {"average": self._average}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """The reverse."""
        self._vector.copy_(tensors["weights"])
        if self._average is not None:
            self._average.copy_(tensors["average"])
        for name in self._state:
            parts = torch.split(tensors[name], self._sizes)
            for rule, part in zip(self._rules, parts, strict=True):
                getattr(rule, name).copy_(part[None, None])

    @property
    def _state(self) -> list[str]:
        """What rules remember, by name."""
        return [name for name in ("first", "second") if hasattr(self._rules[0], name)]


def train(
    plan: TrainPlan,
    rows: Rows,
    randomness: Randomness,
    flat: FlatWeights,
    gradients: Mapping[int, RowGradients],
    *,
    rows_at_once: int,
    dtype: torch.dtype = torch.float32,
    augment: Augment | None = None,
    keep: Checkpoint | None = None,
) -> Tensor:
    """The weights that a whole run of `plan` releases, in the order of `flat`; it goes on from what
    `keep` has. `gradients` are for rows cut to such widths, the last for whole ones; `dtype` is
    what the module takes."""
    moves = Moves(plan, flat)
    left = steps_left(plan, flat, keep, moves.tensors, moves.restore)
    of_classes = None
    if plan.class_weights is not None:
        of_classes = torch.tensor(plan.class_weights, dtype=torch.float64, device=rows.device)
    total = StepTotal(len(flat.vector), rows.device)
    at_once = min(rows_at_once, blocks.MOST_ROWS)
    state = ModuleState(flat.module, flat)
    with own_numbers(rows.device):
        for step in left:
            randomness.passes(step, rows.device).begin()
            flat.module.train()
            total.begin()
            chosen = drawn_rows(plan, rows, randomness.sampling(rows.device, step))
            for chunk in read_rows(rows, chosen):
                for part, way in _passes(chunk, gradients, at_once):
                    weights = part.norms[:, 0].isfinite().double()  # empty rows have none
                    if of_classes is not None:
                        weights *= of_classes[part.targets.long()]
                    copies = with_copies(part.features, plan.augmentations, augment)
                    way.add(
                        total.part(len(part.targets)),
                        copies.to(dtype, copy=True),  # the module may write into its input
                        part.targets,
                        plan.clip_norm,
                        weights,
                    )
            state.must_be_unchanged()
            moves.step(total.value(), randomness.noise(rows.device, step), step)
            state.after_step()
    return moves.released()


def steps_left(
    plan: TrainPlan,
    flat: FlatWeights,
    keep: Checkpoint | None,
    tensors: Callable[[], dict[str, Tensor]],
    restore: Callable[[dict[str, Tensor]], None],
) -> Iterator[int]:
    """The numbers of the steps that are still to be taken, after `restore` was given what `keep`
    has. When a step was taken, `keep` is called, and saves `tensors()` where that is due."""
    if keep is None:
        return iter(range(plan.steps))
    mark, kept, done = flat.mark(), keep.load(), 0
    if kept is not None:
        found, done = kept
        if not torch.equal(found.pop(_MODULE, torch.empty(0)), mark):
            raise OwnCodeProblem(
                f"{keep.path} is kept of another module than the factory makes now: other layers, "
                "or other frozen weights. Put the code and its files back as they were, then go on."
            )
        restore(found)

    def left() -> Iterator[int]:
        for step in range(done, plan.steps):
            yield step
            keep.tell(step + 1)
            if keep.due() or step + 1 == plan.steps:
                keep.save(tensors() | {_MODULE: mark}, step + 1)

    return left()


def _passes(
    chunk: Chunk, gradients: Mapping[int, RowGradients], size: int
) -> Iterator[tuple[Chunk, RowGradients]]:
    """Physical batches of rows of one width, and what adds those up."""
    for some, way in zip(grouped(chunk, list(gradients)), gradients.values(), strict=True):
        for part in pieces(some, size):
            yield part, way


def pieces(chunk: Chunk, size: int) -> Iterator[Chunk]:
    """A chunk as physical batches."""
    for start in range(0, len(chunk.targets), size):
        part = slice(start, start + size)
        yield Chunk(chunk.features[part], chunk.targets[part], chunk.norms[part])


def with_copies(features: Tensor, copies: int, augment: Augment | None) -> Tensor:
    """As many copies of every row as a plan averages: those that the data hold, or made now."""
    if augment is None:
        return features[:, :copies]
    alike = features[:, :1].repeat_interleave(copies, 1)
    changed = augment(alike.flatten(0, 1))
    return changed.view(*alike.shape[:2], *changed.shape[1:])


@contextmanager
def own_numbers(device: torch.device) -> Iterator[None]:
    """Torch's own generators are put back in the end."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        yield


@contextmanager
def public_numbers(randomness: Randomness, device: torch.device) -> Iterator[None]:
    """The same from a public place: for first weights, and for rows that are made up."""
    with own_numbers(device):
        seed_torch(randomness.public_number("steps from 0"))
        yield
