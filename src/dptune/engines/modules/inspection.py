"""What is checked of a module, and reported about it, before anything is paid."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor, nn

from dptune.data.rows import DataFacts, numbers_given
from dptune.engines.base import Inspection
from dptune.engines.modules import doctor
from dptune.engines.modules.flat_weights import FlatWeights
from dptune.engines.modules.gradients import ROW_BY_ROW, RowGradients
from dptune.engines.modules.made_up import made_up, nothing_near_zero
from dptune.engines.modules.module_engine import ModuleEngine
from dptune.engines.modules.module_model import ModuleModel
from dptune.engines.modules.problem import WHOLE, must_be_none
from dptune.engines.modules.row_check import problems_on_rows
from dptune.engines.modules.tracing import LOOKED_AT, MADE_UP, traced, traced_shorter
from dptune.engines.modules.word_numbers import problems_of_words
from dptune.errors import InvalidInput, OwnCodeProblem

_FEW_LAYERS = 6  # that are named one by one


class ModuleInspection(Inspection[ModuleModel]):
    """Whatever trains the module."""

    engine: ModuleEngine

    def pin(self) -> ModuleEngine:
        return replace(self.engine, factory=self.engine.source.pinned())

    def must_know_words(self, tokenizer: str) -> None:
        self.engine.source.must_know_words(tokenizer)

    def initial_model(self, shape: tuple[int, ...]) -> ModuleModel:
        return self.engine.model(self.engine.made(), shape)

    def initial_outputs(self, shape: tuple[int, ...]) -> Tensor | None:
        """None for a pretrained model: its code is not the user's, and its weights have a
        digest."""
        if not self.engine.source.own_code:
            return None
        with self._initial_model(shape) as (model, _):
            return model.on_made_up_rows()

    def must_give_as_before(self, shape: tuple[int, ...], before: Tensor) -> None:
        with self._initial_model(shape) as (model, names):
            if not model.gives(before, names, self.engine.traits.rounding):
                raise OwnCodeProblem(
                    f"the module that {self.engine.factory} makes computes something else than it "
                    "did when this study began: its code was changed since. Put it back as it was, "
                    "or begin a new study."
                )

    @contextmanager
    def _initial_model(self, shape: tuple[int, ...]) -> Iterator[tuple[ModuleModel, list[str]]]:
        """The model that runs begin with, and what of it is trained."""
        module = self.engine.made()
        names = self.engine.names(module)
        with nothing_near_zero(module, names):
            yield self.engine.model(module.requires_grad_(False).eval(), shape), names

    def must_be_repeated(self, module: nn.Module) -> None:
        """Refuse a factory that makes another module each time, since it is called again to resume;
        and one that hands out the same, which would carry one run's weights into the next."""
        if self.engine.source.own_code:
            _must_be_repeated(self.engine, module)

    def words_must_be_bound(self, module: nn.Module, facts: DataFacts) -> None:
        """Refuse a module, not yet on a GPU, that fails on token numbers that it does not have: one
        private row would end a run that is paid for."""
        if self.engine.ids:
            rows = made_up(module, facts.shape, MADE_UP, ids=True)
            must_be_none(problems_of_words(module, rows))

    def rows_must_be_apart(
        self, module: nn.Module, facts: DataFacts, *, modes: Sequence[bool]
    ) -> None:
        """Refuse a module in which rows interact, or which keeps something of them, in train()
        (True) or eval(): on made-up rows, where the module is."""
        device = next(module.parameters()).device
        rows, others = (
            made_up(module, facts.shape, MADE_UP, ids=self.engine.ids, seed=seed).to(device)
            for seed in (0, 1)
        )
        self._must_fit(module, rows, facts)
        compute = self.engine.compute
        with nothing_near_zero(module, self.engine.names(module)):
            problems = problems_on_rows(module, rows, others, compute=compute, modes=modes)
        must_be_none(problems, " (dptune doctor shows its layers.)")

    def _must_fit(self, module: nn.Module, rows: Tensor, facts: DataFacts) -> None:
        outputs = self.engine.model(module, facts.shape).logits(rows)
        width = numbers_given(self.engine.loss, self.engine.width)
        if outputs.shape != (len(rows), width):
            need = "one number" if width == 1 else f"{width} numbers"
            need += ", one a class" if facts.has_classes else ""
            raise InvalidInput(
                f"for each row of these data a module gives {need}; {self.engine.factory} makes "
                f"one whose output for {len(rows)} rows has shape {tuple(outputs.shape)}. Change "
                "its last layer. Nothing was paid."
            )


