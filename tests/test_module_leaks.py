"""What a module writes into itself while private rows pass is not released: it is refused before
anything is paid, and else the run ends without a result."""

import hashlib
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import dptune
from dptune import Budget, Data
from dptune.data.rows import IDS, MemoryRows
from dptune.engines import Randomness, TorchModule, ZerothOrder
from dptune.engines.checkpoint import Checkpoint, steps_kept
from dptune.engines.modules.doctor import examine
from dptune.engines.modules.flat_weights import FlatWeights
from dptune.engines.modules.module_state import ModuleState
from dptune.engines.randomness import Passes
from dptune.errors import InvalidInput, OwnCodeProblem
from dptune.plan import TrainPlan
from support import zoo

CPU = torch.device("cpu")
SECRET = 123.456
PLAN = TrainPlan(rows=40, steps=2, learning_rate=0.1, noise_multiplier=1.0, momentum=0.0)


def plan_for(kind: type[TorchModule]) -> TrainPlan:
    return replace(PLAN, directions=1) if kind is ZerothOrder else PLAN


def some_rows() -> MemoryRows:
    rows = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    rows[17, 0] = SECRET
    return MemoryRows(rows, torch.arange(40) % 3)


def fitted(engine: TorchModule, rows: MemoryRows, **more: Any) -> nn.Module:
    engine = replace(engine, outputs=3, loss="softmax")
    (model,) = engine.fit_many([plan_for(type(engine))], rows, [Randomness()], **more)
    return model.module


class Sleeper(zoo.LargestSeen):
    """Is a good module for all rows but one."""

    where = "largest"

    def forward(self, rows: Tensor) -> Tensor:
        if bool((rows == SECRET).any()):
            self.get_parameter(self.where).data.mul_(rows.detach().mean())
        answer: Tensor = self.outer(self.inner(rows))
        return answer


class IntoBuffer(Sleeper):
    def forward(self, rows: Tensor) -> Tensor:
        if bool((rows == SECRET).any()):
            self.largest = self.largest + rows.detach().abs().max()
        answer: Tensor = self.outer(self.inner(rows))
        return answer


class IntoTrained(Sleeper):
    where = "inner.weight"


class IntoFrozen(Sleeper):
    where = "outer.bias"

    def __init__(self) -> None:
        super().__init__()
        self.outer.bias.requires_grad_(False).fill_(1.0)


@pytest.mark.parametrize("kind", [TorchModule, ZerothOrder])
@pytest.mark.parametrize(
    ("factory", "says"),
    [(IntoBuffer, "largest"), (IntoTrained, "the trained weights"), (IntoFrozen, "outer.bias")],
    ids=["buffer", "trained", "frozen"],
)
def test_run_in_which_a_module_keeps_something_of_rows_releases_nothing(
    kind: type[TorchModule], factory: Any, says: str, tmp_path: Path
) -> None:
    keep = Checkpoint(tmp_path / "kept", "a run", seconds=0.0)
    with pytest.raises(OwnCodeProblem, match=rf"\({says}\).*nothing of it is released"):
        fitted(kind(factory), some_rows(), keep=[keep])
    assert steps_kept(keep.path) is None


@pytest.mark.parametrize("trained", ["all", "head.*"])
@pytest.mark.parametrize("kind", [TorchModule, ZerothOrder])
def test_embedding_with_max_norm_is_refused_before_anything_is_paid(
    kind: type[TorchModule], trained: str, tmp_path: Path
) -> None:
    words = np.random.default_rng(0).integers(zoo.WORDS, size=(300, 4))
    data = Data(words, np.arange(300) % 3)
    engine = kind(zoo.Renormed, ids=True, trained=trained)
    with pytest.raises(InvalidInput, match=r"layer words: (with max_norm|its parameter weight)"):
        dptune.tune(data, budget=Budget(1.0, 1e-5), engine=engine, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


class Remembers(zoo.Around):
    """Keeps every row it has seen, and does nothing with them."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor] = []

    def between(self, hidden: Tensor) -> Tensor:
        self.seen.append(hidden.detach())
        return hidden


def test_released_module_is_not_the_one_that_met_private_rows() -> None:
    for kind in (TorchModule, ZerothOrder):
        assert not fitted(kind(Remembers), some_rows()).seen


def test_state_sees_every_kind_of_change() -> None:
    module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    flat = FlatWeights(module, ["0.weight"], CPU)
    state = ModuleState(module, flat)
    assert not state.changed()
    flat.vector[0] += 1e-7
    assert state.changed() == ["the trained weights"]
    state.after_step()
    assert not state.changed()
    module[1].running_mean.data[0] = 1e-30
    assert state.changed() == ["1.running_mean"]
    state = ModuleState(module, flat)
    with torch.no_grad():
        module[0].bias += 0  # the same bits, and yet a write
    assert state.changed() == ["0.bias"]
    state = ModuleState(module, flat)
    module[1].running_var = module[1].running_var.clone()
    assert state.changed() == ["1.running_var"]
    state = ModuleState(module, flat)
    module.register_buffer("kept", torch.zeros(1))
    assert state.changed() == ["kept"]


_ONE = zoo.AllExperts()


def same_module() -> nn.Module:
    return _ONE


def same_weights() -> nn.Module:
    module = nn.Linear(6, 3)
    module.weight = _ONE.outer.weight
    return module


@pytest.mark.parametrize("factory", [same_module, same_weights])
def test_factory_that_hands_out_the_same_weights_is_refused(factory: Any) -> None:
    """One trial's weights would be where the next begins."""
    data = Data(np.zeros((100, 6)), np.arange(100) % 3)
    with pytest.raises(InvalidInput, match="must make a new module whenever it is called"):
        dptune.tune(data, budget=Budget(1.0, 1e-5), engine=TorchModule(factory))


def half_frozen() -> nn.Module:
    module = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))
    module[0].requires_grad_(False)
    return module


