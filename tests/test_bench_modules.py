"""The shape of the report on whole networks; no claim about speed."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch

from dptune.bench import largest, modules
from dptune.bench.module_steps import PlainStep, PrivateStep
from dptune.bench.networks import MeanLoss, Network, Sizes, row_losses, with_adapters
from dptune.engines.modules.checks import FEWEST_ROWS
from dptune.errors import InvalidInput

Command = Callable[..., tuple[int, str, str]]
CPU = torch.device("cpu")
GPT2 = Network("atom of GPT-2", "gpt2", Sizes(1, 8, words=20, length=4), rows=4)
ROBERTA = Network("atom of RoBERTa", "roberta", Sizes(1, 8, 20, length=4, classes=2), rows=4)
VIT = Network("atom of a ViT", "vit", Sizes(1, 8, pixels=8, patch=4, classes=3), rows=4)

# Opacus and transformers speak of their own code.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "CPU_NETWORKS", (GPT2, VIT))
    monkeypatch.setattr(modules, "CPU_REPEATS", 1)


@pytest.mark.usefixtures("tiny")
def test_ratios_follow_from_the_times_beside_them(command: Command) -> None:
    code, out, err = command("bench", "speed", "--engine", "modules", "--json")
    assert code == 0, err
    measured = json.loads(out)
    assert [(row["network"], row["adapters"]) for row in measured["steps"]] == [
        (network.name, adapters) for adapters in (False, True) for network in (GPT2, VIT)
    ]
    for row in measured["steps"]:
        plain = row["plain"]["seconds"]
        for who in ("private", "opacus_ghost", "opacus_hooks"):
            assert row[who]["fails"] is None
            assert row["times_slower"][who] == pytest.approx(row[who]["seconds"] / plain)
        alone = row["private"]["gradients_seconds"]
        assert row["times_slower"]["gradients"] == pytest.approx(alone / plain)
        assert row["adapters"] == (row["trained"] < row["parameters"])
        assert row["times_memory"] is None  # a CPU does not tell


@pytest.mark.parametrize("network", [GPT2, ROBERTA, VIT], ids=lambda network: network.kind)
@pytest.mark.parametrize("adapters", [False, True], ids=["all", "adapters"])
def test_both_steps_move_what_is_trained_and_nothing_else(network: Network, adapters: bool) -> None:
    rows, looked_at = network.made_up_rows(CPU), network.made_up_rows(CPU, FEWEST_ROWS)
    for private in (False, True):
        module = network.made(CPU)
        if adapters:
            module = with_adapters(module, network, 2, torch.float32)
        before = {name: one.detach().clone() for name, one in module.named_parameters()}
        step = (
            PrivateStep(module, rows, looked_at, "float32")
            if private
            else PlainStep(module, rows, "float32")
        )
        step()
        moved = {name for name, one in module.named_parameters() if not one.equal(before[name])}
        trained = {name for name, one in module.named_parameters() if one.requires_grad}
        if adapters:
            assert all("lora_" in name or "classifier" in name for name in trained)
            assert any("lora_" in name for name in trained)
        # Without noise a bias of keys has no gradient, and half of a fresh adapter has none.
        assert moved == trained if private else set() < moved <= trained


def test_a_row_of_words_has_the_mean_loss_of_its_words() -> None:
    outputs, targets = torch.randn(3, 5, 7), torch.randint(7, (3, 5))
    by_hand = [torch.nn.functional.cross_entropy(outputs[i], targets[i]) for i in range(3)]
    assert torch.allclose(row_losses(outputs, targets), torch.stack(by_hand))
    loss = MeanLoss()
    assert torch.allclose(loss(outputs, targets), torch.stack(by_hand).mean())
    loss.reduction = "none"
    assert loss(outputs, targets).shape == (3,)


def test_opacus_gets_fewer_rows_where_memory_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def opacus(mode: str, module: Any, features: torch.Tensor, *rest: Any) -> Callable[[], None]:
        asked.append(len(features))
        if len(features) > 4:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return lambda: None

    monkeypatch.setattr(modules, "_opacus", opacus)
    rows = torch.zeros(16, 2), torch.zeros(16)
    cost = modules._fitting_cost("ghost", lambda: torch.nn.Linear(2, 2), rows, "float32")
    assert asked == [16, 8, 4] and cost.rows == 4 and cost.seconds is not None


def test_failed_step_gives_its_reason() -> None:
    def make() -> Callable[[], None]:
        raise NotImplementedError("no rule\n  for this layer")

    cost = modules._cost(make, 8)
    assert cost.fails == "NotImplementedError: no rule for this layer" and cost.seconds is None


def test_the_largest_is_the_last_that_took_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(largest, "LENGTH", 4)
    monkeypatch.setattr(largest, "WORDS", 20)
    ladder = largest.Ladder("all weights", "sgd", False, 8, (1, 2, 3))
    monkeypatch.setattr(largest, "LADDERS", (ladder,))
    (found,) = largest.largest(lambda text: None, CPU)
    assert found["layers"] == 3 and found["ended_by"] == "the last that was tried"
    module = Network("", "gpt2", Sizes(3, 8, words=20, length=4), rows=1).made(CPU)
    assert found["parameters"] == sum(one.numel() for one in module.parameters())

    real = largest._step

    def ends(ladder: largest.Ladder, layers: int, device: torch.device) -> dict[str, Any]:
        if layers == 2:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return real(ladder, layers, device)

    monkeypatch.setattr(largest, "_step", ends)
    (found,) = largest.largest(lambda text: None, CPU)
    assert found["layers"] == 1 and found["ended_by"] == "memory, at 2 layers"
    monkeypatch.setattr(largest, "SECONDS", 0.0)
    (found,) = largest.largest(lambda text: None, CPU)
    assert found["layers"] == 1 and found["ended_by"] == "time"


def results() -> dict[str, Any]:
    def cost(seconds: float | None, peak: float | None, **rest: Any) -> dict[str, Any]:
        usual = {"rows": 32, "gradients_seconds": None, "fails": None}
        return usual | {"seconds": seconds, "peak_gib": peak} | rest

    step = {
        "network": "GPT-2 small",
        "shape": "1,024 words",
        "rows": 32,
        "adapters": False,
        "parameters": 163_037_184,
        "trained": 163_037_184,
        "plain": cost(0.1, 30.0),
        "private": cost(0.15, 36.0, gradients_seconds=0.13),
        "opacus_ghost": cost(0.2, 60.0, rows=16),
        "opacus_hooks": cost(None, None, fails="out of memory"),
        "times_slower": {
            "private": 1.5,
            "gradients": 1.3,
            "opacus_ghost": 4.0,
            "opacus_hooks": None,
        },
        "times_memory": 1.2,
    }
    big = {
        "training": "all weights",
        "optimizer": "sgd",
        "words": 1024,
        "width": 4096,
        "layers": 36,
        "parameters": 7_660_000_000,
        "ended_by": "memory, at 40 layers",
    }
    return {
        "device": "cuda",
        "torch": "2.11.0",
        "gpu": "NVIDIA H200",
        "threads": 16,
        "compute": "bfloat16",
        "rank": 8,
        "steps": [step, step | {"adapters": True}],
        "largest": [big],
    }


def test_the_screen_shows_the_figures_and_what_did_not_run(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modules, "measure", lambda report, device: results())
    code, out, _ = command("bench", "speed", "--engine", "modules")
    assert code == 0
    text = " ".join(out.split())
    for shown in (
        *("NVIDIA H200", "150.0 ms", "1.50", "1.30", "36.0", "1.20", "4.00"),
        "opacus ghost has memory for 16 rows",
        "adapters of rank 8: opacus hooks does not run: out of memory",
        "7.7 billion weights, 36 layers of 4,096",
    ):
        assert shown in text


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_error_says_so(command: Command) -> None:
    code, _, err = command("bench", "speed", "--engine", "modules", "--device", "cuda")
    assert code == 2 and "PyTorch finds none" in err


def test_unknown_devices_are_refused() -> None:
    with pytest.raises(InvalidInput, match="one of cpu, cuda"):
        modules.measure(lambda text: None, "abacus")


def test_large_networks_are_made_in_the_type_they_are_kept_in() -> None:
    module = GPT2.made(CPU, torch.bfloat16)
    assert {one.dtype for one in module.parameters()} == {torch.bfloat16}
    assert torch.get_default_dtype() == torch.float32
