"""Modules of one's own from the command line: looked at, tuned, gone on with, predicted with."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dptune
from dptune.cli import doctor_screen
from dptune.engines.modules.doctor import Examination, Layer
from dptune.engines.modules.problem import Problem
from support.commands import cut_off

Run = Callable[..., tuple[int, str, str]]
NETS = """
import torch
from torch import nn

def make():
    return nn.Sequential(nn.Conv2d(1, 3, 2), nn.Tanh(), nn.Flatten(), nn.Linear(12, 2))

def with_batch_norm():
    return nn.Sequential(
        nn.Conv2d(1, 3, 2), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 2)
    )

def of_lines():
    return nn.Sequential(nn.Flatten(), nn.Linear(9, 8), nn.Tanh(), nn.Linear(8, 2))

class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(9, 2)

    def forward(self, rows):
        return self.layer(rows.flatten(1) + torch.randn(len(rows), 9))

class RunningMaximum(Noisy):
    largest = torch.tensor(1.0)

    def forward(self, rows):
        self.largest = torch.maximum(self.largest, rows.abs().max().detach())
        return self.layer(rows.flatten(1) / self.largest)

class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(9, 4), nn.Linear(4, 9, bias=False)
        self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.head.weight = self.words.weight

    def forward(self, ids):
        hidden = self.words(ids).mean(1)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden)
