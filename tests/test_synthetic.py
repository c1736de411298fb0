"""Pictures from random processes, and a backbone that learns from them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Generator, Tensor, nn
from typer.testing import CliRunner

from dptune.errors import InvalidInput
from dptune.features.find import find_backbone
from experiments import __main__ as command_line
from experiments.synthetic import bank, pretrain, views
from experiments.synthetic.contrast import Learner, contrastive_loss
from experiments.synthetic.leaves import dead_leaves
from experiments.synthetic.networks import oriented_kernels, random_networks
from experiments.synthetic.spectra import power_law


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def shown() -> Tensor:
    return bank.pictures(40, seeded(), size=16)


def test_the_same_seed_makes_the_same_pictures_and_another_seed_others(shown: Tensor) -> None:
    assert shown.shape == (40, 3, 16, 16)
    assert shown.dtype == torch.uint8
    assert torch.equal(shown, bank.pictures(40, seeded(), size=16))
    assert not torch.equal(shown, bank.pictures(40, seeded(1), size=16))


@pytest.mark.parametrize("process", bank.MIXTURE)
def test_every_process_makes_pictures_that_differ_from_one_another(process: bank.Process) -> None:
    made = process(12, 16, seeded())
    assert made.shape == (12, 3, 16, 16)
    assert made.isfinite().all()
    assert (made.std((2, 3)) > 0).all()
    rows = made.flatten(1)
    rows = rows - rows.mean(1, keepdim=True)
    alike = torch.corrcoef(rows) - torch.eye(12)
    assert alike.abs().max() < 0.95


def test_pictures_fill_the_range_of_bytes_and_none_is_flat(shown: Tensor) -> None:
    values = shown.float() / 255
    assert values.amax() > 0.9
    assert values.amin() < 0.1
    assert (values.flatten(1).std(1) > 0.03).all()


def test_generators_have_no_frame_at_the_border() -> None:
    made = random_networks(100, 16, seeded())
    made = (made - made.mean((2, 3), keepdim=True)) / made.std((2, 3), keepdim=True)
    power = made.square().mean((0, 1))
    assert power[0].mean() < 1.7 * power[4:12, 4:12].mean()


def test_kernels_come_with_both_signs_and_edges_have_no_mean() -> None:
    kernels = oriented_kernels(torch.device("cpu"))
    assert kernels.shape == (40, 9)
    assert torch.equal(kernels[20:], -kernels[:20])
    assert torch.allclose(kernels[:16].sum(1), torch.zeros(16), atol=1e-5)


def test_noise_has_the_spectrum_that_was_asked_for() -> None:
    noise = power_law(400, 1, 32, torch.tensor(1.5), seeded())
    power = torch.fft.rfft2(noise).abs().square().mean((0, 1))
    # Amplitude f^-1.5: power falls eightfold when the frequency doubles.
    assert (power[0, 4] / power[0, 8]).item() == pytest.approx(8, rel=0.5)


def test_a_leaf_has_a_smooth_inside_and_a_sharp_rim() -> None:
    made = dead_leaves(10, 32, seeded())
    jumps = (made[..., 1:] - made[..., :-1]).abs().amax(1).flatten()
    assert jumps.quantile(0.3) < 0.2 * jumps.quantile(0.97)


def test_views_of_a_picture_differ_and_are_as_the_network_takes_them(shown: Tensor) -> None:
    random = seeded()
    first, second = (views.random_views(shown, random, 8) for _ in range(2))
    assert first.shape == (40, 3, 8, 8)
    assert not torch.allclose(first, second)
    for seen in (first, second, views.plain(shown, 8)):
        assert seen.abs().max() <= views.MEAN / views.DEVIATION + 1e-5


def test_colours_of_grey_pictures_stay_grey() -> None:
    grey = torch.randint(0, 256, (30, 1, 8, 8), generator=seeded(), dtype=torch.uint8)
    seen = views.random_views(grey.expand(-1, 3, -1, -1), seeded(), 8)
    assert torch.allclose(seen[:, :1].expand_as(seen), seen, atol=1e-3)


def test_about_a_fifth_of_views_lose_their_colours() -> None:
    colours = torch.zeros((2000, 3, 2, 2), dtype=torch.uint8)
    colours[:, 0], colours[:, 2] = 120, 60
    seen = views.random_views(colours, seeded(), 2)
    grey = (seen.amax(1) - seen.amin(1)).flatten(1).amax(1) < 1e-3
    assert 0.15 < grey.float().mean() < 0.25


def test_the_loss_is_what_its_formula_says() -> None:
    first, second = (
        nn.functional.normalize(torch.randn(5, 3, generator=seeded(seed)), dim=1) for seed in (1, 2)
    )
    loss = contrastive_loss(first, second)
    spread = [torch.pdist(places).square().mul(-2).exp().mean().log() for places in (first, second)]
    assert loss.alignment.item() == pytest.approx(((first - second) ** 2).sum().item() / 5)
    assert loss.uniformity.item() == pytest.approx(sum(spread).item() / 2, rel=1e-5)  # type: ignore[union-attr]
    assert loss.total.item() == pytest.approx((loss.alignment + loss.uniformity).item())


def test_the_contrastive_loss_falls(shown: Tensor) -> None:
    torch.manual_seed(0)
    small = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3)
    )
    learner = Learner(small, 32, seeded(), size=8)
    totals = [learner.step(shown, progress).total.item() for progress in np.linspace(0.02, 1, 25)]
    assert np.mean(totals[-5:]) < np.mean(totals[:5]) - 0.3


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("weights") / "wrn16-4.safetensors"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretrain, "_SETTLING_BATCHES", 2)
        lines: list[str] = []
        pretrain.pretrain(out, minutes=0.01, device="cpu", pictures=8, batch=4, report=lines.append)
    assert "pictures in" in lines[0]
    assert str(out) in lines[-1]
    return out


def test_training_leaves_no_rounded_products_behind(trained: Path) -> None:
    assert torch.get_float32_matmul_precision() == "highest"  # which private engines insist on


def test_weights_become_a_backbone_of_256_features(trained: Path) -> None:
    backbone = find_backbone(f"wrn16-4:{trained}")
    assert backbone.columns == 256
    assert backbone.transform.size == views.SIZE
    assert backbone.transform.mean == (views.MEAN,) * 3
    assert backbone.transform.deviation == (views.DEVIATION,) * 3
    assert "no real picture" in backbone.trained_on
    with torch.inference_mode():
        assert backbone.module(torch.zeros(2, 3, 32, 32)).shape == (2, 256)


def test_normalising_layers_know_whole_pictures(trained: Path) -> None:
    backbone = find_backbone(f"wrn16-4:{trained}")
    stem = backbone.module.state_dict()
    counts = [int(value) for name, value in stem.items() if name.endswith("batches_tracked")]
    assert counts and set(counts) == {2}


def test_pictures_go_to_a_sheet_or_a_file_of_pixels(tmp_path: Path) -> None:
    verb = ["synthetic", "images", "--count", "5"]
    for name in ("sheet.png", "pixels.npz"):
        done = CliRunner().invoke(command_line.app, [*verb, "--out", str(tmp_path / name)])
        assert done.exit_code == 0, done.output
    with np.load(tmp_path / "pixels.npz") as arrays:
        assert arrays["x_train"].shape == (5, 64, 64, 3)
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.size == (4 * 64, 2 * 64)


@pytest.mark.parametrize(
    "wrong",
    [
        ["images", "--out", "pictures.jpg"],
        ["images", "--out", "sheet.png", "--count", "0"],
        ["pretrain", "--out", "weights.safetensors", "--minutes", "0"],
    ],
)
def test_what_cannot_be_made_is_said(wrong: list[str]) -> None:
    done = CliRunner().invoke(command_line.app, ["synthetic", *wrong])
    assert isinstance(done.exception, InvalidInput)
