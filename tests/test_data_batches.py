"""Data from loaders, data sets of single rows and lists of pairs."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from dptune.data import Data, DiskRows, Preprocessing, write_chunks
from dptune.errors import InvalidInput

AS_GIVEN = Preprocessing(unit_rows=False)
DRAWS = np.random.default_rng(0)
PICTURES = torch.from_numpy(DRAWS.normal(size=(30, 1, 4, 5)))
CLASSES = torch.arange(30) % 3


class EndlessAccess(Dataset[Any]):
    """A Dataset that knows its length and never raises IndexError."""

    def __len__(self) -> int:
        return 30

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        return PICTURES[number % 30], int(CLASSES[number % 30])


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return itertools.cycle(zip(PICTURES, CLASSES, strict=True))


class SaysTen:
    """Gives more, or fewer, batches than it says."""

    def __init__(self, gives: int) -> None:
        self.gives = gives

    def __len__(self) -> int:
        return 10

    def __iter__(self) -> Iterator[Any]:
        return iter([(PICTURES[:2], CLASSES[:2])] * self.gives)


@pytest.mark.parametrize(
    "batches",
    [
        DataLoader(TensorDataset(PICTURES, CLASSES), batch_size=8),
        DataLoader(TensorDataset(PICTURES, CLASSES[:, None]), batch_size=8),
        TensorDataset(PICTURES, CLASSES),
        EndlessAccess(),
        [(PICTURES[:0].numpy(), []), (PICTURES.numpy(), list(CLASSES))],
        list(zip(PICTURES, CLASSES.tolist(), strict=True)),
    ],
    ids=["loader", "column", "dataset", "endless access", "two batches", "rows"],
)
def test_all_kinds_give_the_same_data(batches: Any) -> None:
    data = Data.from_batches(batches, name="pictures", classes=[0, 1, 2])
    same = Data(PICTURES.float(), CLASSES, classes=[0, 1, 2])
    assert data.fingerprint == same.fingerprint
    assert (data.name, data.count, data.shape) == ("pictures", 30, (1, 4, 5))
    (chunk,) = data.unprotected_rows(AS_GIVEN).chunks()
    assert torch.equal(chunk.features[:, 0], PICTURES.float())
    assert torch.equal(chunk.targets, CLASSES)


def test_whole_numbers_stay_whole_and_labels_may_be_text() -> None:
    words = torch.tensor([[2**24 + 1, 5], [7, 3]])  # which float32 cannot hold
    batches = [(words, ("no", "yes")), (words + 4, ["yes", "no"])]
    data = Data.from_batches(batches, classes="public")
    assert data.classes == ("no", "yes")
    (chunk,) = data.unprotected_rows(AS_GIVEN, precision="int64").chunks()
    assert chunk.features[0, 0, 0] == 2**24 + 1
    assert chunk.targets.tolist() == [0, 1, 1, 0]


def test_a_loader_may_shuffle_and_drop_rows() -> None:
    loader = DataLoader(
        TensorDataset(PICTURES, CLASSES), batch_size=8, shuffle=True, drop_last=True
    )
    data = Data.from_batches(loader, classes=[0, 1, 2])
    assert data.count == 24
    assert "the number of rows (24), taken from the data" in data.public_facts
    assert Data.from_batches(loader, rows=30, classes=[0, 1, 2]).count == 30


def test_test_and_public_rows_are_of_the_same_kinds(tmp_path: Any) -> None:
    other = PICTURES.float() + 1
    write_chunks(tmp_path / "chunks", [((PICTURES.float() + 2).numpy(), CLASSES.numpy())])
    data = Data.from_batches(
        TensorDataset(PICTURES, CLASSES),
        test=DataLoader(TensorDataset(other, CLASSES), batch_size=7),
        public=DiskRows(tmp_path / "chunks"),
    )
    (chunk,) = data.test_rows(AS_GIVEN).chunks()  # type: ignore[union-attr]
    assert torch.equal(chunk.features[:, 0], other)
    public = data.public_rows(AS_GIVEN)
    assert public is not None and public.count == 30
    with pytest.raises(InvalidInput, match="some test rows are private rows"):
        Data.from_batches(TensorDataset(PICTURES, CLASSES), test=TensorDataset(PICTURES, CLASSES))


def test_values_are_gathered_too() -> None:
    loader = DataLoader(TensorDataset(PICTURES, CLASSES / 7), batch_size=4)
    data = Data.from_batches(loader, task="values", target_range=(0.0, 1.0))
    (chunk,) = data.unprotected_rows(AS_GIVEN).chunks()
    assert torch.allclose(chunk.targets.double(), CLASSES.double() / 7 * 2 - 1, atol=1e-6)


@pytest.mark.parametrize(
    ("batches", "said"),
    [
        ({"image": PICTURES}, "a DataLoader, a Dataset or a list of pairs; got dict"),
        (7, "a list of pairs; got int"),
        ("rows", "a list of pairs; got str"),
        (PICTURES, r"item 0 \(from 0\) of the private rows must be a pair .* got Tensor"),
        ([(PICTURES[0], 1, 2)], "must be a pair .* got tuple of 3"),
        ([{"image": PICTURES, "label": CLASSES}], "got dict with image, label"),
        ([5.0], "got float. Give pairs"),
        ([], "there are no private rows: list gave none"),
        ([(PICTURES[:0], CLASSES[:0])], "there are no private rows"),
        ([(PICTURES, None)], r"the labels of item 0 .* are missing"),
        ([(PICTURES[0], None)], r"the labels of item 0 .* are missing"),
        ([(PICTURES, CLASSES[:9])], r"features of shape \(30, 1, 4, 5\) and 9 labels"),
        ([(PICTURES, torch.eye(30))], r"have shape \(30, 30\), .*argmax"),
        ([(3.0, 1)], r"must be a table of shape \(rows, columns\)"),
        (
            [(PICTURES[0], 1), (PICTURES[0, :, :2], 1)],
            r"item 1 .*\(1, 2, 5\), .*\(1, 4, 5\)",
        ),
        ([(PICTURES * torch.nan, CLASSES)], "the features of item 0 .* not finite"),
        ([(PICTURES[0], 1), (PICTURES[1], "b")], "all whole numbers, all text"),
        ([(PICTURES[:2], [1, "b"])], "all whole numbers, all text"),
        (Stream(), "are a Stream without a length, which may never end"),
        (DataLoader(Stream(), batch_size=4), "are a DataLoader without a length"),
        (iter([(PICTURES, CLASSES)]), "list_iterator without a length"),
        (SaysTen(11), "say that they are 10 batches, and gave more"),
        (SaysTen(9), "say that they are 10 batches, and gave 9"),
    ],
)
def test_what_cannot_be_gathered_is_named(batches: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        Data.from_batches(batches)


def test_messages_name_the_rows_and_show_no_values() -> None:
    train = TensorDataset(PICTURES, CLASSES)
    with pytest.raises(InvalidInput, match="the test rows") as caught:
        Data.from_batches(train, test=[123.456])
    assert "123" not in str(caught.value)
