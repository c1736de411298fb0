"""Models as pipelines of scikit-learn's own classes, used without dptune."""

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dptune import load
from dptune.columns import Columns, Encoding, as_table
from dptune.data import Preprocessing
from dptune.data.sources import read_new_rows
from dptune.engines import TorchModule
from dptune.errors import InvalidInput
from dptune.export import to_sklearn
from support.models import (
    ENCODING,
    PREPARATIONS,
    PROMISE,
    all_steps,
    hard_rows,
    hard_table,
    linear_model,
    table_model,
)
from support.studies import study

CLASSES: list[tuple[Any, ...]] = [("no", "yes"), (3, 1, 2)]

WITHOUT_DPTUNE = """
import json, pickle, sys
sys.modules["dptune"] = None  # importing it fails
import numpy as np
pipeline = pickle.loads(open(sys.argv[1], "rb").read())
rows = np.asarray(json.loads(sys.stdin.read()))
print(json.dumps([pipeline.predict(rows).tolist(), pipeline.predict_proba(rows).tolist()]))
"""


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("classes", CLASSES, ids=str)
@pytest.mark.parametrize("prepared", PREPARATIONS)
def test_labels_and_probabilities_are_the_same(
    prepared: str, classes: tuple[Any, ...], bias: bool
) -> None:
    model = linear_model(PREPARATIONS[prepared], 4, classes, bias=bias)
    rows, pipeline = hard_rows(), to_sklearn(model)
    np.testing.assert_array_equal(pipeline.predict(rows), model.predict(rows))
    np.testing.assert_allclose(pipeline.predict_proba(rows), model.predict_proba(rows), atol=1e-5)
    assert pipeline.classes_.tolist() == list(classes)


@pytest.mark.parametrize("prepared", PREPARATIONS)
def test_values_are_the_same(prepared: str) -> None:
    model = linear_model(PREPARATIONS[prepared], 4)
    rows, pipeline = hard_rows(), to_sklearn(model)
    np.testing.assert_allclose(pipeline.predict(rows), model.predict(rows), rtol=1e-5, atol=1e-5)


def test_only_classes_of_scikit_learn_are_in_it_and_the_promise_in_words() -> None:
    pipeline = to_sklearn(linear_model(all_steps(), 4, ("no", "yes")))
    pickled = pickle.dumps(pipeline)
    assert b"dptune" not in pickled.replace(PROMISE.in_words().encode(), b"")
    assert pickle.loads(pickled).guarantee_ == PROMISE.in_words()


def test_a_frame_with_other_columns_is_refused() -> None:
    pipeline = to_sklearn(linear_model(all_steps(), 4, (0, 1), column_names=tuple("abcd")))
    frame = pd.DataFrame(hard_rows(), columns=list("abcd"))
    assert len(pipeline.predict(frame)) == len(frame)
    with pytest.raises(ValueError, match="order"):
        pipeline.predict(frame[list("bacd")])
    unnamed = to_sklearn(linear_model(all_steps(), 4, (0, 1)))
    with pytest.raises(ValueError, match="4 features"):
        unnamed.predict(hard_rows()[:, :3])


@pytest.mark.parametrize("classes", [(), ("no", "yes")], ids=str)
def test_declared_columns_are_prepared_alike(classes: tuple[Any, ...]) -> None:
    model, frame = table_model(classes), hard_table()
    pipeline = pickle.loads(pickle.dumps(to_sklearn(model)))
    features = pipeline[0].transform(frame.assign(id="secret"))
    rows = ENCODING.apply(ENCODING.code(as_table(frame), where="the table"))
    np.testing.assert_allclose(features, rows, atol=1e-6)
    backwards = frame[frame.columns[::-1]]
    np.testing.assert_array_equal(pipeline.predict(backwards), pipeline.predict(frame))
    if classes:
        found = pipeline.predict_proba(frame)
        np.testing.assert_array_equal(pipeline.predict(frame), model.predict(frame))
        np.testing.assert_allclose(found, model.predict_proba(frame), atol=1e-5)
    else:
        np.testing.assert_allclose(pipeline.predict(frame), model.predict(frame), rtol=1e-5)
    with pytest.raises(ValueError, match="NaN"):
        pipeline.predict(frame.assign(height=np.nan))


