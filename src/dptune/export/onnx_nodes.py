"""Build an ONNX graph node by node."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune.errors import MissingExtra

try:
    from onnx import TensorProto, ValueInfoProto, helper, numpy_helper
except ImportError as problem:
    raise MissingExtra(
        "ONNX files need the package onnx. Install it: pip install 'dptune[onnx]', in a "
        "clone '.[onnx]'"
    ) from problem

FLOAT, DOUBLE, WHOLE, TEXT = (
    TensorProto.FLOAT,
    TensorProto.DOUBLE,
    TensorProto.INT64,
    TensorProto.STRING,
)
LEARNERS = "ai.onnx.ml"  # the part of ONNX that knows texts
_ROWS = "rows"


class Nodes:
    """The nodes of a graph. Every node has one result, named after its position by default."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, operator: str, *inputs: str, gives: str = "", **options: Any) -> str:
        gives = gives or f"({operator} {len(self.nodes)})"  # not the name of any column
        self.nodes.append(helper.make_node(operator, inputs, [gives], **options))
        return gives

    def constant(self, values: Any) -> str:
        name = f"(constant {len(self.constants)})"
        array = np.ascontiguousarray(values).reshape(np.shape(values))
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def doubles(self, values: str) -> str:
        return self.add("Cast", values, to=DOUBLE)

    def asinh(self, values: str) -> str:
        """Compute asinh as sign(u) log(|u| + sqrt(u^2 + 1)), which runtimes support for doubles.
        Near 0, where that would lose digits, compute u - u^3 / 6."""
        one, size = self.constant(1.0), self.add("Abs", values)
        square = self.add("Mul", values, values)
        logarithm = self.add(
            "Log", self.add("Add", size, self.add("Sqrt", self.add("Add", square, one)))
        )
        far = self.add("Mul", self.add("Sign", values), logarithm)
        less = self.add("Sub", one, self.add("Div", square, self.constant(6.0)))
        is_near = self.add("Less", size, self.constant(1e-4))
        return self.add("Where", is_near, self.add("Mul", values, less), far)

    def one_hot(self, places: str, count: int) -> str:
        """One-hot encode whole numbers: (rows, 1) to (rows, count)."""
        return self.doubles(self.add("Equal", places, self.constant(np.arange(count))))


def value(name: str, kind: int, *columns: int) -> ValueInfoProto:
    """An input or output with `columns`."""
    return helper.make_tensor_value_info(name, kind, [_ROWS, *columns])


def kind_of(labels: NDArray[Any]) -> int:
    return TEXT if labels.dtype.kind == "U" else helper.np_dtype_to_tensor_dtype(labels.dtype)
