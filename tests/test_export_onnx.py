"""Models as ONNX files, run by onnxruntime."""

import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dptune import load
from dptune.columns import Columns, Encoding, as_table
from dptune.data import Preprocessing
from dptune.errors import InvalidInput, MissingExtra
from dptune.study.trained_model import TrainedModel
from support.models import (
    ENCODING,
    PREPARATIONS,
    PROMISE,
    SPAN,
    all_steps,
    hard_rows,
    hard_table,
    linear_model,
    table_model,
)
from support.studies import study

pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
CLASSES: list[tuple[Any, ...]] = [("no", "yes"), (3, 1, 2), (0.5, 1.5), (False, True)]


def session(model: TrainedModel, folder: Path) -> Any:
    from dptune.export import to_onnx

    to_onnx(model, folder / "model.onnx")
    return opened(folder / "model.onnx")


def opened(file: Path) -> Any:
    return runtime.InferenceSession(str(file), providers=["CPUExecutionProvider"])


def asked(session: Any, **inputs: Any) -> Mapping[str, Any]:
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


@pytest.mark.parametrize("classes", CLASSES, ids=str)
@pytest.mark.parametrize("prepared", PREPARATIONS)
def test_labels_and_probabilities_are_the_same(
    prepared: str, classes: tuple[Any, ...], tmp_path: Path
) -> None:
    model = linear_model(PREPARATIONS[prepared], 4, classes, bias=prepared == "all steps")
    rows = hard_rows()
    found = asked(session(model, tmp_path), features=rows)
    assert found["label"].tolist() == model.predict(rows).tolist()
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(rows), atol=1e-5)


@pytest.mark.parametrize("prepared", PREPARATIONS)
def test_values_are_the_same(prepared: str, tmp_path: Path) -> None:
    model, rows = linear_model(PREPARATIONS[prepared], 4), hard_rows()
    found = asked(session(model, tmp_path), features=rows)
    np.testing.assert_allclose(found["value"], model.predict(rows), rtol=1e-5, atol=1e-5)


def inputs(frame: pd.DataFrame) -> dict[str, Any]:
    """A table as the file takes it: texts, and codes of all else."""
    codes = ENCODING.code(as_table(frame), where="the table")
    fed = {}
    for place, name in enumerate(ENCODING.columns.kept):
        fed[name] = codes[:, [place]]
        if ENCODING.columns.declared[name].kind == "category":
            fed[name] = frame[[name]].fillna("").to_numpy(object)
    return fed


@pytest.mark.parametrize("classes", [(), ("no", "yes")], ids=str)
def test_declared_columns_are_inputs_of_their_own(classes: tuple[Any, ...], tmp_path: Path) -> None:
    model, frame = table_model(classes), hard_table()
    made = session(model, tmp_path)
    found = asked(made, **inputs(frame))
    if classes:
        assert found["label"].tolist() == model.predict(frame).tolist()
        np.testing.assert_allclose(found["probabilities"], model.predict_proba(frame), atol=1e-5)
    else:
        np.testing.assert_allclose(found["value"], model.predict(frame), rtol=1e-5)
    told = json.loads(made.get_modelmeta().custom_metadata_map["inputs"])
    assert list(told) == list(ENCODING.columns.kept)
    assert "hours since 1970-01-01" in told["begun"]
    assert told["age"] == "float, a number; NaN for a gap"
    assert told["height"] == "float, a number; no gaps"
    assert told["color"].startswith("string, a text")
    # Nobody said what stands for a gap there.
    unknown = asked(made, **inputs(frame) | {"height": np.full((5, 1), np.nan, np.float32)})
    assert np.isnan(unknown["probabilities" if classes else "value"]).all()


@pytest.mark.parametrize("classes", [(), ("no", "yes")], ids=str)
def test_columns_may_be_called_as_outputs_are(classes: tuple[Any, ...], tmp_path: Path) -> None:
    names = ("label", "value", "predicted_value", "probabilities")
    encoding = Encoding(Columns.of({name: {"kind": "number", "range": [0, 1]} for name in names}))
    model = linear_model(Preprocessing(encoding=encoding), encoding.width, classes)
    rows = np.random.default_rng(0).random((5, 4), np.float32)
    fed = {name: rows[:, [place]] for place, name in enumerate(names)}
    found = asked(session(model, tmp_path), **fed)
    table = {name: column[:, 0] for name, column in fed.items()}
    right = model.predict(table)
    if classes:
        assert found["predicted_label"].tolist() == right.tolist()
        shares = found["predicted_probabilities"]
        np.testing.assert_allclose(shares, model.predict_proba(table), atol=1e-5)
    else:
        np.testing.assert_allclose(found["predicted_predicted_value"], right, rtol=1e-5)


def test_parts_of_dates_are_those_of_the_calendar(tmp_path: Path) -> None:
    parts = ["weekday", "month", "hour"]
    declared = {"when": {"kind": "date", "range": SPAN, "parts": parts}}
    encoding = Encoding(Columns.of(declared))
    model = linear_model(Preprocessing(encoding=encoding), encoding.width)
    hours = np.arange(-3_000_000, 3_000_000, 97).astype(np.float32)[:, None]  # 342 years each way
    found = asked(session(model, tmp_path), when=hours)["value"]
    dates = {"when": hours[:, 0].astype("datetime64[h]").astype("datetime64[s]")}
    np.testing.assert_allclose(found, model.predict(dates), atol=1e-5)


def test_the_metadata_has_the_promise_in_words_and_the_names_of_columns(tmp_path: Path) -> None:
    model = linear_model(all_steps(), 4, (0, 1), column_names=tuple("abcd"))
    told = session(model, tmp_path).get_modelmeta()
    assert told.custom_metadata_map == {
        "guarantee": PROMISE.in_words(),
        "columns": '["a", "b", "c", "d"]',
    }
    assert told.producer_name == "dptune"


def test_the_command_writes_it(
    tmp_path: Path, command: Callable[..., tuple[int, str, str]]
) -> None:
    run, file = tmp_path / "run", tmp_path / "model.onnx"
    study(run)
    code, said, _ = command("export", str(run), "-o", str(file), "--json")
    assert (code, '"format": "ONNX"' in said) == (0, True)
    model, rows = load(run), hard_rows()
    assert asked(opened(file), features=rows)["label"].tolist() == model.predict(rows).tolist()
    with pytest.raises(InvalidInput, match="cannot be written"):
        session(model, tmp_path / "nowhere")


def test_without_onnx_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from dptune import export

    monkeypatch.setitem(sys.modules, "onnx", None)
    for module in ("file", "columns", "nodes"):
        monkeypatch.delitem(sys.modules, f"dptune.export.onnx_{module}", raising=False)
    with pytest.raises(MissingExtra, match=r"pip install 'dptune\[onnx\]'"):
        _ = export.to_onnx


def test_its_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parent.parent / "docs" / "guide" / "export.md"
    (block,) = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    exec(compile(block, str(page), "exec"), {})
    assert [each.name for each in opened(tmp_path / "model.onnx").get_inputs()] == ["features"]
