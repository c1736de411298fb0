"""Networks in ONNX's format, made here and run by onnxruntime where it is installed."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from dptune.errors import InvalidInput, MissingExtra
from dptune.features.find import find_backbone

PREPARED = {"size": 16, "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 3}
KERNEL = np.random.default_rng(0).normal(size=(5, 3, 3, 3)).astype(np.float32)


def written(folder: Path, outputs: dict[str, list[object]], batch: object = "batch") -> str:
    """A convolution (`map`), its mean over the map (`mean`), and the map as tokens (`tokens`)."""
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    nodes = [
        helper.make_node("Conv", ["pictures", "kernel"], ["map"]),
        helper.make_node("ReduceMean", ["map", "axes"], ["mean"], keepdims=0),
        helper.make_node("Reshape", ["map", "shape"], ["channels"]),
        helper.make_node("Transpose", ["channels"], ["tokens"], perm=[0, 2, 1]),
    ]
    kept = [
        numpy_helper.from_array(KERNEL, "kernel"),
        numpy_helper.from_array(np.array([2, 3]), "axes"),
        numpy_helper.from_array(np.array([0, 5, -1]), "shape"),
    ]
    taken = [helper.make_tensor_value_info("pictures", TensorProto.FLOAT, [batch, 3, 16, 16])]
    given = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in outputs.items()
    ]
    graph = helper.make_graph(nodes, "small", taken, given, kept)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    folder.mkdir(exist_ok=True)
    onnx.save(model, folder / "model.onnx")
    (folder / "preprocessor_config.json").write_text(json.dumps(PREPARED))
    return f"onnx:{folder}/model.onnx"


MAP: list[object] = ["batch", 5, 14, 14]
MEAN: list[object] = ["batch", 5]
TOKENS: list[object] = ["batch", 196, 5]
PICTURES = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(1))
EXPECTED = F.conv2d(PICTURES, torch.from_numpy(KERNEL))


@pytest.mark.parametrize("batch", ["batch", 1])
def test_rows_for_pictures_are_the_features(batch: object, tmp_path: Path) -> None:
    first = "batch" if batch == "batch" else 1
    name = written(tmp_path, {"map": [first, *MAP[1:]], "mean": [first, 5]}, batch)
    backbone = find_backbone(name)
    assert backbone.transform.size == 16
    result = backbone.module(PICTURES)
    torch.testing.assert_close(result, EXPECTED.mean((2, 3)), rtol=1e-4, atol=1e-4)


def test_an_output_can_be_named(tmp_path: Path) -> None:
    name = written(tmp_path, {"map": MAP, "mean": MEAN, "tokens": TOKENS})
    grid = find_backbone(f"{name}:map", features="grid4")
    wanted = F.adaptive_avg_pool2d(EXPECTED, 4).flatten(1)
    torch.testing.assert_close(grid.module(PICTURES), wanted, rtol=1e-4, atol=1e-4)
    token = find_backbone(f"{name}:tokens", features="class-token").module(PICTURES)
    torch.testing.assert_close(token, EXPECTED[:, :, 0, 0], rtol=1e-4, atol=1e-4)
    assert grid.digest != find_backbone(f"{name}:mean").digest
    with pytest.raises(InvalidInput, match="must have one output"):
        find_backbone(f"{name}:nothing")


def test_features_are_not_guessed_among_outputs(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"must have one output.*map.*tokens"):
        find_backbone(written(tmp_path, {"map": MAP, "tokens": TOKENS}))


def test_preparation_may_be_in_the_folder_above_and_is_not_guessed(tmp_path: Path) -> None:
    name = written(tmp_path / "onnx", {"mean": MEAN})
    (tmp_path / "onnx/preprocessor_config.json").rename(tmp_path / "preprocessor_config.json")
    assert find_backbone(name).columns == 5
    (tmp_path / "preprocessor_config.json").unlink()
    with pytest.raises(InvalidInput, match=r"Put a preprocessor_config.json"):
        find_backbone(name)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    (tmp_path / "text.onnx").write_text("no model")
    with pytest.raises(InvalidInput, match="cannot be read as an ONNX model"):
        find_backbone(f"onnx:{tmp_path}/text.onnx")


def test_a_missing_file_and_a_missing_package_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidInput, match="no file"):
        find_backbone("onnx:nowhere.onnx")
    (tmp_path / "model.onnx").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtra, match="pip install onnxruntime"):
        find_backbone(f"onnx:{tmp_path}/model.onnx")
