"""TorchModule keeps the promises of every engine, and those of its own."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import dptune
import own_networks
from dptune import own_code
from dptune.accounting import Budget, price
from dptune.data import Data, MemoryRows
from dptune.data.rows import DataFacts
from dptune.engines import Randomness
from dptune.engines.checkpoint import Checkpoint
from dptune.engines.modules.torch_module import TorchModule
from dptune.engines.modules.trained import trained_names
from dptune.engines.modules.zeroth_order import ZerothOrder
from dptune.errors import InvalidInput, OwnCodeProblem
from dptune.plan import TrainPlan
from dptune.search.score import NoisyScore
from support.engine_conformance import EngineConformance

FACTS = DataFacts(24, (4,), 1, 3, "softmax")
PLAIN = TrainPlan(
    rows=24, steps=1, learning_rate=0.5, noise_multiplier=0.0, clip_norm=None, momentum=0.0
)


class ModuleConformance(EngineConformance):
    margin: ClassVar[float] = 0.012
    runs: ClassVar[int] = 100


class TestSmall(ModuleConformance):
    engine: ClassVar = TorchModule(own_networks.small, rows_at_once=300)


class TestPictures(ModuleConformance):
    engine: ClassVar = TorchModule(own_networks.convolutional, rows_at_once=5)
    shape: ClassVar = (1, 3, 3)


class TestWords(ModuleConformance):
    engine: ClassVar = TorchModule(own_networks.of_words, ids=True, rows_at_once=300)


def some_rows(count: int = 24, seed: int = 0) -> MemoryRows:
    rng = np.random.default_rng(seed)
    return MemoryRows(rng.normal(size=(count, 4)), rng.integers(0, 3, count))


def fitted(
    engine: TorchModule, plan: TrainPlan, rows: MemoryRows, **seeds: int | None
) -> nn.Module:
    made = engine.for_data(FACTS)
    (model,) = made.fit_many([plan], rows, [Randomness(**{"noise_seed": 0} | seeds)])
    return model.module


def flat(module: nn.Module) -> Tensor:
    return torch.cat([p.detach().double().flatten() for p in module.parameters()])


# -- steps


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize("compute", ["float32", "bfloat16"])
def test_without_noise_and_clipping_steps_are_those_of_plain_pytorch(
    optimizer: str, compute: str
) -> None:
    rows, engine = some_rows(), TorchModule(own_networks.small, compute=compute)
    plan = replace(PLAIN, steps=3, optimizer=optimizer, learning_rate=0.1, weight_decay=0.01)
    plan = replace(plan, momentum=0.9)
    ours = fitted(engine, plan, rows)
    plain = engine.made(Randomness(noise_seed=0))
    begin = flat(plain)
    kinds: dict[str, Callable[..., torch.optim.Optimizer]] = {
        "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01),
        "adam": lambda p: torch.optim.Adam(p, 0.1, weight_decay=0.01),
        "adamw": lambda p: torch.optim.AdamW(p, 0.1, weight_decay=0.01),
    }
    steps = kinds[optimizer](plain.parameters())
    for _ in range(3):
        steps.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=compute == "bfloat16"):
            outputs = plain(rows.features[:, 0])
        nn.functional.cross_entropy(outputs.float(), rows.targets).backward()
        steps.step()
    moved, wanted = flat(ours) - begin, flat(plain) - begin
    cosine = float(moved @ wanted / (moved.norm() * wanted.norm()))
    assert cosine > (0.9999 if compute == "float32" else 0.999)
    assert float(moved.norm() / wanted.norm()) == pytest.approx(1, rel=0.02)


def test_it_does_not_matter_how_a_batch_is_split() -> None:
    rows, plan = some_rows(), replace(PLAIN, clip_norm=0.3, steps=4, momentum=0.9)
    whole = fitted(TorchModule(own_networks.small, rows_at_once=24), plan, rows)
    for size in (1, 7, 23):
        parts = fitted(TorchModule(own_networks.small, rows_at_once=size), plan, rows)
        torch.testing.assert_close(flat(parts), flat(whole), rtol=1e-5, atol=1e-6)


def test_a_step_of_nobody_is_taken_with_noise() -> None:
    engine, rows = TorchModule(own_networks.small), some_rows()
    plan = replace(PLAIN, clip_norm=1.0, noise_multiplier=1.0, sampling_rate=1e-8, rows=10**8)
    moved = flat(fitted(engine, plan, rows)) - flat(engine.made(Randomness(noise_seed=0)))
    assert float(moved.std()) == pytest.approx(0.5, rel=0.5)  # the rate; the divisor is 1


def test_a_canary_sings_as_loud_as_it_was_paid_for() -> None:
    """A row whose gradient is longer than the clip norm moves weights by all of it, along a
    direction that is known; the noise is measured over all weights of 60 runs."""
    clip, sigma, runs = 0.01, 2.0, 60
    rows = some_rows()
    without = rows.taken(torch.arange(24) != 0)
    plan = replace(PLAIN, rows=1, learning_rate=1.0, clip_norm=clip)
    engine = TorchModule(own_networks.small)
    shift = float((flat(fitted(engine, plan, rows)) - flat(fitted(engine, plan, without))).norm())
    noisy = replace(plan, noise_multiplier=sigma)
    still = flat(fitted(engine, plan, rows))
    drawn = torch.stack(
        [flat(fitted(engine, noisy, rows, noise_seed=s)) - still for s in range(runs)]
    )
    measured, paid = shift / float(drawn.std()), price(noisy.event).mu
    error = 5 / np.sqrt(2 * drawn.numel())
    assert 0.9 * paid * (1 - error) <= measured <= paid * (1 + error)


def test_rows_are_changed_anew_in_every_step_where_asked() -> None:
    rows, plan = some_rows(), replace(PLAIN, augmentations=4, clip_norm=0.3, steps=2)
    engine = TorchModule(own_networks.small, augment=own_networks.jitter)
    changed = fitted(engine, plan, rows)
    plain = fitted(TorchModule(own_networks.small), replace(plan, augmentations=1), rows)
    assert not torch.allclose(flat(changed), flat(plain), atol=1e-4)
    assert torch.allclose(flat(changed), flat(plain), atol=0.1)
    data = Data(np.random.default_rng(0).normal(size=(50, 4)), np.arange(50) % 3)
    with pytest.raises(InvalidInput, match="copies"):
        tuned(data, TorchModule(own_networks.small), recipe={"augmentations": 4})
    tuned(data, engine, recipe={"augmentations": 4})


def test_layers_may_be_computed_again_instead_of_kept() -> None:
    rows, plan = some_rows(), replace(PLAIN, clip_norm=0.3, steps=2)
    kept = fitted(TorchModule(own_networks.Blocks), plan, rows)
    again = fitted(TorchModule(own_networks.Blocks, checkpointed="blocks.*"), plan, rows)
    torch.testing.assert_close(flat(kept), flat(again))


def test_a_loss_of_ones_own_trains_and_scores() -> None:
    rows = some_rows()
    engine = TorchModule(own_networks.small, own_networks.smoothed).for_data(FACTS)
    usual = TorchModule(own_networks.small).for_data(FACTS)
    (model,) = engine.fit_many([PLAIN], rows, [Randomness()])
    (other,) = usual.fit_many([PLAIN], rows, [Randomness()])
    assert not torch.allclose(flat(model.module), flat(other.module))
    (found,) = engine.evaluate_many([model], rows)
    wanted = own_networks.smoothed(model.module(rows.features[:, 0]), rows.targets)
    assert found.loss == pytest.approx(float(wanted.mean()), rel=1e-5)
    assert found.correct == int((model.logits(rows.features[:, 0]).argmax(1) == rows.targets).sum())


# -- what is trained


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ("biases", "stem.bias blocks.0.0.bias blocks.1.0.bias blocks.2.0.bias head.bias"),
        ("last block", "blocks.2.0.weight blocks.2.0.bias head.weight head.bias"),
        (
            "first and last block",
            "stem.weight stem.bias blocks.0.0.weight blocks.0.0.bias blocks.2.0.weight "
            "blocks.2.0.bias head.weight head.bias",
        ),
        ("head.*, stem.bias", "stem.bias head.weight head.bias"),
    ],
)
def test_what_is_trained_is_said_by_words_or_patterns(asked: str, names: str) -> None:
    assert trained_names(own_networks.Blocks(), asked) == names.split()
    rows, plan = some_rows(), replace(PLAIN, steps=2)
    engine = TorchModule(own_networks.Blocks, trained=asked)
    before = dict(engine.made(Randomness(noise_seed=0)).named_parameters())
    after = dict(fitted(engine, plan, rows).named_parameters())
    moved = [name for name in after if not torch.equal(before[name], after[name])]
    assert moved == names.split()
    assert engine.for_data(FACTS).parameters(FACTS) == sum(after[n].numel() for n in moved)


def test_patterns_that_fit_nothing_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"nothing would be trained.*stem\.weight"):
        trained_names(own_networks.Blocks(), "encoder.*")
    with pytest.raises(InvalidInput, match="patterns"):
        trained_names(nn.Linear(2, 2), "last block")


# -- studies


def tuned(data: Data, engine: TorchModule, **asked: Any) -> dptune.StudyResult:
    space = dptune.Space(learning_rate=(0.01, 10.0), steps=(5, 5))
    asked = {"space": space, "budget": Budget(8.0, 1e-5)} | asked
    return dptune.tune(data, engine=engine, **asked)


def some_data(count: int = 300) -> Data:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(count, 4))
    others = rng.normal(size=(30, 4))
    test = others, others[:, :3].argmax(1)
    return Data(features, features[:, :3].argmax(1), test=test)


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (own_networks.with_batch_norm, "1: batch norm mixes.*use group norm"),
        (own_networks.Mixing, r"(?s)row.*other"),
        (own_networks.Tied, r"(?s)first\.weight|second\.weight|first.*second"),
        (own_networks.no_module, "must return a torch module"),
        (own_networks.broken, "ZeroDivisionError: no layers"),
        (own_networks.one_output, "shape"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_cannot_be_trained_is_refused_before_anything_is_paid(
    factory: Callable[[], Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match=message):
        tuned(some_data(), TorchModule(factory), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_loss_of_a_whole_batch_is_refused() -> None:
    with pytest.raises(InvalidInput, match="one number a row"):
        tuned(some_data(), TorchModule(own_networks.small, own_networks.mean_loss))


@pytest.mark.parametrize(
    "loss",
    [
        own_networks.mean_for_all,
        own_networks.by_number_of_rows,
        own_networks.by_counts_of_classes,
    ],
)
@pytest.mark.parametrize("kind", [TorchModule, ZerothOrder])
def test_a_loss_that_looks_at_other_rows_is_refused(
    kind: type[TorchModule], loss: Any, tmp_path: Path
) -> None:
    """The mean for all, say, has the right gradient, but its differences are everybody's."""
    with pytest.raises(InvalidInput, match="the loss of a row must be its own"):
        tuned(some_data(), kind(own_networks.small, loss), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("augment", "message"),
    [(own_networks.mixed_up, "every row for itself"), (own_networks.halved, "of the shape")],
)
@pytest.mark.parametrize("kind", [TorchModule, ZerothOrder])
def test_an_augmentation_that_mixes_rows_is_refused(
    kind: type[TorchModule], augment: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match=message):
        tuned(some_data(), kind(own_networks.small, augment=augment), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "options",
    [{"factory": own_networks.with_dropout}, {"augment": own_networks.jitter}],
    ids=["dropout", "augment"],
)
def test_what_is_drawn_while_rows_pass_is_as_secret_as_the_sample(options: dict[str, Any]) -> None:
    """If draws were public, those of other rows would tell whether a row was in the sample: a
    sample's price counts on nobody knowing."""
    rows, engine = some_rows(), TorchModule(**{"factory": own_networks.small} | options)
    one, two = (flat(fitted(engine, PLAIN, rows, noise_seed=None)) for _ in range(2))
    assert float((one - two).norm()) > 1e-6
    one, two = (flat(fitted(engine, PLAIN, rows)) for _ in range(2))
    torch.testing.assert_close(one, two, rtol=0, atol=0)