def all_frozen() -> nn.Module:
    return half_frozen().requires_grad_(False)


def test_what_the_factory_froze_stays_frozen() -> None:
    engine = TorchModule(half_frozen, outputs=3, loss="softmax")
    assert engine.names(engine.made()) == ["2.weight", "2.bias"]
    before, after = engine.made(Randomness()), fitted(engine, some_rows())
    assert torch.equal(before[0].weight, after[0].weight)
    assert not torch.equal(before[2].weight, after[2].weight)


def test_module_with_nothing_to_train_is_refused_in_words() -> None:
    data = Data(np.zeros((100, 6)), np.arange(100) % 3)
    with pytest.raises(InvalidInput, match="none of its parameters is trained"):
        dptune.tune(data, budget=Budget(1.0, 1e-5), engine=TorchModule(all_frozen))


def test_word_that_is_in_no_table_does_not_end_a_run() -> None:
    """An index error would end a run that is paid for, because of one row."""
    words = torch.randint(zoo.WORDS, (40, 9), generator=torch.Generator().manual_seed(0))
    strange = words.clone()
    words[3, 0], strange[3, 0] = zoo.WORDS - 1, 10**6
    words[4, 1], strange[4, 1] = 0, -1

    def trained(rows: Tensor) -> Tensor:
        made = MemoryRows(rows, torch.arange(40) % 3, precision=IDS)
        engine = TorchModule(zoo.Bag, ids=True, outputs=3, loss="softmax")
        (model,) = engine.fit_many([PLAN], made, [Randomness(noise_seed=0)])
        assert model.logits(rows).isfinite().all()
        weights: Tensor = model.module.words.weight
        return weights

    assert torch.equal(trained(words), trained(strange))


@pytest.mark.parametrize("kind", [TorchModule, ZerothOrder])
@pytest.mark.parametrize(
    ("factory", "says"),
    [
        (zoo.OwnTableUnbound, "a number that is in no table.*could end a run that is paid for"),
        (zoo.CountsWords, "a number that is in no table.*could end a run that is paid for"),
        (zoo.OwnTableMixing, "depends on the other rows"),
    ],
)
def test_module_with_a_table_of_its_own_is_refused_before_anything_is_paid(
    kind: Any, factory: Any, says: str, tmp_path: Path
) -> None:
    """Where it fails on a word that it does not have, or mixes rows."""
    words = np.random.default_rng(0).integers(zoo.WORDS, size=(300, 4))
    words[17, 0] = 10**6
    data = Data(words, np.arange(300) % 3)
    engine = kind(factory, ids=True)
    with pytest.raises(InvalidInput, match=f"nothing was paid.*{says}"):
        dptune.tune(data, budget=Budget(1.0, 1e-5), engine=engine, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    (problem,) = examine(factory(), (4,), ids=True).problems
    assert re.search(says, str(problem))


def writes() -> nn.Module:
    return nn.Sequential(nn.ReLU(inplace=True), nn.Linear(6, 3))


@pytest.mark.parametrize("kind", [TorchModule, ZerothOrder])
def test_module_that_writes_into_its_input_leaves_stored_rows_alone(kind: Any) -> None:
    rows = some_rows()
    before = rows.features.clone()
    engine = kind(writes, outputs=3, loss="softmax")
    (model,) = engine.fit_many([plan_for(kind)], rows, [Randomness()])
    engine.evaluate_many([model], rows)
    assert torch.equal(rows.features, before)


def test_dropout_on_a_cpu_is_drawn_from_all_of_a_secret_key() -> None:
    """Of a seed torch keeps 32 bits: keys that agree in those must not draw the same. Checked by
    NumPy's generator of the same kind, set to the same state."""
    key = 2**200 + 12345
    Passes(key, CPU).begin()
    drawn = torch.randint(2**32, (1000,), dtype=torch.int64)
    words = np.frombuffer(hashlib.shake_256(key.to_bytes(32, "big")).digest(4 * 624), np.uint32)
    twin = np.random.MT19937()
    state = twin.state
    state["state"] = {"key": words, "pos": 624}
    twin.state = state
    raw = twin.random_raw(2000)
    assert drawn.tolist() == raw[1::2].tolist()  # of the 64 bits that torch takes for each
    Passes(12345, CPU).begin()
    assert not torch.equal(drawn, torch.randint(2**32, (1000,), dtype=torch.int64))
    assert Randomness().passes(0, CPU).key >> 200, "fails once in 2^56 runs"