WRITTEN = {
    "smoker": [
        ["yes", "NO", None, "Y", "n"],
        ["TRUE", " false ", "n/a", "t", "F"],
        ["1", "0", "", "1.0", "0.0"],
        [1, 0, np.nan, 1, 0],
        pd.array([True, False, None, True, False], dtype="boolean"),
    ],
    "insured": [
        ["Yes", "No", "NA", "f", "True"],
        [True, False, None, False, True],
        pd.array([1, 0, None, 0, 1], dtype="Int64"),
    ],
    "begun": [
        ["2011-02-28T23:59:00", "1904-02-29 01:00", "", "2100-12-31", "2020-12-31T12:30:00.5"],
        ["2011-02-28T23:59", "1904-02-29T01:00:00", None, "2100-12-31", "2020-12-31 12:00"],
        pd.to_datetime(hard_table()["begun"]).astype("datetime64[s]"),
    ],
    "ended": [["2020-12-31 12:00", "2100-12-31", "n/a", "1904-02-29 01:00", "2011-02-28 23:59"]],
    "color": [[" D", "", "zz", "1 ", "NA"]],
}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_dptune_reads_the_pipeline_reads_alike(name: str) -> None:
    model, frame = table_model(), hard_table()
    pipeline, wanted = to_sklearn(model), model.predict_proba(frame)
    for values in WRITTEN[name]:
        written = frame.assign(**{name: values})
        np.testing.assert_allclose(model.predict_proba(written), wanted, atol=1e-12)
        np.testing.assert_allclose(pipeline.predict_proba(written), wanted, atol=1e-5)


def test_a_text_that_is_no_truth_is_refused_and_not_shown() -> None:
    pipeline, frame = to_sklearn(table_model()), hard_table()
    for wrong in ("maybe", 2):
        with pytest.raises(ValueError, match="contains NaN") as refused:
            pipeline.predict(frame.assign(smoker=wrong))
        assert "maybe" not in str(refused.value)


@pytest.mark.parametrize("kind", ["boolean", "date"])
def test_a_gap_that_nothing_stands_for_is_refused(kind: str) -> None:
    declared = {"kind": kind} | ({"range": ["2010-01-01", "2020-12-31"]} if kind == "date" else {})
    encoding = Encoding(Columns.of({"x": declared, "y": "number"}))
    pipeline = to_sklearn(linear_model(Preprocessing(encoding=encoding), encoding.width, (0, 1)))
    known = "2012-01-01" if kind == "date" else "no"
    assert len(pipeline.predict(pd.DataFrame({"x": [known, known], "y": 1.0}))) == 2
    with pytest.raises(ValueError, match="NaN"):
        pipeline.predict(pd.DataFrame({"x": [known, None], "y": 1.0}))
    assert pipeline.inputs_["x"].endswith("; no gaps")


CSV = """smoker,since,weight,ill
yes,2024-01-05,60,no
no,2024-02-06,70,yes
"""
DECLARED = """
[columns]
smoker = "boolean"
since = { kind = "date", range = ["2024-01-01", "2024-12-31"], fill = "2024-06-01" }
weight = { kind = "number", range = [40, 120] }
ill = "boolean"
"""


@pytest.mark.parametrize("format", ["pkl", "onnx"])
def test_the_command_says_what_columns_must_be_and_the_file_of_training_is_read(
    format: str, tmp_path: Path, command: Callable[..., tuple[int, str, str]]
) -> None:
    if format == "onnx":
        pytest.importorskip("onnx")
    rows, run, file = tmp_path / "rows.csv", tmp_path / "run", tmp_path / f"model.{format}"
    head, *lines = CSV.splitlines(keepends=True)
    rows.write_text(head + "".join(lines) * 200)
    (tmp_path / "columns.toml").write_text(DECLARED)
    tune = ("--data", str(rows), "--label", "ill", "--columns", str(tmp_path / "columns.toml"))
    budget = ("--epsilon", "1", "--delta", "1e-5", "--out", str(run))
    code, _, said = command("tune", *tune, *budget)
    assert code == 0, said
    code, told, said = command("export", str(run), "-o", str(file))
    assert code == 0, said
    assert [line.split(":")[0].strip() for line in told.splitlines()[2:]] == [
        "smoker",
        "since",
        "weight",
    ]
    if format == "pkl":
        frame = pd.read_csv(rows)
        found = pickle.loads(file.read_bytes()).predict(frame)
        assert found.tolist() == load(run).predict(frame.drop(columns="ill")).tolist()


