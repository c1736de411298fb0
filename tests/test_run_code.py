"""A run folder from somebody else runs no code of its own unless that was asked for."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from module_engine import SmallNetwork

import dptune
from dptune import own_code
from dptune.engines import TorchModule, registry
from dptune.errors import InvalidInput, OwnCodeProblem
from dptune.features.network import found_again
from dptune.report import model_card, publish, search_picture
from dptune.study.config import digest, parse
from dptune.study.finished_run import FinishedRun, finish
from dptune.study.planning import foresee
from dptune.study.run_folder import RunFolder
from support.rows import make_data, make_rows
from support.studies import a_config, stop_after, study

ROWS, _ = make_rows(20, 3)
QUICK: dict[str, Any] = {
    "search": dptune.UnitNoise(),
    "space": dptune.Space(learning_rate=(0.1, 1.0), steps=(3, 5)),
    "check": False,
}
NETS = """
from pathlib import Path
from torch import nn

Path(__file__).with_name("ran").touch()

def make():
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
"""
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of a module, and one that was cut off, and the file with its factory."""
    place = tmp_path_factory.mktemp("honest")
    (place / "nets.py").write_text(NETS)
    engine = TorchModule(f"{place}/nets.py:make")
    study(place / "run", engine=engine, **QUICK)
    stop_after(place / "begun", make_data(), "final run", engine=engine, **QUICK)
    return place


