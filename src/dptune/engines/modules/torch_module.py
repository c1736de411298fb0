"""Any PyTorch module, trained by DP-SGD on clipped gradients of single rows."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from dptune import validate
from dptune.data.placed_rows import at_their_places
from dptune.data.rows import DataFacts, Rows, numbers_given
from dptune.engines.base import Engine
from dptune.engines.checkpoint import Checkpoint
from dptune.engines.evaluation import Tally
from dptune.engines.language import pretrained
from dptune.engines.language.reader import Reader
from dptune.engines.modules import descent, doctor, memory, own_functions
from dptune.engines.modules.by_length import widths
from dptune.engines.modules.flat_weights import FlatWeights
from dptune.engines.modules.gradients import ROW_BY_ROW, RowGradients, Ways
from dptune.engines.modules.losses import NAMES, outputs_of, row_loss
from dptune.engines.modules.made_up import made_up, nothing_near_zero
from dptune.engines.modules.patterns import fits, patterns_in
from dptune.engines.modules.precision import COMPUTE, all_in_float32, computing
from dptune.engines.modules.problem import WHOLE, Names, must_be_none
from dptune.engines.modules.row_check import problems_on_rows
from dptune.engines.modules.trained import trained_names
from dptune.engines.modules.word_numbers import bound_words, problems_of_words
from dptune.engines.randomness import Randomness
from dptune.engines.registry import register_engine
from dptune.errors import InvalidInput, OwnCodeProblem
from dptune.own_code import (
    is_pretrained,
    made,
    must_be_found_again,
    pretrained_name,
    reference,
    resolve,
)
from dptune.plan import TrainPlan
from dptune.prior import MODULE, PRETRAINED, Prior

# What a model gives for made-up rows is stored with it: code that was changed since shows by that.
SEEN_SHAPE, SEEN_LOGITS = "dptune.shape", "dptune.logits"
_EVALUATED_AT_ONCE = 256
_MOST_ROWS_AT_ONCE = 8192
_DEVIATIONS = 5.0  # by which a Poisson sample may be larger than expected and yet pass at once
_MADE_UP = 4  # rows
_SEEN_ROWS = 2
# A module that diverged gives other numbers on every machine. How far roundings move it shows when
# its weights are moved by some of their last digits.
_LAST_DIGITS, _SPARE = 1e-6, 10.0
_FEW_LAYERS = 6  # that are named one by one
_FOUND: dict[object, int] = {}  # rows at once, tried once a process
_LOOKED_AT: dict[object, Ways] = {}  # pretrained models, by engine and rows: once a study
# Times the square root of the rows: how many are expected in a sample.
BATCH, _BATCH_OF_TEXTS = 8.0, 16.0
_STEPS, _STEPS_OF_TEXTS = 300, 200


@dataclass(frozen=True)
class ModuleModel:
    """A module that was trained. It is an ordinary one: `model.module` can be used without us."""

    module: nn.Module
    shape: tuple[int, ...]  # of a row
    ids: bool = False
    compute: str = "float32"

    def logits(self, features: Tensor) -> Tensor:
        """(rows, outputs), some rows at a time."""
        self.module.to(features.device).eval()
        # A copy: the module may write into what it is given.
        taken = features.to(torch.int64 if self.ids else torch.float32, copy=True)
        with torch.no_grad(), computing(self.compute, features.device):
            some = torch.split(taken, self._at_once)
            parts = [outputs_of(self.module(part)) for part in some]
        return torch.cat(parts).float()

    @property
    def _at_once(self) -> int:
        if isinstance(self.module, Reader):
            return self.module.evaluated_at_once(self.shape[-1])
        return _EVALUATED_AT_ONCE


@register_engine
@dataclass(frozen=True)
class TorchModule(Engine[ModuleModel]):
    """Trains any nn.Module.

    Attributes:
        factory: a function without arguments that makes the module, or where it lies:
            "path.py:name" or "package.module:name"; or "hf:NAME@REVISION" or "hf:FOLDER", a
            language model of the Hugging Face hub or in a folder, whose head is made for the loss.
        loss: what a row's loss is: softmax or squared, or words, spans or inside where rows hold
            what is asked, as the data need; or a function of one's own (outputs, targets) that
            gives one number a row, or where it lies.
        trained: which parameters: all; body, which is all but tables of words; biases, last block,
            first and last block, or patterns of their names, separated by commas. Empty for body of
            language models, else all.
        compute: float32, or bfloat16 for products of matrices; weights stay in float32.
        rows_at_once: how many rows are in a physical batch; None for as many as fit, which is tried
            with made-up rows.
        checkpointed: patterns of the names of layers whose insides are computed again when
            gradients are taken, which takes less memory and more time.
        augment: a function that changes pictures (n, ...) at random, each for itself, or where it
            lies; a plan's augmentations are then made anew in every step.
        ids: whether rows are numbers of words; one that is in no table of the module is read as
            the table's last line.
        outputs: how many numbers the module gives for a row; None for what the data need.

    """

    name: ClassVar[str] = "torch-module"
    trains: ClassVar[str] = "PyTorch module"
    prior: ClassVar[Prior] = MODULE
    checkpoints: ClassVar[bool] = True
    weighs_rows: ClassVar[bool] = True
    wants_unit_rows: ClassVar[bool] = False
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
            ids=validate.flag(ids=self.ids) or self.is_pretrained,
            trained=self.trained or ("body" if self.is_pretrained else "all"),
        )
        validate.text(trained=self.trained)
        if self.rows_at_once is not None:
            validate.store(self, rows_at_once=validate.whole(1, rows_at_once=self.rows_at_once))
        if self.outputs is not None:
            validate.store(self, outputs=validate.whole(1, outputs=self.outputs))

    @property
    def is_pretrained(self) -> bool:
        """Whether it trains a language model of transformers."""
        return isinstance(self.factory, str) and is_pretrained(self.factory)

    @property
    def takes_ids(self) -> bool:  # type: ignore[override]
        return self.ids

    @property
    def makes_copies(self) -> bool:
        return bool(self.augment)

    @property
    def rounding(self) -> float:
        return 1e-3 if self.compute == "float32" else 0.05

    @property
    def usual_space(self) -> Mapping[str, Any]:
        steps = _STEPS_OF_TEXTS if self.is_pretrained else _STEPS
        return {"learning_rate": (1e-5, 1000.0), "steps": (steps, steps)}

    def pinned(self) -> Self:
        """With the commit of a language model."""
        if not self.is_pretrained:
            return self
        return replace(self, factory=pretrained.pinned(self.factory))

    def must_know_words(self, tokenizer: str) -> None:
        if self.is_pretrained:
            pretrained.must_know_words(self.factory, tokenizer)

    def for_data(self, facts: DataFacts) -> Self:
        outputs, loss = self.outputs or facts.outputs, self.loss or facts.loss
        return replace(self.pinned(), outputs=outputs, loss=loss)

    def usual_recipe(self, facts: DataFacts, *, unit_rows: bool, mu: float) -> Mapping[str, Any]:
        """Clipped far below their gradients, all rows push alike. Language models are tuned as they
        were measured: in larger samples, by Adam, at a rate that falls to nothing."""
        clipped = {} if facts.loss == "squared" else {"clip_norm": 0.1}
        if not self.is_pretrained:
            return samples_of(facts, BATCH) | clipped
        adam = {"optimizer": "adam", "schedule": "linear"}
        return samples_of(facts, _BATCH_OF_TEXTS) | clipped | adam

    def prior_for(self, facts: DataFacts) -> Prior:
        return PRETRAINED if self.is_pretrained else self.prior

    def check(self, plan: TrainPlan) -> None:
        if plan.free_steps:
            raise InvalidInput("modules release their last weights; leave free_steps out.")

    def parameters(self, facts: DataFacts) -> int:
        module = self.made()
        named = dict(module.named_parameters())
        return sum(named[name].numel() for name in self.names(module))

    def rehearse(self, facts: DataFacts, device: torch.device) -> None:
        """Refuse a module whose rows cannot be told apart, by what made-up rows show."""
        _LOOKED_AT.clear()
        flat, _ = self.looked_at(facts, device)
        self._traced_shorter(flat, facts)

    def looked_at(self, facts: DataFacts, device: torch.device) -> tuple[FlatWeights, RowGradients]:
        """A module ready to be trained, after all that is looked at before anything is paid."""
        module = self.made()
        self.must_be_repeated(module)
        doctor.must_be_sound(module, self.names(module))
        self.words_must_be_bound(module, facts)
        self.rows_must_be_apart(module.to(device), facts, modes=(True, False))
        return self.traced(module, facts, device)

    def slowed_by(self, facts: DataFacts) -> str:
        ways = dict[str, str]()
        with suppress(Exception):  # what is wrong with a module, the rehearsal says
            ways = {} if self.is_pretrained else dict(_routes(self, facts))
        slow = dict.fromkeys(
            name.rpartition(".")[0] for name, way in ways.items() if way == ROW_BY_ROW
        )
        if not slow:
            return ""
        return (
            f"gradients of {_listed([*slow])} are computed row by row, which is slow: a step "
            "takes about as long as its rows one after another"
        )

    def must_be_repeated(self, module: nn.Module) -> None:
        """Refuse a factory that makes another module each time, since it is called again to resume;
        and one that hands out the same, which would carry one run's weights into the next."""
        if self.is_pretrained:
            return  # files, and seeded numbers
        empty = [name for name, one in module.state_dict().items() if one.is_meta]
        if empty:
            raise InvalidInput(
                f"{self.factory} makes a module whose weights are not loaded yet ({empty[0]} is on "
                "the device meta), so they would be replaced later. Load them inside the function, "
                "without device_map and the like, and before get_peft_model."
            )
        other = self.made()
        again = other.state_dict()
        trained = {name: one.data_ptr() for name, one in other.named_parameters()}
        named = dict(module.named_parameters())
        if other is module or any(
            trained.get(name) == named[name].data_ptr() for name in self.names(module)
        ):
            raise InvalidInput(
                f"{self.factory} must make a new module whenever it is called, and it hands out "
                "the same weights again, so one run would begin where another ended. Make the "
                "module inside the function."
            )
        for name, tensor in module.state_dict().items():
            if name not in again or not torch.equal(tensor, again[name]):
                raise InvalidInput(
                    f"{self.factory} must make the same module whenever it is called, and {name} "
                    "is another each time. First weights come from torch's own generator, which "
                    "is seeded for the factory; do not draw them from NumPy or the clock, and read "
                    "pretrained ones from a file."
                )

    def words_must_be_bound(self, module: nn.Module, facts: DataFacts) -> None:
        """Refuse a module, not yet on a GPU, that fails on numbers of words that it does not have:
        one private row would end a run that is paid for."""
        if self.ids:
            rows = made_up(module, facts.shape, _MADE_UP, ids=True)
            must_be_none(problems_of_words(module, rows))

    def rows_must_be_apart(
        self, module: nn.Module, facts: DataFacts, *, modes: Sequence[bool]
    ) -> None:
        """Refuse a module in which rows interact, or which keeps something of them, in train()
        (True) or eval(): on made-up rows, where the module is."""
        device = next(module.parameters()).device
        rows, others = (
            made_up(module, facts.shape, _MADE_UP, ids=self.ids, seed=seed).to(device)
            for seed in (0, 1)
        )
        self._must_fit(module, rows, facts)
        with nothing_near_zero(module, self.names(module)):
            found = problems_on_rows(module, rows, others, compute=self.compute, modes=modes)
        must_be_none(found, " (dptune doctor shows its layers.)")

    def _must_fit(self, module: nn.Module, rows: Tensor, facts: DataFacts) -> None:
        outputs = self.model(module, facts.shape).logits(rows)
        width = numbers_given(self.loss, self._width)
        if outputs.shape != (len(rows), width):
            need = "one number" if width == 1 else f"{width} numbers"
            need += ", one a class" if facts.has_classes else ""
            raise InvalidInput(
                f"for each row of these data a module gives {need}; {self.factory} makes one whose "
                f"output for {len(rows)} rows has shape {tuple(outputs.shape)}. Change its last "
                "layer. Nothing was paid."
            )

    @property
    def own_functions(self) -> Mapping[str, str]:
        named = {what: getattr(self, what) for what in ("factory", "loss", "augment")}
        if self.is_pretrained:
            del named["factory"]
        return {what: name for what, name in named.items() if name not in ("", *NAMES)}

    def must_be_found_again(self) -> None:
        for what, named in self.own_functions.items():
            must_be_found_again(named, what)

    def in_words(self, facts: DataFacts) -> tuple[str, ...]:
        """How lengths of gradients are found, for clipping."""
        ways: dict[str, list[str]] = {}
        by_layer = {name.rpartition(".")[0]: way for name, way in _routes(self, facts).items()}
        for layer, way in by_layer.items():
            ways.setdefault(way, []).append(layer or WHOLE)
        listed = "; ".join(f"{way} ({_listed(layers)})" for way, layers in ways.items())
        return (f"a row's gradient is clipped as one; its length is found, by layer: {listed}",)

    @property
    def public_facts(self) -> tuple[str, ...]:
        return (
            f"the weights that {self._called} begins with, pretrained ones "
            "included: nothing is promised about rows that they were trained on",
        )

    @property
    def _called(self) -> str:
        if self.is_pretrained:
            return pretrained_name(self.factory).rpartition("/")[2]
        return self.factory.rpartition(":")[2]

    def fit(
        self,
        plan: TrainPlan,
        randomness: Randomness,
        start: ModuleModel | None,
        *,
        rows: Rows,
        keep: Checkpoint | None = None,
    ) -> ModuleModel:
        rows = at_their_places(rows)
        module = self.made(randomness)
        facts = self.facts_of(rows)
        flat, gradients = self.traced(module, facts, rows.device, plan.augmentations)

        def attempt(count: int) -> None:
            made_up = self._made_up(module, facts, rows.device, count, plan.augmentations)
            scratch = torch.zeros(len(flat.vector), dtype=torch.float64, device=rows.device)
            gradients.add(scratch, *made_up, plan.clip_norm)

        at_once = self.physical(attempt, rows, plan, _MOST_ROWS_AT_ONCE)
        by_width = {facts.shape[-1]: gradients}
        # A GPU that takes a sample at once waits for more passes longer than for padding.
        if rows.device.type == "cpu" or at_once < plan.divisor:
            by_width = self._traced_shorter(flat, facts, plan.augmentations) | by_width
        released = descent.train(
            plan,
            rows,
            randomness,
            flat,
            by_width,
            rows_at_once=at_once,
            dtype=self.taken,
            augment=self._augment,
            keep=keep,
        )
        return self.model(self.released_module(flat, released, randomness), rows.shape)

    def released_module(
        self, flat: FlatWeights, vector: Tensor, randomness: Randomness
    ) -> nn.Module:
        """A new module with the trained weights of `vector`: buffers and frozen weights are those
        that the factory makes, whatever the one that met private rows has become."""
        fresh = FlatWeights(self.made(randomness), flat.trained, vector.device)
        return fresh.release(vector)

    def facts_of(self, rows: Rows) -> DataFacts:
        return DataFacts(rows.count, rows.shape, rows.copies, self._width, self.loss)

    @property
    def taken(self) -> torch.dtype:
        """What the module takes."""
        return torch.int64 if self.ids else torch.float32

    def physical(
        self, attempt: Callable[[int], None], rows: Rows, plan: TrainPlan, most: int
    ) -> int:
        """How many rows are taken at once; `attempt(n)` passes n that are made up."""
        if self.rows_at_once is not None:
            return self.rows_at_once
        expected = max(1.0, plan.divisor)
        most = min(most, rows.count, math.ceil(expected + _DEVIATIONS * math.sqrt(expected)))
        case = (self, rows.shape, rows.device, plan.augmentations, most)
        if case not in _FOUND:
            _FOUND[case] = memory.rows_at_once(attempt, rows.device, most)
        return _FOUND[case]

    def untrained(self, shape: tuple[int, ...]) -> ModuleModel:
        return self.model(self.made(), shape)

    def model(self, module: nn.Module, shape: tuple[int, ...]) -> ModuleModel:
        """A module that was trained on rows of such a shape."""
        return ModuleModel(module, shape, self.ids, self.compute)

    def pack(self, model: ModuleModel) -> dict[str, Tensor]:
        state = model.module.state_dict()
        released = self.released(model.module)
        packed = {name: state[name].detach().cpu().clone() for name in released}
        shape = torch.tensor(model.shape)
        return packed | {SEEN_SHAPE: shape, SEEN_LOGITS: self._seen(model)}

    def released(self, module: nn.Module) -> Iterable[str]:
        """The names of what is stored of it."""
        return module.state_dict()

    def _seen(self, model: ModuleModel) -> Tensor:
        device = next(model.module.parameters()).device
        rows = made_up(model.module, model.shape, _SEEN_ROWS, ids=self.ids)
        with all_in_float32(model.module):  # bfloat16 is rounded otherwise on every machine
            return replace(model, compute="float32").logits(rows.to(device)).cpu()

    def unpack(self, tensors: Mapping[str, Tensor]) -> ModuleModel:
        return self.filled(self.made(), tensors)

    def filled(self, module: nn.Module, tensors: Mapping[str, Tensor]) -> ModuleModel:
        """A module that was just made, with all its weights."""
        kept, trained = dict(tensors), self.names(module)
        shape, seen = kept.pop(SEEN_SHAPE), kept.pop(SEEN_LOGITS)
        try:
            module.load_state_dict(kept)
        except RuntimeError as error:
            raise OwnCodeProblem(
                f"the module that {self.factory} makes is another than the one that was trained: "
                f"{' '.join(str(error).split())}. Put the code back as it was."
            ) from None
        model = self.model(module.requires_grad_(False).eval(), tuple(shape.tolist()))
        if not self._gives(model, seen, trained):
            raise OwnCodeProblem(
                f"the module that {self.factory} makes takes the weights that were trained, and "
                "does something else with them: its code was changed since. Put it back as it was."
            )
        return model

    def outputs_at_first(self, shape: tuple[int, ...]) -> Tensor | None:
        """Of a language model none: its code is not the user's, and its weights have a digest."""
        if self.is_pretrained:
            return None
        with self._first_model(shape) as (model, _):
            return self._seen(model)

    def must_give_as_before(self, shape: tuple[int, ...], before: Tensor) -> None:
        with self._first_model(shape) as (model, names):
            if not self._gives(model, before, names):
                raise OwnCodeProblem(
                    f"the module that {self.factory} makes computes something else than it did "
                    "when this study began: its code was changed since. Put it back as it was, or "
                    "begin a new study."
                )

    @contextmanager
    def _first_model(self, shape: tuple[int, ...]) -> Iterator[tuple[ModuleModel, list[str]]]:
        """The model that runs begin with, and what of it is trained."""
        module = self.made()
        names = self.names(module)
        with nothing_near_zero(module, names):
            yield self.model(module.requires_grad_(False).eval(), shape), names

    def _gives(self, model: ModuleModel, seen: Tensor, trained: Names) -> bool:
        """Whether the model gives for made-up rows what was `seen`, but for roundings."""

        def close(room: float) -> bool:
            return torch.allclose(now, seen, rtol=0.01, atol=room, equal_nan=True)

        now = self._seen(model)
        if now.shape != seen.shape:
            return False
        room = self.rounding * float(seen.nan_to_num().abs().max())
        if close(room):
            return True
        with _shaken(model.module, trained):
            moved = float((self._seen(model) - now).nan_to_num().abs().max())
        return close(room + _SPARE * moved)

    def tally(
        self,
        models: int,
        loss_bound: float | None,
        row_weights: Tensor | None,
        device: torch.device,
    ) -> Tally:
        if self.loss in NAMES:
            return super().tally(models, loss_bound, row_weights, device)
        kind = "softmax" if self._width > 1 else "squared"
        own = row_loss(self.loss)
        return Tally(models, self._width, kind, loss_bound, row_weights, device, own)

    def made(self, randomness: Randomness | None = None) -> nn.Module:
        """A new module, as the factory makes it, with initial weights from a public seed."""
        with descent.public_numbers(randomness or Randomness(), torch.device("cpu")):
            module = self._from_factory()
        if self.ids and not self.is_pretrained:
            bound_words(module)
        _compute_again(module, self.checkpointed)
        return module

    def _from_factory(self) -> nn.Module:
        if not self.is_pretrained:
            return made(self.factory)
        untied = self.trained == "all"
        return pretrained.make(self.factory, loss=self.loss, outputs=self.outputs, untied=untied)

    def names(self, module: nn.Module) -> list[str]:
        """Of the parameters that are trained."""
        return trained_names(module, self.trained)

    def traced(
        self, module: nn.Module, facts: DataFacts, device: torch.device, copies: int = 1
    ) -> tuple[FlatWeights, RowGradients]:
        """A module ready to be trained, after made-up rows have shown how, or that it cannot be."""
        flat = FlatWeights(module, self.names(module), device)
        flat.module.train()
        rows, targets = self._made_up(module, facts, device, _MADE_UP, copies)
        self.functions_take_rows_apart(module, rows[:, 0], targets)
        return flat, self._traced(flat, rows, targets)

    def _traced_shorter(
        self, flat: FlatWeights, facts: DataFacts, copies: int = 1
    ) -> dict[int, RowGradients]:
        """The same for texts that are cut, by their width."""
        if not isinstance(flat.module, Reader):
            return {}
        by_width = {}
        for width in widths(facts.shape[-1]):
            shorter = replace(facts, shape=(*facts.shape[:-1], width))
            made_up = self._made_up(flat.module, shorter, flat.vector.device, _MADE_UP, copies)
            by_width[width] = self._traced(flat, *made_up)
        return by_width

    def _traced(self, flat: FlatWeights, rows: Tensor, targets: Tensor) -> RowGradients:
        loss = row_loss(self.loss)
        case = None
        # Code of one's own may be another when it is called again; that of transformers is not.
        if self.is_pretrained and self.loss in NAMES and not self.augment:
            case = (self, repr(flat.module), rows.shape, rows.device)
        gradients = RowGradients(
            flat.module,
            flat.trained,
            lambda found, targets: loss(outputs_of(found), targets),
            compute=self.compute,
        )
        with (
            descent.public_numbers(Randomness(), rows.device),
            nothing_near_zero(flat.module, flat.trained),
        ):
            gradients.trace(rows, targets, _LOOKED_AT.get(case))
        if case is not None:
            _LOOKED_AT[case] = gradients.ways
        return gradients

    def functions_take_rows_apart(self, module: nn.Module, rows: Tensor, targets: Tensor) -> None:
        """Refuse a loss or an augmentation of one's own that mixes rows, by these made-up ones."""
        with descent.own_numbers(rows.device):
            if self._augment is not None:
                own_functions.augment_takes_rows_apart(self._augment, rows)
            if self.loss not in NAMES:
                with torch.no_grad(), computing(self.compute, rows.device):
                    outputs = outputs_of(module(rows)).float()
                own_functions.loss_takes_rows_apart(row_loss(self.loss), outputs, targets)

    def _made_up(
        self, module: nn.Module, facts: DataFacts, device: torch.device, rows: int, copies: int
    ) -> tuple[Tensor, Tensor]:
        """Rows that are nobody's."""
        features = made_up(module, (copies, *facts.shape), rows, ids=self.ids)
        classes = facts.loss == "softmax" or self._width > 1
        # Of all classes: a loss that counts them would not show with one.
        targets = torch.arange(rows) % self._width if classes else torch.linspace(0, 1, rows)
        return features.to(device), targets.to(device)

    @property
    def _augment(self) -> Callable[[Tensor], Tensor] | None:
        return resolve(self.augment, "augment") if self.augment else None

    @property
    def _width(self) -> int:
        if self.outputs is None:
            raise InvalidInput("give the engine its number of outputs, or make it with for_data().")
        return self.outputs