class _CutOff(Checkpoint):
    def due(self) -> bool:
        return True

    def save(self, tensors: Any, steps: int) -> None:
        super().save(tensors, steps)
        if steps == 2:
            raise KeyboardInterrupt


@pytest.mark.parametrize("other", ["other layers", "other frozen weights"])
@pytest.mark.parametrize("kind", [TorchModule, ZerothOrder])
def test_a_run_does_not_go_on_beside_another_module(
    kind: type[TorchModule], other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, plan = some_rows(), replace(PLAIN, steps=4, directions=1 if kind is ZerothOrder else None)
    engine = kind(own_networks.small, trained="2.*").for_data(FACTS)
    with pytest.raises(KeyboardInterrupt):
        engine.fit(plan, Randomness(), None, rows=rows, keep=_CutOff(tmp_path / "kept", "run"))
    made = own_networks.small()
    if other == "other layers":
        made = nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 3))
    monkeypatch.setitem(own_code._remembered, engine.factory, lambda: made)
    with pytest.raises(OwnCodeProblem, match="kept of another module"):
        engine.fit(plan, Randomness(), None, rows=rows, keep=Checkpoint(tmp_path / "kept", "run"))


def test_a_run_with_dropout_that_is_cut_off_goes_on_as_if_it_were_not(tmp_path: Path) -> None:
    engine, rows = TorchModule(own_networks.with_dropout).for_data(FACTS), some_rows()
    plan, randomness = replace(PLAIN, steps=4), Randomness(noise_seed=0)
    with pytest.raises(KeyboardInterrupt):
        engine.fit(plan, randomness, None, rows=rows, keep=_CutOff(tmp_path / "kept", "run"))
    further = engine.fit(
        plan, randomness, None, rows=rows, keep=Checkpoint(tmp_path / "kept", "run")
    )
    whole = engine.fit(plan, randomness, None, rows=rows)
    torch.testing.assert_close(flat(further.module), flat(whole.module), rtol=0, atol=0)


