"""Export a trained model as an ONNX file, which onnxruntime and others run without dptune.

The graph computes in float64, as dptune prepares rows, and returns float32.
"""

import json
from collections.abc import Container
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune.data.row_maps import (
    Append,
    Asinh,
    ClipLength,
    Divide,
    Multiply,
    RowMap,
    Scale,
    Subtract,
    UnitLength,
)
from dptune.errors import InvalidInput
from dptune.export.onnx_columns import columns_of, encoded_columns, inputs, inputs_in_words
from dptune.export.onnx_nodes import FLOAT, LEARNERS, Nodes, kind_of, value
from dptune.export.steps import class_labels, written
from dptune.study.trained_model import TrainedModel
from dptune.version import __version__

# Versions of 2022 and 2021, which today's runtimes read.
_VERSIONS = {"": 18, LEARNERS: 3}
_FORMAT = 8
_MATRIX = "features"  # the only input, if columns have no inputs of their own


def to_onnx(model: TrainedModel, path: str | Path) -> None:
    """Write the model as an ONNX file.

    For a table with declared columns it has one input per column, (rows, 1), with the name of the
    column: numbers, 0 or 1, hours since 1970-01-01, or texts. Otherwise it has one matrix,
    `features`. Its outputs are `label` and `probabilities`, or `value` (`predicted_label` and so on
    if a column has such a name). Its metadata hold the guarantee under `guarantee`.
    """
    from onnx import checker

    made = _model(model)
    checker.check_model(made, full_check=True)
    try:
        Path(path).write_bytes(made.SerializeToString())
    except OSError as error:
        raise InvalidInput(f"{str(path)!r} cannot be written: {error.strerror}.") from None


def _model(model: TrainedModel) -> Any:
    from onnx import helper

    made = helper.make_model(
        _graph(model),
        opset_imports=[helper.make_opsetid(*each) for each in _VERSIONS.items()],
        ir_version=_FORMAT,
        producer_name="dptune",
        producer_version=__version__,
        doc_string="A linear model with differential privacy; see guarantee in the metadata.",
    )
    metadata = {"guarantee": model.guarantee.in_words()}
    if model.inputs is not None:
        metadata["inputs"] = json.dumps(inputs_in_words(model.inputs))
    elif model.column_names:
        metadata["columns"] = json.dumps(model.column_names)
    helper.set_model_props(made, metadata)
    return made


def _graph(model: TrainedModel) -> Any:
    from onnx import helper

    parts = written(model)
    nodes = Nodes()
    encoding = model.preprocessing.encoding
    taken = [value(_MATRIX, FLOAT, model.columns)]
    if encoding is None:
        rows = nodes.doubles(_MATRIX)
    elif model.inputs is None:
        rows = encoded_columns(nodes, encoding, columns_of(nodes, _MATRIX, encoding))
    else:
        taken, rows = inputs(encoding), encoded_columns(nodes, encoding)
    for row_map in parts.maps:
        rows = _mapped(nodes, row_map, rows)
    outputs = nodes.add("MatMul", rows, nodes.constant(parts.weights.T))
    outputs = nodes.add("Add", outputs, nodes.constant(parts.added))
    known = {each.name for each in taken}
    if model.classes:
        results = _classes(nodes, outputs, class_labels(model), known)
    else:
        flat = nodes.add("Squeeze", outputs, nodes.constant(np.array([1])))
        results = [value(_free("value", known), FLOAT)]
        nodes.add("Cast", flat, to=FLOAT, gives=results[0].name)
    return helper.make_graph(nodes.nodes, "dptune", taken, results, nodes.constants)


def _mapped(nodes: Nodes, row_map: RowMap, rows: str) -> str:  # noqa: PLR0911
    match row_map:
        case Scale(shift, scale):
            moved = nodes.add("Sub", rows, nodes.constant(shift))
            return nodes.add("Div", moved, nodes.constant(scale))
        case Subtract(mean):
            return nodes.add("Sub", rows, nodes.constant(mean))
        case Divide(by):
            return nodes.add("Div", rows, nodes.constant(by))
        case Asinh():
            return nodes.asinh(rows)
        case Append(value):
            pads, last = nodes.constant(np.array([0, 1])), nodes.constant(np.array([-1]))
            return nodes.add("Pad", rows, pads, nodes.constant(value), last)
        case UnitLength():
            inside, length, _ = _lengths(nodes, rows)
            return nodes.add("Div", inside, length)
        case ClipLength(reach):
            _, length, largest = _lengths(nodes, rows)
            whole = nodes.add("Mul", length, largest)
            return nodes.add("Div", rows, nodes.add("Max", whole, nodes.constant(reach)))
        case Multiply(matrix):
            return nodes.add("MatMul", rows, nodes.constant(matrix))
    raise AssertionError(row_map)  # columns are encoded before


def _lengths(nodes: Nodes, rows: str) -> tuple[str, str, str]:
    """Rows divided by their largest entry, so that no square overflows; their lengths then; and
    these entries. A row of zeros has 1 for both."""
    along = nodes.constant(np.array([1]))
    largest = _one_for_zero(nodes, nodes.add("ReduceMax", nodes.add("Abs", rows), along))
    inside = nodes.add("Div", rows, largest)
    squares = nodes.add("ReduceSum", nodes.add("Mul", inside, inside), along)
    return inside, _one_for_zero(nodes, nodes.add("Sqrt", squares)), largest


def _one_for_zero(nodes: Nodes, lengths: str) -> str:
    is_zero = nodes.add("Equal", lengths, nodes.constant(0.0))
    return nodes.add("Where", is_zero, nodes.constant(1.0), lengths)


def _free(name: str, columns: Container[str]) -> str:
    """The name of an output, which a column may have, too."""
    while name in columns:
        name = f"predicted_{name}"
    return name


def _classes(nodes: Nodes, logits: str, labels: NDArray[Any], columns: Container[str]) -> list[Any]:
    label, probabilities = (_free(name, columns) for name in ("label", "probabilities"))
    kind = kind_of(labels)
    names = nodes.constant(labels.astype(object) if labels.dtype.kind == "U" else labels)
    best = nodes.add("ArgMax", logits, axis=1, keepdims=0)
    nodes.add("Gather", names, best, gives=label)
    shares = nodes.add("Softmax", logits, axis=1)
    nodes.add("Cast", shares, to=FLOAT, gives=probabilities)
    return [value(label, kind), value(probabilities, FLOAT, len(labels))]
