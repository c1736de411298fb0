"""Models as ONNX files, run by onnxruntime."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dptune import load
from dptune.errors import InvalidInput, MissingExtra
from dptune.study.trained_model import TrainedModel
from support.models import PREPARATIONS, PROMISE, all_steps, hard_rows, linear_model
from support.studies import study

pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.usefixtures("one_thread")
CLASSES: list[tuple[Any, ...]] = [("no", "yes"), (3, 1, 2), (0.5, 1.5), (False, True)]


def session(model: TrainedModel, folder: Path) -> Any:
    from dptune.export import to_onnx

    to_onnx(model, folder / "model.onnx")
    return opened(folder / "model.onnx")


def opened(file: Path) -> Any:
    return runtime.InferenceSession(str(file), providers=["CPUExecutionProvider"])


def asked(session: Any, rows: Any) -> Mapping[str, Any]:
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(names, {"features": rows}), strict=True))


@pytest.mark.parametrize("classes", CLASSES, ids=str)
@pytest.mark.parametrize("prepared", PREPARATIONS)
def test_labels_and_probabilities_are_the_same(
    prepared: str, classes: tuple[Any, ...], tmp_path: Path
) -> None:
    model = linear_model(PREPARATIONS[prepared], 4, classes, bias=prepared == "all steps")
    rows = hard_rows()
    found = asked(session(model, tmp_path), rows)
    assert found["label"].tolist() == model.predict(rows).tolist()
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(rows), atol=1e-5)


@pytest.mark.parametrize("prepared", PREPARATIONS)
def test_values_are_the_same(prepared: str, tmp_path: Path) -> None:
    model, rows = linear_model(PREPARATIONS[prepared], 4), hard_rows()
    found = asked(session(model, tmp_path), rows)
    np.testing.assert_allclose(found["value"], model.predict(rows), rtol=1e-5, atol=1e-5)


def test_the_metadata_has_the_promise_in_words_and_the_names_of_columns(tmp_path: Path) -> None:
    model = linear_model(all_steps(), 4, (0, 1), column_names=("age", "b", "c", "d"))
    told = session(model, tmp_path).get_modelmeta()
    assert told.custom_metadata_map == {"guarantee": PROMISE.in_words(), "columns": "age, b, c, d"}
    assert told.producer_name == "dptune"


def test_the_command_writes_it(
    tmp_path: Path, command: Callable[..., tuple[int, str, str]]
) -> None:
    run, file = tmp_path / "run", tmp_path / "model.onnx"
    study(run)
    code, said, _ = command("export", str(run), "-o", str(file), "--json")
    assert (code, '"format": "ONNX"' in said) == (0, True)
    model, rows = load(run), hard_rows()
    assert asked(opened(file), rows)["label"].tolist() == model.predict(rows).tolist()
    with pytest.raises(InvalidInput, match="cannot be written"):
        session(model, tmp_path / "nowhere")


def test_without_onnx_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from dptune import export

    monkeypatch.setitem(sys.modules, "onnx", None)
    for module in ("file", "columns", "nodes"):
        monkeypatch.delitem(sys.modules, f"dptune.export.onnx_{module}", raising=False)
    with pytest.raises(MissingExtra, match=r"pip install 'dptune\[onnx\]'"):
        _ = export.to_onnx
