"""Frozen features of texts from the command line: made, trained on, predicted with, refused."""

import csv
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dptune
from support.tiny_models import write_tiny_model

pytest.importorskip("transformers")

Run = Callable[..., tuple[int, str, str]]
TOPICS = {
    "sport": ["goal", "match", "team", "player", "game"],
    "money": ["bank", "stock", "price", "market", "car"],
}
QUICK = """
[space]
steps = [5, 5]
learning_rate = [0.1, 1.0]
[search]
method = "random-search"
trials = 2
"""
ABOUT = ("mails.csv", "--column", "body", "--label", "topic", "--model", "bert")
TEXT, SHORT = ("--text", *ABOUT), ("--text", *ABOUT, "--length", "16")
TEXTS = ("tune-texts", "--data", *ABOUT)
TUNE = (*TEXTS, "--length", "16", "--features", "mean", "--epsilon", "20", "--config", "q.toml")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "bert", "bert")


@pytest.fixture
def run(command: Run, model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Call the command in a folder with texts and a model."""
    monkeypatch.chdir(tmp_path)
    Path("bert").symlink_to(model)
    choices = random.Random(0)
    for name, rows in (("mails", 300), ("held", 40), ("new", 40)):
        with open(f"{name}.csv", "w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["body", "topic"])
            for _ in range(rows):
                topic = choices.choice(list(TOPICS))
                words = choices.choices([*TOPICS[topic], "the", "of"], k=choices.randint(4, 30))
                table.writerow([" ".join(words), topic])
    Path("q.toml").write_text(QUICK)
    return command


def as_json(result: tuple[int, str, str]) -> Any:
    assert result[0] == 0, result[2]
    return json.loads(result[1])


def column(path: str, name: str) -> list[str]:
    with open(path, newline="") as file:
        return [row[name] for row in csv.DictReader(file)]


def test_extract_writes_rows_that_tune_takes(run: Run) -> None:
    code, out, err = run("extract", *SHORT, "--features", "mean", "--test", "held.csv", "-o", "f")
    assert code == 0, err
    assert "300 train, 40 test. Keep them as private as the texts." in out
    assert "dptune tune --data f --test f" in out
    assert "train: 300 of 300 texts" in err
    again = (*SHORT, "--model", "hf:bert")  # the same model, as errors name it
    assert as_json(run("extract", *again, "--test", "held.csv", "-o", "f", "--json"))["made"] == 0
    tuned = as_json(
        run(*("tune", "--data", "f", "--test", "f", "--config", "q.toml"), "--out", "r", "--json")
    )
    assert tuned["test_rows"] == 40
    assert run("predict", "r", "--text", "new.csv", "-o", "p.csv")[0] == 0
    assert len(column("p.csv", "prediction")) == 40


@pytest.mark.usefixtures("same_noise")
def test_tune_makes_features_and_predict_makes_them_again(run: Run) -> None:
    tuned = as_json(run(*TUNE, "--test", "held.csv", "--out", "r", "--json"))
    assert tuned["test_accuracy"] > 0.8 and "F1" in tuned["test_figures"]
    assert [path.name for path in Path("features").iterdir()] == ["mails-hf-bert-16-tokens"]
    code, out, err = run("predict", "r", "--text", "new.csv", "-o", "p.csv")
    assert code == 0 and "Wrote 40 predictions" in out, err
    told = column("p.csv", "prediction")
    assert np.mean(np.array(told) == column("new.csv", "topic")) > 0.8
    loaded = dptune.load("r")
    assert loaded.predict(column("new.csv", "body")).tolist() == told
    assert loaded.guarantee.unit == "one text"
    assert not Path("r", "hugging-face").exists()
    card = run("card", "r")[1]
    assert "| hf:bert | mean | texts of 16 tokens |" in card
    assert "picture" not in card
    # Features that are there serve the next study.
    again = run(*TUNE, "--test", "held.csv", "--out", "r2")
    assert again[0] == 0 and len(list(Path("features").iterdir())) == 1
    assert "predict" in again[1] and "--text FILE" in again[1]


def test_a_dry_run_writes_nothing_and_knows_what_is_public(run: Run) -> None:
    planned = as_json(run(*TUNE, "--test", "held.csv", "--dry-run", "--json"))
    facts = " ".join(planned["guarantee"]["public_facts"])
    assert "the number of texts (300), taken from the data" in facts
    assert "mean features of texts of 16 tokens" in facts
    assert not Path("features").exists() and not Path("runs").exists()
    real = as_json(run(*TUNE, "--test", "held.csv", "--out", "r", "--json"))
    assert real["guarantee"]["public_facts"] == planned["guarantee"]["public_facts"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ((*TUNE, "--features", "grid4"), "features must be"),
        ((*TUNE, "--lora", "4"), "--lora is for language models"),
        ((*TUNE, "--unit", "topic"), "--unit is for language"),
        ((*TUNE, "--task", "words"), "--task is for language"),
        ((*TUNE, "--images", "x"), "--images"),
        ((*TUNE, "--size", "8"), "--size"),
        (("tune", *SHORT, "--features", "mean", "--data", "demo"), "--text and --data"),
        (("tune", "--features", "mean"), "--features"),
        (("tune-texts", "--features", "mean"), "name the private texts with --data"),
        (("tune-texts", "--data", "mails.csv", "--features", "mean"), "--column NAME"),
        ((*TEXTS[:-2], "--features", "mean"), "--model FOLDER"),
        ((*TEXTS, "--features", "mean"), "give a smaller length"),
        ((*TUNE, "--config", "said.toml"), "--data takes its place"),
        (("extract", "-o", "f"), "with --images, or texts with --text"),
        (("extract", *SHORT, "--images", "x", "-o", "f"), "with --images, or texts with --text"),
        (("extract", *SHORT, "--backbone", "lite0", "-o", "f"), "--backbone and --text"),
        (("extract", "--images", "x", "--model", "bert", "-o", "f"), "--model and --images"),
        (("extract", "--text", "q.toml", "--column", "a", "--model", "bert", "-o", "f"), ".csv"),
    ],
)
def test_wrong_input_is_refused(run: Run, asked: tuple[str, ...], said: str) -> None:
    Path("said.toml").write_text('[data]\nsource = "demo"\n')
    code, _, err = run(*asked)
    assert code == 2 and said in err.replace("\n", " "), err
    assert not Path("f").exists() and not Path("features").exists()


def test_models_and_what_they_predict_must_belong_together(run: Run) -> None:
    assert run(*TUNE, "--out", "r")[0] == 0
    Path("own").mkdir()
    code, _, err = run("predict", "r", "--images", "own", "-o", "p.csv")
    assert code == 2 and "trained on texts, not on pictures" in err
    Path("other.csv").write_text("subject\na dog\n")
    code, _, err = run("predict", "r", "--text", "other.csv", "-o", "p.csv")
    assert code == 2 and "no column 'body'" in err
    Path("bert").unlink()
    code, _, err = run("predict", "r", "--text", "new.csv", "-o", "p.csv")
    assert code == 2 and "bert" in err
    assert not Path("p.csv").exists()