"""
TUNE = ("tune", "--data", "rows.npz", "--config", "quick.toml", "--epsilon", "3")


@pytest.fixture
def run(command: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 160)
    pictures = random.normal(size=(160, 1, 3, 3)).astype(np.float32) + labels[:, None, None, None]
    np.savez("rows.npz", X_train=pictures[:120], y_train=labels[:120])
    np.save("new.npy", pictures[120:])
    np.savez("new.npz", X=pictures[120:])
    Path("nets.py").write_text(NETS)
    space = "[space]\nsteps = [3, 5]\nlearning_rate = [0.1, 0.5]\n"
    Path("quick.toml").write_text(f'{space}[search]\nmethod = "random-search"\ntrials = 2\n')
    return command


def as_json(result: tuple[int, str, str], code: int = 0) -> Any:
    assert result[0] == code, result[2]
    return json.loads(result[1])


def test_a_module_is_tuned_predicted_with_and_described(run: Run, tmp_path: Path) -> None:
    done = as_json(run(*TUNE, "--engine", "module:nets.py:make", "--out", "r", "--json"))
    assert done["guarantee"]["epsilon"] <= 3.0
    told = Path("r/run.toml").read_text()
    assert f'factory = "{tmp_path}/nets.py:make"' in told and 'name = "torch-module"' in told
    assert run("predict", "r", "--data", "new.npy", "-o", "a.csv")[0] == 0
    assert run("predict", "r", "--data", "new.npz", "-o", "b.csv")[0] == 0
    lines = Path("a.csv").read_text()
    assert lines == Path("b.csv").read_text() and len(lines.splitlines()) == 41
    assert "PyTorch module" in run("card", "r")[1]
    np.save("wide.npy", np.zeros((5, 1, 4, 4)))
    code, _, said = run("predict", "r", "--data", "wide.npy", "-o", "c.csv")
    assert code == 2 and "(5, 1, 4, 4), the model takes rows of shape (1, 3, 3)" in said


def test_a_run_that_was_cut_off_is_gone_on_with_from_another_folder(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, said = cut_off(run, monkeypatch, *TUNE, "--engine", "lora:nets.py:of_lines", "--out", "r")
    assert code == 130 and "go on with: dptune resume r" in said
    monkeypatch.chdir("/")
    done = as_json(run("resume", str(tmp_path / "r"), "--json"))
    assert done["guarantee"]["epsilon"] <= 3.0
    assert dptune.load(tmp_path / "r").engine.name == "lora"


def test_a_file_says_the_same_as_options(run: Run, tmp_path: Path) -> None:
    Path("asked.toml").write_text(
        '[engine]\nname = "torch-module"\nfactory = "nets.py:of_lines"\ntrained = "3.*"\n'
    )
    plain = ("tune", "--data", "rows.npz", "--config", "asked.toml", "--dry-run", "--json")
    as_json(run(*plain))
    code, _, said = run(*plain, "--engine", "module:nets.py:nowhere")
    assert code == 2 and "nets.py has no function nowhere" in said
    code, _, said = run(*plain, "--engine", "linear")
    assert code == 2 and "linear models take rows that are lists of numbers" in said


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("Noisy", "in eval() it gives other numbers for the same rows each time; draw random"),
        ("RunningMaximum", "what it gives for a row depends on the rows that passed before; let"),
        ("with_batch_norm", "batch norm mixes the rows of a batch"),
    ],
)
def test_a_dry_run_refuses_a_module_in_the_words_of_tune(run: Run, made: str, said: str) -> None:
    asked = (*TUNE, "--engine", f"module:nets.py:{made}")
    (_, _, dry), (_, _, wet) = run(*asked, "--dry-run"), run(*asked, "--out", "r")
    assert said in dry and dry == wet
    code, shown, _ = run("doctor", f"nets.py:{made}", "--shape", "1,3,3")
    assert code == 1 and said.partition(";")[0].lower() in " ".join(shown.lower().split())


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("module:nets.py:with_batch_norm", "layer 1: batch norm mixes the rows of a batch; use"),
        ("module:nets.py:absent", "nets.py has no function absent"),
        ("module:away.py:make", "there is no file"),
        ("module:nets.py", "must be FILE.py:NAME or package.module:NAME; got 'nets.py'"),
        ("module", "needs the function that makes the module: module:FILE.py:NAME"),
        ("tree:nets.py:make", "--engine takes linear, module:FILE.py:NAME, lora:FILE.py:NAME"),
        ("forest", "no engine is called 'forest'"),
    ],
)
def test_what_cannot_be_trained_is_said_in_one_paragraph(run: Run, engine: str, said: str) -> None:
    code, shown, errors = run(*TUNE, "--engine", engine, "--out", "r")
    assert code == 2 and said in errors and not shown
    assert "Traceback" not in errors and not Path("r").exists()


def test_the_doctor_lists_layers_and_ends_with_one_where_there_are_problems(run: Run) -> None:
    found = as_json(run("doctor", "nets.py:with_batch_norm", "--json"), 1)
    assert [each["layer"] for each in found["problems"]] == ["1"]
    assert found["parameters"] == 15 + 6 + 26
    code, shown, _ = run("doctor", "nets.py:with_batch_norm")
    assert code == 1 and "1 problem to solve" in shown and "Use group norm" in shown
    code, shown, _ = run("doctor", "nets.py:make", "--shape", "1,3,3")
    assert code == 0 and "made-up rows keep to themselves" in shown
    assert re.search(r"0 +Conv2d +15 +(ghost|per row)", shown)
    code, shown, _ = run("doctor", "nets.py:make")
    assert code == 0 and "Give the shape of a row" in shown


def test_the_doctor_shows_what_mends_a_module_and_that_it_does(run: Run) -> None:
    found = as_json(run("doctor", "nets.py:with_batch_norm", "--fix", "--shape", "1,3,3", "--json"))
    assert found["replaced"] == ["1: BatchNorm2d(3) by GroupNorm(3, 3)"]
    assert not found["problems"] and {each["way"] for each in found["layers"]} <= {
        "ghost",
        "per row",
    }
    code, shown, _ = run("doctor", "nets.py:Tied", "--ids", "--shape", "5", "--fix")
    assert code == 0 and "the parameter words.weight by a copy of it" in shown
    # What it says to write is what helps.
    lines = [line.strip() for line in shown.splitlines() if "fix_module" in line]
    Path("nets.py").write_text("\n".join([NETS, *lines]))
    assert run("doctor", "nets.py:fixed", "--ids", "--shape", "5")[0] == 0
    assert "nothing to replace" in run("doctor", "nets.py:make", "--fix")[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nets.py:absent",), "it has: make, with_batch_norm, of_lines, Noisy, Run"),
        (("nets.py:make", "--shape", "3"), "cannot be run on rows of shape (3,)"),
        (("nets.py:make", "--shape", "big"), "--shape takes whole numbers"),
        (("nets.py:make", "--shape", "0,3"), "--shape takes whole numbers"),
        (("make",), "must be FILE.py:NAME"),
    ],
)
def test_the_doctor_says_what_it_cannot_look_at(
    run: Run, arguments: tuple[str, ...], said: str
) -> None:
    code, _, errors = run("doctor", *arguments)
    assert code == 2 and said in errors and "Traceback" not in errors


def test_a_module_of_a_package_beside_us_is_found(run: Run) -> None:
    Path("family").mkdir()
    Path("family/nets.py").write_text(NETS)
    assert run("doctor", "family.nets:make")[0] == 0


def layers(*names: str) -> tuple[Layer, ...]:
    return tuple(Layer(name, "Linear", 20, "ghost") for name in names)


def test_blocks_side_by_side_share_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = layers("stem", *(f"blocks.{i}.{part}" for i in range(12) for part in ("in", "out")))
    others = layers("heads.0", "heads.2", "heads.3")
    doctor_screen.show("nets.py:make", Examination((*blocks, *others), ()), None, on_rows=True)
    shown = capsys.readouterr().out
    for name, count in (("stem", 1), ("blocks.0-11.in", 12), ("blocks.0-11.out", 12)):
        times = f"{count} × " if count > 1 else ""
        assert re.search(rf"^{re.escape(name)} +Linear +{times}20 +ghost", shown, re.MULTILINE)
    assert re.search(r"^heads.0 +Linear +20 ", shown, re.MULTILINE)
    assert re.search(r"^heads.2-3 +Linear +2 × 20 ", shown, re.MULTILINE)


def test_a_layer_with_a_problem_stands_apart(capsys: pytest.CaptureFixture[str]) -> None:
    problem = Problem("blocks.1.weight", "shared", "it is the same", "untie them")
    seen = Examination(layers("blocks.0", "blocks.1", "blocks.2"), (problem,))
    doctor_screen.show("nets.py:make", seen, None, on_rows=True)
    shown = capsys.readouterr().out
    assert re.search(r"^blocks.1 +Linear +20 +shared", shown, re.MULTILINE)
    assert "It is the same. Untie them." in shown


def test_code_that_is_gone_or_changed_is_not_taken_for_a_damaged_file(run: Run) -> None:
    assert run(*TUNE, "--engine", "module:nets.py:of_lines", "--out", "r")[0] == 0
    new = ("predict", "r", "--data", "new.npy", "-o", "a.csv")
    Path("nets.py").write_text(NETS.replace("nn.Linear(9, 8)", "nn.Linear(9, 8, bias=False)"))
    code, _, said = run(*new)
    assert code == 2 and "is another than the one that was trained" in said
    Path("nets.py").unlink()
    code, _, said = run(*new)
    assert code == 2 and "there is no file" in said and "damaged" not in said
