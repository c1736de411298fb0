"""The engine contract: what `tune` needs of anything that trains models.

An engine is a frozen record of its own options: plain values, so that a configuration can hold them
and `resume` can build the engine that was used. It says what it needs to know of the data, which
plans it can run, how to train, continue, store and evaluate models. It clips and SUMS, adds the
noise that the plan names, and divides by a public number; it never sees the ledger and never
chooses its noise. What a run does to the rows is the plan's `event`, whatever the engine.

To add one: subclass `Engine`, write `for_data`, `parameters`, `fit`, `pack` and `unpack`, and call
`register_engine` on it. examples/module_engine.py does it in 50 lines, and `check_engine` says
whether it keeps its promises.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import torch
from torch import Tensor

from dptune.data.rows import DataFacts, Rows
from dptune.engines import sums
from dptune.engines.checkpoint import Checkpoint
from dptune.engines.evaluation import Evaluation, RowLoss, Tally
from dptune.engines.randomness import Randomness
from dptune.engines.traits import Traits
from dptune.errors import InvalidInput
from dptune.plan import TrainPlan


class Model(Protocol):
    """What an engine trains."""

    def logits(self, features: Tensor) -> Tensor:
        """(rows, outputs) for a batch of rows (rows, *shape), on whatever device that is: a number
        for every class, or for regression the value itself, from -1 to 1. Where rows hold what is
        asked, a row's loss comes first: `DataFacts.width`.

        A row's logits depend on that row alone, whatever else is in the batch. Otherwise one
        private row would move what is counted of the others.
        """
        ...


M = TypeVar("M", bound=Model)


class Engine(ABC, Generic[M]):
    """Trains models of one kind. Subclasses are frozen dataclasses of plain options.

    Attributes:
        name: what a configuration calls it.
        outputs: how many numbers a model gives for a row; None before it is made for some data.
        loss: softmax, binary or squared; words, spans or inside where rows hold what is asked.

    """

    name: ClassVar[str]
    outputs: int | None
    loss: str

    @property
    def traits(self) -> Traits:
        """Plain facts about it. An engine whose facts are always the same states them as an
        attribute of its class: `traits = Traits(...)`."""
        return Traits()

    @property
    def inspection(self) -> "Inspection[M]":
        """What a study asks it beside training; only engines that run code or weights of others
        have more to say than the default."""
        return Inspection(self)

    @abstractmethod
    def for_data(self, facts: DataFacts) -> Self:
        """The same engine, made for such data; refuses data it cannot learn from."""

    def check(self, plan: TrainPlan) -> None:
        """Refuse a plan that cannot be run, before anything is paid. The rehearsal runs the recipe,
        so only what it does not show need be refused here."""

    def must_take(self, plan: TrainPlan) -> None:
        """Refuse a plan of another kind than the engine's: what is run is what is paid."""
        compares = self.traits.compares_losses
        if (plan.directions is not None) != compares:
            needs = "needs directions" if compares else "takes gradients, no directions"
            raise InvalidInput(
                f"the engine {self.name} {needs}, and the plan has directions {plan.directions}; "
                "give the plan that the engine runs."
            )

    def usual_recipe(self, facts: DataFacts, *, unit_rows: bool, mu: float) -> Mapping[str, Any]:
        """Default fields of plans for such data, in unit rows or not, and a budget of `mu`;
        what is left out has the plan's own defaults."""
        return {}

    @abstractmethod
    def parameters(self, facts: DataFacts) -> int:
        """How many numbers are trained, and get noise."""

    def can_continue(self, plan: TrainPlan) -> bool:
        """Whether a run of this plan can go on from the model of an earlier one as if it had never
        stopped, so that it may be paid, run and stored in segments."""
        return False

    def fit_many(
        self,
        plans: Sequence[TrainPlan],
        rows: Rows,
        randomness: Sequence[Randomness],
        start: Sequence[M | None] | None = None,
        keep: Sequence[Checkpoint | None] | None = None,
    ) -> list[M]:
        """One model per plan. Equal, up to rounding, to training them one by one. A plan with a
        model in `start` goes on from where that model's run ended; one with a checkpoint in `keep`,
        which only engines with such a trait are given, from where its own run was interrupted."""
        begun = [None] * len(plans) if start is None else start
        kept = [None] * len(plans) if keep is None else keep
        if not len(plans) == len(randomness) == len(begun) == len(kept):
            raise InvalidInput(
                f"{len(plans)} plans need as many streams, starts and checkpoints; got "
                f"{len(randomness)}, {len(begun)} and {len(kept)}."
            )
        must_be_countable(rows)
        for plan in plans:
            self.check(plan)
            self.must_take(plan)
            if plan.class_weights is not None and not self.traits.weighs_rows:
                raise InvalidInput(
                    f"the engine {self.name} does not weigh rows by class; leave class_weights out."
                )
        if not self.traits.checkpoints:
            return self.fit_together(plans, rows, randomness, begun)
        fit: Callable[..., M] = self.fit
        jobs = zip(plans, randomness, begun, kept, strict=True)
        return [fit(*one, rows=rows, keep=its) for *one, its in jobs]

    def fit_together(
        self,
        plans: Sequence[TrainPlan],
        rows: Rows,
        randomness: Sequence[Randomness],
        start: Sequence[M | None],
    ) -> list[M]:
        """One model per plan, after all were checked: for engines that train several at once."""
        jobs = zip(plans, randomness, start, strict=True)
        return [self.fit(*one, rows=rows) for one in jobs]

    def fit(self, plan: TrainPlan, randomness: Randomness, start: M | None, *, rows: Rows) -> M:
        """One model, where the engine trains one at a time."""
        raise NotImplementedError

    @abstractmethod
    def pack(self, model: M) -> dict[str, Tensor]:
        """A model, with all that continuing its run needs, as named tensors to be stored."""

    @abstractmethod
    def unpack(self, tensors: Mapping[str, Tensor]) -> M:
        """The reverse."""

    def logits_many(self, models: Sequence[M], features: Tensor) -> Tensor:
        """(models, outputs, rows)"""
        return torch.stack([model.logits(features).T for model in models])

    def evaluate_many(
        self,
        models: Sequence[M],
        rows: Rows,
        *,
        loss_bound: float | None = None,
        row_weights: Tensor | None = None,
    ) -> list[Evaluation]:
        """Counts of correct rows and mean losses; only the first copy of a row is looked at. For
        squared loss no row counts as correct.

        With a `loss_bound` each row's loss is brought into [0, loss_bound] before it is summed.
        `row_weights` has one number in [0, 1] per class, which is what a correct row of that
        class adds to `weighted_correct`. Weights, and losses in units of their bound, are rounded
        down to multiples of 2^-24, so that their sums are exact.

        Guarantees: one row moves the number of correct rows and their weight by at most 1, and the
        sum of the losses by at most `loss_bound`.
        """
        must_be_countable(rows)
        assert self.outputs is not None
        loss, own = self.measures
        device = rows.device
        tally = Tally(len(models), self.outputs, loss, loss_bound, row_weights, device, own)
        if models:
            # No gradients are recorded (a graph would carry rows out), no precision is changed.
            with torch.no_grad(), torch.autocast(device.type, enabled=False):
                for chunk in rows.chunks():
                    tally.add(self.logits_many(models, chunk.features[:, 0]), chunk.targets)
        return tally.evaluations(rows.count)

    @property
    def measures(self) -> tuple[str, RowLoss | None]:
        """The loss by which models are evaluated, and a function of the user's own in its place."""
        return self.loss, None

    def options(self) -> dict[str, Any]:
        """What a configuration holds of it; what is None is left out."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {name: value for name, value in values.items() if value is not None}


class Inspection(Generic[M]):
    """Answers for an engine that runs neither code nor weights of others: there is nothing to
    refuse and nothing to report. `Engine.inspection` gives another where there is."""

    def __init__(self, engine: Engine[M]) -> None:
        self.engine = engine

    def pin(self) -> Engine[M]:
        """The engine with the revision that a name on a hub stands for now, so that a study that is
        resumed continues with it."""
        return self.engine

    def must_know_words(self, tokenizer: str) -> None:
        """Refuse rows of a tokenizer with tokens that the model has no numbers for."""

    def rehearse(self, facts: DataFacts, device: torch.device) -> None:
        """Refuse, by looking at made-up rows, what training on three of them does not show."""

    def describe(self, facts: DataFacts) -> tuple[str, ...]:
        """What a plan says about how the engine trains."""
        return ()

    def slowed_by(self, facts: DataFacts) -> str:
        """What makes training slow, in a sentence without a full stop; empty for nothing."""
        return ""

    def initial_model(self, shape: tuple[int, ...]) -> M | None:
        """The model that a run begins with, for rows of such a shape, where its results are worth
        showing beside those of the trained model."""
        return None

    def initial_outputs(self, shape: tuple[int, ...]) -> Tensor | None:
        """What the model that runs begin with gives for made-up rows of such a shape; None where no
        code of the user's makes it."""
        return None

    def must_give_as_before(self, shape: tuple[int, ...], before: Tensor) -> None:
        """Refuse code that gives for these rows something else than `before`, except for
        rounding."""


def must_be_countable(rows: Rows) -> None:
    """Refuse more rows than sums are exact for."""
    if rows.count > sums.LARGEST_COUNT:
        raise InvalidInput(
            f"what a row adds to a sum is bounded for up to {sums.LARGEST_COUNT:,} rows; got "
            f"{rows.count:,}. Use fewer."
        )
