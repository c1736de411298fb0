"""What every backbone offers, wherever its weights come from."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from dptune.errors import DptuneError, InvalidInput

KINDS = ("pooled", "class-token", "blocks", "grid4")  # of pictures
KINDS_OF_TEXTS = ("mean", "class-token")

Way = Callable[[nn.Module, Tensor], Tensor]  # a network and its pictures to features of one kind


class Preparation(Protocol):
    """From pictures or texts to what a network takes: all of one shape. A dataclass of plain
    values, which say everything that it does."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    things: ClassVar[str]  # pictures, or texts

    @property
    def takes(self) -> str:
        """What the network is given, in words."""
        ...

    def samples(self) -> Tensor:
        """Two that are not alike, as a network takes them."""
        ...

    def blank(self, count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """So many that show nothing."""
        ...

    def normalised(self, batch: Tensor, dtype: torch.dtype) -> Tensor:
        """As the network takes them, of those that were loaded; on the device where they are."""
        ...


@dataclass(frozen=True, eq=False)
class Backbone:
    """A frozen public network: pictures (batch, 3, size, size), or words of texts (batch, length),
    as `transform` makes them, to features (batch, columns)."""

    name: str  # what finds it again, together with kind and size
    module: nn.Module  # in evaluation mode; its output are the features
    transform: Preparation
    columns: int
    digest: str  # of weights and everything else that features depend on
    trained_on: str = ""  # which data its weights saw, as far as that is known
    kind: str = "pooled"


@dataclass(frozen=True, eq=False)
class Network:
    """A network as its package or file gives it, before it is asked for one kind of features."""

    module: nn.Module
    ways: Mapping[str, Way]  # of all kinds, those that this network can give
    transform: Preparation
    made_of: str  # what its features depend on beside weights and transform
    trained_on: str = ""


class _Frozen(nn.Module):
    """A network's features of one kind."""

    def __init__(self, network: nn.Module, way: Way) -> None:
        super().__init__()
        self.network = network
        self._way = way
        self.requires_grad_(False)
        self.eval()

    def train(self, mode: bool = True) -> "_Frozen":
        """Stay in evaluation mode: in the other, features would depend on the rest of a batch."""
        super().train(False)
        return self

    @torch.no_grad()
    def forward(self, prepared: Tensor) -> Tensor:
        return self._way(self.network, prepared).float()


def frozen(name: str, network: Network, kind: str) -> Backbone:
    """The network as a backbone that gives features of this kind."""
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
    """How many features there are: one picture shows it, and shows that the network runs."""
    samples, thing = transform.samples(), transform.things.removesuffix("s")
    try:
        features, again = module(samples[:1]), module(samples[:1])
        beside_another = module(samples)[:1]
    except DptuneError:
        raise
    except Exception as problem:  # code of the user's own may raise anything
        raise InvalidInput(
            f"{name} does not take {transform.takes}: {problem}. Take the size that it was made "
            "for."
        ) from problem
    if features.ndim != 2 or features.shape[0] != 1:
        raise InvalidInput(
            f"{name} must give one row of features for a {thing}; its output for one {thing} has "
            f"the shape {tuple(features.shape)}."
        )
    if _differ(features, again):
        raise InvalidInput(
            f"{name} gives other features for the same {thing} every time (it may hide parts of "
            f"{thing}s by chance, as in its own training). Take a network without that."
        )
    # One person's picture would change another's row, and nothing could be promised.
    if _differ(features, beside_another):
        raise InvalidInput(
            f"{name} gives a {thing} other features when it sees another {thing} at the same time "
            f"(it may normalise by the batch). Take a network that sees every {thing} alone."
        )
    return int(features.shape[1])


def _differ(features: Tensor, others: Tensor) -> bool:
    """By more than the last digits, in which lengths of batches may be seen."""
    if features.shape != others.shape:
        return True
    return bool((features - others).abs().max() > 1e-4 * features.abs().max())


def _digest(network: Network, kind: str) -> str:
    digest = hashlib.sha256()
    settings = sorted(asdict(network.transform).items())
    digest.update(repr((kind, settings, network.made_of)).encode())
    for name, values in sorted(network.module.state_dict().items()):
        digest.update(f"{name} {tuple(values.shape)} {values.dtype}".encode())
        # Bytes, whatever the type: NumPy does not know all of torch's.
        digest.update(values.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
