"""The rows of whole networks: what is trained, on what, and the page of what came out."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import fashion_mnist
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dptune.accounting.composition import direct_epsilon
from dptune.engines.modules.gradients import RowGradients
from dptune.engines.modules.standardized import StandardizedConv2d, pull_back, standardized
from dptune.errors import FolderProblem, InvalidInput
from experiments import networks as recorded
from experiments.lines import measure_missing, read
from experiments.modules import augment, measure, networks
from experiments.modules.augment import MARGIN, crop_and_flip
from experiments.modules.cells import (
    FREE,
    OURS,
    RANDOM,
    Cell,
    Shape,
    law_cells,
    study_cells,
    usual_epsilons,
    words,
    zeroth_order_cells,
)
from experiments.modules.page import write_page
from experiments.modules.sets import rows_of
from support.commands import called

SHAPE = Shape(batch=20, steps=3, clip_norm=0.1, momentum=0.9)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures called mnist and cifar10; a class is bright in a part of its own."""
    folder = tmp_path_factory.mktemp("pictures")
    draws = np.random.default_rng(0)
    for name, shape in (("mnist", (28, 28)), ("cifar10", (32, 32, 3))):
        arrays: dict[str, Any] = {}
        for part, count in (("train", 80), ("test", 40)):
            labels = np.arange(count) % 10
            pixels = draws.integers(0, 100, (count, *shape))
            for number, label in enumerate(labels):
                pixels[number, 2 * label : 2 * label + 4] += 150
            arrays |= {f"x_{part}": pixels.astype(np.uint8), f"y_{part}": labels}
        np.savez(folder / f"{name}.npz", **arrays)
    return folder


@pytest.mark.parametrize(
    ("factory", "shape", "parameters"),
    [
        (networks.small_convolutional, (1, 28, 28), 26_010),
        (networks.small_perceptron, (64,), 4_810),
        (networks.pooled_linear, (1, 28, 28), 500),
        (networks.wide_resnet, (3, 32, 32), 2_748_890),
    ],
)
def test_networks_are_those_of_the_papers_and_rows_do_not_mix(
    factory: Any, shape: tuple[int, ...], parameters: int
) -> None:
    torch.manual_seed(0)
    network, rows = factory(), torch.randn(3, *shape)
    assert sum(each.numel() for each in network.parameters()) == parameters
    logits = network(rows)
    assert logits.shape == (3, 10)
    assert torch.allclose(logits[:1], network(rows[:1]), atol=1e-5)
    assert not torch.allclose(logits[0], logits[1], atol=1e-3)


def test_standardised_weights_are_centred_and_of_length_one() -> None:
    weight = torch.randn(5, 3, 2, 2, dtype=torch.float64) + 2
    flat = standardized(weight).flatten(1)
    assert torch.allclose(flat.mean(1), torch.zeros(5).double(), atol=1e-12)
    assert torch.allclose(flat.norm(dim=1), torch.ones(5).double(), atol=1e-3)
    assert torch.isfinite(standardized(torch.ones(2, 1, 3, 3))).all()  # all equal


