"""A trained model in formats that are used without dptune.

Names load on first use: only ONNX needs onnx.
"""

from typing import TYPE_CHECKING

from dptune.lazy import lazy_names

if TYPE_CHECKING:
    from dptune.export.onnx_file import to_onnx as to_onnx
    from dptune.export.sklearn_pipeline import to_sklearn as to_sklearn
else:
    __getattr__, __all__ = lazy_names(
        __name__,
        {
            "onnx_file": ("to_onnx",),
            "sklearn_pipeline": ("to_sklearn",),
        },
    )
