"""Every configuration of the paper's language tasks, built and run for two steps: the same
architecture with random weights, its own columns and task, a few made-up texts."""

import json
import random
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

import dptune
from support.tiny_models import write_tiny_model

pytest.importorskip("transformers")

Run = Callable[..., tuple[int, str, str]]
FOLDER = Path(__file__).parent.parent / "configs"
CONFIGS = sorted(FOLDER.glob("*.toml"))
WORDS = ["the", "goal", "of", "match", "team", "player", "bank", "stock", "price", "dog", "house"]


def test_there_is_one_a_task_of_the_paper() -> None:
    tasks = "enron-gpt2 mnli-roberta personachat-gpt2 qnli-roberta qqp-roberta squad-opt"
    assert [file.stem for file in CONFIGS] == [*tasks.split(), "sst2-roberta", "wikitext2-gpt2"]


def write_texts(asked: dict[str, Any]) -> None:
    """Rows with the columns that a configuration names."""
    choices = random.Random(0)
    with open("texts.jsonl", "w") as lines:
        for number in range(40):
            words = choices.choices(WORDS, k=8)
            row: dict[str, Any] = {column: " ".join(words) for column in asked["text"]}
            if asked.get("task") == "spans":
                found = {"text": [words[2]], "answer_start": [" ".join(words).index(words[2])]}
                row[asked["text"][-1]] = found
            row["label"] = number % 2
            lines.write(json.dumps(row) + "\n")


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.stem)
def test_a_configuration_is_built_and_runs(
    file: Path, command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = tomllib.loads(file.read_text())
    kind = file.stem.rpartition("-")[2]
    assert f"{kind}" in asked["engine"]["factory"].lower()
    write_tiny_model(Path("model"), kind)
    write_texts(asked["data"])
    asked["data"].pop("test", None)
    asked["engine"]["compute"] = "float32"
    asked["space"]["steps"] = [2, 2]
    asked["search"]["trials"] = 2
    Path("small.toml").write_text(tomli_w.dumps(asked))
    given = ("--text", "texts.jsonl", "--model", "model", "--length", "32", "--out", "r")
    code, out, errors = command("tune", "--config", "small.toml", *given, "--json")
    assert code == 0, errors
    done = json.loads(out)
    assert done["steps"] == 2 and len(done["trials"]) == 4
    assert done["guarantee"]["epsilon"] <= asked["budget"]["epsilon"]
    assert done["guarantee"]["covers_search"] and done["guarantee"]["covers_selection"]
    engine = dptune.load("r").engine
    assert engine.name == asked["engine"]["name"] and engine.traits.takes_ids
