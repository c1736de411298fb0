"""Low-rank adapters beside a frozen module: what is trained, noised and released is small."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from dptune import validate
from dptune.engines.modules import descent
from dptune.engines.modules.adapters import adapter_names, add_adapters
from dptune.engines.modules.flat_weights import FlatWeights, digest_of_frozen
from dptune.engines.modules.module_model import SEEN_LOGITS, SEEN_SHAPE, ModuleModel
from dptune.engines.modules.torch_module import TorchModule
from dptune.engines.randomness import Randomness
from dptune.engines.registry import register_engine
from dptune.engines.traits import Traits
from dptune.errors import InvalidInput, OwnCodeProblem

_ADAPTERS = "adapters"
_BASE = "base.sha256"  # among what is packed: not the base itself


@register_engine
@dataclass(frozen=True)
class LoRA(TorchModule):
    """Trains adapters of low rank beside linear layers of a module that stays as it is.

    What is released is the adapters, and whatever else is trained; the base is public, comes from
    the factory, and is only known by its digest.

    Attributes:
        trained: the word adapters, with patterns of the names of what is trained besides, separated
            by commas: "adapters, head.*". New heads of transformers' classifiers always are.
        compute: bfloat16, in which large frozen weights are kept then; or float32.
        rank: of the adapters.
        alpha: over the rank, what an adapter counts.
        layers: patterns of the names of the linear layers that get one, separated by commas; empty
            for those that peft takes, or of modules that are not transformers' for all.

    """

    name: ClassVar[str] = "lora"
    trained: str = _ADAPTERS
    compute: str = "bfloat16"
    rank: int = 8
    alpha: float = 16.0
    layers: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        words = [word.strip() for word in self.trained.split(",")]
        if words[0] != _ADAPTERS:
            raise InvalidInput(
                f'adapters are trained, and what else there is comes after: "{_ADAPTERS}, head.*"; '
                f"got trained={self.trained!r}."
            )
        validate.store(
            self,
            rank=validate.whole(1, at_most=2**16, rank=self.rank),
            alpha=validate.positive(alpha=self.alpha),
        )

    @property
    def traits(self) -> Traits:
        return replace(super().traits, trains="set of low-rank adapters of a PyTorch module")

    def made(self, randomness: Randomness | None = None) -> nn.Module:
        """A new module with adapters. The base is the same whatever `randomness` says."""
        module = super().made()
        with descent.public_numbers(randomness or Randomness(), torch.device("cpu")):
            return add_adapters(
                module,
                rank=self.rank,
                alpha=self.alpha,
                layers=self.layers,
                trained=self._besides,
                base_dtype=torch.bfloat16 if self.compute == "bfloat16" else None,
            )

    def names(self, module: nn.Module) -> list[str]:
        return adapter_names(module, self._besides)

    def released_module(
        self, flat: FlatWeights, vector: Tensor, randomness: Randomness
    ) -> nn.Module:
        """The module that was trained: of it only adapters are stored, so the base, which may be
        large, need not be made again."""
        return flat.release(vector)

    def pack(self, model: ModuleModel) -> dict[str, Tensor]:
        base = digest_of_frozen(model.module, self.names(model.module))
        return super().pack(model) | {_BASE: base}

    def released(self, module: nn.Module) -> Iterable[str]:
        return self.names(module)

    def unpack(self, tensors: Mapping[str, Tensor]) -> ModuleModel:
        module = self.made()
        names = self.names(module)
        kept = (*names, SEEN_SHAPE, SEEN_LOGITS)
        if set(tensors) != {*kept, _BASE}:
            raise OwnCodeProblem(
                f"the layers that {self.factory} makes have other adapters than those that were "
                "trained; put the code back as it was."
            )
        if not torch.equal(tensors[_BASE], digest_of_frozen(module, names)):
            raise OwnCodeProblem(
                f"the adapters were trained beside another base than {self.factory} makes now: its "
                "weights differ. Make it from the same files, by the same code."
            )
        return self.filled(module, module.state_dict() | {name: tensors[name] for name in kept})

    @property
    def _besides(self) -> str:
        return self.trained.partition(",")[2]
