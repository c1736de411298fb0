"""Private linear models, all trials at once.

This is Algorithm 1 of the linear scaling paper: a linear layer on frozen features, trained by
full-batch gradient descent on clipped and noised sums of per-row gradients. One step is

    logits     W X^T                       one matrix product for every trial
    residuals  softmax(logits) - targets   each row's gradient is residual (x) features
    clip       scale each row's residual   see clipping.py: nothing per-row is materialised
    weigh      by the row's class          where the plan has weights, none above 1
    sum        residuals X                 the second matrix product for every trial
    noise      + noise_multiplier * clip_norm * N(0, 1), fresh for every trial and step
    mean       / a public row count
    update     momentum, Adam, ...         see optimizers.py

The two products read the features once each however many trials there are, which is why a whole
search costs little more than one trial. Trials with fewer steps leave the batch when they end.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from dptune import validate
from dptune.data.placed_rows import at_their_places
from dptune.data.rows import Chunk, DataFacts, Rows, TargetFacts
from dptune.engines import clipping, fused, sums
from dptune.engines.base import Engine, must_be_countable
from dptune.engines.evaluation import Evaluation
from dptune.engines.optimizers import KINDS, Optimizer, Sgd, per_trial
from dptune.engines.per_row import batches
from dptune.engines.randomness import Randomness
from dptune.engines.registry import register_engine
from dptune.engines.release import Noise, Release
from dptune.engines.traits import Traits
from dptune.errors import InvalidInput
from dptune.plan import TrainPlan
from dptune.prior import LINEAR, VALUES, signal

# On a CPU: operations that are worth more than one thread (measured on 16 cores), residuals that
# stay in cache, and rows that are always taken together.
_WORTH_THREADS, _RESIDUALS_IN_CACHE, _LEAST_ROWS = 10**8, 2**19, 4096
_ONE_OF_TWO = 0.707106  # a millionth less than the root of 1/2, more than rounding takes
LOSSES = ("softmax", "binary", "squared")
INITIALIZATIONS = ("zero", "random")
# Of gradients, for classes and rows of unit length.
_LEAST_NORM, _MOST_NORM, _NORM_OF_ONE_COLUMN = 0.1, 0.5, 2.0


@dataclass(frozen=True)
class LinearModel:
    """Weights (outputs, columns) and, where the plan had one, a bias (outputs,).

    The rest is for a run that will be continued, which only sgd's can be, without averaging or with
    swa: `velocity` (outputs, columns and bias), the momentum buffer after the last step that read
    rows; where `weights` are the mean of `averaged` iterates, the `last` of them.
    """

    weights: Tensor
    bias: Tensor | None
    loss: str
    velocity: Tensor | None = None
    last: Tensor | None = None
    averaged: int = 0

    def released(self) -> "LinearModel":
        """What is left once nothing goes on from it."""
        return LinearModel(self.weights, self.bias, self.loss)

    def logits(self, features: Tensor) -> Tensor:
        """(rows, outputs)"""
        weights = self.weights.to(features.device, features.dtype)
        logits = features @ weights.T
        return logits if self.bias is None else logits + self.bias.to(logits)

    def predict(self, features: Tensor) -> Tensor:
        """Class numbers, or values for squared loss."""
        logits = self.logits(features)
        if self.loss == "softmax":
            return logits.argmax(1)
        return (logits > 0).long() if self.loss == "binary" else logits


@register_engine
@dataclass(frozen=True, kw_only=True)
class LinearEngine(Engine[LinearModel]):
    """Trains linear models.

    Attributes:
        outputs: classes for softmax, 1 for binary labels, the number of targets for squared loss;
            None for what the data need.
        bias: whether there is a weight that every row sees as 1.
        initialization: zero, or random weights.

    """

    name: ClassVar[str] = "linear"
    outputs: int | None = None
    loss: str = "softmax"
    bias: bool = False
    initialization: str = "zero"

    def __post_init__(self) -> None:
        validate.one_of(LOSSES, loss=self.loss)
        validate.one_of(INITIALIZATIONS, initialization=self.initialization)
        validate.store(self, bias=validate.flag(bias=self.bias))
        if self.outputs is not None:
            validate.store(self, outputs=validate.whole(1, outputs=self.outputs))

    @property
    def traits(self) -> Traits:
        return Traits(
            trains="linear model",
            prior=VALUES if self.loss == "squared" else LINEAR,
            linear_in_rows=True,
            wants_constant=not self.bias,
            weighs_rows=True,
            takes_any_classes=True,
        )

    def for_data(self, facts: DataFacts) -> "LinearEngine":
        if not facts.is_table:
            raise InvalidInput(
                f"linear models take rows that are lists of numbers; these have shape {facts.shape}"
                ". Extract features first, flatten them, or use an engine for such rows."
            )
        if self.outputs is None:
            return replace(self, outputs=facts.outputs, loss=facts.loss)
        if (self.outputs, self.loss) != (facts.outputs, facts.loss):
            raise InvalidInput(
                f"these rows need an engine of {facts.outputs} outputs and {facts.loss} loss; got "
                f"{self.outputs} and {self.loss}. Leave both out for one that fits."
            )
        return self

    def usual_recipe(self, facts: DataFacts, *, unit_rows: bool, mu: float) -> Mapping[str, Any]:
        """Clipped far below their gradients, all rows push alike. Where there is signal enough to
        come near the optimum, the mean of the last iterates has less noise; and the fewer columns,
        the less alike rows should push there, because that moves the optimum:
        docs/design/law.md. Values come near it with any signal, and would be led to their
        median."""
        if not unit_rows:
            return {}
        if facts.loss == "squared":
            return {"clip_norm": 0.2, "averaging": "swa"}
        told = signal(mu, facts.count, facts.columns, facts.outputs)
        if LINEAR.near(facts.columns) * told >= LINEAR.averaged_from:
            fewer = round(_NORM_OF_ONE_COLUMN / math.sqrt(facts.straight_columns), 2)
            return {"clip_norm": min(max(fewer, _LEAST_NORM), _MOST_NORM), "averaging": "swa"}
        return {"clip_norm": _LEAST_NORM, "averaging": "none"}

    def parameters(self, facts: DataFacts) -> int:
        return self._width * (facts.columns + self.bias)

    @property
    def _width(self) -> int:
        if self.outputs is None:
            raise InvalidInput("give the engine its number of outputs, or make it with for_data().")
        return self.outputs

    def check(self, plan: TrainPlan) -> None:
        if plan.augmentations > sums.MOST_COPIES:
            raise InvalidInput(
                f"at most {sums.MOST_COPIES} copies of a row can be averaged without rounding "
                f"past its clip norm; the plan asks for {plan.augmentations}. Use fewer."
            )
        classes = {"softmax": self.outputs, "binary": 2 if self.outputs == 1 else 0}
        known = classes.get(self.loss, 0)
        if plan.class_weights is not None and len(plan.class_weights) != known:
            raise InvalidInput(
                f"class_weights has {len(plan.class_weights)} weights, and {self.loss} loss with "
                f"{self.outputs} outputs has {known or 'no'} classes; give one weight a class."
            )

    def can_continue(self, plan: TrainPlan) -> bool:
        steady = (plan.optimizer, plan.schedule) == ("sgd", "constant")
        return steady and plan.averaging in ("none", "swa")

    def pack(self, model: LinearModel) -> dict[str, Tensor]:
        tensors = {"weights": model.weights, "bias": model.bias, "velocity": model.velocity}
        if model.last is not None:
            tensors |= {"last": model.last, "averaged": torch.tensor(model.averaged)}
        return {name: tensor for name, tensor in tensors.items() if tensor is not None}

    def unpack(self, tensors: Mapping[str, Tensor]) -> LinearModel:
        bias, velocity = tensors.get("bias"), tensors.get("velocity")
        last, averaged = tensors.get("last"), int(tensors.get("averaged", 0))
        return LinearModel(tensors["weights"], bias, self.loss, velocity, last, averaged)

    def fit_together(
        self,
        plans: Sequence[TrainPlan],
        rows: Rows,
        randomness: Sequence[Randomness],
        start: Sequence[LinearModel | None],
    ) -> list[LinearModel]:
        """Full-batch plans of one kind share every pass over the rows.

        A plan with a model in `start` continues from its weights, bias and momentum buffer, with
        noise of its own: a run of many steps can be paid for and run in segments.
        """
        if all(plan.clip_norm is not None for plan in plans):
            rows = at_their_places(rows)
        self._must_fit(plans, rows)
        self._check_start(plans, rows, start)
        with _undisturbed(rows.device):
            return self._fit_in_batches(plans, rows, randomness, start)

    def _fit_in_batches(
        self,
        plans: Sequence[TrainPlan],
        rows: Rows,
        randomness: Sequence[Randomness],
        start: Sequence[LinearModel | None],
    ) -> list[LinearModel]:
        batches: dict[object, list[int]] = {}
        for index, plan in enumerate(plans):
            # A sampled trial sees rows of its own in every step, so it shares nothing.
            alone = index if plan.sampling_rate is not None else None
            kind = (plan.optimizer, plan.augmentations)
            key = (*kind, plan.clip_norm is None, plan.class_weights is None, alone)
            batches.setdefault(key, []).append(index)
        models: dict[int, LinearModel] = {}
        for indices in batches.values():
            share = plans[indices[0]].sampling_rate or 1.0
            with _few_threads(self._work(len(indices), rows, share)):
                fitted = self._fit_batch(
                    [plans[i] for i in indices],
                    rows,
                    [randomness[i] for i in indices],
                    [start[i] for i in indices],
                )
            models.update(zip(indices, fitted, strict=True))
        return [models[index] for index in range(len(plans))]

    def _work(self, models: int, rows: Rows, share: float = 1.0) -> float:
        """Of one pass over this share of the rows, in operations, about: features come from memory
        twice, and what is done to a residual beside the products costs as much as 50 columns."""
        residuals = models * self._width
        each = 10 * rows.columns + residuals * (rows.columns + 50)
        return share * rows.count * rows.copies * each

    def _must_fit(self, plans: Sequence[TrainPlan], rows: Rows) -> None:
        """Refuse rows that the plans cannot be run on, before anything is read or spent."""
        self._check_rows(rows)
        sums.must_be_exact()
        for plan in plans:
            if plan.augmentations > rows.copies:
                raise InvalidInput(
                    f"the plan averages {plan.augmentations} copies of each row, but the data "
                    f"holds {rows.copies}."
                )

    def _check_start(
        self, plans: Sequence[TrainPlan], rows: Rows, start: Sequence[LinearModel | None]
    ) -> None:
        for plan, model in zip(plans, start, strict=True):
            if model is None:
                continue
            if not self.can_continue(plan):
                raise InvalidInput(
                    "only sgd at a constant rate, without averaging or with swa, can continue a "
                    "run; this plan has (optimizer, schedule, averaging) = "
                    f"({plan.optimizer}, {plan.schedule}, {plan.averaging}): train it in one piece."
                )
            if model.velocity is None:
                raise InvalidInput(
                    "the model to start from has no velocity, so its run cannot be continued; "
                    "start from what fit_many made of an sgd plan without averaging or with swa."
                )
            bias = (self._width,) if self.bias else None
            wanted = (self.loss, (self._width, rows.columns), bias)
            found = (
                model.loss,
                tuple(model.weights.shape),
                None if model.bias is None else tuple(model.bias.shape),
            )
            velocity = (self._width, rows.columns + self.bias)
            if found != wanted or tuple(model.velocity.shape) != velocity:
                raise InvalidInput(
                    f"this plan on these rows continues a model of (loss, weights, bias) {wanted} "
                    f"with velocity {velocity}; got {found} with {tuple(model.velocity.shape)}."
                )

    def _check_rows(self, rows: Rows) -> None:
        must_be_countable(rows)
        self._check_targets(rows.target_facts)

    def _check_targets(self, facts: TargetFacts) -> None:
        top = self._width - 1 if self.loss == "softmax" else 1
        labels = facts.whole and facts.low >= 0 and facts.high <= top
        if self.loss != "squared" and not labels:
            kind = "whole numbers" if facts.whole else "numbers that are not whole"
            raise InvalidInput(
                f"labels for {self.loss} loss are whole numbers from 0 to {top}; these are {kind} "
                f"from {facts.low:g} to {facts.high:g}. Number the classes from 0, or give the "
                "engine the right outputs."
            )
        wanted = 1 if self.loss == "softmax" else self._width
        if facts.width != wanted:
            raise InvalidInput(
                f"{self.loss} loss with {self.outputs} outputs needs {wanted} target a row; these "
                f"rows have {facts.width}."
            )

    def _fit_batch(
        self,
        plans: list[TrainPlan],
        rows: Rows,
        randomness: list[Randomness],
        start: list[LinearModel | None],
    ) -> list[LinearModel]:
        weights = torch.stack(
            [
                self._initial(rows, streams) if model is None else _newest(model, rows)
                for streams, model in zip(randomness, start, strict=True)
            ]
        )
        averaged = any(plan.averaging != "none" for plan in plans)
        average = weights
        if averaged:  # that of a run which goes on goes on, too
            average = torch.stack(
                [
                    own if model is None else _joined(model, rows)
                    for own, model in zip(weights, start, strict=True)
                ]
            )
        before = [_averaged_before(*pair) for pair in zip(plans, start, strict=True)]
        optimizer = KINDS[plans[0].optimizer](plans, weights)
        for trial, model in enumerate(start):
            if model is not None and model.velocity is not None:
                optimizer.first[trial].copy_(model.velocity)
        noise = Noise([streams.noise(rows.device) for streams in randomness], weights)
        chunks = batches(plans[0], rows, randomness[0])
        release = Release.of(plans, weights)
        trials = list(range(len(plans)))  # which plan each slice of `weights` belongs to
        models: dict[int, LinearModel] = {}
        for step in range(max(plan.steps for plan in plans)):
            exact = self._sums(weights, optimizer.plans[0], release, chunks())
            optimizer.update_(weights, release.private_mean(exact, noise.draw()), step)
            if averaged:
                known = [before[trial] for trial in trials]
                average.lerp_(weights, _fresh_share(optimizer.plans, known, step, weights))
            ended = [i for i, plan in enumerate(optimizer.plans) if plan.steps == step + 1]
            for position in ended:
                plan, trial = optimizer.plans[position], trials[position]
                velocity = _velocity(optimizer, position)  # free steps are no part of it
                newest = weights[position].clone() if plan.averaging == "swa" else None
                final = _finish(optimizer, weights[position], average[position], position, step)
                taken = before[trial] + plan.averaged_steps if newest is not None else 0
                models[trial] = replace(self._model(final, velocity), last=newest, averaged=taken)
            if ended:
                kept = [i for i in range(len(trials)) if i not in ended]
                index = torch.tensor(kept, dtype=torch.long, device=rows.device)
                weights = weights[index]
                average = average[index] if averaged else weights
                optimizer.keep(index)
                noise.keep(kept)
                release = Release.of(optimizer.plans, weights)
                trials = [trials[i] for i in kept]
        return [models[trial] for trial in range(len(plans))]

    def _initial(self, rows: Rows, randomness: Randomness) -> Tensor:
        shape = (self._width, rows.columns + self.bias)
        weights = torch.zeros(shape, dtype=_accumulator(rows.dtype))
        if self.initialization == "random":
            drawn = randomness.initial().normal_(weights[:, : rows.columns].clone())
            weights[:, : rows.columns] = drawn * rows.columns**-0.5
        return weights.to(rows.device)

    def _sums(
        self, weights: Tensor, plan: TrainPlan, release: Release, chunks: Iterable[Chunk]
    ) -> Tensor:
        """Sum of every row's clipped gradient, for every trial: (trials, outputs, columns).

        In float64, and private until there is noise on it: rounded to float32 it would move by more
        than a clip norm.
        """
        if self.loss != "softmax" or weights.shape[1] != 2 or weights.device.type != "cpu":
            return self._sums_of(weights, self.loss, plan, release, chunks)
        # The residuals of two classes are one number and its negative, so one is computed, and
        # clipped to the clip norm divided by the root of 2.
        norms = release.clip_norms
        apart = replace(release, clip_norms=None if norms is None else norms * _ONE_OF_TWO)
        one = self._sums_of(weights[:, 1:] - weights[:, :1], "binary", plan, apart, chunks)
        return torch.cat([-one, one], 1)

    def _sums_of(
        self,
        weights: Tensor,
        loss: str,
        plan: TrainPlan,
        release: Release,
        chunks: Iterable[Chunk],
    ) -> Tensor:
        trials, outputs, _ = weights.shape
        bias, copies = self.bias, plan.augmentations
        columns = weights.shape[2] - bias
        flat = weights[..., :columns].reshape(trials * outputs, columns)
        total = sums.Total(trials * outputs, columns, device=weights.device)
        of_bias = sums.Total(trials * outputs, 1, device=weights.device)
        for piece in _pieces(chunks, trials * outputs, weights.device):
            chunk = piece.prepared(copies, bias)
            features = chunk.features.reshape(-1, columns)
            logits = _product(flat.to(features.dtype), features.T).view(trials, outputs, -1)
            if bias:
                logits += weights[..., columns:]
            clipped = _clipped(logits, chunk, loss, release).view(trials * outputs, -1)
            for part in sums.products(clipped, features, copies):
                total.add(part)
            if bias:
                for part in sums.totals(clipped):
                    of_bias.add(part)
        exact = total.value()
        return (torch.cat([exact, of_bias.value()], 1) if bias else exact).view_as(weights)

    def evaluate_many(
        self,
        models: Sequence[LinearModel],
        rows: Rows,
        *,
        loss_bound: float | None = None,
        row_weights: Tensor | None = None,
    ) -> list[Evaluation]:
        self._check_rows(rows)
        for model in models:
            if model.weights.shape != (self._width, rows.columns):
                raise InvalidInput(
                    f"these rows need weights of shape {(self._width, rows.columns)}; got a model "
                    f"of {tuple(model.weights.shape)}."
                )
        with _few_threads(self._work(len(models), rows)):
            return super().evaluate_many(
                models, rows, loss_bound=loss_bound, row_weights=row_weights
            )

    def logits_many(self, models: Sequence[LinearModel], features: Tensor) -> Tensor:
        """One product for all models."""
        weights = torch.cat([model.weights for model in models]).to(features)
        logits = _product(weights, features.T).view(len(models), self._width, -1)
        for index, model in enumerate(models):
            if model.bias is not None:
                logits[index] += model.bias.to(logits)[:, None]
        return logits

    def _model(self, weights: Tensor, velocity: Tensor | None) -> LinearModel:
        weights = weights.clone()
        if self.bias:
            return LinearModel(weights[:, :-1], weights[:, -1], self.loss, velocity)
        return LinearModel(weights, None, self.loss, velocity)


def _clipped(logits: Tensor, chunk: Chunk, loss: str, release: Release) -> Tensor:
    clip_norms, weights = release.clip_norms, release.class_weights
    # The kernel knows no weights.
    usual = weights is None and fused.available(logits, chunk, loss)
    if clip_norms is not None and usual:
        return fused.clipped_residuals(logits, chunk, clip_norms)
    targets, copies = chunk.targets, chunk.features.shape[1]
    if copies > 1:
        targets = targets.repeat_interleave(copies, 0)
    residuals = clipping.residuals_(logits, targets, loss)
    of_rows = None if weights is None else weights[:, chunk.targets.long()]
    return clipping.clip_(residuals, chunk, clip_norms, of_rows)


def _fresh_share(
    plans: Sequence[TrainPlan], before: Sequence[int], step: int, like: Tensor
) -> Tensor:
    """How much of the newest weights enters each trial's average, which has `before` iterates of
    the run that it continues in it."""
    pairs = zip(plans, before, strict=True)
    shares = [plan.fresh_share(step, known) for plan, known in pairs]
    return per_trial(shares, like)


def _averaged_before(plan: TrainPlan, start: LinearModel | None) -> int:
    """How many iterates of the run that this one continues are in its average: none where the tail
    begins later than the plan."""
    return 0 if start is None or plan.averaged_steps < plan.steps else start.averaged


def _newest(model: LinearModel, rows: Rows) -> Tensor:
    """The weights from which the model's run goes on."""
    if model.last is None:
        return _joined(model, rows)
    return model.last.to(rows.device, _accumulator(rows.dtype))


