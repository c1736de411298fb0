"""From a folder of pictures to a private classifier on the command line, as a new user would."""

import csv
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from rich.text import Text

import dptune
from dptune.cli.picture_screen import live_view, show_not_predicted
from dptune.cli.screen import paragraph
from dptune.data.extracted import Extracted
from dptune.data.sources import fingerprint_source, load_data
from dptune.features.extraction import Progress
from dptune.pictures.pictures import Remark
from dptune.report.card import model_card

Run = Callable[..., tuple[int, str, str]]
NETWORK = """
import torch
from torch import nn

def factory():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, {width}, 3, stride=2), nn.ReLU())
    network.size, network.mean, network.deviation = 8, (0.5, 0.5, 0.5), (0.3, 0.3, 0.3)
    return network
"""
QUICK = "[space]\nsteps = [5, 20]\n"


@pytest.fixture
def run(command: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Call the command in a folder with pictures; returns exit code, output and errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    draw_pictures()
    return command


def draw_pictures() -> None:
    """Three classes told apart by colour, a backbone, and some bad pictures."""
    draws = np.random.default_rng(0)
    for part, each in (("train", 60), ("test", 10)):
        for number, name in enumerate(("blue", "green", "red")):
            place = Path("own", part, name)
            place.mkdir(parents=True)
            for picture in range(each):
                pixels = draws.integers(0, 160, (9, 11, 3))
                pixels[..., 2 - number] += 95
                Image.fromarray(pixels.astype(np.uint8)).save(place / f"{picture}.png")
    Path("own/train/red/notes.txt").write_text("of a walk")
    Path("own/train/green/torn.png").write_bytes(Path("own/train/green/0.png").read_bytes()[:60])
    Path("small.py").write_text(NETWORK.format(width=8))
    Path("wide.py").write_text(NETWORK.format(width=12))
    Path("quick.toml").write_text(QUICK)


BACKBONE = ("--backbone", "module:small.py:factory")
OWN = ("tune-pictures", "--data", "own")
TUNE = (*OWN, *BACKBONE, "--epsilon", "8", "--config", "quick.toml")


@pytest.mark.usefixtures("same_noise")
def test_one_command_makes_a_model_of_a_folder_and_names_bad_pictures(run: Run) -> None:
    code, out, err = run(*TUNE, "--test", "own", "--out", "r")
    assert code == 0, err
    assert "train/red/notes.txt" in err and "train/green/torn.png" in err
    assert "2 left out:\n" in err and "remarks.csv" in err
    assert "  1  no picture in a known format: train/red/notes.txt\n" in err
    assert err.index("Listing pictures") < err.index("Loading module:small.py:factory")
    assert "left\n" not in err  # of a few pictures, no time is left that could be told
    assert "test accuracy" in out and "--images FOLDER" in out
    result = json.loads(Path("r/result.json").read_text())
    # Public is how many were listed, not how many of them can be read.
    assert result["data"]["rows"] == 182 and result["test_rows"] == 30
    assert result["test_accuracy"] > 0.6
    promise = dptune.load("r").guarantee
    assert promise.unit == "one picture"
    assert promise.public_facts[:4] == (
        "the number of pictures (182), those that cannot be read included",
        "the number of columns (8), taken from the data",
        "the features were made by module:small.py:factory (pooled features of pictures of 8 x 8 "
        "pixels, trained on data that are not on record), whose weights are taken as public: "
        "nothing is promised about pictures that they were trained on",
        "the classes (3), taken from the names of the pictures' folders, or from their file",
    )
    card = model_card("r")
    assert "Classes: blue, green, red." in card
    digest = dptune.load("r").made_by["backbones"][0]["digest"]  # type: ignore[index]
    size = "pictures of 8 x 8 pixels"
    row = (
        f"| module:small.py:factory | pooled | {size} | data that are not on record | "
        f"{digest[:12]} |"
    )
    assert row in card and digest not in card
    declared = load_data(
        "features/own-module-small-factory", rows=200, classes=["blue", "green", "red"]
    )
    assert declared.public_facts[0] == "the number of pictures (200), as declared"
    assert declared.public_facts[3] == "the classes (3), as declared"


def test_what_is_wrong_with_private_pictures_stays_out_of_the_run(run: Run) -> None:
    assert run(*TUNE, "--out", "r")[0] == 0
    secrets = [b"notes.txt", b"torn.png"]
    secrets.append(fingerprint_source("features/own-module-small-factory").encode())
    files = [path for path in Path("r").rglob("*") if path.is_file()]
    assert len(files) > 5
    for file in files:
        assert not any(secret in file.read_bytes() for secret in secrets), file


def test_predictions_are_those_of_the_study(run: Run) -> None:
    assert run(*TUNE, "--test", "own", "--out", "r")[0] == 0
    code, _, _ = run("predict", "r", "--images", "own/test", "-o", "p.csv")
    assert code == 0
    rows = list(csv.DictReader(Path("p.csv").read_text().splitlines()))
    right = sum(row["picture"].split("/")[0] == row["prediction"] for row in rows)
    assert right / len(rows) == json.loads(Path("r/result.json").read_text())["test_accuracy"]
    Path("small.py").write_text(NETWORK.format(width=8).replace("seed(0)", "seed(1)"))
    code, _, err = run("predict", "r", "--images", "own/test", "-o", "q.csv")
    assert code == 2 and "is not the one" in err and not Path("q.csv").exists()


def test_a_run_is_resumed_from_its_features(run: Run) -> None:
    assert run(*TUNE, "--test", "own", "--shift", "corrupted:contrast", "--out", "r")[0] == 0
    first = json.loads(Path("r/result.json").read_text())
    assert run("resume", "r")[0] == 0
    again = json.loads(Path("r/result.json").read_text())
    assert again == first
    (shift,) = first["shifts"]
    assert shift["name"] == "corrupted-contrast" and shift["rows"] == 150
    assert [group["name"] for group in shift["groups"]][-1] == "severity 5"


def test_features_are_made_once(run: Run) -> None:
    assert run(*TUNE, "--out", "r1")[0] == 0
    folder = Path("features/own-module-small-factory/train")
    before = {file: file.stat().st_mtime_ns for file in folder.iterdir()}
    assert run(*TUNE, "--out", "r2")[0] == 0
    assert {file: file.stat().st_mtime_ns for file in folder.iterdir()} == before
    other = [*TUNE]
    other[other.index("module:small.py:factory")] = "module:wide.py:factory"
    assert run(*other, "--out", "r3")[0] == 0
    assert sorted(path.name for path in Path("features").iterdir()) == [
        "own-module-small-factory",
        "own-module-wide-factory",
    ]
    assert run(*TUNE, "--features", "grid4", "--size", "16", "--out", "r4")[0] == 0
    assert Path("features/own-module-small-factory-grid4-16px").is_dir()


def test_a_dry_run_makes_and_writes_nothing_and_says_what_the_study_does(run: Run) -> None:
    asked = (*TUNE, "--test", "own", "--shift", "corrupted:contrast")
    before = sorted(Path().rglob("*"))
    code, out, err = run(*asked, "--dry-run")
    assert code == 0, err
    assert "Nothing was spent and nothing was written." in out
    planned = json.loads(run(*asked, "--dry-run", "--json")[1])
    assert sorted(path for path in Path().rglob("*") if "__pycache__" not in path.parts) == before
    done = json.loads(run(*asked, "--out", "r", "--json")[1])
    for same in ("delta", "releases", "public_facts", "neighbours", "covers_search"):
        assert planned["guarantee"][same] == done["guarantee"][same]
    made = Path("features/own-module-small-factory")
    Path("named.toml").write_text('[data]\nname = "own"\n' + QUICK)
    by_hand = ("tune", "--data", f"{made}", "--test", f"{made}", "--config", "named.toml")
    shift = ("--shift", f"{made}/shift-corrupted-contrast")
    told = run(*by_hand, *shift, "--epsilon", "8", "--dry-run", "--json")[1]
    assert json.loads(told) == planned
    assert any("(182)" in fact for fact in planned["guarantee"]["public_facts"])


def test_a_dry_run_knows_the_ledger_of_the_pictures(run: Run) -> None:
    assert run("extract", "--images", "own", *BACKBONE, "-o", "f")[0] == 0
    created = ("--dataset", "own", "--epsilon", "9", "--delta", "1e-4")
    assert run("ledger", "open", "own.db", *created, "--data", "f")[0] == 0
    assert run("ledger", "open", "other.db", *created, "--data", "quick.toml")[0] == 0
    assert run(*TUNE, "--dry-run", "--ledger", "own.db")[0] == 0
    code, _, err = run(*TUNE, "--dry-run", "--ledger", "other.db")
    assert code == 2 and "other.db" in err and not Path("features").exists()
    code, _, err = run("ledger", "open", "new.db", *created, "--data", "own")
    assert code == 2 and "dptune extract" in err and "give the folder of those" in err


def test_a_study_that_cannot_begin_makes_no_features(run: Run) -> None:
    Path("r").mkdir()
    Path("r/run.toml").touch()
    code, _, err = run(*TUNE, "--out", "r")
    assert code == 2 and "holds a run already" in err
    assert run(*TUNE, "--epsilon", "-1", "--out", "new")[0] == 2
    for key, value in (("source", '"demo"'), ("test", '"own"'), ("shifts", '["own"]')):
        Path("rows.toml").write_text(f"[data]\n{key} = {value}\n")
        code, _, err = run(*OWN, *BACKBONE, "--config", "rows.toml")
        assert code == 2 and f"rows.toml says {key}" in err
    assert not Path("features").exists()


def test_a_file_may_declare_a_name_and_a_number_of_rows(run: Run) -> None:
    Path("declared.toml").write_text('[data]\nname = "colours"\nrows = 200\n')
    asked = (*OWN, *BACKBONE, "--config", "declared.toml", "--json")
    planned = json.loads(run(*asked, "--dry-run")[1])
    assert any("(200)" in fact for fact in planned["guarantee"]["public_facts"])
    result = json.loads(run(*asked)[1])
    assert result["out"] == "runs/colours-1" and result["data"]["rows"] == 200


def test_an_unfinished_study_of_the_same_pictures_is_gone_on_with(run: Run) -> None:
    assert run(*TUNE)[0] == 0
    Path("runs/own-1/result.json").unlink()
    Path("own/train/red/0.png").unlink()
    before = Path("features/own-module-small-factory/train/000000.json").read_bytes()
    code, _, err = run(*TUNE)
    assert code == 2
    assert "runs/own-1 is unfinished and was paid for: go on with dptune resume runs/own-1" in err
    assert Path("features/own-module-small-factory/train/000000.json").read_bytes() == before
    assert not Path("runs/own-2").exists()


def test_test_pictures_that_nobody_asked_for_are_mentioned_at_once(run: Run) -> None:
    code, out, err = run(*TUNE, "--out", "r")
    assert code == 0
    said = "own holds test pictures, which stay unused: if they are public, ask for the "
    assert f"{said}accuracy on them with --test own." in err
    assert err.index(said) < err.index("Features in") and "which stay unused" not in out
    assert "no test data (--test)" in out
    assert "stay unused" not in run(*TUNE, "--test", "own", "--out", "r2")[2]
    assert "with --test own." in run(*TUNE, "--out", "r3")[2]


def test_a_class_without_pictures_is_told_once_and_is_no_picture(run: Run) -> None:
    for part in ("train", "test"):
        Path("own", part, "violet").mkdir()
    Path("own/train/red/notes.txt").unlink()
    code, out, _ = run("extract", "--images", "own", *BACKBONE, "-o", "f")
    assert code == 0 and "1 left out:" in out and "taken" not in out
    assert out.count("violet") == 1
    assert "The class violet has no pictures in train and test." in " ".join(out.split())


def test_one_picture_can_be_predicted_and_bad_ones_get_no_line(run: Run) -> None:
    assert run(*TUNE, "--out", "r")[0] == 0
    assert run("predict", "r", "--images", "own/test/red/3.png", "-o", "p.csv")[0] == 0
    (row,) = csv.DictReader(Path("p.csv").read_text().splitlines())
    assert row["picture"] == "3.png" and row["prediction"] in ("blue", "green", "red")
    code, out, err = run("predict", "r", "--images", "own/train/red", "-o", "q.csv")
    assert code == 0 and "60 predictions" in out
    assert "1 left out, without a line in the predictions:\n" in err and "notes.txt" in err
    assert "notes.txt" not in Path("q.csv").read_text()
    code, _, err = run("predict", "r", "--images", "small.py", "-o", "n.csv")
    assert code == 2 and "can be read" in err and not Path("n.csv").exists()


def test_the_time_left_counts_pictures_that_are_made_now(
    capsys: pytest.CaptureFixture[str],
) -> None:
    time = [0.0]
    with live_view(lambda: time[0]) as watch:
        for seconds, done, kept in (
            (0, 5_000, 5_000),
            (100, 6_000, 6_000),  # to look at what is there took long
            (101, 6_100, 6_000),
            (111, 7_100, 6_000),
            (140, 10_000, 6_000),
        ):
            time[0] = seconds
            watch(Progress("train", done, kept, 10_000))
    assert capsys.readouterr().err.splitlines() == [
        "train: 5,000 of 10,000 pictures (5,000 were there)",
        "train: 6,000 of 10,000 pictures (6,000 were there)",
        "train: 7,100 of 10,000 pictures (6,000 were there), about 29 s left",
        "train: 10,000 of 10,000 pictures (6,000 were there)",
    ]


@pytest.mark.parametrize("width", [80, 120])
def test_lines_break_at_words_on_a_terminal(width: int) -> None:
    text = "Features in features/photos-lite0: " + "keep them as private as the pictures " * 9
    for terminal in (True, False):
        file = StringIO()
        console = Console(file=file, width=width, force_terminal=terminal, color_system=None)
        paragraph(Text(text), console)
        lines = file.getvalue().splitlines()
        assert [word for line in lines for word in line.split()] == text.split()
        assert (len(lines) > 1) == terminal


def test_listing_backbones_needs_no_torch(run: Run) -> None:
    command = "import sys; sys.argv[1:] = ['backbones']\nfrom dptune.cli.app import main\n"
    look = "try: main()\nfinally: print('torch' in sys.modules)"
    code = [sys.executable, "-c", command + look]
    printed = subprocess.run(code, capture_output=True, text=True, check=True).stdout
    assert printed.endswith("False\n")
    for form in ("timm:", "hf:", "onnx:", "module:", "resnet20:", "wrn16-4:"):
        assert form in printed


def test_other_pictures_take_another_folder_and_a_run_keeps_its_own(run: Run) -> None:
    for name in ("x", "y"):
        shutil.copytree("own/test", f"{name}/shifted")
    Path("y/shifted/red/0.png").unlink()
    assert run(*TUNE, "--test", "own", "--shift", "x/shifted", "--out", "r1")[0] == 0
    first = Path("features/own-module-small-factory")
    before = {file: file.read_bytes() for file in first.rglob("*") if file.is_file()}
    result = json.loads(Path("r1/result.json").read_text())
    # The same images with another shift of the same name, then with other pictures to test on,
    # then other images: none of them changes what the first run was made of.
    assert run(*TUNE, "--test", "own", "--shift", "y/shifted", "--out", "r2")[0] == 0
    assert run(*TUNE, "--test", "y/shifted", "--out", "r3")[0] == 0
    shutil.copy("own/train/red/1.png", "own/train/red/more.png")
    assert run(*TUNE, "--out", "r4")[0] == 0
    found = sorted(path.name for path in Path("features").iterdir())
    assert found == [first.name, *(f"{first.name}-{number}" for number in (2, 3, 4))]
    assert {file: file.read_bytes() for file in first.rglob("*") if file.is_file()} == before
    assert run("resume", "r1")[0] == 0
    assert json.loads(Path("r1/result.json").read_text()) == result
    code, _, err = run("extract", "--images", "own", *BACKBONE, "-o", str(first))
    assert code == 2 and "give another folder, or remove this one" in err


def test_one_ledger_pays_for_all_backbones_of_the_same_pictures(run: Run) -> None:
    small, wide = (
        ("--backbone", "module:small.py:factory"),
        ("--backbone", "module:wide.py:factory"),
    )
    for folder, backbone in (("f1", small), ("f2", wide)):
        assert run("extract", "--images", "own", *backbone, "-o", folder)[0] == 0
    create = (
        "ledger",
        "open",
        "own.db",
        "--dataset",
        "own",
        "--epsilon",
        "8",
        "--delta",
        "1e-4",
        "--data",
        "f1",
    )
    assert run(*create)[0] == 0
    tune = ("tune", "--config", "quick.toml", "--ledger", "own.db")
    assert run(*tune, "--data", "f1", "--epsilon", "6", "--out", "r1")[0] == 0
    code, _, err = run(*tune, "--data", "f2", "--epsilon", "6", "--out", "r2")
    assert code == 3, err  # the same people: what is left is not enough
    assert run(*tune, "--data", "f2", "--epsilon", "1", "--out", "r2")[0] == 0


def test_extract_and_tune_by_hand(run: Run) -> None:
    code, out, _ = run("extract", "--images", "own", *BACKBONE, "-o", "f", "--json")
    assert code == 0
    told = json.loads(out)
    assert told["parts"] == {
        "train": {"rows": 180, "groups": []},
        "test": {"rows": 30, "groups": []},
    }
    assert [remark["picture"] for remark in told["remarks"] if remark["left_out"]] == [
        "train/green/torn.png",
        "train/red/notes.txt",
    ]
    data = load_data("f", test="f")
    assert data.classes == ("blue", "green", "red") and data.count == 182
    code, out, _ = run("tune", "--data", "f", "--test", "f", "--config", "quick.toml", "--out", "r")
    assert code == 0 and "test accuracy" in out
    code, _, err = run(
        "extract", "--images", "own", "--backbone", "module:wide.py:factory", "-o", "f"
    )
    assert code == 2 and "give another folder" in err
    assert Extracted.read(Path("f")).made_by["name"] == "module:small.py:factory"


def test_features_of_two_backbones_do_not_mix(run: Run) -> None:
    for folder, backbone in (("f1", "small"), ("f2", "small")):
        if folder == "f2":
            Path("small.py").write_text(NETWORK.format(width=8).replace("seed(0)", "seed(1)"))
        command = ("extract", "--images", "own", "--backbone", f"module:{backbone}.py:factory")
        assert run(*command, "-o", folder)[0] == 0
    code, _, err = run("tune", "--data", "f1", "--test", "f2/test", "--out", "r")
    assert code == 2 and "make both with the same" in err and not Path("r").exists()


def test_backbones_are_listed_and_ranked_on_public_pictures(run: Run) -> None:
    code, out, _ = run("backbones")
    assert code == 0 and "lite0" in out and "pip install" in out
    both = (*BACKBONE, "--backbone", "module:wide.py:factory")
    code, out, err = run("backbones", "--public", "own", *both, "--json")
    assert code == 0, err
    ranking = json.loads(out)["ranking"]
    assert {each["name"] for each in ranking} == {
        "module:small.py:factory",
        "module:wide.py:factory",
    }
    assert ranking[0]["accuracy"] >= ranking[1]["accuracy"] > 0.6
    assert not Path("features").exists() and not Path("runs").exists()


def test_the_old_spelling_of_pictures_works_and_says_the_new_one(run: Run) -> None:
    asked = (*BACKBONE, "--epsilon", "8", "--config", "quick.toml", "--dry-run")
    old, new = run("tune", "--images", "own", *asked), run(*OWN, *asked)
    assert old[:2] == new[:2] and old[0] == 0
    assert old[2] == f"dptune tune --images is now spelled dptune tune-pictures --data.\n{new[2]}"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (OWN, "--backbone"),
        (("tune", "--images", "own", *BACKBONE, "--data", "demo"), "do not go together"),
        ((*OWN, *BACKBONE, "--label", "x"), "--label"),
        (("tune", *BACKBONE), "--data"),
        (("tune-pictures", "--data", "nowhere", *BACKBONE), "nowhere"),
        (("tune-pictures", "--data", "cifar10", *BACKBONE), "cifar-10"),
        ((*OWN, "--backbone", "resnet999"), "resnet999"),
        ((*OWN, *BACKBONE, "--shift", "corrupted:rain"), "gaussian_blur"),
        ((*OWN, *BACKBONE, "--features", "class-token"), "class-token"),
        (("extract", "--images", "own", *BACKBONE, "-o", "small.py"), "give a new folder"),
        (("extract", "--images", "own", *BACKBONE, "-o", "own/f"), "inside the folder of pictures"),
        (("extract", "--images", "x" * 5000, *BACKBONE, "-o", "f"), "does not exist"),
        (("backbones", *BACKBONE), "--public"),
        (("backbones", "--public", "own", *BACKBONE, "--pictures", "3"), "pictures"),
        (("predict", "nowhere", "-o", "p.csv"), "--images"),
    ],
)
def test_bad_input_is_named_and_nothing_is_made(
    run: Run, arguments: tuple[str, ...], told: str
) -> None:
    code, _, err = run(*arguments)
    assert code == 2 and told in err and "Traceback" not in err
    assert not Path("runs").exists() and not Path("p.csv").exists()


def test_hundreds_of_grey_pictures_are_summed_up_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_not_predicted([Remark(f"{n}.png", "grey", left_out=False) for n in range(781)])
    assert capsys.readouterr().err.splitlines()[1:] == ["  781  grey: 0.png, 1.png, 2.png, ..."]