def test_at_most_ten_columns_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    from dptune.cli.export_verb import _show

    _show("ONNX", "a.onnx", {f"x{place}": "float" for place in range(12)})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 13
    assert lines[-1].strip().startswith("and 2 more")


def test_frames_of_polars_and_categories_as_numbers_are_taken() -> None:
    pl = pytest.importorskip("polars")
    pipeline, frame = to_sklearn(table_model()), hard_table()
    wanted = pipeline.predict_proba(frame)
    smoker = pl.Series("smoker", frame["smoker"].tolist())
    taken = pl.from_pandas(frame.drop(columns="smoker")).with_columns(smoker)
    np.testing.assert_allclose(pipeline.predict_proba(taken), wanted, atol=1e-12)
    ones = [pipeline.predict_proba(frame.assign(color=one)) for one in ("1", 1, 1.0)]
    np.testing.assert_array_equal(ones[0], ones[1])
    np.testing.assert_array_equal(ones[0], ones[2])


def test_columns_may_have_any_names() -> None:
    named = Encoding(Columns.of({"n_jobs": "number", "a__b": "number", "ä ö": "boolean"}))
    model = linear_model(Preprocessing(encoding=named), named.width, (0, 1))
    frame = pd.DataFrame(np.ones((2, 3)), columns=named.columns.names)
    np.testing.assert_array_equal(to_sklearn(model).predict(frame), model.predict(frame))


@pytest.mark.parametrize("declared", ["true", "True"])
def test_truths_are_one_category_however_they_are_written(declared: str, tmp_path: Path) -> None:
    encoding = Encoding(Columns.of({"smoker": {"kind": "category", "values": [declared, "no"]}}))
    model = linear_model(Preprocessing(encoding=encoding), encoding.width, column_names=("smoker",))
    pipeline, truths = to_sklearn(model), pd.DataFrame({"smoker": [True, False]})
    wanted = model.predict({"smoker": ["true", "what else"]})
    assert wanted[0] != wanted[1]
    truths.to_csv(tmp_path / "a.csv", index=False)  # as True and False
    for found in (
        model.predict(truths),
        model.predict(read_new_rows(tmp_path / "a.csv", encoding)),
        pipeline.predict(truths),
        pipeline.predict(truths.astype(str)),
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_a_public_hash_is_refused() -> None:
    buckets = Encoding(Columns.of({"city": {"kind": "category", "buckets": 7}}))
    model = linear_model(Preprocessing(encoding=buckets), buckets.width, (0, 1))
    with pytest.raises(InvalidInput, match="city: this column is hashed into buckets"):
        to_sklearn(model)


def test_the_command_writes_what_a_process_without_dptune_predicts_with(
    tmp_path: Path, command: Callable[..., tuple[int, str, str]]
) -> None:
    run, file = tmp_path / "run", tmp_path / "model.pkl"
    study(run)
    assert command("export", str(run), "-o", str(file))[0] == 0
    rows = np.random.default_rng(1).normal(size=(20, 4))
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_DPTUNE, str(file)],
        input=json.dumps(rows.tolist()),
        capture_output=True,
        text=True,
        check=True,
    )
    labels, probabilities = json.loads(done.stdout)
    model = load(run)
    assert labels == model.predict(rows).tolist()
    np.testing.assert_allclose(probabilities, model.predict_proba(rows), atol=1e-5)

    before = file.read_bytes()
    code, _, said = command("export", str(run), "-o", str(file))
    assert (code, file.read_bytes()) == (2, before)
    assert "is there already" in said
    code, _, said = command("export", str(run), "-o", str(tmp_path / "model.joblib"))
    assert code == 2
    assert ".onnx or .pkl" in " ".join(said.split())
    code, _, said = command("export", str(run), "-o", str(tmp_path / "nowhere" / "model.pkl"))
    assert code == 2
    assert "cannot be written" in said


def test_what_is_not_linear_is_refused() -> None:
    model = linear_model(all_steps(), 4, (0, 1))
    other: Any = replace(model, model=object(), engine=TorchModule("torch.nn:Linear", "softmax"))
    with pytest.raises(InvalidInput, match="only linear models"):
        to_sklearn(other)
    with pytest.raises(InvalidInput, match=r"got a Pipeline: give result\.model"):
        to_sklearn(to_sklearn(model))  # type: ignore[arg-type]