def _joined(model: LinearModel, rows: Rows) -> Tensor:
    """A model's weights with its bias, if there is one, as the last column."""
    parts = [model.weights] if model.bias is None else [model.weights, model.bias[:, None]]
    dtype = _accumulator(rows.dtype)
    return torch.cat([part.to(rows.device, dtype) for part in parts], 1)


def _velocity(optimizer: Optimizer, position: int) -> Tensor | None:
    """What a continued run needs to know beside the weights."""
    if not isinstance(optimizer, Sgd) or optimizer.plans[position].averaging == "ema":
        return None
    return optimizer.first[position].clone()


def _finish(
    optimizer: Optimizer, weights: Tensor, average: Tensor, position: int, step: int
) -> Tensor:
    """The weights a trial releases."""
    plan = optimizer.plans[position]
    if plan.averaging != "none":
        return average
    if isinstance(optimizer, Sgd):
        for _ in range(plan.free_steps):
            optimizer.free_step_(weights, position, step)
    return weights


@contextmanager
def _undisturbed(device: torch.device) -> Iterator[None]:
    """No gradients are recorded (a graph would carry rows out) and no precision is changed."""
    with torch.no_grad(), torch.autocast(device.type, enabled=False):
        yield


@contextmanager
def _few_threads(work: float) -> Iterator[None]:
    """One, where so little work would take no less with more: threads that wait for each other
    keep their cores busy."""
    threads = torch.get_num_threads()
    if threads == 1 or work >= _WORTH_THREADS:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _rows_together(residuals: int) -> int:
    return max(_LEAST_ROWS, _RESIDUALS_IN_CACHE // residuals)


def _pieces(chunks: Iterable[Chunk], residuals: int, device: torch.device) -> Iterator[Chunk]:
    """Chunks whose rows have so many residuals each, on a CPU cut so that these stay in its
    cache."""
    if device.type != "cpu":
        yield from chunks
        return
    at_once = _rows_together(residuals)
    for chunk in chunks:
        for start in range(0, len(chunk.targets), at_once):
            yield chunk.taken(slice(start, start + at_once))


def _accumulator(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _product(left: Tensor, right: Tensor) -> Tensor:
    """Matrix product that accumulates, and answers, in at least float32."""
    if left.dtype != torch.bfloat16:
        return left @ right
    if left.is_cuda:
        return torch.mm(left, right, out_dtype=torch.float32)
    return left.float() @ right.float()  # exact products of the same numbers