def test_trials_may_be_compared_by_sums_of_clipped_losses(tmp_path: Path) -> None:
    score = NoisyScore(measure="loss", loss_bound=2.0)
    result = tuned(some_data(), TorchModule(own_networks.small), score=score)
    assert all(trial.score is not None for trial in result.trials)
    assert result.guarantee.covers_selection


def test_values_are_learned_too() -> None:
    features = np.random.default_rng(0).normal(size=(300, 4))
    data = Data(features, features[:, 0], task="values", target_range=(-3.0, 3.0))
    result = tuned(data, TorchModule(own_networks.one_output))
    assert result.model.predict(features).shape == (300,)


def test_one_search_serves_several_budgets(tmp_path: Path) -> None:
    from dptune.ledger import Ledger

    data, engine = some_data(), TorchModule(own_networks.small)
    address = str(tmp_path / "ledger.db")
    Ledger.create(address, Budget(20.0, 1e-5), dataset="data", fingerprint=data.fingerprint)
    asked = {"recipe": {"sampling_rate": None}, "ledger": address}
    tuned(data, engine, budget=Budget(2.0, 1e-5), out=tmp_path / "one", **asked)
    again = tuned(
        data,
        engine,
        budget=Budget(4.0, 1e-5),
        out=tmp_path / "two",
        reuse=tmp_path / "one",
        **asked,
    )
    assert [trial.score for trial in again.trials] == [
        trial.score for trial in dptune.load(tmp_path / "one").trials
    ]


