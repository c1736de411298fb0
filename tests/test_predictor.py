"""Trained models find the columns of new rows by name, where there are names."""

import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import safetensors.torch
from numpy.typing import NDArray
from safetensors import safe_open

import dptune
from dptune.accounting import Budget
from dptune.cli import app as cli
from dptune.data import Data
from dptune.data.sources import load_data
from dptune.errors import InvalidInput
from dptune.estimator import DPLinearClassifier
from dptune.search.space import Space
from dptune.search.unit_noise import UnitNoise
from dptune.study.study import tune
from dptune.study.trained_model import TrainedModel
from support.old_folders import without_digests

NAMES = ["age", "dose", "weight"]


def frame(rows: int = 200) -> pd.DataFrame:
    features = np.random.default_rng(0).normal(size=(rows, 3)) * [1, 5, 25]
    return pd.DataFrame(features, columns=NAMES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run r on a table, to look at only."""
    there = tmp_path_factory.mktemp("named")
    frame().assign(label=np.where(frame()["age"] > 0, "old", "young")).to_csv(
        there / "a.csv", index=False
    )
    tune(
        load_data(there / "a.csv"),
        budget=Budget(8.0, 1e-5),
        space=Space(steps=(5, 10)),
        out=there / "r",
        source={"source": str(there / "a.csv")},
    )
    return there


@pytest.fixture
def model(folder: Path) -> TrainedModel:
    return dptune.load(folder / "r")


def logits(model: TrainedModel, features: Any) -> NDArray[Any]:
    return model.decision_function(features)


def test_names_are_stored_with_the_model(model: TrainedModel) -> None:
    assert model.column_names == tuple(NAMES)
    assert "the names of the columns, taken from the data" in model.guarantee.public_facts


def test_labels_given_as_floats_are_predicted_as_floats(tmp_path: Path) -> None:
    rows = frame()
    data = Data(rows, (rows["age"] > 0).astype(float))
    result = tune(data, budget=Budget(8.0, 1e-5), search=UnitNoise(), out=tmp_path / "r")
    for model in (result.model, dptune.load(tmp_path / "r")):
        assert model.predict(rows).dtype == np.float64
        assert str(model.classes) == "(0.0, 1.0)"
    estimator = DPLinearClassifier(epsilon=8.0).fit(rows, (rows["age"] > 0).astype(float))
    assert (estimator.classes_.dtype, estimator.predict(rows).dtype) == (np.float64, np.float64)


def test_a_frame_may_have_its_columns_in_any_order(model: TrainedModel) -> None:
    right = logits(model, frame().to_numpy())
    assert not np.allclose(right, logits(model, frame().to_numpy()[:, ::-1]))
    for order in (NAMES, NAMES[::-1], ["dose", "age", "weight"]):
        np.testing.assert_array_equal(logits(model, frame()[order]), right)
        np.testing.assert_array_equal(model.predict(frame()[order]), model.predict(frame()))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (frame().drop(columns="dose"), "lacks the columns dose; .* trained on: age, dose, weight"),
        (
            frame().rename(columns={"dose": "cost"}),
            "lacks the columns dose and has besides .* cost",
        ),
        (frame().assign(name="x"), "has besides the columns name;"),
        (frame()[[*NAMES, "age"]], "has besides the columns age;"),
    ],
    ids=["missing", "renamed", "more", "twice"],
)
def test_a_frame_of_other_columns_is_refused(
    model: TrainedModel, wrong: pd.DataFrame, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        model.predict(wrong)


def test_without_names_only_the_number_of_columns_is_checked(model: TrainedModel) -> None:
    plain = frame().to_numpy()
    np.testing.assert_array_equal(logits(model, pd.DataFrame(plain)), logits(model, plain))
    with pytest.raises(InvalidInput, match="rows of 3 features"):
        model.predict(plain[:, :2])


def test_a_gap_is_not_taken_for_a_number(model: TrainedModel) -> None:
    rows = frame()
    rows.loc[3, "dose"] = np.nan
    labels = np.arange(len(rows)) % 2
    for given in (rows, rows.to_numpy()):  # whose columns the model knows by name
        with pytest.raises(InvalidInput, match=r"missing or not finite .* in column dose;"):
            model.predict(given)
    with pytest.raises(InvalidInput, match=r"missing or not finite .* in column dose;"):
        Data(rows, labels)
    with pytest.raises(InvalidInput, match=r"missing or not finite .* in column 2, counted from 1"):
        Data(rows.to_numpy(), labels)


def test_a_model_stored_before_there_were_names_takes_columns_as_they_come(
    folder: Path, tmp_path: Path
) -> None:
    old = tmp_path / "old"
    old.mkdir()
    for path in (folder / "r").iterdir():
        if path.is_file():
            (old / path.name).write_bytes(path.read_bytes())
    without_digests(old)
    file = old / "model.safetensors"
    with safe_open(file, "pt") as stored:
        words = stored.metadata()
    facts = json.loads(words["facts"])
    del facts["column_names"]
    words["facts"] = json.dumps(facts)
    safetensors.torch.save_file(safetensors.torch.load_file(file), file, words)
    model, turned = dptune.load(old), frame()[NAMES[::-1]]
    assert model.column_names == ()
    np.testing.assert_array_equal(logits(model, turned), logits(model, turned.to_numpy()))


def predict(folder: Path, new: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, list[str]]:
    out = new.with_suffix(".out")
    arguments = ["predict", str(folder / "r"), "--data", str(new), "-o", str(out)]
    monkeypatch.setattr(sys, "argv", ["dptune", *arguments])
    with pytest.raises(SystemExit) as exit:
        cli.main()
    found = list(csv.reader(out.read_text().splitlines())) if out.exists() else []
    return int(exit.value.code or 0), [row[0] for row in found[1:]]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_file_may_have_its_columns_in_any_order(
    folder: Path, model: TrainedModel, tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    turned, new = frame()[NAMES[::-1]], tmp_path / f"new.{ending}"
    turned.insert(1, "label", "?")
    turned.to_csv(new, index=False) if ending == "csv" else turned.to_parquet(new)
    assert predict(folder, new, monkeypatch) == (0, model.predict(frame()).tolist())


def test_a_file_that_lacks_a_column_is_refused(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    frame().rename(columns={"dose": "cost"}).to_csv(tmp_path / "new.csv", index=False)
    assert predict(folder, tmp_path / "new.csv", monkeypatch) == (2, [])
    said = " ".join(capsys.readouterr().err.split())
    assert "lacks the columns dose and has besides the columns cost" in said
