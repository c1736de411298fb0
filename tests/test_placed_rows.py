"""An empty row keeps its place: without it, every sum of the rows after it would be rounded
differently."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dptune.data import Data, Origin, Preprocessing
from dptune.data.disk import DiskRows, write_chunks
from dptune.data.placed_rows import RowsWithGaps, at_their_places
from dptune.data.rows import MemoryRows
from dptune.engines import LinearEngine, Randomness, TorchModule
from dptune.plan import TrainPlan
from support.ledgers import PAID

COUNT, COLUMNS, EMPTY = 3000, 40, 7
PLAN = TrainPlan(rows=COUNT, steps=1, learning_rate=1.0, noise_multiplier=0.0)


def drawn(seed: int = 0) -> tuple[Tensor, Tensor]:
    numbers = torch.Generator().manual_seed(seed)
    features = torch.randn(COUNT, COLUMNS, generator=numbers)
    return features, torch.randint(3, (COUNT,), generator=numbers)


def without_one() -> tuple[MemoryRows, Tensor]:
    features, targets = drawn()
    places = torch.arange(COUNT)[torch.arange(COUNT) != EMPTY]
    return MemoryRows(features[places], targets[places]), places


def weights(engine: Any, rows: Any) -> Tensor:
    (model,) = engine.fit_many([PLAN], rows, [Randomness(noise_seed=0)])
    return next(iter(engine.pack(model).values()))


def linear() -> nn.Module:
    return nn.Linear(COLUMNS, 3)


@pytest.mark.parametrize(
    "engine",
    [
        LinearEngine(outputs=3, loss="softmax"),
        LinearEngine(outputs=3, loss="softmax", bias=True),
        TorchModule(linear, outputs=3, loss="softmax"),
    ],
    ids=["linear", "bias", "module"],
)
def test_sum_of_others_is_the_same_bit_for_bit_whether_a_row_is_there_or_empty(engine: Any) -> None:
    """A row of zeros contributes nothing to weights, as an empty one does."""
    features, targets = drawn()
    features[EMPTY] = 0
    rows, places = without_one()
    with_zeros = weights(engine, MemoryRows(features, targets))
    with_gap = weights(engine, RowsWithGaps(rows, places, COUNT))
    physically_missing = weights(engine, rows)
    assert torch.equal(with_gap, with_zeros)
    torch.testing.assert_close(with_gap, physically_missing, rtol=0, atol=1e-6)
    assert not torch.equal(with_gap, physically_missing), "the test must see other roundings"


def test_rows_on_disk_are_placed_as_those_in_memory(tmp_path: Path) -> None:
    rows, places = without_one()
    write_chunks(tmp_path / "rows", [(rows.features[:, 0].numpy(), rows.targets.numpy())])
    disk = DiskRows(tmp_path / "rows").prepared(None, None, device="cpu", precision="float32")
    in_memory, on_disk = (at_their_places(RowsWithGaps(one, places, COUNT)) for one in (rows, disk))
    assert in_memory.count == on_disk.count == COUNT
    indices = torch.tensor([0, EMPTY, EMPTY + 1, COUNT - 1])
    for one, other in zip(
        (in_memory.pick(indices), *in_memory.chunks()),
        (on_disk.pick(indices), *on_disk.chunks()),
        strict=False,
    ):
        assert len(one.targets) <= len(other.targets)
        torch.testing.assert_close(one.features, other.features[: len(one.targets)])
    picked = on_disk.pick(indices)
    assert picked.norms[:, 0].isinf().tolist() == [False, True, False, False]
    assert not picked.features[1].any()
    assert on_disk.pick(indices[1:2]).features.shape == (1, 1, COLUMNS)


def test_data_with_empty_rows_are_opened_with_gaps_also_where_some_are_held_out() -> None:
    features, targets = (tensor.numpy() for tensor in drawn())
    there = [0, 1, 3, 4, 5, 6, 8, 9]  # 2 and 7 are empty
    origin = Origin(numbers=there)
    data = Data.from_table(
        features[there], targets[there] % 2, rows=10, classes=[0, 1], origin=origin
    )
    rest, held = data.held_out(3)  # 0, 3, 6 and 9 are held out
    for part, wanted in (
        (data, range(10)),
        (rest, [1, 2, 4, 5, 7, 8]),
        (held, [0, 3, 6, 9]),
    ):
        rows = at_their_places(part.open(PAID, Preprocessing(unit_rows=False)))
        assert rows.count == part.count == len(wanted)
        (chunk,) = rows.chunks()
        for number, row, norm in zip(wanted, chunk.features[:, 0], chunk.norms[:, 0], strict=True):
            assert torch.equal(row, torch.tensor(features[number]) * (number in there))
            assert bool(norm.isinf()) == (number not in there)
