"""The paper's vision rows from made-up pictures and a tiny network, and the speed of extraction."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dptune.cli import app as cli
from dptune.data.rows import MemoryRows
from dptune.errors import InvalidInput
from experiments import lines
from experiments.paper import published
from experiments.vision import cells, imagenet_shape, rows
from experiments.vision.cells import Cell, Measured, Shifted
from experiments.vision.page import paper_name, picture, write_page
from experiments.vision.plain_probe import plain_probe
from experiments.vision.rows import Wanted, measure_rows
from support.commands import called

NETWORK = """
import torch
from torch import nn

def factory():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 6, 5, stride=3), nn.ReLU())
    network.size, network.mean, network.deviation = 12, (0.5, 0.5, 0.5), (0.3, 0.3, 0.3)
    return network
"""
SHIFT = "corrupted:gaussian_blur"


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Pictures of three classes, which differ in their colours, and a network."""
    folder = tmp_path_factory.mktemp("sources")
    draws = np.random.default_rng(0)
    arrays: dict[str, Any] = {"classes": np.array(["red", "green", "blue"])}
    for part, count in (("train", 240), ("test", 60)):
        labels = np.arange(count) % 3
        pixels = draws.integers(0, 120, (count, 12, 12, 3))
        pixels[np.arange(count), :, :, labels] += 90
        arrays |= {f"x_{part}": pixels.astype(np.uint8), f"y_{part}": labels}
    np.savez(folder / "cifar10_like.npz", **arrays)
    (folder / "network.py").write_text(NETWORK)
    return str(folder / "cifar10_like.npz"), f"module:{folder / 'network.py'}:factory"


