"""Ways around the bound, the noise or the price that were once open."""

from pathlib import Path

import numpy as np
import pytest
import torch

from dptune import LinearEngine, TrainPlan
from dptune.data import DiskRows, MemoryRows, write_chunks
from dptune.engines import Randomness
from dptune.errors import InvalidInput

FEATURES, LABELS = np.eye(3, 4), np.array([0, 1, 1])


def plan(**changes: object) -> TrainPlan:
    settings = {"rows": 3, "steps": 2, "learning_rate": 1.0, "noise_multiplier": 1.0, **changes}
    return TrainPlan(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "numbers",
    [
        {"noise_multiplier": np.uint8(64), "clip_norm": 4},
        {"noise_multiplier": np.int8(16), "clip_norm": np.int8(16)},
        {"noise_multiplier": np.float16(1e-3), "clip_norm": np.float16(1e-5)},
    ],
)
def test_small_number_types_do_not_swallow_the_noise(numbers: dict[str, object]) -> None:
    made = plan(**numbers)
    exact = float(numbers["noise_multiplier"]) * float(numbers["clip_norm"])  # type: ignore[arg-type]
    assert made.noise == exact > 0
    assert made.event.noise_multiplier == made.noise_multiplier
    rows, engine = MemoryRows(FEATURES, LABELS), LinearEngine(outputs=2)
    one, other = (engine.fit_many([made], rows, [Randomness()])[0].weights for _ in range(2))
    assert not torch.equal(one, other)


@pytest.mark.parametrize("clip_norm", [1e38, 2.0**-148, 0.0, float("nan")])
def test_clip_norms_at_which_float32_fails_are_refused(clip_norm: float) -> None:
    with pytest.raises(InvalidInput, match="clip_norm must"):
        plan(clip_norm=clip_norm)


def test_an_interrupted_rewrite_of_chunks_leaves_nothing_that_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old norms beside new features would bound nothing."""
    write_chunks(tmp_path, [(1e-3 * FEATURES, LABELS)])
    assert DiskRows(tmp_path).count == 3
    save = np.save

    def full(path: Path, array: np.ndarray) -> None:
        if "norms" in str(path):
            raise OSError(28, "no space left")
        save(path, array)

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(OSError, match="no space"):
        write_chunks(tmp_path, [(1e3 * FEATURES, LABELS)])
    with pytest.raises(InvalidInput, match="no finished chunks"):
        DiskRows(tmp_path)


def test_rows_on_disk_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    write_chunks(tmp_path, [(FEATURES, LABELS)])
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}


def test_rounded_products_are_refused() -> None:
    rows, engine = MemoryRows(FEATURES, LABELS), LinearEngine(outputs=2)
    torch.set_float32_matmul_precision("medium")
    try:
        with pytest.raises(InvalidInput, match="round float32 products"):
            engine.fit_many([plan()], rows, [Randomness()])
    finally:
        torch.set_float32_matmul_precision("highest")
    assert len(engine.fit_many([plan()], rows, [Randomness()])) == 1


def test_no_graph_carries_rows_into_the_model() -> None:
    features = torch.tensor(FEATURES, requires_grad=True)
    engine = LinearEngine(outputs=2)
    (model,) = engine.fit_many([plan()], MemoryRows(features, LABELS), [Randomness()])
    assert not model.weights.requires_grad and model.weights.grad_fn is None


def test_autocast_around_training_changes_nothing() -> None:
    rows, engine = MemoryRows(FEATURES, LABELS), LinearEngine(outputs=2)
    (plain,) = engine.fit_many([plan()], rows, [Randomness(noise_seed=1)])
    with torch.autocast("cpu", torch.bfloat16):
        (cast,) = engine.fit_many([plan()], rows, [Randomness(noise_seed=1)])
    assert torch.equal(plain.weights, cast.weights)


@pytest.mark.parametrize("kind", ["uint8", "int8", "int16", "bool", "float32"])
def test_every_type_of_label_is_a_label(kind: str) -> None:
    engine = LinearEngine(outputs=2)
    models = engine.fit_many([plan()], MemoryRows(FEATURES, LABELS), [Randomness(noise_seed=1)])
    expected = engine.evaluate_many(models, MemoryRows(FEATURES, LABELS))
    assert engine.evaluate_many(models, MemoryRows(FEATURES, LABELS.astype(kind))) == expected


@pytest.mark.parametrize(
    ("features", "labels"),
    [
        (FEATURES, np.array([0.5, 1, 0])),
        (FEATURES, np.array([-1, 1, 0])),
        (FEATURES, np.array([0, 1, 2])),
        (FEATURES, np.array(["a", "b", "a"])),
        (FEATURES.astype(str), LABELS),
        (FEATURES.astype(object), LABELS),
        (FEATURES + 1j, LABELS),
        (FEATURES, np.zeros((3, 0))),
        (None, LABELS),
    ],
)
def test_what_cannot_be_trained_is_refused_before_it_is_read(
    features: object, labels: np.ndarray
) -> None:
    with pytest.raises(InvalidInput):
        rows = MemoryRows(features, labels)  # type: ignore[arg-type]
        LinearEngine(outputs=2).fit_many([plan()], rows, [Randomness()])


def test_models_of_another_shape_are_not_evaluated() -> None:
    engine = LinearEngine(outputs=2)
    models = engine.fit_many([plan()], MemoryRows(FEATURES, LABELS), [Randomness()])
    with pytest.raises(InvalidInput, match="weights of shape"):
        engine.evaluate_many(models, MemoryRows(np.eye(3, 5), LABELS))
    with pytest.raises(InvalidInput, match="labels for softmax"):
        engine.evaluate_many(models, MemoryRows(FEATURES, np.array([0, 1, -1])))


@pytest.mark.parametrize("settings", [{"seed": "a"}, {"trial": 1.5}, {"noise_seed": [1]}])
def test_seeds_are_whole_numbers(settings: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match="must be a whole number"):
        Randomness(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("device", ["meta", "gpu", None])
def test_devices_we_do_not_train_on_are_refused(device: str) -> None:
    with pytest.raises(InvalidInput, match="device"):
        MemoryRows(FEATURES, LABELS, device=device)