def test_gradients_go_back_through_standardisation_as_autograd_has_them() -> None:
    weight = torch.randn(5, 3, 2, 2, dtype=torch.float64)
    gradients = torch.randn(7, 5, 3, 2, 2, dtype=torch.float64)
    _, backward = torch.func.vjp(standardized, weight)
    wanted = torch.stack([backward(each)[0] for each in gradients])
    assert torch.allclose(pull_back(weight, gradients).view_as(wanted), wanted, atol=1e-12)
    layer = StandardizedConv2d(3, 5, 2).double()
    rows = torch.randn(2, 3, 6, 6, dtype=torch.float64)
    assert torch.allclose(
        layer(rows), nn.functional.conv2d(rows, standardized(layer.weight), layer.bias)
    )


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("clip_norm", [0.3, None])
def test_clipped_gradients_of_standardised_weights_are_those_of_single_rows(
    clip_norm: float | None, groups: int
) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(
        StandardizedConv2d(2, 4, 3, stride=2, padding=1, groups=groups),
        nn.GroupNorm(2, 4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16, 3),
    )
    trained = dict(module.named_parameters())
    features, targets = torch.randn(5, 2, 2, 4, 4), torch.tensor([0, 1, 2, 0, 1])
    losses = partial(nn.functional.cross_entropy, reduction="none")
    gradients = RowGradients(module, trained, losses)
    gradients.trace(features, targets)
    assert gradients.routes["0"] == "per row"
    total = torch.zeros(sum(each.numel() for each in trained.values()), dtype=torch.float64)
    gradients.add(total, features, targets, clip_norm)
    wanted = torch.zeros_like(total)
    for copies, target in zip(features, targets, strict=True):
        loss = losses(module(copies), target.expand(2)).mean()
        one = torch.cat([g.flatten() for g in torch.autograd.grad(loss, [*trained.values()])])
        shrunk = 1.0 if clip_norm is None else min(1.0, clip_norm / float(one.norm()))
        wanted += shrunk * one
    assert torch.cosine_similarity(total, wanted, 0) > 0.9999
    assert float(total.norm() / wanted.norm()) == pytest.approx(1.0, abs=0.03)  # clips a bit lower


def test_copies_are_crops_of_a_picture_that_goes_on_mirrored() -> None:
    torch.manual_seed(0)
    height, width, count = 6, 7, 2000
    picture = torch.arange(2.0 * height * width).view(2, height, width)
    wider = nn.functional.pad(picture[None], (MARGIN,) * 4, mode="reflect")[0]
    possible = {
        _key(crop)
        for down in range(2 * MARGIN + 1)
        for right in range(2 * MARGIN + 1)
        for crop in _with_mirror(wider[:, down : down + height, right : right + width])
    }
    made = crop_and_flip(picture.expand(count, -1, -1, -1))
    assert made.shape == (count, 2, height, width)
    # One of 162 is missing from 2,000 draws with probability 162 (161 / 162)^2000 < 1e-3; the seed
    # is fixed.
    assert {_key(one) for one in made} == possible


def _with_mirror(crop: Tensor) -> list[Tensor]:
    return [crop, crop.flip(-1)]


def _key(picture: Tensor) -> tuple[float, ...]:
    return tuple(picture.flatten().tolist())


def test_sets_are_pictures_scaled_by_public_numbers(root: Path) -> None:
    data = rows_of("cifar10", str(root), None)
    assert (data.count, data.shape, data.classes) == (80, (3, 32, 32), tuple(range(10)))
    raw = np.load(root / "cifar10.npz")["x_train"]
    (chunk,) = data.unprotected_rows(recorded.AS_GIVEN).chunks()
    wanted = (raw[7, 3, 5, 2] / 255 - 0.4465) / 0.2616
    assert float(chunk.features[7, 0, 2, 3, 5]) == pytest.approx(wanted, abs=1e-5)
    assert rows_of("mnist", str(root), 30).facts.shape == (1, 28, 28)
    assert rows_of("mnist", str(root), 30).count == 30


def test_a_plan_leaves_the_noise_that_is_asked_for_and_fits_the_budget(root: Path) -> None:
    (cell,) = law_cells("mnist", [2.0], 1, SHAPE, [0.07], None)
    plan = measure.plan_of(cell, rows_of("mnist", str(root), None))
    assert plan.weight_noise == pytest.approx(0.07)
    assert plan.sampling_rate == 0.25
    assert 1.9 < direct_epsilon([plan.event], cell.delta) <= 2.0
    (free,) = (
        c for c in zeroth_order_cells("mnist", [2.0], 1, SHAPE, [0.3], None) if c.method == FREE
    )
    assert (
        measure.plan_of(
            replace(free, directions=None), rows_of("mnist", str(root), None)
        ).learning_rate
        == 0.3
    )


