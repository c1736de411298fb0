"""Rows of texts in groups of about one length: the same sum, with less padding."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dptune.data.rows import Chunk, DataFacts
from dptune.engines import HuggingFace, TorchModule
from dptune.engines.modules import made_up
from dptune.engines.modules.by_length import grouped, widths
from dptune.engines.modules.tracing import traced, traced_shorter
from support.tiny_models import write_tiny_model

pytest.importorskip("transformers")

LENGTH, CLIP = 32, 0.5
WIDTHS = [*widths(LENGTH), LENGTH]
TASKS = {"roberta": "softmax", "bert": "spans", "gpt2": "words", "opt": "words", "llama": "spans"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    root = tmp_path_factory.mktemp("tiny")
    for kind in TASKS:
        write_tiny_model(root / kind, kind, layers=1)
    return lambda kind: str(root / kind)


def chunk_of(lengths: list[int], width: int = LENGTH) -> Chunk:
    """Rows whose numbers tell the row and the place, one copy each."""
    places = torch.arange(width)
    rows = [torch.where(places < n, 1000 * i + places, -1) for i, n in enumerate(lengths)]
    features = torch.stack(rows)[:, None]
    return Chunk(features, torch.arange(len(rows)), torch.ones(len(rows), 1))


@pytest.mark.parametrize(
    ("longest", "found"), [(128, [32, 64]), (50, [13, 25]), (16, [8]), (3, [])]
)
def test_widths_are_halves_and_quarters_that_are_worth_it(longest: int, found: list[int]) -> None:
    assert widths(longest) == found


@given(lengths=st.lists(st.integers(0, LENGTH), min_size=1, max_size=20))
def test_every_row_is_in_one_group_with_all_its_words(lengths: list[int]) -> None:
    chunk = chunk_of(lengths)
    found: dict[int, torch.Tensor] = {}
    for width, group in zip(WIDTHS, grouped(chunk, WIDTHS), strict=True):
        for number, row in zip(group.targets.tolist(), group.features[:, 0], strict=True):
            assert number not in found
            assert len(row) == width
            found[number] = row
    assert sorted(found) == list(range(len(lengths)))
    for number, row in found.items():
        assert row[row >= 0].tolist() == [1000 * number + i for i in range(lengths[number])]
        enough = [width for width in WIDTHS if width >= lengths[number]]
        assert len(row) == enough[0]


@given(
    lengths=st.lists(st.integers(0, LENGTH), min_size=2, max_size=8), other=st.integers(0, LENGTH)
)
def test_a_group_is_chosen_by_the_row_alone(lengths: list[int], other: int) -> None:
    def width_of_first(some: list[int]) -> int:
        groups = grouped(chunk_of(some), WIDTHS)
        (width,) = [g.features.shape[-1] for g in groups if 0 in g.targets.tolist()]
        return width

    assert width_of_first(lengths) == width_of_first([lengths[0], *[other] * (len(lengths) - 1)])


@pytest.mark.parametrize("trained", ["body", "all"])
@pytest.mark.parametrize("kind", TASKS)
def test_groups_add_up_to_the_sum_of_whole_rows(
    kind: str, trained: str, folder: Callable[[str], str]
) -> None:
    task, count = TASKS[kind], 12
    shape = (LENGTH,) if task == "softmax" else (2, LENGTH)
    facts = DataFacts(count, shape, 1, 3, task)
    engine = HuggingFace(folder(kind))
    assert isinstance(engine, TorchModule)
    engine = replace(engine, trained=trained).for_data(facts)
    module = engine.made()
    flat, gradients = traced(engine, module, facts, torch.device("cpu"))
    by_width = traced_shorter(engine, flat, facts) | {LENGTH: gradients}
    module.eval()  # without dropout, which draws for every pass
    features = made_up.made_up(module, shape, count, ids=True)
    for row, kept in enumerate([1, 3, 8, 9, 16, 17, 24, 32]):
        features[row, ..., kept:] = -1
        if task == "spans":
            features[row, 1, :2] = min(1, kept - 1)
    targets = torch.arange(count) % 3
    chunk = Chunk(features[:, None], targets, torch.ones(count, 1))
    whole, apart = (torch.zeros(len(flat.vector), dtype=torch.float64) for _ in range(2))
    gradients.add(whole, chunk.features, chunk.targets, CLIP)
    groups = list(grouped(chunk, list(by_width)))
    assert [len(group.targets) > 0 for group in groups] == [True] * len(by_width)
    for group, way in zip(groups, by_width.values(), strict=True):
        way.add(apart, group.features, group.targets, CLIP)
    assert whole.norm() > 0.1 * CLIP
    torch.testing.assert_close(apart, whole, rtol=0, atol=2e-4 * float(whole.abs().max()))