def test_the_plan_says_how_gradients_are_clipped_and_the_guarantee_what_is_public() -> None:
    engine = TorchModule(own_networks.Blocks).for_data(FACTS)
    (said,) = engine.inspection.describe(FACTS)
    assert said.endswith("by layer: ghost (stem, blocks.0.0, blocks.1.0, blocks.2.0, head)")
    result = tuned(some_data(), TorchModule(own_networks.Blocks))
    assert any("Blocks begins with" in fact for fact in result.guarantee.public_facts)


# -- code of the user's own


def test_code_that_was_changed_since_is_noticed(tmp_path: Path) -> None:
    """With weights of the same shapes nothing else would."""
    file, rows = tmp_path / "net.py", some_rows()
    text = "from torch import nn\ndef make():\n    return nn.Sequential(nn.Linear(4, 3), nn.{}())\n"
    file.write_text(text.format("Tanh"))
    engine = TorchModule(f"{file}:make").for_data(FACTS)
    (model,) = engine.fit_many([PLAIN], rows, [Randomness()])
    packed = engine.pack(model)
    again = engine.unpack(packed)
    torch.testing.assert_close(again.logits(rows.features[:, 0]), model.logits(rows.features[:, 0]))
    file.write_text(text.format("ReLU"))
    with pytest.raises(InvalidInput, match="its code was changed since"):
        engine.unpack(packed)