@pytest.fixture(autouse=True)
def another_process(honest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of the code that other tests have run."""
    for name in ("_run", "_remembered", "_files"):
        monkeypatch.setattr(own_code, name, type(getattr(own_code, name))())
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in [name for name in sys.modules if name.startswith(("nets", "evil"))]:
        monkeypatch.delitem(sys.modules, name)
    (honest / "ran").unlink(missing_ok=True)


READERS: dict[str, Callable[..., Any]] = {
    "load": lambda place, **ask: dptune.load(place / "run", **ask),
    "picture": lambda place, **ask: search_picture(place / "run", **ask),
    "resume": lambda place, **ask: dptune.resume(place / "begun", make_data(), **ask),
    "read again": lambda place, **ask: dptune.resume(place / "run", make_data(), **ask),
}


@pytest.mark.parametrize("reader", READERS)
def test_code_that_this_process_was_not_given_is_run_only_where_asked(
    reader: str, honest: Path, tmp_path: Path
) -> None:
    read = READERS[reader]
    for name in ("run", "begun"):
        shutil.copytree(honest / name, tmp_path / name)
    with pytest.raises(OwnCodeProblem, match=rf"{honest}/nets.py:make.*own_code=True.*--run-code"):
        read(tmp_path)
    assert not (honest / "ran").exists()
    read(tmp_path, own_code=True)
    assert (honest / "ran").exists()
    read(tmp_path)  # which this process was asked for by now


@pytest.mark.parametrize("verb", ["predict", "resume", "export"])
def test_verbs_run_code_only_with_the_flag(
    verb: str, honest: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("new.npy", ROWS)
    shutil.copytree(honest / "run", "run")
    options = {"predict": ["--data", "new.npy", "-o", "a.csv"], "export": ["-o", "a.onnx"]}
    asked = [verb, "run", *options.get(verb, [])]
    code, _, said = command(*asked)
    assert code == 2 and "nets.py:make" in said.replace("\n", "") and "--run-code" in said
    assert not (honest / "ran").exists()
    code, _, said = command(*asked, "--run-code")
    assert (honest / "ran").exists() == (verb != "resume")
    if verb == "resume":  # which has no rows to go on with
        assert code == 2 and "passed its data" in " ".join(said.split())
    elif verb == "export":
        assert code == 2 and "--run-code" not in said
    else:
        assert code == 0, said


def test_a_card_runs_no_code_and_needs_none(honest: Path, tmp_path: Path, command: Command) -> None:
    expected = model_card(honest / "run")
    assert ": a differentially private PyTorch module" in expected
    assert not (honest / "ran").exists()
    shutil.move(honest / "nets.py", tmp_path / "elsewhere.py")
    try:
        assert command("card", str(honest / "run")) == (0, expected, "")
    finally:
        shutil.move(tmp_path / "elsewhere.py", honest / "nets.py")


def test_a_card_needs_no_engine_that_is_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study(tmp_path / "run", engine=SmallNetwork())
    expected = model_card(tmp_path / "run")
    monkeypatch.delitem(registry._ENGINES, SmallNetwork.name)
    assert model_card(tmp_path / "run") == expected
    with pytest.raises(InvalidInput, match="no engine is called 'small-network'"):
        dptune.load(tmp_path / "run")


def test_a_card_knows_how_the_budget_was_split_from_old_folders_too(
    linear: Path, tmp_path: Path
) -> None:
    expected, old = model_card(linear), tmp_path / "run"
    shutil.copytree(linear, old)
    result = FinishedRun.open(old).result
    finish(RunFolder(old), {key: result[key] for key in result if key != "paid_for"})
    assert model_card(old) == expected.replace(str(linear), str(old))


NAMES = {
    "a file elsewhere": "{elsewhere}/evil.py:make",
    "in the run folder": "{run}/evil.py:make",
    "in the current folder": "evil.py:make",
    "a module of the current folder": "evil:make",
    "a module that is imported already": "os:getcwd",
    "of this script": "__main__:main",
}


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("linear") / "run"
    study(out, search=dptune.UnitNoise())
    return out


@pytest.mark.parametrize(
    ("name", "option"),
    [
        *((name, "factory") for name in NAMES),
        *(("a file elsewhere", option) for option in ("loss", "augment")),
    ],
)
def test_no_name_in_a_model_or_a_configuration_is_imported(
    name: str, option: str, linear: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    shutil.copytree(linear, run)
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    for place in (run, elsewhere):
        (place / "evil.py").write_text(NETS)
    named = NAMES[name].format(run=run, elsewhere=elsewhere)
    engine = {"name": "torch-module", "factory": "hf:nowhere/nothing", option: named}
    folder = RunFolder.open(run)
    result = FinishedRun.open(run).result
    stored = folder.read_tensors("model.safetensors")
    assert stored is not None
    facts = json.dumps({**json.loads(stored[1]["facts"]), "engine": engine})
    honest = (run / "model.safetensors").read_bytes()
    folder.write_tensors("model.safetensors", stored[0], facts=facts)
    finish(folder, result)
    with pytest.raises(OwnCodeProblem, match=r"model.safetensors names its own code, "):
        dptune.load(run)
    assert "differentially private" in model_card(run)
    plain = parse((run / "run.toml").read_text(), "run.toml") | {"engine": engine}
    plain["study"] = f"{plain['study'].split('-')[0]}-{digest(plain)}"
    folder.write("model.safetensors", honest)
    folder.write("run.toml", tomli_w.dumps(plain))
    finish(folder, result)
    reused = a_config(reuse=str(run))
    assert "differentially private" in model_card(run)
    for read in (
        lambda run: dptune.resume(run, make_data()),
        lambda run: foresee(make_data(), reused),
        lambda run: study(tmp_path / "mine", reuse=run, ledger=str(run / "ledger.db")),
    ):
        with pytest.raises(OwnCodeProblem, match=r"run.toml names its own code, "):
            read(run)
    assert not (run / "ran").exists() and not (elsewhere / "ran").exists()
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("in the run folder", "lies in the run's folder"),
        ("in the current folder", "by a relative path"),
        ("a module of the run folder", "evil:make of .*evil.py, .* lies in the run's folder"),
    ],
)
def test_code_in_a_run_folder_or_a_relative_file_is_not_run_even_where_asked(
    name: str, why: str, linear: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    shutil.copytree(linear, run)
    (run / "evil.py").write_text(NETS)
    monkeypatch.chdir(run)
    named = NAMES[name].format(run=run) if name in NAMES else "evil:make"
    engine = {"name": "torch-module", "factory": named}
    folder, result = RunFolder.open(run), FinishedRun.open(run).result
    stored = folder.read_tensors("model.safetensors")
    assert stored is not None
    facts = json.dumps({**json.loads(stored[1]["facts"]), "engine": engine})
    folder.write_tensors("model.safetensors", stored[0], facts=facts)
    plain = parse((run / "run.toml").read_text(), "run.toml") | {"engine": engine}
    plain["study"] = f"{plain['study'].split('-')[0]}-{digest(plain)}"
    folder.write("run.toml", tomli_w.dumps(plain))
    finish(folder, result)
    for read in (
        lambda: dptune.load(run, own_code=True),
        lambda: dptune.resume(run, make_data(), own_code=True),
    ):
        with pytest.raises(OwnCodeProblem, match=why):
            read()
    assert not (run / "ran").exists()


def test_a_module_of_the_current_folder_is_named_by_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("evil.py").write_text(NETS)
    with pytest.raises(OwnCodeProblem, match=rf"evil:make of {tmp_path}/evil\.py, which would"):
        own_code.must_be_given(["evil:make"], "it")
    assert not Path("ran").exists()


def test_a_network_that_made_features_is_run_only_where_asked(tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text(NETS)
    backbone = {"name": f"module:{tmp_path}/evil.py:make", "kind": "pooled"}
    made_by = {"name": "evil", "backbones": [{**backbone, "transform": {"size": 8}}]}
    with pytest.raises(OwnCodeProblem, match=rf"names its own code, {tmp_path}/evil.py:make"):
        found_again(made_by)
    assert not (tmp_path / "ran").exists()
    data = make_data()
    data.made_by = made_by
    data.made_by["backbones"][0] |= {"digest": "", "columns": 4, "trained_on": ""}
    study(tmp_path / "run", data, search=dptune.UnitNoise())
    dptune.load(tmp_path / "run")  # which runs no network
    with pytest.raises(OwnCodeProblem, match="names its own code"):
        found_again(made_by)
    dptune.load(tmp_path / "run", own_code=True)
    with pytest.raises(InvalidInput, match="must describe its pictures"):
        found_again(made_by)
    assert (tmp_path / "ran").exists()


def own_network() -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))


def test_what_this_process_was_given_needs_no_asking(tmp_path: Path) -> None:
    """The usual way: a script tunes a function of its own, and loads, resumes and shows the run."""
    data, out = make_data(), tmp_path / "run"
    stop_after(out, data, "final run", engine=TorchModule(own_network), **QUICK)
    result = dptune.resume(out, data)
    assert (dptune.load(out).predict(ROWS) == result.model.predict(ROWS)).all()
    assert "PyTorch module" in model_card(out)


def test_a_study_may_reuse_the_search_of_a_module_that_it_names(
    honest: Path, tmp_path: Path
) -> None:
    data, address = make_data(), str(tmp_path / "ledger.db")
    dptune.Ledger.create(
        address, dptune.Budget(8.0, 1e-5), dataset="people", fingerprint=data.fingerprint
    )
    factory = f"{honest}/nets.py:make"
    options = {**QUICK, "search": dptune.LinearScaling(), "ledger": address}
    study(tmp_path / "first", data, engine=TorchModule(factory), **options)
    own_code._run.clear()
    options["engine"] = TorchModule(factory)
    assert study(tmp_path / "second", data, reuse=tmp_path / "first", **options).trials


def test_a_published_run_of_a_module_needs_its_code_and_the_flag(
    honest: Path, tmp_path: Path
) -> None:
    publish(honest / "run", tmp_path / "out")
    assert not (honest / "ran").exists()
    with pytest.raises(OwnCodeProblem, match=r"nets.py:make"):
        dptune.load(tmp_path / "out")
    assert dptune.load(tmp_path / "out", own_code=True).predict(ROWS).shape == (20,)


def test_a_study_does_not_go_on_with_a_module_that_computes_something_else(
    tmp_path: Path,
) -> None:
    """With weights of the same shapes, before any model is stored."""
    data, file, out = make_data(), tmp_path / "nets.py", tmp_path / "run"
    file.write_text(NETS)
    named = f"{file}:make"
    stop_after(out, data, "final run", engine=TorchModule(named), **QUICK)
    before = (out / "ledger.db").read_bytes()
    file.write_text(NETS.replace("Tanh", "ReLU"))
    with pytest.raises(OwnCodeProblem, match="computes something else than it did when this study"):
        dptune.resume(out, data, own_code=True)
    assert (out / "ledger.db").read_bytes() == before
    file.write_text(NETS)
    assert dptune.resume(out, data, own_code=True).guarantee.epsilon == pytest.approx(2.0)


def test_roundings_of_another_machine_are_no_other_code() -> None:
    engine = TorchModule(own_network, outputs=2)
    before = engine.inspection.initial_outputs((4,))
    assert before is not None and before.abs().min() > 1e-3
    engine.inspection.must_give_as_before((4,), before * (1 + 1e-4))
    with pytest.raises(OwnCodeProblem, match="computes something else"):
        engine.inspection.must_give_as_before((4,), before * 1.1)
