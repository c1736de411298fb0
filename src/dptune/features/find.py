"""Find backbones by name."""

from dataclasses import replace

from dptune.errors import InvalidInput
from dptune.features.backbone import KINDS, Backbone, Network, frozen
from dptune.validate import one_of

_FORMS = (
    "timm:NAME, hf:NAME_OR_FOLDER[@REVISION], onnx:FILE.onnx[:OUTPUT], "
    "module:PATH.py:FACTORY[:WEIGHTS.safetensors], "
    "resnet20:WEIGHTS.safetensors, wrn16-4:WEIGHTS.safetensors"
)


def find_backbone(name: str, *, features: str = "pooled", size: int | None = None) -> Backbone:
    """Open the backbone of this name, ready to run; `size` (pixels of a side) replaces its own."""
    one_of(KINDS, features=features)
    network = _open(name, size)
    if size is not None:
        network = replace(network, transform=replace(network.transform, size=size))
    return frozen(name, network, features)


def installed_backbones() -> tuple[str, ...]:
    """The short names whose weights are on this machine."""
    from dptune.features.packages import PACKAGES

    return tuple(name for name, package in PACKAGES.items() if package.weights.path() is not None)


def _open(name: str, size: int | None) -> Network:
    from dptune.features.cifar_networks import CIFAR_NETWORKS, open_cifar_network
    from dptune.features.hugging_face import open_hugging_face
    from dptune.features.local_module import open_local_module
    from dptune.features.onnx_models import open_onnx
    from dptune.features.packages import PACKAGES, open_package
    from dptune.features.timm_models import open_timm

    kind, _, rest = name.partition(":")
    if kind in PACKAGES:
        return open_package(kind)
    if kind in CIFAR_NETWORKS:
        return open_cifar_network(kind, rest)
    if kind == "module":
        return open_local_module(rest, size)
    if kind == "hf":
        return open_hugging_face(rest, size)
    if kind == "onnx":
        return open_onnx(rest)
    if kind == "timm":
        return open_timm(rest, size)
    raise InvalidInput(
        f"There is no backbone {name!r}. Backbones are {', '.join(PACKAGES)}, {_FORMS}."
    )