def test_noise_per_logit_of_a_linear_model_is_known() -> None:
    torch.manual_seed(0)
    features = torch.randn(1000, 30)
    features /= features.norm(dim=1, keepdim=True)
    found = measure.logit_noise(nn.Linear(30, 400, bias=False), features, 0.5)
    # Of rows of length 1, 0.5 a logit, but for the mean of 400, which is taken away.
    assert found["logit_noise"] == pytest.approx(0.5, rel=0.05)
    module = networks.small_perceptron()
    before = [each.clone() for each in module.parameters()]
    measure.logit_noise(module, torch.randn(5, 64), 1.0)
    assert all(map(torch.equal, before, module.parameters()))  # put back


def test_cells_are_all_that_is_wanted() -> None:
    assert usual_epsilons("mnist") == (1.0, 2.93)
    assert usual_epsilons("cifar10") == (1.0, 8.0)
    several = study_cells("cnn", "mnist", "small_convolutional", (1.0, 2.0), 3, SHAPE, None)
    assert len({*several}) == 6 and all(cell.by_search for cell in several)
    free = law_cells("demo", [1.0], 2, SHAPE, [0.1, 0.2], 50)
    assert len({*free}) == 4 and not any(cell.by_search for cell in free)
    assert {(cell.network, cell.limit) for cell in free} == {("small_perceptron", None)}
    zeroth = zeroth_order_cells("mnist", [1.0], 2, replace(SHAPE, directions=4), [0.1, 1.0], None)
    assert sorted(cell.method for cell in zeroth) == [FREE] * 4 + [OURS] * 2 + [RANDOM] * 2
    with pytest.raises(InvalidInput, match="steps"):
        Shape(batch=20, steps=0, clip_norm=0.1, momentum=0.9)


def made_up(cell: Cell, root: str | None, device: str) -> dict[str, Any]:
    """Figures in the place of a measurement."""
    peak = 0.0 if cell.noise is None else -abs(np.log(cell.noise / 0.1))
    rate = cell.learning_rate or 0.5
    accuracy = 80 + cell.seed + float(peak) - abs(rate - 0.5)
    figures = {"accuracy": accuracy, "learning_rate": rate, "weight_noise": 0.2, "seconds": 3.0}
    return figures | {"parameters": 7, "logit_noise": 10 * (cell.noise or 0), "logit_size": 2.0}


def test_lines_are_written_as_they_come_and_never_measured_twice(tmp_path: Path) -> None:
    cells = study_cells("cnn", "mnist", "small_convolutional", (1.0,), 2, SHAPE, None)
    said: list[str] = []
    options: dict[str, Any] = {"root": None, "device": "cpu", "report": said.append}
    assert measure_missing(cells[:1], made_up, tmp_path, words, workers=1, **options) == 1
    assert measure_missing(cells, made_up, tmp_path, words, workers=1, **options) == 1
    assert measure_missing(cells, made_up, tmp_path, words, workers=1, **options) == 0
    assert list(read(tmp_path, "cnn", Cell)) == cells
    assert (
        said[0] == "1 of 1: mnist, small_convolutional, linear-scaling, epsilon 1, seed 0: 80.00 %"
    )
    file = tmp_path / "cnn.jsonl"
    assert json.loads(file.read_text().splitlines()[1])["figures"]["accuracy"] == 81
    file.write_text(file.read_text() + '{"cell": 3')
    with pytest.raises(FolderProblem, match=r"line 3 of .* is damaged"):
        read(tmp_path, "cnn", Cell)


