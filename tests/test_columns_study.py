"""A study of declared columns, end to end: what it keeps, resumes, predicts and refuses."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from module_engine import SmallNetwork
from numpy.typing import NDArray

import dptune
from dptune.accounting import Budget
from dptune.columns import Columns
from dptune.data import Data
from dptune.data.sources import load_data, read_new_rows
from dptune.errors import InvalidInput
from dptune.report.card import model_card
from dptune.search.space import Space
from dptune.search.unit_noise import UnitNoise
from dptune.study.config import Preparation, digest, parse
from dptune.study.planning import before_paying, export_notes, foresee, read_config
from dptune.study.result import StudyResult
from dptune.study.run_folder import RunFolder
from dptune.study.study import resume, tune
from support.studies import a_config

# The plain entry stands between others, which TOML would not keep so.
COLUMNS: dict[str, Any] = {
    "age": {"kind": "number", "range": [20, 60], "fill": 40, "indicator": True},
    "smoker": "boolean",
    "town": {"kind": "category", "values": ["Ulm", "Bonn"]},
    "name": "drop",
    "ill": {"kind": "category", "values": ["yes", "no"]},
}
BUDGET = Budget(8.0, 1e-5)


def people(rows: int, seed: int) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    smoker = random.random(rows) < 0.5
    ages = random.uniform(10, 70, rows)
    ages[::9] = np.nan
    return pd.DataFrame(
        {
            "town": random.choice(["Ulm", "Bonn", "Jena"], rows),
            "age": ages,
            "name": [f"secret name {number}" for number in range(rows)],
            "smoker": np.where(smoker, "yes", "no"),
            "ill": np.where(smoker, "yes", "no"),
        }
    )


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, StudyResult]:
    """A finished run r of the people in a.csv, to look at only."""
    folder = tmp_path_factory.mktemp("people")
    people(1000, 0).to_csv(folder / "a.csv", index=False)
    people(200, 1).to_csv(folder / "b.csv", index=False)
    source = {"source": str(folder / "a.csv"), "label": "ill", "test": str(folder / "b.csv")}
    data = load_data(**source, columns=COLUMNS)
    return folder, tune(data, budget=BUDGET, search=UnitNoise(), out=folder / "r", source=source)


def test_study_learns_from_category_column(study: tuple[Path, StudyResult]) -> None:
    _, result = study
    assert result.test_accuracy is not None and result.test_accuracy > 0.95
    assert result.model.shape == (6,)
    assert result.model.column_names == ("age", "smoker", "town")
    facts = result.model.guarantee.public_facts
    assert "the columns by name" in facts[1] and "the classes (2), as declared" in facts
    assert "columns encoded one row at a time" in result.model.preprocessing.in_words()


def test_new_rows_are_read_like_private_rows(study: tuple[Path, StudyResult]) -> None:
    folder, result = study
    new = people(200, 1)
    model = dptune.load(folder / "r")
    right: NDArray[Any] = result.model.decision_function(new.drop(columns="ill"))
    assert model.encoding == result.model.encoding is not None
    codes = read_new_rows(folder / "b.csv", model.encoding)
    for rows in (
        codes,
        new[["smoker", "town", "age"]],
        {name: new[name].to_numpy() for name in ("age", "smoker", "town")},
        new[["age", "smoker", "town"]].to_numpy(),  # without names: as they were declared
    ):
        np.testing.assert_array_equal(model.decision_function(rows), right)
    assert set(model.predict(codes)) == {"yes", "no"}
    with pytest.raises(InvalidInput, match=r"(?s)the table of new rows .*  town: is missing"):
        model.predict(new[["smoker", "age"]])


def test_columns_of_numbers_are_found_by_name_in_whatever_holds_them() -> None:
    features = np.random.default_rng(0).normal(size=(500, 2))
    features[:, 1] += 3
    data = Data.from_columns(
        pd.DataFrame(features, columns=["a", "b"]),
        features[:, 0] > 0,
        {"a": "number", "b": "number"},
    )
    space = Space(steps=(5, 20))
    model = tune(data, budget=BUDGET, search=UnitNoise(), space=space).model
    right = model.decision_function(features)
    turned = pd.DataFrame(features[:, ::-1], columns=["b", "a"])
    table = pa.Table.from_pandas(turned)
    (batch,) = table.to_batches()
    for rows in (turned, table, batch, {name: turned[name].to_numpy() for name in "ba"}):
        np.testing.assert_array_equal(model.decision_function(rows), right)


def test_a_run_keeps_what_was_declared_in_its_order(study: tuple[Path, StudyResult]) -> None:
    folder, _ = study
    config = read_config(RunFolder.open(folder / "r"))
    assert config.columns is not None
    assert list(config.columns.declared.items()) == list(Columns.of(COLUMNS).declared.items())
    for file in (folder / "r").rglob("*"):
        assert not file.is_file() or b"secret name" not in file.read_bytes()


def test_a_resumed_study_needs_the_same_columns(study: tuple[Path, StudyResult]) -> None:
    folder, result = study
    again = resume(folder / "r")
    assert again.test_accuracy == result.test_accuracy
    turned = dict(reversed(COLUMNS.items()))
    for other in (COLUMNS | {"age": "drop"}, turned):
        data = load_data(folder / "a.csv", label="ill", columns=other)
        with pytest.raises(InvalidInput, match=r"other columns than|other public facts"):
            resume(folder / "r", data)


def test_the_card_lists_the_columns(study: tuple[Path, StudyResult]) -> None:
    card = model_card(study[0] / "r")
    assert "| age | number | 20 to 60; polynomial of degree 6; gaps: 40 | 7 |" in card
    assert "| town | category | Ulm, Bonn | 3 |" in card and "| smoker | boolean |" in card


def test_an_order_of_columns_that_is_changed_is_noticed(study: tuple[Path, StudyResult]) -> None:
    plain = parse((study[0] / "r" / "run.toml").read_text(), "it")
    turned = plain | {"columns": dict(reversed(plain["columns"].items()))}
    assert digest(turned) != digest(plain)


def test_studies_without_columns_keep_the_digest_they_had() -> None:
    older = """
        study = "x-y"
        facts = ["the number of rows (9), as declared"]
        budget = {epsilon = 1.0, delta = 1e-5}
        data = {source = "a.csv"}
        search = {method = "unit-noise"}
        engine = {name = "linear"}
        run = {seed = 3, balance = "none", check = true}
    """
    assert digest(parse(older, "it")) == "da89dd0207c790ad"  # by version 0.2 before columns


@pytest.mark.parametrize("asked", [{"standardize": True}, {"ranges": ((0, 1),) * 6}])
def test_columns_bring_their_own_ranges(asked: dict[str, Any]) -> None:
    rows = people(50, 0)
    columns = {name: column for name, column in COLUMNS.items() if name != "ill"}
    data = Data.from_columns(
        rows.drop(columns="ill"),
        rows["ill"],
        columns,
        classes="public",
        public=(people(50, 1).drop(columns="ill"), people(50, 1)["ill"]),
    )
    with pytest.raises(InvalidInput, match=r"leave it out, and give every number its range"):
        tune(data, budget=BUDGET, preparation=Preparation(**asked))


def test_buckets_are_said_to_stop_an_export_before_anything_is_paid() -> None:
    columns = {"age": "number", "town": {"kind": "category", "buckets": 4}, "zip": "drop"}
    config = a_config(columns=Columns.of(columns))
    (note,) = export_notes(config)
    assert note.startswith("dptune export cannot write this model") and "sorts town into" in note
    assert not export_notes(a_config(columns=Columns.of({"age": "number"})))
    assert not export_notes(a_config(columns=Columns.of(columns), engine=SmallNetwork()))


def test_what_can_be_said_before_paying_is_said() -> None:
    rows = people(30, 0).drop(columns=["ill", "name"])
    columns = {"age": "number", "smoker": "boolean", "town": {"kind": "category", "buckets": 4}}
    data = Data.from_columns(rows.fillna(30), ["a"] * 30, columns, classes=["a", "b"])
    config = a_config(
        budget=Budget(0.1, 1e-5), search=UnitNoise(), space=Space(), columns=data.declared
    )
    one, noise, hashed = before_paying(data, config)
    assert "into buckets" in hashed
    assert "of one class" in one and "nothing can be learned" in noise
    _, promise = foresee(data, config)  # which is stored, and so says nothing of the rows
    assert "of one class" not in json.dumps(promise.to_dict())