class GradientInspection(ModuleInspection):
    """Where it is trained by clipped gradients of single rows."""

    def rehearse(self, facts: DataFacts, device: torch.device) -> None:
        """Refuse a module whose rows cannot be separated, by what made-up rows show."""
        LOOKED_AT.clear()
        flat, _ = self.look_at(facts, device)
        traced_shorter(self.engine, flat, facts)

    def look_at(self, facts: DataFacts, device: torch.device) -> tuple[FlatWeights, RowGradients]:
        """A module ready to be trained, after all that is looked at before anything is paid."""
        module = self.engine.made()
        self.must_be_repeated(module)
        doctor.must_be_sound(module, self.engine.names(module))
        self.words_must_be_bound(module, facts)
        self.rows_must_be_apart(module.to(device), facts, modes=(True, False))
        return traced(self.engine, module, facts, device)

    def describe(self, facts: DataFacts) -> tuple[str, ...]:
        """How norms of gradients are computed, for clipping."""
        ways: dict[str, list[str]] = {}
        by_layer = {
            name.rpartition(".")[0]: way for name, way in _routes(self.engine, facts).items()
        }
        for layer, way in by_layer.items():
            ways.setdefault(way, []).append(layer or WHOLE)
        listed = "; ".join(f"{way} ({_listed(layers)})" for way, layers in ways.items())
        return (f"a row's gradient is clipped as one; its length is found, by layer: {listed}",)

    def slowed_by(self, facts: DataFacts) -> str:
        ways = dict[str, str]()
        with suppress(Exception):  # what is wrong with a module, the rehearsal says
            ways = dict(_routes(self.engine, facts)) if self.engine.source.own_code else {}
        slow = dict.fromkeys(
            name.rpartition(".")[0] for name, way in ways.items() if way == ROW_BY_ROW
        )
        if not slow:
            return ""
        return (
            f"gradients of {_listed([*slow])} are computed row by row, which is slow: a step "
            "takes about as long as its rows one after another"
        )


@lru_cache(maxsize=16)
def _routes(engine: ModuleEngine, facts: DataFacts) -> Mapping[str, str]:
    _, gradients = GradientInspection(engine).look_at(facts, torch.device("cpu"))
    return gradients.ways.by_parameter


def _must_be_repeated(engine: ModuleEngine, module: nn.Module) -> None:
    empty = [name for name, one in module.state_dict().items() if one.is_meta]
    if empty:
        raise InvalidInput(
            f"{engine.factory} makes a module whose weights are not loaded yet ({empty[0]} is on "
            "the device meta), so they would be replaced later. Load them inside the function, "
            "without device_map and the like, and before get_peft_model."
        )
    other = engine.made()
    again = other.state_dict()
    trained = {name: one.data_ptr() for name, one in other.named_parameters()}
    named = dict(module.named_parameters())
    if other is module or any(
        trained.get(name) == named[name].data_ptr() for name in engine.names(module)
    ):
        raise InvalidInput(
            f"{engine.factory} must make a new module whenever it is called, and it hands out "
            "the same weights again, so one run would begin where another ended. Make the "
            "module inside the function."
        )
    for name, tensor in module.state_dict().items():
        if name not in again or not torch.equal(tensor, again[name]):
            raise InvalidInput(
                f"{engine.factory} must make the same module whenever it is called, and {name} "
                "is another each time. First weights come from torch's own generator, which "
                "is seeded for the factory; do not draw them from NumPy or the clock, and read "
                "pretrained ones from a file."
            )


def _listed(layers: Sequence[str]) -> str:
    """A few of them, and how many there are."""
    if len(layers) <= _FEW_LAYERS:
        return ", ".join(layers)
    return f"{len(layers)} layers from {layers[0]} to {layers[-1]}"
