"""What every engine must keep, as checks that run on made-up rows.

Nothing here knows what an engine trains: gradients of single rows are read off runs of one row,
bounds off what a run really moved.
"""

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dptune.accounting import price
from dptune.data.disk import DiskRows, write_chunks
from dptune.data.rows import IDS, DataFacts, MemoryRows, Rows
from dptune.engines.base import Engine
from dptune.engines.modules.module_model import SEEN_LOGITS, SEEN_SHAPE
from dptune.engines.randomness import Randomness
from dptune.engines.registry import engine_named
from dptune.engines.scatter import must_scatter
from dptune.errors import InvalidInput
from dptune.plan import TrainPlan
from dptune.scratch import scratch_folder

COUNT, CLIP = 24, 0.3
STATE = ("velocity", SEEN_SHAPE, SEEN_LOGITS)


class Broken(Exception):
    """A promise that an engine does not keep."""


class EngineChecks:
    """The checks of one engine on rows of one shape. Subclasses may give other rows or plans.

    Attributes:
        engine: as `tune` takes it.
        shape: the shape of one row.
        classes: how many classes there are.
        words: where rows are token numbers, how many tokens there are.
        precisions: of rows; most checks are made in the first.
        state: packed tensors that are no weights.
        margin: by how much clipping may stay below the clip norm, as a share of it.
        runs: how many runs noise and samples are measured with.

    """

    engine: Engine[Any]
    shape: tuple[int, ...] = (4,)
    classes: int = 3
    words: int = 10
    precisions: tuple[str, ...] = ("float32", "float64")
    state: tuple[str, ...] = STATE
    margin: float = 0.01
    runs: int = 400
    sizes: tuple[float, ...] = (1e-8, 1.0, 1e4, 1e15)

    def features(self, count: int = COUNT, copies: int = 1, seed: int = 0) -> NDArray[Any]:
        rng = np.random.default_rng(seed)
        if self.engine.traits.takes_ids:
            return rng.integers(0, self.words, size=(count, copies, *self.shape))
        return rng.normal(size=(count, copies, *self.shape))

    def labels(self, count: int = COUNT, seed: int = 0) -> NDArray[Any]:
        flat = self.features(count, 1, seed).reshape(count, -1)
        ranked: NDArray[Any] = (np.argsort(np.argsort(flat[:, 0])) * self.classes) // count
        return ranked

    def rows(
        self, count: int = COUNT, copies: int = 1, precision: str | None = None, seed: int = 0
    ) -> MemoryRows:
        return MemoryRows(
            self.features(count, copies, seed),
            self.labels(count, seed),
            precision=precision or self.precisions[0],
            augmented=True,
        )

    @property
    def facts(self) -> DataFacts:
        return DataFacts(COUNT, self.shape, 1, self.classes, "softmax")

    @property
    def made(self) -> Any:
        return self.engine.for_data(self.facts)

    def plan(self, **changes: Any) -> TrainPlan:
        fields: dict[str, Any] = {"rows": 1, "steps": 1, "learning_rate": 1.0}
        fields |= {"noise_multiplier": 0.0, "momentum": 0.0, "clip_norm": CLIP}
        return TrainPlan(**fields | changes)

    def fit(self, plan: TrainPlan, rows: Rows, start: Any = None, seed: int | None = 0) -> Any:
        streams = [Randomness(noise_seed=seed)]
        return self.made.fit_many([plan], rows, streams, [start])[0]

    def weights(self, model: Any) -> Tensor:
        """All that was trained, in one row."""
        packed = self.made.pack(model)
        kept = [packed[name] for name in sorted(packed) if name not in self.state]
        return torch.cat([part.double().flatten() for part in kept])

    def moved(self, rows: Rows, **changes: Any) -> Tensor:
        """What one step at rate 1 and divisor 1 takes off the weights: the sum that it follows.

        From the weights of a run without a step worth the name, so that it does not matter where
        the engine begins; these are the same for all rows of one precision.
        """
        begun = self.__dict__.setdefault("begun", {})
        if rows.dtype not in begun:
            idle = self.fit(self.plan(learning_rate=1e-300), rows)
            begun[rows.dtype] = self.weights(idle)
        step: Tensor = begun[rows.dtype] - self.weights(self.fit(self.plan(**changes), rows))
        return step

    # -- training

    def check_step_without_clipping_follows_the_gradient_of_the_loss(self) -> None:
        """To first order, a small step lowers the mean loss by rate times the squared gradient."""
        rows, rate = self.rows(precision=self.precisions[-1]), 1e-3
        plan = self.plan(rows=COUNT, clip_norm=None, learning_rate=rate)
        before, after = self.fit(replace(plan, learning_rate=1e-300), rows), self.fit(plan, rows)
        loss = [one.loss for one in self.made.evaluate_many([before, after], rows)]
        gradient = (self.weights(before) - self.weights(after)) / rate
        fell, length = (loss[0] - loss[1]) / rate, float(gradient.square().sum())
        _must(
            abs(fell - length) <= 0.02 * length,
            f"a step lowers the loss by {fell:g} of its rate; its gradient says {length:g}",
        )

    def check_clipped_step_is_the_sum_of_clipped_row_gradients(self) -> None:
        rows = self.rows()
        expected, cut = torch.zeros_like(self.moved(rows)), 0
        for number in range(COUNT):
            alone = rows.taken(torch.arange(COUNT) == number)
            gradient = self.moved(alone, clip_norm=None)
            cut += bool(gradient.norm() > CLIP)
            expected += gradient * min(1.0, CLIP / max(float(gradient.norm()), 1e-30))
        _must(cut > COUNT // 3, f"only {cut} of {COUNT} gradients are longer than {CLIP}")
        _must_be_close(self.moved(rows), expected, rtol=self.margin, atol=2e-4)

    def check_copies_are_averaged_before_clipping(self) -> None:
        rows = self.rows(count=1, copies=3)
        apart = []
        for copy in range(3):
            one = MemoryRows(
                rows.features[:, copy], rows.targets, precision=self.precisions[0], augmented=False
            )
            apart.append(self.moved(one, clip_norm=None))
        expected = torch.stack(apart).mean(0)
        expected *= min(1.0, CLIP / float(expected.norm()))
        moved = self.moved(rows, augmentations=3)
        _must_be_close(moved, expected, rtol=self.margin, atol=2e-5)

    def check_no_row_moves_a_sum_by_more_than_the_clip_norm(self) -> None:
        """In the sum as it is really added up, whatever the precision, whatever the others are and
        of whatever size numbers are; one row is left out."""
        for size in self.sizes[:1] if self.engine.traits.takes_ids else self.sizes:
            for precision in self.precisions:
                rows = self.rows(precision=precision)
                if not self.engine.traits.takes_ids:
                    scaled = torch.as_tensor(size * self.features())
                    rows = MemoryRows(scaled, self.labels(), precision=precision, augmented=True)
                whole = self.moved(rows)
                for number in range(0, COUNT, 5):
                    rest = rows.taken(torch.arange(COUNT) != number)
                    moved = float((whole - self.moved(rest)).norm())
                    # Weights of which a step is taken are rounded to float32.
                    _must(
                        moved <= CLIP * (1 + 1e-5) + 1e-6 * float(whole.norm()),
                        f"a row of numbers of size {size:g} in {precision} moves a sum by "
                        f"{moved / CLIP:.3g} clip norms",
                    )

    def check_noise_is_what_the_plan_says_and_a_row_shows_no_more_than_the_price(self) -> None:
        """The likelihood ratio of a row that is there or not is that of two Gaussians; their
        distance in standard deviations is the measured mu."""
        sigma, runs = 2.0, self.runs
        rows, plan = self.rows(), self.plan(noise_multiplier=2.0)
        without = rows.taken(torch.arange(COUNT) != 0)
        direction = self.moved(rows) - self.moved(without)
        shift = float(direction.norm())
        _must(shift > 0.2 * CLIP, "a row hardly moves a sum, so nothing could be measured")
        drawn = torch.stack([self.weights(self.fit(plan, rows, seed=seed)) for seed in range(runs)])
        noise = float((drawn @ (direction / direction.norm())).std()) / CLIP
        everywhere = float(drawn.std(0).mean()) / CLIP
        # 5 standard errors of a standard deviation; the seeds are fixed.
        _must(
            abs(noise / sigma - 1) < 5 / np.sqrt(2 * runs) and abs(everywhere / sigma - 1) < 0.1,
            f"noise of {sigma} clip norms was asked for; measured: {noise:.3g} along a row's "
            f"gradient, {everywhere:.3g} in all directions",
        )
        measured, paid = shift / (sigma * CLIP), price(plan.event).mu
        _must(measured <= paid * (1 + 1e-5), f"a row shows mu {measured:.3g}; {paid:.3g} is paid")

    def check_released_weights_scatter_as_the_plan_says(self) -> None:
        """The check that every study makes of an engine that is not dptune's own."""
        try:
            must_scatter(
                self.made, self.facts, self.rows(3), self.rows(3, seed=1), self.plan(rows=COUNT)
            )
        except InvalidInput as problem:
            raise Broken(str(problem)) from None

    def check_noise_is_fresh_in_every_run(self) -> None:
        rows, plan, same = self.rows(), self.plan(noise_multiplier=1.0), Randomness(seed=1, trial=2)
        first, second = (self.made.fit_many([plan], rows, [same])[0] for _ in range(2))
        (again,) = self.made.fit_many([plan], rows, [pickle.loads(pickle.dumps(same))])
        for other in (second, again):
            _must(
                not torch.allclose(self.weights(first), self.weights(other)),
                "two runs with one Randomness draw the same noise",
            )

    def check_samples_are_of_the_rate_that_was_paid_for(self) -> None:
        """Each row adds its gradient in a share of the steps; where nobody is drawn, a step is
        taken all the same."""
        rows = self.rows()
        whole = self.moved(rows)
        plan = self.plan(sampling_rate=0.25, learning_rate=0.25)  # the divisor is the rate
        idle = self.weights(self.fit(self.plan(learning_rate=1e-300), rows))
        fits = (self.fit(plan, rows, seed=seed) for seed in range(self.runs))
        sums = torch.stack([idle - self.weights(model) for model in fits])
        along = (sums @ whole) / whole.square().sum()
        rate, error = float(along.mean()), float(along.std()) / self.runs**0.5
        _must(
            abs(rate - 0.25) <= 5 * error and float(along.std()) > 0.01,
            f"steps that sample a quarter of the rows follow {rate:.3g} of their sum, with a "
            f"standard deviation of {float(along.std()):.3g}",
        )
        rare = self.plan(sampling_rate=1e-8, noise_multiplier=1.0, steps=3)
        finite = bool(torch.isfinite(self.weights(self.fit(rare, rows))).all())
        _must(finite, "steps of an empty sample end in weights that are no numbers")

    def check_many_plans_at_once_equal_one_by_one(self) -> None:
        rows = self.rows()
        plans = [
            self.plan(steps=3, noise_multiplier=1.0, rows=COUNT),
            self.plan(steps=1, learning_rate=0.1),
            self.plan(steps=2, optimizer="adam", learning_rate=0.01),
            self.plan(steps=2, sampling_rate=0.5, noise_multiplier=1.0, rows=COUNT),
        ]
        streams = [Randomness(trial=number, noise_seed=3) for number in range(len(plans))]
        together = self.made.fit_many(plans, rows, streams)
        for plan, stream, model in zip(plans, streams, together, strict=True):
            (alone,) = self.made.fit_many([plan], rows, [stream])
            _must_be_close(self.weights(model), self.weights(alone), rtol=1e-4, atol=1e-5)
        _must(self.made.fit_many([], rows, []) == [], "no plans give models")

    def check_run_in_segments_equals_one_run(self) -> None:
        rows, plan = self.rows(), self.plan(steps=6, momentum=0.9, rows=COUNT)
        if not self.made.can_continue(plan):
            return
        whole, model = self.fit(plan, rows), None
        for steps in (1, 3, 2):
            model = self.fit(replace(plan, steps=steps), rows, model)
            model = self.made.unpack({k: v.clone() for k, v in self.made.pack(model).items()})
        _must_be_close(self.weights(model), self.weights(whole), rtol=1e-5, atol=1e-6)

    def check_rows_from_disk_train_like_rows_in_memory(self) -> None:
        memory, plan = self.rows(), self.plan(steps=3, rows=COUNT)
        halves = np.split(self.features(), 2), np.split(self.labels(), 2)
        precision = IDS if self.engine.traits.takes_ids else self.precisions[0]
        with scratch_folder() as folder:
            chunks = zip(*halves, strict=True)
            write_chunks(folder, chunks, precision=precision, augmented=True)
            one, other = self.fit(plan, memory), self.fit(plan, DiskRows(folder))
        _must_be_close(self.weights(one), self.weights(other), rtol=1e-4, atol=1e-6)

    def check_no_rows_at_all_leave_the_weights_alone(self) -> None:
        rows = self.rows()
        nobody = rows.taken(torch.zeros(COUNT, dtype=torch.bool))
        _must(not self.moved(nobody).any(), "a step without rows and noise moves the weights")
        model = self.fit(self.plan(), nobody)
        (nothing,) = self.made.evaluate_many([model], nobody, loss_bound=1.0)
        counted = (nothing.correct, nothing.rows, nothing.loss)
        _must(counted == (0, 0, 0.0), f"no rows are counted as {counted}")

    # -- models

    def check_model_that_was_packed_and_unpacked_predicts_the_same(self) -> None:
        model = self.fit(self.plan(steps=2), self.rows())
        tensors = self.made.pack(model)
        _must(
            all(isinstance(tensor, Tensor) for tensor in tensors.values()), "pack gives no tensors"
        )
        again = self.made.unpack(tensors)
        features = self.rows().features[:, 0]
        logits = model.logits(features)
        _must(
            logits.shape == (COUNT, self.classes),
            f"logits of {COUNT} rows and {self.classes} classes have shape {tuple(logits.shape)}",
        )
        _must_be_close(again.logits(features), logits, rtol=1e-5, atol=1e-6)

    def check_row_is_predicted_alike_in_any_batch(self) -> None:
        model = self.fit(self.plan(steps=2), self.rows())
        features = self.rows().features[:, 0]
        alone = torch.cat([model.logits(features[i : i + 1]) for i in range(COUNT)])
        _must_be_close(model.logits(features), alone, rtol=1e-4, atol=1e-5)

    def check_what_is_counted_is_what_is_predicted(self) -> None:
        rows = self.rows()
        models = [self.fit(self.plan(steps=s, rows=COUNT), rows) for s in (1, 4)]
        weights = torch.tensor([2.0**-number for number in range(self.classes)])
        counted = self.made.evaluate_many(models, rows, row_weights=weights)
        for model, evaluation in zip(models, counted, strict=True):
            hits = model.logits(rows.features[:, 0]).argmax(1) == rows.targets
            right, weight = int(hits.sum()), float(weights[rows.targets[hits]].sum())
            _must(
                (evaluation.correct, evaluation.weighted_correct) == (right, weight),
                f"{right} rows of weight {weight:g} are predicted right; counted: "
                f"{evaluation.correct} of weight {evaluation.weighted_correct:g}",
            )

    def check_row_moves_bounded_losses_by_at_most_the_bound(self) -> None:
        rows, bound = self.rows(), 0.5
        model = self.fit(self.plan(steps=9, learning_rate=50.0), rows)
        (whole,) = self.made.evaluate_many([model], rows, loss_bound=bound)
        for number in range(COUNT):
            rest = rows.taken(torch.arange(COUNT) != number)
            (other,) = self.made.evaluate_many([model], rest, loss_bound=bound)
            moved = abs(whole.loss * COUNT - other.loss * (COUNT - 1))
            _must(moved <= bound * (1 + 1e-12), f"a row moves a sum of losses by {moved / bound:g}")

    def check_its_record_is_plain_and_builds_it_again(self) -> None:
        kind = engine_named(self.engine.name)
        _must(kind is type(self.engine), f"the name {self.engine.name} is another engine's")
        again = (kind(**self.made.options()), pickle.loads(pickle.dumps(self.made)))
        _must(again == (self.made, self.made), "its options do not build an equal engine")


CHECKS = tuple(name for name in vars(EngineChecks) if name.startswith("check_"))


def in_words(check: str) -> str:
    """The name of a check as people read it."""
    return check.removeprefix("check_").replace("_", " ")


def _must(kept: bool, otherwise: str) -> None:
    if not kept:
        raise Broken(otherwise)


def _must_be_close(one: Tensor, other: Tensor, *, rtol: float, atol: float) -> None:
    one, other = one.detach(), other.detach()
    if one.shape != other.shape:
        raise Broken(f"their shapes are {tuple(one.shape)} and {tuple(other.shape)}")
    if not torch.allclose(one, other, rtol=rtol, atol=atol):
        apart = float((one - other).abs().max())
        raise Broken(f"numbers that should be equal differ by {apart:.3g} at most")
