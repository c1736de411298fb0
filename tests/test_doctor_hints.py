"""What doctor and tune say of modules that people get wrong."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dptune
from dptune.engines import TorchModule
from dptune.engines.modules.doctor import Examination, examine
from dptune.errors import InvalidInput
from support.rows import make_data
from support.studies import BUDGET


class Noisy(nn.Module):
    def __init__(self, *, always: bool) -> None:
        super().__init__()
        self.layer, self.always = nn.Linear(4, 2), always

    def forward(self, rows: Tensor) -> Tensor:
        if self.always or self.training:
            rows = rows + 0.1 * torch.randn_like(rows)
        out: Tensor = self.layer(rows)
        return out


class RunningMaximum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.largest = nn.Linear(4, 2), torch.tensor(1.0)

    def forward(self, rows: Tensor) -> Tensor:
        self.largest = torch.maximum(self.largest, rows.abs().max().detach())
        out: Tensor = self.layer(rows / self.largest)
        return out


class Recurrent(nn.Module):
    """Goes by the last state, which torch gives with rows in its second place."""

    def __init__(self, kind: Any = nn.LSTM, **options: Any) -> None:
        super().__init__()
        self.cell, self.head = kind(4, 6, **options), nn.Linear(6, 2)

    def forward(self, rows: Tensor) -> Tensor:
        state = self.cell(rows)[1]
        out: Tensor = self.head((state[0] if isinstance(state, tuple) else state)[-1])
        return out


class Attends(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(4, 2, **options)

    def forward(self, rows: Tensor) -> Tensor:
        out: Tensor = self.attend(rows, rows, rows)[0].mean(1)
        return out


def noisy() -> nn.Module:
    return Noisy(always=True)


def running_maximum() -> nn.Module:
    return RunningMaximum()


def words_of(seen: Examination) -> str:
    return " ".join(map(str, seen.problems))


NOISE = "in eval() it gives other numbers for the same rows each time; draw random numbers only if"
MEMORY = "what it gives for a row depends on the rows that passed before"


@pytest.mark.parametrize(("factory", "words"), [(noisy, NOISE), (running_maximum, MEMORY)])
def test_doctor_and_tune_refuse_a_module_in_the_same_words(
    factory: Any, words: str, tmp_path: Path
) -> None:
    assert words in words_of(examine(factory(), (4,)))
    data = make_data()
    engine = TorchModule(factory)
    asked = {"engine": engine, "budget": BUDGET, "search": dptune.UnitNoise()}
    with pytest.raises(InvalidInput) as by_tune:
        dptune.tune(data, **asked, out=tmp_path / "run")
    assert words in str(by_tune.value) and not (tmp_path / "run").exists()


def test_noise_in_training_only_is_accepted() -> None:
    assert not examine(Noisy(always=False), (4,)).problems
    assert not examine(nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5)), (3,)).problems


@pytest.mark.parametrize("module", [Recurrent(), Recurrent(nn.GRU), Attends()])
def test_layer_that_takes_rows_second_is_told_of_batch_first(module: nn.Module) -> None:
    assert "batch_first=True" in words_of(examine(module, (5, 4)))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_every_trained_layer_has_its_way(kind: Any) -> None:
    for module in (Recurrent(kind, batch_first=True), Attends(batch_first=True)):
        assert all(layer.way for layer in examine(module, (5, 4)).layers)


def test_rows_that_do_not_fit_into_memory_are_refused() -> None:
    for shape in ((10**8, 10**8), (10**6, 10**7), (10**18, 10**18)):
        for ids in (False, True):
            with pytest.raises(InvalidInput, match=r"do not fit into memory: one has [\d,]+ num"):
                examine(nn.Linear(2, 2), shape, ids=ids)


def test_table_of_words_is_told_of_ids() -> None:
    module = nn.Sequential(nn.Embedding(9, 2), nn.Flatten(), nn.Linear(6, 2))
    with pytest.raises(InvalidInput, match=r"in a table \(layer 0\).* give --ids"):
        examine(module, (3,))
    assert not examine(module, (3,), ids=True).problems


def test_one_cause_is_one_problem() -> None:
    for norm in (nn.utils.spectral_norm, nn.utils.parametrizations.spectral_norm):
        module = nn.Sequential(norm(nn.Linear(3, 2)), nn.Linear(2, 2))
        assert [problem.kind for problem in examine(module, (3,)).problems] == ["spectral norm"]
        (alone,) = examine(norm(nn.Linear(3, 2)), (3,)).problems
        assert alone.kind == "spectral norm"


class ByNumber(nn.Module):
    """Looks at a number, which torch.func cannot do for many rows at once."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, rows: Tensor) -> Tensor:
        return torch.stack([row * self.scale * (2.0 if row.sum() > 1 else 1.0) for row in rows])


def by_number() -> nn.Module:
    return nn.Sequential(ByNumber(), nn.Linear(4, 2))


def test_slow_layers_are_named_by_doctor_and_before_tune() -> None:
    ways = {layer.name: layer.way for layer in examine(by_number(), (4,)).layers}
    assert ways["0"] == "row by row: slow"
    facts = make_data().facts
    assert "gradients of 0 are computed row by row" in TorchModule(
        by_number, outputs=2, loss="softmax"
    ).inspection.slowed_by(facts)
    quick = TorchModule(running_maximum, outputs=2, loss="softmax")  # refused later
    assert quick.inspection.slowed_by(facts) == ""
