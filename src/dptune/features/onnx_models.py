"""`onnx:FILE.onnx[:OUTPUT]`: a network in ONNX's format, run by onnxruntime.

The preparation of pictures is read from the preprocessor_config.json in the folder of the file or
the one above, where exporters put it.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dptune.errors import InvalidInput, MissingExtra
from dptune.features.backbone import Network, Way
from dptune.features.maps import LAST_MAP
from dptune.features.processors import read_processor
from dptune.features.transform import Transform
from dptune.table_files import listed

_TOKENS: Mapping[str, Way] = {"class-token": lambda network, pictures: network(pictures)[:, 0]}
_ROWS: Mapping[str, Way] = {"pooled": lambda network, pictures: network(pictures)}
_KINDS_BY_DIMENSIONS = {2: _ROWS, 3: {**_TOKENS, "pooled": _TOKENS["class-token"]}, 4: LAST_MAP}


def open_onnx(rest: str) -> Network:
    file, _, output = rest.partition(":")
    if not Path(file).is_file():
        raise InvalidInput(f"There is no file {file!r}. Name it as onnx:FILE.onnx[:OUTPUT].")
    module = _Session(Path(file), output)
    return Network(
        module=module,
        ways=_KINDS_BY_DIMENSIONS[module.dimensions],
        transform=_transform(Path(file)),
        made_of=f"{hashlib.sha256(Path(file).read_bytes()).hexdigest()} {module.output}",
    )


class _Session(nn.Module):
    def __init__(self, file: Path, output: str) -> None:
        super().__init__()
        runtime = _runtime()
        try:
            self.session = runtime.InferenceSession(
                file, providers=runtime.get_available_providers()
            )
        except Exception as problem:  # onnxruntime's errors have no common base
            raise InvalidInput(f"{file} cannot be read as an ONNX model: {problem}.") from problem
        inputs = self.session.get_inputs()
        if len(inputs) != 1 or len(inputs[0].shape) != 4:
            raise InvalidInput(
                f"{file} must take pictures (batch, 3, height, width) and nothing else; it takes "
                f"{listed([f'{each.name} {each.shape}' for each in inputs])}."
            )
        self.input = inputs[0].name
        self.one_by_one = inputs[0].shape[0] == 1
        self.output, self.dimensions = _choose(file, self.session.get_outputs(), output)

    def forward(self, pictures: Tensor) -> Tensor:
        values = pictures.float().contiguous().cpu().numpy()
        parts = values[:, None] if self.one_by_one else [values]
        results = [self.session.run([self.output], {self.input: part})[0] for part in parts]
        return torch.cat([torch.from_numpy(each) for each in results]).to(pictures.device)


def _choose(file: Path, outputs: list[Any], asked: str) -> tuple[str, int]:
    """The output that was asked for; default: the one with a row for each picture."""
    shapes = {each.name: len(each.shape) for each in outputs}
    fitting = [name for name in shapes if name == asked or (not asked and shapes[name] == 2)]
    fitting = fitting or ([] if asked or len(shapes) > 1 else [*shapes])
    if len(fitting) != 1 or shapes[fitting[0]] not in _KINDS_BY_DIMENSIONS:
        has = listed([f"{each.name} {each.shape}" for each in outputs])
        raise InvalidInput(
            f"{file} must have one output of features; it has {has}. Name one, as in "
            f"onnx:{file}:{outputs[0].name}."
        )
    return fitting[0], shapes[fitting[0]]


def _transform(file: Path) -> Transform:
    folders = file.resolve().parents[:2]
    for folder in folders:
        if (folder / "preprocessor_config.json").is_file():
            return read_processor(folder / "preprocessor_config.json")
    raise InvalidInput(
        f"{file} has no description of its pictures. Put a preprocessor_config.json beside it: "
        '{"size": 224, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "resample": 3}'
    )


def _runtime() -> Any:
    try:
        import onnxruntime
    except ImportError as problem:
        raise MissingExtra(
            "ONNX models need the package onnxruntime. Install it: pip install onnxruntime"
        ) from problem
    return onnxruntime
