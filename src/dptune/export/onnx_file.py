"""A trained model as an ONNX file, which onnxruntime and others run without dptune.

The graph computes in float64, as dptune prepares rows, and answers in float32.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune.errors import InvalidInput, MissingExtra
from dptune.export.steps import (
    Beside,
    Scaled,
    Step,
    Turned,
    UnitRows,
    class_labels,
    written,
)
from dptune.study.trained_model import TrainedModel
from dptune.version import __version__

try:
    from onnx import GraphProto, ModelProto, ValueInfoProto, checker, helper, numpy_helper
    from onnx import TensorProto as Types
except ImportError as problem:
    raise MissingExtra(
        "ONNX files need the package onnx. Install it: pip install 'dptune[onnx]'"
    ) from problem

# Of 2022 and 2021: what serves models today reads them.
_VERSIONS = {"": 18, "ai.onnx.ml": 3}
_FORMAT = 8
_ROWS = "rows"
_AT_ONCE = "features"  # the one input, where columns have no inputs of their own


def to_onnx(model: TrainedModel, path: str | Path) -> None:
    """Write the model as an ONNX file.

    It takes one matrix `features`, and answers with `label` and `probabilities`, or with `value`.
    What is promised stands in its metadata, under `guarantee`.
    """
    made = _model(model)
    checker.check_model(made, full_check=True)
    try:
        Path(path).write_bytes(made.SerializeToString())
    except OSError as error:
        raise InvalidInput(f"{str(path)!r} cannot be written: {error.strerror}.") from None


def _model(model: TrainedModel) -> ModelProto:
    made = helper.make_model(
        _graph(model),
        opset_imports=[helper.make_opsetid(*each) for each in _VERSIONS.items()],
        ir_version=_FORMAT,
        producer_name="dptune",
        producer_version=__version__,
        doc_string="A linear model with differential privacy; see guarantee in the metadata.",
    )
    told = {"guarantee": model.guarantee.in_words()}
    if model.column_names:
        told["columns"] = ", ".join(model.column_names)
    helper.set_model_props(made, told)
    return made


def _graph(model: TrainedModel) -> GraphProto:
    parts = written(model)
    nodes = _Nodes()
    inputs = [_value(_AT_ONCE, Types.FLOAT, model.columns)]
    rows = nodes.add("Cast", _AT_ONCE, to=Types.DOUBLE)
    for step in parts.steps:
        rows = _step(nodes, step, rows)
    outputs = nodes.add("MatMul", rows, nodes.constant(parts.weights.T))
    outputs = nodes.add("Add", outputs, nodes.constant(parts.added))
    if model.classes:
        told = _classes(nodes, outputs, class_labels(model))
    else:
        flat = nodes.add("Squeeze", outputs, nodes.constant(np.array([1])))
        nodes.add("Cast", flat, to=Types.FLOAT, gives="value")
        told = [_value("value", Types.FLOAT)]
    return helper.make_graph(nodes.nodes, "dptune", inputs, told, nodes.constants)


class _Nodes:
    """A graph as it grows: every node has one result, named after its place unless told."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, operator: str, *inputs: str, gives: str = "", **options: Any) -> str:
        gives = gives or f"{operator.lower()} {len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [gives], **options))
        return gives

    def constant(self, values: NDArray[Any]) -> str:
        name = f"constant {len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name


def _step(nodes: _Nodes, step: Step, rows: str) -> str:
    match step:
        case Scaled(shift, scale):
            moved = nodes.add("Sub", rows, nodes.constant(shift))
            return nodes.add("Div", moved, nodes.constant(scale))
        case Beside(constant):
            last = nodes.constant(np.array([-1]))
            pads = nodes.constant(np.array([0, 1]))
            return nodes.add("Pad", rows, pads, nodes.constant(np.array(constant)), last)
        case UnitRows():
            # The largest entry first, so that no square overflows.
            largest = nodes.add("ReduceMax", nodes.add("Abs", rows), nodes.constant(np.array([1])))
            inside = nodes.add("Div", rows, _one_for_zero(nodes, largest))
            squares = nodes.add("Mul", inside, inside)
            length = nodes.add(
                "Sqrt", nodes.add("ReduceSum", squares, nodes.constant(np.array([1])))
            )
            return nodes.add("Div", inside, _one_for_zero(nodes, length))
        case Turned(matrix):
            return nodes.add("MatMul", rows, nodes.constant(matrix))


def _one_for_zero(nodes: _Nodes, lengths: str) -> str:
    """A row of zeros has no direction, and stays as it is."""
    is_zero = nodes.add("Equal", lengths, nodes.constant(np.array(0.0)))
    return nodes.add("Where", is_zero, nodes.constant(np.array(1.0)), lengths)


def _classes(nodes: _Nodes, logits: str, labels: NDArray[Any]) -> list[ValueInfoProto]:
    kind = (
        Types.STRING if labels.dtype.kind == "U" else helper.np_dtype_to_tensor_dtype(labels.dtype)
    )
    names = nodes.constant(labels.astype(object) if labels.dtype.kind == "U" else labels)
    best = nodes.add("ArgMax", logits, axis=1, keepdims=0)
    nodes.add("Gather", names, best, gives="label")
    shares = nodes.add("Softmax", logits, axis=1)
    nodes.add("Cast", shares, to=Types.FLOAT, gives="probabilities")
    return [_value("label", kind), _value("probabilities", Types.FLOAT, len(labels))]


def _value(name: str, kind: Any, *columns: int) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, [_ROWS, *columns])
