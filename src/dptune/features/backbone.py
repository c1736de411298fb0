"""The common interface of all backbones."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from dptune.errors import DptuneError, InvalidInput

KINDS = ("pooled", "class-token", "blocks", "grid4")  # of pictures
KINDS_OF_TEXTS = ("mean", "class-token")

Way = Callable[[nn.Module, Tensor], Tensor]  # from a network and pictures to one kind of features


class Preparation(Protocol):
    """Prepares pictures or texts as a network takes them: all of one shape. A dataclass of plain
    values, which determine the result."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    things: ClassVar[str]  # pictures, or texts

    @property
    def takes(self) -> str:
        """The input of the network, in words."""
        ...

    def samples(self) -> Tensor:
        """Two different inputs, as a network takes them."""
        ...

    def blank(self, count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """`count` empty inputs."""
        ...

    def normalised(self, batch: Tensor, dtype: torch.dtype) -> Tensor:
        """Loaded items as the network takes them, on the device of the batch."""
        ...


@dataclass(frozen=True, eq=False)
class Backbone:
    """A frozen public network: from pictures (batch, 3, size, size) or token ids (batch, length),
    prepared by `transform`, to features (batch, columns)."""

    name: str  # identifies it, together with kind and size
    module: nn.Module  # in evaluation mode; its output are the features
    transform: Preparation
    columns: int
    digest: str  # of weights and everything else that features depend on
    trained_on: str = ""  # the data of its weights, as far as known
    kind: str = "pooled"


@dataclass(frozen=True, eq=False)
class Network:
    """A network from a package or file, before one kind of features is chosen."""

    module: nn.Module
    ways: Mapping[str, Way]  # the kinds that this network can give
    transform: Preparation
    made_of: str  # what its features depend on besides weights and transform
    trained_on: str = ""


class _Frozen(nn.Module):
    """A network that gives features of one kind."""

    def __init__(self, network: nn.Module, way: Way) -> None:
        super().__init__()
        self.network = network
        self._way = way
        self.requires_grad_(False)
        self.eval()

    def train(self, mode: bool = True) -> "_Frozen":
        """Stay in evaluation mode: in training mode, features could depend on the whole batch."""
        super().train(False)
        return self

    @torch.no_grad()
    def forward(self, prepared: Tensor) -> Tensor:
        return self._way(self.network, prepared).float()


def frozen(name: str, network: Network, kind: str) -> Backbone:
    """Make the network a backbone that gives features of this kind."""
    if kind not in network.ways:
        has = ", ".join(sorted(network.ways, key=(*KINDS, *KINDS_OF_TEXTS).index))
        raise InvalidInput(f"{name} has no features of the kind {kind}; it has {has}.")
    transform = network.transform
    module = _Frozen(network.module.float(), network.ways[kind])
    return Backbone(
        name=name,
        module=module,
        transform=transform,
        columns=_columns(name, module, transform),
        digest=_digest(network, kind),
        trained_on=network.trained_on,
        kind=kind,
    )


def _columns(name: str, module: nn.Module, transform: Preparation) -> int:
    """The number of features, from a run on samples, which also shows that the network works."""
    samples, thing = transform.samples(), transform.things.removesuffix("s")
    try:
        features, again = module(samples[:1]), module(samples[:1])
        beside_another = module(samples)[:1]
    except DptuneError:
        raise
    except Exception as problem:  # your own code may raise anything
        raise InvalidInput(
            f"{name} does not take {transform.takes}: {problem}. Use the size that it was made for."
        ) from problem
    if features.ndim != 2 or features.shape[0] != 1:
        raise InvalidInput(
            f"{name} must give one row of features for a {thing}; its output for one {thing} has "
            f"the shape {tuple(features.shape)}."
        )
    if _differ(features, again):
        raise InvalidInput(
            f"{name} gives different features for the same {thing} every time (it may mask parts "
            f"of {thing}s at random, as in its own training). Use a deterministic network."
        )
    # One person's picture would change another's row, which no guarantee covers.
    if _differ(features, beside_another):
        raise InvalidInput(
            f"{name} gives a {thing} different features beside another {thing}: rows interact in a "
            f"batch (by batch normalisation, for example). Use a network without that."
        )
    return int(features.shape[1])


def _differ(features: Tensor, others: Tensor) -> bool:
    """Whether features differ by more than rounding, which may depend on the batch size."""
    if features.shape != others.shape:
        return True
    return bool((features - others).abs().max() > 1e-4 * features.abs().max())


def _digest(network: Network, kind: str) -> str:
    digest = hashlib.sha256()
    settings = sorted(asdict(network.transform).items())
    digest.update(repr((kind, settings, network.made_of)).encode())
    for name, values in sorted(network.module.state_dict().items()):
        digest.update(f"{name} {tuple(values.shape)} {values.dtype}".encode())
        # As bytes, because NumPy lacks some of torch's types.
        digest.update(values.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