def test_rows_come_out_once_beside_the_papers_figures(
    sources: tuple[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pictures, network = sources
    options = ["--sets", pictures, "--backbone", network, "--epsilon", "1,8", "--repeats", "2"]
    options += ["--shift", f"{pictures}={SHIFT}", "--limit", "200", "--workers", "1"]
    verb = ["vision", *options, "--out", str(tmp_path)]
    code, page, said = called(verb, capsys, monkeypatch)
    assert code == 0, said
    assert "3 cells measured" in said
    found = cells.cells_in(tmp_path)
    assert {(cell.epsilon, len(m.accuracies)) for cell, m in found.items()} == {
        (1.0, 2),
        (8.0, 2),
        (None, 1),
    }
    for measured in found.values():
        assert (measured.rows, measured.test_rows, measured.columns) == (200, 60, 6)
        (shift,) = measured.shifts
        assert shift.worst[0] <= shift.accuracies[0] <= 100
    plain = next(measured for cell, measured in found.items() if cell.epsilon is None)
    assert plain.mean > 95  # colours are easy to tell
    assert page.strip() == (tmp_path / "vision.md").read_text().strip()
    for figure in ("98.90", "89.98", "99.00", "Tried on 200 pictures"):
        assert figure in page
    assert (tmp_path / "vision.png").read_bytes().startswith(b"\x89PNG")

    def never(*_: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(rows, "measure", never)
    monkeypatch.setattr(rows, "write_features", never)
    code, _, said = called(verb, capsys, monkeypatch)
    assert code == 0 and "0 cells measured" in said
    code, again, _ = called(["vision", "--out", str(tmp_path)], capsys, monkeypatch)
    assert code == 0 and again == page  # without a backbone, just the page


def test_features_that_are_there_serve_a_new_budget(
    sources: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures, network = sources

    def wanted(epsilon: float) -> Wanted:
        return Wanted([pictures], [network], tmp_path, epsilons=[epsilon], repeats=1, limit=50)

    assert measure_rows(wanted(1.0), lambda _: None) == 2
    monkeypatch.setattr(rows, "write_features", None)
    assert measure_rows(wanted(2.0), lambda _: None) == 1  # infinity is there


def test_what_is_not_there_is_refused_before_anything_is_measured(
    sources: tuple[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pictures, network = sources
    verb = ["vision", "--backbone", network, "--out", str(tmp_path / "out")]
    code, _, said = called([*verb, "--sets", f"{pictures},cifar11"], capsys, monkeypatch)
    assert code == 2 and "'cifar11' does not exist" in said and "cifar100" in said
    code, _, said = called([*verb, "--sets", pictures, "--shift", "x"], capsys, monkeypatch)
    assert code == 2 and "SET=SHIFT" in said
    code, _, said = called([*verb, "--sets", pictures, "--shift", "x=y"], capsys, monkeypatch)
    assert code == 2 and "--sets does not name" in said
    code, _, said = called([*verb, "--sets", pictures, "--epsilon", "a"], capsys, monkeypatch)
    assert code == 2 and "--epsilon takes numbers" in said
    assert not (tmp_path / "out").exists()


def cell(backbone: str, epsilon: float | None, **changes: Any) -> Cell:
    facts: dict[str, Any] = {"pictures": "cifar10", "kind": "pooled", "size": None, "limit": None}
    facts |= {"made_by": "", "shifts": (), "repeats": 2}
    return Cell(backbone=backbone, epsilon=epsilon, **facts | changes)


def measured(*accuracies: float, shifts: tuple[Shifted, ...] = ()) -> Measured:
    return Measured(accuracies, shifts, 50_000, 10_000, 1_024, 10, (), 1.0)


def keep(folder: Path, one: Cell, found: Measured) -> None:
    lines.add(folder, one, asdict(found))


def test_the_page_answers_the_papers_questions(tmp_path: Path) -> None:
    blur = (Shifted("cifar10-c", (50.0, 60.0), (30.0, 20.0), "severity 5"),)
    for backbone, one, plain in (("lite0", 84.0, 90.0), ("poor", 60.0, 70.0), ("good", 95.0, 96.0)):
        keep(tmp_path, cell(backbone, 1.0), measured(one, one + 1, shifts=blur))
        keep(tmp_path, cell(backbone, None, repeats=1), measured(plain))
    own = "resnet20:resnet20_cifar100"
    keep(tmp_path, cell(own, 1.0, kind="grid4", size=224), measured(77.0, 78.0))
    keep(tmp_path, cell(own, 1.0, pictures="cifar100"), measured(60.0, 61.0))
    keep(tmp_path, cell("wrn16-4:synthetic.safetensors", 1.0), measured(60.5, 61.5))
    page = write_page(tmp_path, lambda _: None).read_text()
    assert "CIFAR-10: it shrinks with every step (9.50, 5.50, 0.50)" in page
    assert "| CIFAR-10 | cifar10-c | good | 1 | 95.50 | 55.00 | 25.00 | severity 5 |" in page
    assert f"| here: {own}, grid4, 224 px | 1,024 | 77.50 ± 0.71 |" in page
    for figure in (
        *published.METHODS.values(),
        *published.RERR["CIFAR-10 without public data"][:3],
    ):
        assert f"{figure:.2f}" in page
    saw = f"Not private, since the weights were trained on the same pictures: {own} on CIFAR-100.\n"
    assert saw in page
    assert len(picture(cells.cells_in(tmp_path)).panels) == 3
    keep(tmp_path, cell("better", 1.0), measured(90.0, 91.0))
    keep(tmp_path, cell("better", None, repeats=1), measured(97.0))
    page = write_page(tmp_path, lambda _: None).read_text()
    assert "does not shrink with every step; the best's is below the worst's" in page


def test_sets_are_known_by_how_their_files_begin() -> None:
    assert paper_name("cifar100") == "CIFAR-100" and paper_name("cifar10") == "CIFAR-10"
    assert paper_name("emnist47_subset") == "EMNIST" and paper_name("pets") == "pets"


def test_the_plain_probe_is_as_good_as_logistic_regression() -> None:
    from sklearn.linear_model import LogisticRegression

    draws = np.random.default_rng(0)
    labels = np.arange(900) % 3
    centers = draws.normal(size=(3, 8))
    features = (centers[labels] + 1.5 * draws.normal(size=(900, 8))).astype(np.float32)
    train, test = (MemoryRows(features[s], labels[s]) for s in (slice(600), slice(600, None)))
    _, (share,) = plain_probe(train, [test], 3)
    theirs = LogisticRegression(max_iter=1000).fit(features[:600], labels[:600])
    assert abs(share - theirs.score(features[600:], labels[600:])) < 0.02


def test_made_up_pictures_are_jpeg_files_of_a_thousand_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imagenet_shape, "CLASSES", 3)
    first = imagenet_shape._make(tmp_path, range(0))
    assert first == []
    for label in range(3):
        (tmp_path / "train" / imagenet_shape._class(label)).mkdir(parents=True)
    made = imagenet_shape._make(tmp_path, range(6))
    assert all(new for new, _ in made)
    assert 40_000 < np.mean([size for _, size in made]) < 200_000
    assert not any(new for new, _ in imagenet_shape._make(tmp_path, range(6)))
    assert len(list((tmp_path / "train").glob("n*/*.JPEG"))) == 6


def test_bench_extract_gives_both_rates_and_their_ratio(
    sources: tuple[str, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pictures, network = sources
    options = ["--images", pictures, "--backbone", network, "--pictures", "100"]
    for more in ([], ["--json"]):
        monkeypatch.setattr(sys, "argv", ["dptune", "bench", "extract", *options, *more])
        with pytest.raises(SystemExit) as exit:
            cli.main()
        captured = capsys.readouterr()
        assert not exit.value.code, captured.err
        if not more:
            assert "the network alone" in captured.out
    found = json.loads(captured.out)
    assert found["pictures"] == 100 and found["device"] == "cpu"
    assert found["extraction_per_second"] == pytest.approx(100 / found["seconds"])
    ratio = found["extraction_per_second"] / found["bare_per_second"]
    assert found["ratio"] == pytest.approx(ratio)


def test_wanted_refuses_numbers_that_make_no_sense(
    sources: tuple[str, str], tmp_path: Path
) -> None:
    pictures, network = sources
    for wrong in ({"limit": 0}, {"repeats": 0}, {"epsilons": [-1.0]}, {"device": "tpu"}):
        with pytest.raises(InvalidInput):
            Wanted([pictures], [network], tmp_path, **wrong)  # type: ignore[arg-type]
