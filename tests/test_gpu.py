"""What only a GPU can show: the fused kernel against its reference, and streaming."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from module_engine import SmallNetwork
from PIL import Image
from safetensors.torch import save_file
from scipy.stats import chi2

from dptune import Budget
from dptune.bench import harness
from dptune.bench.tasks import load_task
from dptune.data import Data
from dptune.data.disk import DiskRows, write_chunks
from dptune.data.extracted import read_part
from dptune.data.rows import Chunk, MemoryRows, norms_rounded_up
from dptune.engines import clipping, fused, fused_sums, sums
from dptune.engines.base import Engine
from dptune.engines.linear import LinearEngine
from dptune.engines.modules.descent import own_numbers
from dptune.engines.modules.doctor import problems
from dptune.engines.modules.made_up import nothing_near_zero
from dptune.engines.modules.row_check import problems_on_rows
from dptune.engines.per_row import ClippedSum, add_noise_
from dptune.engines.randomness import Passes, Randomness
from dptune.features import extract
from dptune.features.networks import WideResNet
from dptune.noise import grid_step
from dptune.plan import TrainPlan
from dptune.search.linear_scaling import LinearScaling
from dptune.study.trained_model import load
from support import zoo
from support.rows import make_rows, three_classes
from support.studies import study

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")

GPU = "cuda"
SHAPES = [(10, 5000), (1000, 700), (2, 33), (37, 1001)]


def awkward(outputs: int, rows: int, dtype: torch.dtype) -> tuple[torch.Tensor, Chunk]:
    """Logits and rows of which some overflow, vanish or are not numbers."""
    generator = torch.Generator(GPU).manual_seed(outputs)
    features = torch.randn(rows, 1, 64, device=GPU, generator=generator).to(dtype)
    features[3] *= 1e30
    features[4] *= 1e-30
    targets = torch.randint(0, outputs, (rows,), device=GPU, generator=generator)
    logits = 4 * torch.randn(3, outputs, rows, device=GPU, generator=generator)
    logits[0, 0, 0], logits[1, :, 1], logits[2, 0, 2] = torch.inf, torch.nan, 1e30
    return logits, Chunk(features, targets, norms_rounded_up(features))


@pytest.mark.parametrize(("outputs", "rows"), SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_fused_kernel_equals_the_plain_path_and_keeps_the_bound(
    outputs: int, rows: int, dtype: torch.dtype
) -> None:
    logits, chunk = awkward(outputs, rows, dtype)
    clip_norms = torch.tensor([0.5, 1e-3, 3.0], device=GPU)
    ours = fused.clipped_residuals(logits.clone(), chunk, clip_norms).double()
    residuals = clipping.residuals_(logits.clone(), chunk.targets, "softmax")
    plain = clipping.clip_(residuals, chunk, clip_norms).double()
    torch.testing.assert_close(ours, plain, rtol=1e-2, atol=1e-5)
    norms = chunk.features[:, 0].double().norm(dim=1)
    contributions = ours.square().sum(1).sqrt() * norms
    assert bool(torch.isfinite(ours).all())
    assert bool((contributions <= clip_norms.double()[:, None]).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("outputs", "columns", "rows"),
    [(1, 1, 5), (10, 7, 300), (40, 1, 129), (70, 33, 5001), (300, 257, 70_001), (8200, 1024, 500)],
)
def test_fused_sums_equal_plain_ones_and_keep_the_margin(
    outputs: int, columns: int, rows: int, dtype: torch.dtype
) -> None:
    generator = torch.Generator(GPU).manual_seed(rows)
    left, right = (
        torch.randn(shape, device=GPU, generator=generator).to(dtype)
        for shape in ((outputs, rows), (rows, columns))
    )
    assert fused_sums.available(left, 1)
    total = sums.Total(outputs, columns, device=left.device)
    for part in sums.products(left, right, 1):
        total.add(part)
    off = (total.value() - left.double() @ right.double()).norm()
    norms = left.double().norm(dim=0) * right.double().norm(dim=1)
    blocks = -(-rows // 128)
    assert float(off) <= sums.margin(torch.float32) / 2 * blocks * float(norms.max())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("outputs", [3, 40, 100, 300])
def test_fused_sums_do_not_add_a_small_row_to_a_long_sum(outputs: int, dtype: torch.dtype) -> None:
    """After a row of 2^25, rows of 1 are lost in a long float32 sum, but not in blocks: only those
    of the first block may be."""
    left = torch.ones(outputs, 2048, device=GPU, dtype=dtype)
    right = torch.ones(2048, 5, device=GPU, dtype=dtype)
    left[:, 0], right[0] = 2.0**12, 2.0**13
    (part,) = fused_sums.products(left, right)
    assert bool((part >= 2.0**25 + 2048 - 128).all())


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(9000, 48)), rng.integers(0, 7, 9000)
    return features + np.eye(7, 48)[labels], labels


PLANS = [
    TrainPlan(rows=9000, steps=steps, learning_rate=0.5, noise_multiplier=0.0) for steps in (5, 9)
]
STREAMS = [Randomness(trial=trial) for trial in range(2)]


def test_a_gpu_trains_the_model_a_cpu_trains() -> None:
    engine, (features, labels) = LinearEngine(outputs=7), data()
    there = engine.fit_many(PLANS, MemoryRows(features, labels, device=GPU), STREAMS)
    here = engine.fit_many(PLANS, MemoryRows(features, labels), STREAMS)
    for one, other in zip(there, here, strict=True):
        torch.testing.assert_close(one.weights.cpu(), other.weights, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_streaming_to_a_gpu_equals_memory(precision: str, tmp_path: Path) -> None:
    engine, (features, labels) = LinearEngine(outputs=7), data()
    chunks = [(features[i : i + 700], labels[i : i + 700]) for i in range(0, 9000, 700)]
    write_chunks(tmp_path, chunks, precision=precision)
    streamed = engine.fit_many(PLANS, DiskRows(tmp_path, device=GPU), STREAMS)
    rows = MemoryRows(features, labels, device=GPU, precision=precision)
    for one, other in zip(streamed, engine.fit_many(PLANS, rows, STREAMS), strict=True):
        torch.testing.assert_close(one.weights, other.weights, rtol=1e-3, atol=1e-5)


def test_noise_on_a_gpu_is_fresh_and_of_the_right_size() -> None:
    rows = MemoryRows(np.zeros((4, 2000)), np.zeros(4, dtype=np.int64), device=GPU)
    plan = TrainPlan(rows=4, steps=1, learning_rate=1.0, noise_multiplier=8.0, momentum=0.0)
    engine, streams = LinearEngine(outputs=50), [Randomness(), Randomness()]
    one, other = (model.weights for model in engine.fit_many([plan, plan], rows, streams))
    assert not torch.equal(one, other)
    for weights in (one, other):  # 100,000 numbers of deviation 8 / 4
        assert float(weights.std()) == pytest.approx(2.0, rel=0.02)
        assert abs(float(weights.mean())) < 0.05


def test_noisy_sums_on_a_gpu_lie_on_the_grid_and_their_last_bits_tell_nothing() -> None:
    """Steps modulo 64 are as often one as another, whatever the sums end in: by chi-square, at a
    level that luck misses once in a million."""
    many, noise = 2**20, 40.0
    for sums_end_in in (0.0, 2.0**-24, 1 / 3):
        exact = torch.full((many,), 7.0 + sums_end_in, dtype=torch.float64, device=GPU)
        released = add_noise_(exact, noise, Randomness().noise(exact.device))
        steps = released / grid_step(noise)
        assert torch.equal(steps, steps.round())
        counts = torch.bincount(steps.long() % 64, minlength=64).cpu().numpy()
        assert float(((counts - many / 64) ** 2).sum() / (many / 64)) < chi2.isf(1e-6 / 3, 63)


def test_passes_on_a_gpu_draw_from_all_of_a_secret_key() -> None:
    """Keys that agree in the 64 bits of a seed differ in where it begins to count."""
    device = torch.device(GPU)

    def drawn(key: int) -> torch.Tensor:
        with own_numbers(device):
            Passes(key, device).begin()
            return torch.nn.functional.dropout(torch.ones(1000, device=GPU), 0.5)

    assert torch.equal(drawn(2**80 + 5), drawn(2**80 + 5))
    assert not torch.equal(drawn(2**80 + 5), drawn(5))
    assert not torch.equal(drawn(2**80 + 5), drawn(2**80 + 6))


def test_rows_that_interact_are_found_on_a_gpu_and_others_raise_no_alarm() -> None:
    for make, rows in zoo.APART.values():
        module = make().to(GPU)
        some, others = (rows(5)[:, 0].to(GPU) for _ in range(2))
        assert not problems_on_rows(module, some, others)
    for make, rows, _ in zoo.TOGETHER.values():
        module = make().to(GPU)
        coarse = next(module.parameters()).dtype == torch.bfloat16
        compute = "bfloat16" if coarse else "float32"
        some, others = (rows(5).to(GPU) for _ in range(2))
        with nothing_near_zero(module, [name for name, _ in module.named_parameters()]):
            known = [] if coarse else problems(module)
            assert known or problems_on_rows(module, some, others, compute=compute)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("engine", [LinearEngine(bias=True), SmallNetwork(hidden=4)], ids=repr)
def test_a_study_trains_on_the_gpu_and_its_model_loads_without_one(
    engine: Engine[Any], precision: str, tmp_path: Path
) -> None:
    features, labels = make_rows()
    write_chunks(
        tmp_path / "rows", [(features[:150], labels[:150]), (features[150:], labels[150:])]
    )
    for name, data in (
        ("memory", Data(features, labels, test=make_rows(50, 1))),
        ("disk", Data.from_disk(DiskRows(tmp_path / "rows"), test=make_rows(50, 1))),
    ):
        out = tmp_path / name
        result = study(out, data, engine=engine, device=GPU, precision=precision)
        tensors = engine.pack(result.model.model)
        assert {tensor.device.type for tensor in tensors.values()} == {"cpu"}
        predicted = load(out).predict(make_rows(50, 1)[0])
        assert (predicted == make_rows(50, 1)[1]).mean() == pytest.approx(result.test_accuracy)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_benchmark_prepares_its_rows_for_the_gpu(precision: str, tmp_path: Path) -> None:
    file = str(three_classes(tmp_path / "small.npz"))
    task = load_task(file, device=GPU, precision=precision)
    outcome = harness.run_method(task, LinearScaling(), Budget(4.0, 1e-5), 2, lambda _: None)
    assert min(outcome.accuracies) > 60  # of three classes; on a CPU about 85


def test_per_row_sums_on_the_gpu_are_those_of_the_cpu() -> None:
    gradients = torch.randn(5000, 77, generator=torch.Generator().manual_seed(0))
    gradients[3], gradients[4] = torch.nan, 1e30
    sums = []
    for device in ("cpu", GPU):
        total = ClippedSum(77, 0.7, torch.device(device))
        total.add(gradients.to(device), 5000)
        sums.append(total.value().cpu())
    torch.testing.assert_close(*sums, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("precision", "close"), [("float32", 2e-3), ("bfloat16", 5e-2), ("float16", 1e-2)]
)
def test_features_on_the_gpu_are_those_of_the_cpu(
    precision: str, close: float, tmp_path: Path
) -> None:
    """Pictures of several sizes, one of them bad, enough of them that processes decode."""
    draws = np.random.default_rng(0)
    for kind in ("a", "b"):
        (tmp_path / "pets" / kind).mkdir(parents=True)
        for number in range(160):
            sides = (40, 50) if number % 3 else (16, 12)
            picture = draws.integers(0, 256, (*sides, 3), dtype=np.uint8)
            Image.fromarray(picture).save(tmp_path / "pets" / kind / f"{number:03d}.png")
    (tmp_path / "pets" / "a" / "007.png").write_bytes(b"no picture")
    torch.manual_seed(0)
    save_file(WideResNet().state_dict(), tmp_path / "w.safetensors")
    backbone = f"wrn16-4:{tmp_path / 'w.safetensors'}"
    rows = {}
    for device, asked in (("cpu", "float32"), (GPU, precision)):
        out = tmp_path / device
        done = extract(tmp_path / "pets", backbone, out, device=device, precision=asked)
        assert done.made == 320 and [remark.left_out for _, remark in done.remarks] == [True]
        rows[device], _ = read_part(out, "train")
    assert rows[GPU].shape == (319, 256)
    scale = float(np.abs(rows["cpu"]).max())
    np.testing.assert_allclose(rows[GPU], rows["cpu"], atol=close * scale, rtol=0)