def test_the_page_has_all_of_it_beside_the_papers_figures(tmp_path: Path) -> None:
    cells = study_cells("cnn", "mnist", "small_convolutional", (1.0, 2.93), 2, SHAPE, None)
    cells += study_cells("wrn", "cifar10", "wide_resnet", (8.0,), 1, SHAPE, 100)
    shape = replace(SHAPE, directions=4)
    cells += zeroth_order_cells("mnist", [1.0], 2, shape, [0.5, 1.0], None)
    cells += law_cells("mnist", [1.0], 2, SHAPE, [0.05, 0.1, 0.3], None)
    for cell in cells:
        options: dict[str, Any] = {"root": None, "device": "cpu", "report": lambda _: None}
        measure_missing([cell], made_up, tmp_path, words, workers=1, **options)
    page = write_page(tmp_path).read_text()
    assert "| mnist | 2.93 | 3 | 20 | 1 | 80.50 ± 0.71 | 98.10 | 0.5 | 0.2 | 3 |" in page
    assert "| cifar10 (tried on 100) | 8 | 3 | 20 | 1 | 80.00 | 81.40 |" in page
    assert "| mnist | 1 | best of a grid, unpaid | 80.50 ± 0.71 | 0.5 | 83.87 (0.50) |" in page
    assert "| mnist | 7 | 1 | 0.1 | 0.5 | 80.50 ± 0.71 | 1 | 2 | best |" in page
    assert page.count("best |") == 1
    assert "best at c from 0.1 to 0.1 and at noise per logit from 1 to 1." in page


def test_the_verbs_measure_once(
    root: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    common = ["--epsilon", "8", "--batch", "20", "--root", str(root), "--out", str(tmp_path)]
    few = [*common, "--steps", "2", "--repeats", "1"]
    code, page, said = called(["modules", "cnn", "--sets", "mnist", *few], capsys, monkeypatch)
    assert code == 0 and "1 cells measured" in said
    assert "| mnist | 8 | 2 | 20 | 1 |" in page
    ((_, figures),) = read(tmp_path, "cnn", Cell).items()
    assert figures["spent_epsilon"] <= 8 and len(figures["trials"]) == 3
    law = ["law", "--sets", "mnist", "--noises", "0.1,0.2", *few]
    code, page, said = called(["modules", *law], capsys, monkeypatch)
    assert code == 0 and "2 cells measured" in said
    assert page.count("| mnist | 26,010 | 8 |") == 2
    code, page, said = called(["modules", *law], capsys, monkeypatch)
    assert code == 0 and "0 cells measured" in said
    assert called(["modules", "page", "--out", str(tmp_path)], capsys, monkeypatch)[1] == page
    code, _, said = called(["modules", *law, "--noises", "a"], capsys, monkeypatch)
    assert code != 0 and "--noises takes numbers, separated by commas" in said


def test_copies_are_made_while_training(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, ...]] = []

    def noted(pictures: Tensor) -> Tensor:
        made.append(tuple(pictures.shape))
        return crop_and_flip(pictures)

    monkeypatch.setattr(augment, "crop_and_flip", noted)
    shape = SHAPE.augmented(2, "float32")
    (cell,) = law_cells("mnist", [8.0], 1, shape, [0.01], None)
    figures = measure.run(cell, str(root), "cpu")
    assert 0 <= figures["accuracy"] <= 100
    assert made and all(one[0] % 2 == 0 and one[1:] == (1, 28, 28) for one in made)


def test_the_example_has_the_same_network_and_its_own_data(root: Path) -> None:
    shapes = [
        {name: each.shape for name, each in factory().named_parameters()}
        for factory in (fashion_mnist.network, networks.small_convolutional)
    ]
    assert shapes[0] == shapes[1]
    data, size = fashion_mnist.digits()
    assert (data.count, data.shape, data.has_test_rows) == (1500, (1, 28, 28), True)
    assert size["batch"] < data.count
    clothes, _ = fashion_mnist.clothes(str(root / "mnist.npz"))
    assert (clothes.count, clothes.shape, clothes.has_test_rows) == (80, (1, 28, 28), True)
