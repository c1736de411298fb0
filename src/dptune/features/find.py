"""Backbones by name."""

from dptune.errors import InvalidInput
from dptune.features.backbone import Backbone, Network, frozen

_FORMS = (
    "resnet20:WEIGHTS.safetensors, wrn16-4:WEIGHTS.safetensors, "
    "module:PATH.py:FACTORY[:WEIGHTS.safetensors]"
)


def find_backbone(name: str, *, features: str = "pooled", size: int | None = None) -> Backbone:
    """The backbone of this name, ready to run; `size` (pixels of a side) where its own will not
    do."""
    return frozen(name, _open(name, size), features, size)


def _open(name: str, size: int | None) -> Network:
    from dptune.features.cifar_networks import CIFAR_NETWORKS, open_cifar_network
    from dptune.features.local_module import open_local_module

    kind, _, rest = name.partition(":")
    if kind in CIFAR_NETWORKS:
        return open_cifar_network(kind, rest)
    if kind == "module":
        return open_local_module(rest, size)
    raise InvalidInput(f"There is no backbone {name!r}. Backbones are {_FORMS}.")
