"""What all engines share that train any PyTorch module."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from dptune import validate
from dptune.data.rows import DataFacts, Rows
from dptune.engines.base import Engine
from dptune.engines.evaluation import RowLoss
from dptune.engines.language.source import source_of
from dptune.engines.modules import descent, memory
from dptune.engines.modules.flat_weights import FlatWeights
from dptune.engines.modules.losses import NAMES, row_loss
from dptune.engines.modules.made_up import made_up
from dptune.engines.modules.module_model import SEEN_LOGITS, SEEN_SHAPE, ModuleModel
from dptune.engines.modules.patterns import fits, patterns_in
from dptune.engines.modules.precision import COMPUTE
from dptune.engines.modules.source import Source
from dptune.engines.modules.trained import trained_names
from dptune.engines.randomness import Randomness
from dptune.engines.traits import Traits
from dptune.errors import InvalidInput, OwnCodeProblem
from dptune.own_code import reference, resolve
from dptune.plan import TrainPlan

_DEVIATIONS = 5.0  # by which a Poisson sample may be larger than expected and yet pass at once
_FOUND: dict[object, int] = {}  # rows at once, tried once a process


@dataclass(frozen=True)
class ModuleEngine(Engine[ModuleModel]):
    """Makes, stores and loads modules; subclasses say how they are trained. The options are
    described at `TorchModule`."""

    factory: str
    loss: str = ""
    trained: str = ""
    compute: str = "float32"
    rows_at_once: int | None = None
    checkpointed: str = ""
    augment: str = ""
    ids: bool = False
    outputs: int | None = None

    def __post_init__(self) -> None:
        validate.one_of(COMPUTE, compute=self.compute)
        loss = self.loss
        if loss not in ("", *NAMES):
            loss = reference(loss, "loss")
        validate.store(
            self,
            factory=reference(self.factory, "factory"),
            loss=loss,
            augment=reference(self.augment, "augment") if self.augment else "",
        )
        validate.store(
            self,
            ids=validate.flag(ids=self.ids) or self.source.takes_ids,
            trained=self.trained or self.source.trained,
        )
        validate.text(trained=self.trained)
        if self.rows_at_once is not None:
            validate.store(self, rows_at_once=validate.whole(1, rows_at_once=self.rows_at_once))
        if self.outputs is not None:
            validate.store(self, outputs=validate.whole(1, outputs=self.outputs))

    @property
    def source(self) -> Source:
        """Where its modules come from."""
        return source_of(self.factory)

    @property
    def traits(self) -> Traits:
        source = self.source
        own = {"factory": self.factory} if source.own_code else {}
        own |= {"loss": self.loss, "augment": self.augment}
        return Traits(
            trains="PyTorch module",
            prior=source.prior,
            usual_space={"learning_rate": (1e-5, 1000.0), "steps": (source.steps, source.steps)},
            rounding=1e-3 if self.compute == "float32" else 0.05,
            public_facts=(
                f"the weights that {source.name} begins with, pretrained ones "
                "included: nothing is promised about rows that they were trained on",
            ),
            own_functions={what: name for what, name in own.items() if name not in ("", *NAMES)},
            takes_ids=self.ids,
            wants_unit_rows=False,
            weighs_rows=True,
            makes_copies=bool(self.augment),
            checkpoints=True,
            pretrained=not source.own_code,
        )

    def for_data(self, facts: DataFacts) -> Self:
        outputs, loss = self.outputs or facts.outputs, self.loss or facts.loss
        return replace(self, factory=self.source.pinned(), outputs=outputs, loss=loss)

    def check(self, plan: TrainPlan) -> None:
        if plan.free_steps:
            raise InvalidInput("modules release their last weights; leave free_steps out.")

    def parameters(self, facts: DataFacts) -> int:
        module = self.made()
        named = dict(module.named_parameters())
        return sum(named[name].numel() for name in self.names(module))

    def made(self, randomness: Randomness | None = None) -> nn.Module:
        """A new module, as the factory makes it, with initial weights from a public seed."""
        untied = self.trained == "all"
        with descent.public_numbers(randomness or Randomness(), torch.device("cpu")):
            module = self.source.make(
                loss=self.loss, outputs=self.outputs, ids=self.ids, untied=untied
            )
        _compute_again(module, self.checkpointed)
        return module

    def names(self, module: nn.Module) -> list[str]:
        """Of the parameters that are trained."""
        return trained_names(module, self.trained)

    def model(self, module: nn.Module, shape: tuple[int, ...]) -> ModuleModel:
        """A module that was trained on rows of such a shape."""
        return ModuleModel(module, shape, self.ids, self.compute)

    def released_module(
        self, flat: FlatWeights, vector: Tensor, randomness: Randomness
    ) -> nn.Module:
        """A new module with the trained weights of `vector`: buffers and frozen weights are those
        that the factory makes, whatever the module that met private rows has become."""
        fresh = FlatWeights(self.made(randomness), flat.trained, vector.device)
        return fresh.release(vector)

    def pack(self, model: ModuleModel) -> dict[str, Tensor]:
        state = model.module.state_dict()
        released = self.released(model.module)
        packed = {name: state[name].detach().cpu().clone() for name in released}
        shape = torch.tensor(model.shape)
        return packed | {SEEN_SHAPE: shape, SEEN_LOGITS: model.on_made_up_rows()}

    def released(self, module: nn.Module) -> Iterable[str]:
        """The names of what is stored of it."""
        return module.state_dict()

    def unpack(self, tensors: Mapping[str, Tensor]) -> ModuleModel:
        return self.filled(self.made(), tensors)

    def filled(self, module: nn.Module, tensors: Mapping[str, Tensor]) -> ModuleModel:
        """A module that was just made, with all its weights."""
        kept, trained = dict(tensors), self.names(module)
        shape, before = kept.pop(SEEN_SHAPE), kept.pop(SEEN_LOGITS)
        try:
            module.load_state_dict(kept)
        except RuntimeError as error:
            raise OwnCodeProblem(
                f"the module that {self.factory} makes is another than the one that was trained: "
                f"{' '.join(str(error).split())}. Put the code back as it was."
            ) from None
        model = self.model(module.requires_grad_(False).eval(), tuple(shape.tolist()))
        if not model.gives(before, trained, self.traits.rounding):
            raise OwnCodeProblem(
                f"the module that {self.factory} makes takes the weights that were trained, and "
                "does something else with them: its code was changed since. Put it back as it was."
            )
        return model

    @property
    def measures(self) -> tuple[str, RowLoss | None]:
        if self.loss in NAMES:
            return self.loss, None
        return "softmax" if self.width > 1 else "squared", row_loss(self.loss)

    # -- for those that train them

    @property
    def width(self) -> int:
        """How many outputs a module has."""
        if self.outputs is None:
            raise InvalidInput("give the engine its number of outputs, or make it with for_data().")
        return self.outputs

    @property
    def taken(self) -> torch.dtype:
        """What a module takes."""
        return torch.int64 if self.ids else torch.float32

    @property
    def own_augment(self) -> Callable[[Tensor], Tensor] | None:
        return resolve(self.augment, "augment") if self.augment else None

    def facts_of(self, rows: Rows) -> DataFacts:
        return DataFacts(rows.count, rows.shape, rows.copies, self.width, self.loss)

    def made_up(
        self, module: nn.Module, facts: DataFacts, device: torch.device, rows: int, copies: int
    ) -> tuple[Tensor, Tensor]:
        """Made-up rows and their targets."""
        features = made_up(module, (copies, *facts.shape), rows, ids=self.ids)
        classes = facts.loss == "softmax" or self.width > 1
        # Of all classes: a loss that counts them would not show with one.
        targets = torch.arange(rows) % self.width if classes else torch.linspace(0, 1, rows)
        return features.to(device), targets.to(device)

    def physical(
        self,
        attempt: Callable[[Tensor, Tensor], object],
        module: nn.Module,
        rows: Rows,
        plan: TrainPlan,
        most: int,
    ) -> int:
        """How many rows are taken at once; `attempt` passes some that are made up."""
        if self.rows_at_once is not None:
            return self.rows_at_once
        expected, facts = max(1.0, plan.divisor), self.facts_of(rows)
        most = min(most, rows.count, math.ceil(expected + _DEVIATIONS * math.sqrt(expected)))
        case = (self, rows.shape, rows.device, plan.augmentations, most)

        def attempt_some(count: int) -> None:
            attempt(*self.made_up(module, facts, rows.device, count, plan.augmentations))

        if case not in _FOUND:
            _FOUND[case] = memory.rows_at_once(attempt_some, rows.device, most)
        return _FOUND[case]


def samples_of(facts: DataFacts, batch: float) -> dict[str, float]:
    """Poisson samples, with more rows in each the more there are, and a smaller share of them; all
    rows where that is not much less."""
    rate = batch / math.sqrt(facts.count)
    return {"sampling_rate": rate} if rate < 0.5 else {}


def _compute_again(module: nn.Module, patterns: str) -> None:
    """Make the layers that `patterns` mean forget what is inside them until it is needed."""
    if not patterns:
        return
    wanted = patterns_in(patterns)
    found = [layer for name, layer in module.named_modules() if name and fits(name, wanted)]
    if not found:
        raise InvalidInput(
            f"checkpointed={patterns!r} fits no layer of the module; see the names with dptune "
            "doctor."
        )
    for layer in found:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