def samples_of(facts: DataFacts, batch: float) -> dict[str, Any]:
    """Poisson samples, with more rows in each the more there are, and a smaller share of them; all
    rows where that is not much less."""
    rate = batch / math.sqrt(facts.count)
    return {"sampling_rate": rate} if rate < 0.5 else {}


@lru_cache(maxsize=16)
def _routes(engine: TorchModule, facts: DataFacts) -> Mapping[str, str]:
    _, gradients = engine.looked_at(facts, torch.device("cpu"))
    return gradients.ways.by_parameter


@contextmanager
def _shaken(module: nn.Module, names: Names) -> Iterator[None]:
    """The module with the last digits of these parameters changed."""
    named = dict(module.named_parameters())
    kept = {name: named[name].data for name in names}
    generator = torch.Generator().manual_seed(0)
    for name, data in kept.items():
        noise = torch.randn(data.shape, generator=generator).to(data.device)
        named[name].data = data * (1 + _LAST_DIGITS * noise)
    try:
        yield
    finally:
        for name, data in kept.items():
            named[name].data = data


def _listed(layers: Sequence[str]) -> str:
    """A few of them, and how many there are."""
    if len(layers) <= _FEW_LAYERS:
        return ", ".join(layers)
    return f"{len(layers)} layers from {layers[0]} to {layers[-1]}"


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