def test_a_module_that_diverged_is_no_changed_code() -> None:
    """Another machine rounds otherwise, and a study must not end for a trial that came to
    nothing."""
    engine = TorchModule(own_networks.diverged).for_data(FACTS)
    (model,) = engine.fit_many([PLAIN], some_rows(), [Randomness()])
    packed = engine.pack(model)
    packed["0.weight"] *= 1 + 1e-6
    seen = engine.unpack(packed).logits(torch.ones(2, 4)) - model.logits(torch.ones(2, 4))
    assert seen.abs().max() > 0.1


def test_a_factory_that_makes_another_module_each_time_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"the same module whenever it is called, and weight is"):
        tuned(some_data(), TorchModule(own_networks.another_each_time))


def test_a_module_in_the_place_of_its_factory_is_told_from_it() -> None:
    with pytest.raises(InvalidInput, match="this is a torch module, a Linear; give the function"):
        TorchModule(nn.Linear(4, 3))  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="the loss must be a function with a name"):
        TorchModule(own_networks.small, nn.CrossEntropyLoss(reduction="none"))  # type: ignore[arg-type]


SCRIPT = """
import dptune, torch
from torch import nn
{before}
data = dptune.Data(torch.randn(60, 4), torch.arange(60) % 3)
{call}
"""
DEFINED = "def make():\n    return nn.Linear(4, 3)\n"
CALL = (
    'dptune.tune(data, budget=dptune.Budget(8.0, 1e-5), engine=dptune.TorchModule(make), out="run")'
)


@pytest.mark.parametrize(
    ("before", "call", "message"),
    [
        (DEFINED, CALL, "calls tune at its top level"),
        (
            f"if __name__ == '__main__':\n    {DEFINED.replace(chr(10), chr(10) + '    ')}",
            CALL,
            "top level of",
        ),
    ],
    ids=("tunes when imported", "hidden from imports"),
)
def test_a_script_that_nobody_could_import_again_is_refused_unpaid(
    before: str, call: str, message: str, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(before=before, call=call))
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode and message in done.stderr
    assert not (tmp_path / "run").exists()


def test_what_is_no_data_or_no_budget_is_said() -> None:
    loader = [(torch.zeros(2, 4), torch.zeros(2))]
    with pytest.raises(InvalidInput, match=r"got a list: .*from_batches"):
        dptune.tune(loader, budget=Budget(1.0, 1e-5))  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"dptune\.Budget\(epsilon, delta\); got 3\.0"):
        dptune.tune(some_data(), budget=3.0)  # type: ignore[arg-type]
