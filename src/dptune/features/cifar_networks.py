"""`resnet20:WEIGHTS` and `wrn16-4:WEIGHTS`: networks for small pictures, weights from a file."""

from collections.abc import Mapping

from torch import nn

from dptune.errors import InvalidInput
from dptune.features.backbone import Network
from dptune.features.maps import ALL_MAPS
from dptune.features.networks import ResNet20, WideResNet
from dptune.features.transform import Transform
from dptune.features.weights import put_weights, read_weights
from dptune.plain_data import UNFIT, read_json

_NETWORKS: Mapping[str, type[nn.Module]] = {"resnet20": ResNet20, "wrn16-4": WideResNet}
CIFAR_NETWORKS = tuple(_NETWORKS)
_HEADS = ("fc.", "head.")

# Mean and deviation of CIFAR-100's training pictures, the usual choice for these networks.
_MEAN = (0.5071, 0.4865, 0.4409)
_DEVIATION = (0.2673, 0.2564, 0.2762)


def open_cifar_network(kind: str, rest: str) -> Network:
    """Open the network with the weights of a file. The metadata of the file may hold `mean` and
    `deviation` (JSON lists) for normalisation, and `trained_on`."""
    if not rest:
        raise InvalidInput(f"{kind} needs a file of weights: {kind}:WEIGHTS.safetensors.")
    weights, metadata = read_weights(rest)
    module = _NETWORKS[kind]()
    put_weights(module, weights, rest, head=_HEADS)
    transform = Transform(
        size=32,
        mean=_numbers(metadata, "mean", rest) or _MEAN,
        deviation=_numbers(metadata, "deviation", rest) or _DEVIATION,
    )
    return Network(module, ALL_MAPS, transform, kind, metadata.get("trained_on", ""))


def _numbers(
    metadata: Mapping[str, str], name: str, where: str
) -> tuple[float, float, float] | None:
    if name not in metadata:
        return None
    try:
        red, green, blue = read_json(metadata[name], name)
        return float(red), float(green), float(blue)
    except UNFIT:
        raise InvalidInput(
            f"The metadata of {where} should have {name} as a JSON list of three numbers; found "
            f"{metadata[name]!r}."
        ) from None
