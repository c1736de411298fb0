"""Whether a module treats every row of a batch by itself, found out on made-up rows.

Kernels choose their order of adding by shapes, never by values. So when only the VALUES of the
other rows change, what a module gives for a row must stay the same bit for bit: no tolerance is
needed, whatever the depth or the precision. Where two passes of the very same batch differ, as some
kernels on a GPU make them, that measured difference is allowed and no more. Only what depends on
the NUMBER of rows needs a tolerance, which is that of one layer: see `_Check._count`.

Gradients are looked at in the same way where they are added up (`checks.rows_are_alone`).
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from dptune.data.preprocess import LARGEST
from dptune.engines.modules.losses import outputs_of
from dptune.engines.modules.module_state import ModuleState, tensors_of
from dptune.engines.modules.part_calls import (
    PartCall,
    Tape,
    apart,
    first_numbers_changed,
    watched,
)
from dptune.engines.modules.precision import computing
from dptune.engines.modules.problem import WHOLE, Problem, listed
from dptune.engines.randomness import seed_torch
from dptune.errors import InvalidInput

# How far rounding moves what one layer gives, at most, relative to its largest number.
ROUNDING = {"float32": 1e-4, "bfloat16": 0.05}
# Differences up to so many times that of two equal passes are put down to the kernels.
_REPEATED = 4.0
_MORE_REPEATS = 3  # before a difference is not
Change = Callable[[Tensor], Tensor]
# What other rows may hold in place of what they had.
LARGER, NOT_NUMBERS = "are a thousand times larger", "are not numbers"
CHANGES: Mapping[str, Change] = {
    "are zero": torch.zeros_like,
    "are a thousandth of what they were": lambda values: values * 1e-3,
    LARGER: lambda values: values * 2.0**10,
    "are as large as rows may be": lambda values: torch.full_like(values, LARGEST),
    "are negative": torch.neg,
    NOT_NUMBERS: lambda values: torch.full_like(values, torch.nan),
}
_KEEPS, _MIXES = "keeps rows", "mixes rows"
_KEEP_NOTHING = "let it keep nothing from one pass to the next"
_ROWS_FIRST = (
    "make it with batch_first=True, else it takes the rows of a batch for the places of a sequence"
)
_ONE_BY_ONE = "let it compute every row by itself"


def problems_on_rows(
    module: nn.Module,
    rows: Tensor,
    others: Tensor,
    *,
    compute: str = "float32",
    modes: Sequence[bool] = (True, False),
) -> list[Problem]:
    """What made-up `rows` (three or more) show of a module in train() (True) and in eval(): what it
    keeps of rows, and whether what it gives for one depends on the others. `others` are as many
    rows that hold something else."""
    check = _Check(module, rows, others, ROUNDING[compute])
    with as_it_was(module), torch.no_grad(), computing(compute, rows.device):
        for mode in modes:
            module.train(mode)
            if found := check.problems():
                return found
    return []


@contextmanager
def as_it_was(module: nn.Module) -> Iterator[None]:
    """Passes leave no trace in the module's buffers, nor in torch's random numbers; and kernels
    repeat themselves where torch has some that do."""
    training = {part: part.training for part in module.modules()}
    tables = [(part._buffers, dict(part._buffers)) for part in module.modules()]
    kept = {name: tensor.detach().clone() for name, tensor in module.named_buffers()}
    devices = {tensor.device for tensor in tensors_of(module).values() if tensor.is_cuda}
    with torch.random.fork_rng(devices), _repeatable():
        try:
            yield
        finally:
            for part, was in training.items():
                part.training = was
            for table, before in tables:
                table.clear()
                table.update(before)
            with torch.no_grad():
                for name, buffer in module.named_buffers():
                    buffer.copy_(kept[name])


@contextmanager
def _repeatable() -> Iterator[None]:
    before = torch.get_deterministic_debug_mode()
    # As use_deterministic_algorithms, which also imports torch's compiler: seconds in each process.
    torch.set_deterministic_debug_mode("warn")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*deterministic")
            yield
    finally:
        torch.set_deterministic_debug_mode(before)


@dataclass(frozen=True)
class _Batch:
    """Rows of which all but one, `keep`, are changed. `change` is for numbers; of ids, it is for
    what the first layers make of them."""

    rows: Tensor
    keep: int = -1
    change: Change | None = None


@dataclass(frozen=True)
class _Check:
    module: nn.Module
    rows: Tensor
    others: Tensor
    rounding: float

    def problems(self) -> list[Problem]:
        """Of the first kind that there is: each of them hides those after it."""
        found_by = (self._writes, self._noise, self._memory, self._picking, self._mixing)
        for find in (*found_by, self._count):
            if found := [*find()]:
                return found
        return []

    def _writes(self) -> Iterator[Problem]:
        """Parameters and buffers that are not what they were once rows have passed."""
        before = ModuleState(self.module)
        self._given(_Batch(self.rows))
        parts = dict(self.module.named_modules())
        parameters = dict(self.module.named_parameters(remove_duplicate=False))
        for name in before.changed():
            layer, _, word = name.rpartition(".")
            if isinstance(parts.get(layer), _BatchNorm | _InstanceNorm):
                continue  # named as what they are
            kind = "parameter" if name in parameters else "buffer"
            yield Problem(
                layer or WHOLE,
                _KEEPS,
                f"its {kind} {word} changes when rows pass, so it would keep something of them",
                "let forward() write into nothing that the module keeps",
            )

    def _noise(self) -> Iterator[Problem]:
        """Whether random numbers move what it gives when it predicts."""
        if self.module.training or not self._draws():
            return
        batch = _Batch(self.rows)
        before = self._given(batch)
        if apart(before, self._given(batch, seed=1)) > apart(before, self._given(batch)):
            yield Problem(
                WHOLE,
                "random",
                "in eval() it gives other numbers for the same rows each time",
                "draw random numbers only if self.training",
            )

    def _memory(self) -> Iterator[Problem]:
        """Of what is no tensor: whether a row meets the same function after others as before."""
        batch = _Batch(self.rows)
        before = self._row(batch, 0)
        noise = apart(before, self._row(batch, 0))
        if noise > self.rounding:
            yield Problem(
                WHOLE,
                _KEEPS,
                "two passes over the same rows give different numbers",
                f"{_KEEP_NOTHING}, and draw only from torch's own random numbers",
            )
            return
        with suppress(Exception):  # which `_mixing` names
            self._given(_Batch(self.others, change=CHANGES[LARGER]))
        if self._differ(before, self._row(batch, 0), batch, 0, noise):
            what = "what it gives for a row depends on the rows that passed before"
            yield Problem(WHOLE, _KEEPS, what, _KEEP_NOTHING)

    def _picking(self) -> Iterator[Problem]:
        """Whether what rows hold decides how many inputs a part gets."""
        if not self.module.training:
            return
        first = self._shapes(_Batch(self.rows))
        for batch in self._batches(0).values():
            if batch.change is CHANGES[NOT_NUMBERS]:
                continue
            other = first
            with suppress(Exception):  # which `_mixing` names
                other = self._shapes(batch)
            if other != first:
                pairs = zip(first, other, strict=False)
                yield Problem(
                    next((one[0] for one, two in pairs if one != two), WHOLE),
                    "picks inputs",
                    "what it is given is picked by what rows hold (routing to experts, leaving out "
                    "padding), so how a row is computed depends on the other rows, if only in its "
                    "last digits",
                    "let it take all of a batch, and hide what does not count",
                )
                return

    def _mixing(self) -> Iterator[Problem]:
        """Whether the first row, and the last, are met alike whatever the others are."""
        for keep in (0, len(self.rows) - 1):
            batch = _Batch(self.rows)
            before = self._row(batch, keep)
            noise = apart(before, self._row(batch, keep))
            for words, other in self._batches(keep).items():
                try:
                    after = self._row(other, keep)
                except Exception as error:
                    if words != NOT_NUMBERS:  # which no row is, once it was read
                        yield fails(f"the others {words}", error)
                        return
                    continue
                if self._differ(before, after, batch, keep, noise):
                    what = "what it gives for a row depends on the other rows of the batch"
                    layer = self._where(other, keep, noise)
                    changes = f"{what}: it changes when they {words}"
                    yield Problem(layer, _MIXES, changes, self._advice(layer))
                    return

    def _count(self) -> Iterator[Problem]:
        """Whether the first row is met alike when it is alone.

        Other numbers of rows take other kernels, which round otherwise, and layers make roundings
        grow. So every part is handed what was given in the batch, and only its own rounding is
        left.
        """
        batch, alone = _Batch(self.rows), _Batch(self.rows[:1])
        together = self._row(batch, 0)
        if self._draws():
            return  # others are drawn for another number of rows
        tape = Tape(self.module, len(self.rows))
        with tape.recording():
            self._given(batch)
        try:
            with tape.forcing():
                by_itself = self._row(alone, 0)
        except Exception as error:
            yield fails("it is alone in its batch", error)
            return
        # Not in step: parts are called once a row, say.
        found = tape.apart if tape.is_in_step else {WHOLE: apart(together, by_itself)}
        for layer, difference in found.items():
            if not difference <= self.rounding:
                what = "what it gives for a row depends on how many rows there are"
                yield Problem(layer, _MIXES, what, self._advice(layer))
                return

    def _advice(self, layer: str) -> str:
        part = dict(self.module.named_modules()).get(layer)
        return _ROWS_FIRST if part is not None and _takes_rows_second(part) else _ONE_BY_ONE

    def _draws(self) -> bool:
        """Whether a pass takes random numbers."""
        device = self.rows.device

        def state() -> Tensor:
            return (
                torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()
            )

        seed_torch(0)
        before = state()
        self._given(_Batch(self.rows))
        return not torch.equal(before, state())

    def _batches(self, keep: int) -> dict[str, _Batch]:
        """The rows with others in the place of all but one, by what these others do."""
        alike = self.rows[(keep + 1) % len(self.rows)].expand_as(self.rows)
        return {
            "hold something else": _Batch(self.others, keep),
            "are all alike": _Batch(alike, keep),
        } | {words: _Batch(self.rows, keep, change) for words, change in CHANGES.items()}

    def _given(self, batch: _Batch, seed: int = 0) -> Tensor:
        """What the module gives for a batch of its own, which it may write into."""
        count = len(batch.rows)
        mine = torch.arange(count, device=batch.rows.device) == batch.keep

        def kept(own: Tensor, changed: Tensor) -> Tensor:
            return torch.where(mine.view(-1, *[1] * (own.ndim - 1)), own, changed)

        def change(values: Tensor) -> Tensor:
            return values if batch.change is None else kept(values, batch.change(values))

        rows = batch.rows.clone()
        if batch.keep >= 0:
            rows = kept(self.rows, rows)
        seed_torch(seed)
        if rows.is_floating_point():
            found = outputs_of(self.module(change(rows)))
        else:
            with first_numbers_changed(self.module, count, change):
                found = outputs_of(self.module(rows))
        if found.shape[:1] != (count,):
            raise InvalidInput(
                f"the module must give one line of numbers a row; for {count} rows it gives the "
                f"shape {tuple(found.shape)}.{self._if_rows_come_second()}"
            )
        return found

    def _if_rows_come_second(self) -> str:
        named = [n for n, part in self.module.named_modules() if n and _takes_rows_second(part)]
        return f" Perhaps it takes rows second ({listed(named)}): {_ROWS_FIRST}." if named else ""

    def _row(self, batch: _Batch, row: int) -> Tensor:
        return self._given(batch)[row].float()

    def _calls(self, batch: _Batch, row: int) -> list[PartCall]:
        with watched(self.module, row) as calls:
            self._given(batch)
        return calls

    def _shapes(self, batch: _Batch) -> list[tuple[str, tuple[torch.Size, ...]]]:
        return [(call.part, call.shapes) for call in self._calls(batch, 0)]

    def _differ(self, before: Tensor, after: Tensor, batch: _Batch, row: int, noise: float) -> bool:
        """Whether they differ by more than equal passes do, which may be the same by luck."""
        difference = apart(before, after)
        for _ in range(_MORE_REPEATS):
            if difference <= self._allowed(noise):
                return False
            noise = max(noise, apart(before, self._row(batch, row)))
        return difference > self._allowed(noise)

    def _allowed(self, noise: float) -> float:
        return min(_REPEATED * noise, self.rounding)

    def _where(self, other: _Batch, keep: int, noise: float) -> str:
        """The innermost part that is given the same of the row, and gives another."""
        allowed = self._allowed(noise)

        def same(some: list[Tensor], others: list[Tensor]) -> bool:
            pairs = zip(some, others, strict=True)
            return len(some) == len(others) and all(
                one.shape == two.shape and apart(one, two) <= allowed for one, two in pairs
            )

        both = zip(self._calls(_Batch(self.rows), keep), self._calls(other, keep), strict=False)
        return next(
            (
                one.part
                for one, two in both
                if same(one.given, two.given) and not same(one.gave, two.gave)
            ),
            WHOLE,
        )


def _takes_rows_second(part: nn.Module) -> bool:
    return getattr(part, "batch_first", True) is False


def fails(words: str, error: Exception) -> Problem:
    """That a module fails on a row when `words`."""
    said = " ".join(str(error).split())
    return Problem(
        WHOLE,
        "fails",
        f"it fails on a row when {words} ({type(error).__name__}: {said}), so one private row "
        "could end a run that is paid for",
        "let it give some number for every row",
    )
