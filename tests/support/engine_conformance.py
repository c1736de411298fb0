"""What every engine must keep, as one class: subclass it, name an engine, and pytest does the rest.

Nothing here knows what an engine trains: per-row gradients are read off runs of one row, bounds off
what a run really moved.
"""

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

import dptune
from dptune.accounting import Budget, price
from dptune.data import Data
from dptune.data.disk import DiskRows, write_chunks
from dptune.data.rows import IDS, DataFacts, MemoryRows, Rows
from dptune.engines import Engine, ProcessExecutor, Randomness, engine_named
from dptune.engines.modules.torch_module import SEEN_LOGITS, SEEN_SHAPE
from dptune.plan import TrainPlan
from dptune.search.base import SearchMethod
from dptune.search.random_search import RandomSearch
from dptune.search.score import HeldOutScore
from dptune.search.space import Space
from dptune.study.config import engine_from
from dptune.study.study import resume

COUNT, CLIP = 24, 0.3


class EngineConformance:
    """The promises of one engine on rows of one shape."""

    engine: ClassVar[Engine[Any]]
    shape: ClassVar[tuple[int, ...]] = (4,)
    classes: ClassVar[int] = 3
    precisions: ClassVar[tuple[str, ...]] = ("float32", "float64")
    margin: ClassVar[float] = 0.01  # by which clipping may aim lower
    runs: ClassVar[int] = 400  # behind what is measured of noise and samples

    def features(self, count: int = COUNT, copies: int = 1, seed: int = 0) -> Any:
        rng = np.random.default_rng(seed)
        if self.engine.takes_ids:
            return rng.integers(0, 10, size=(count, copies, *self.shape))
        return rng.normal(size=(count, copies, *self.shape))

    def labels(self, count: int = COUNT, seed: int = 0) -> Any:
        flat = self.features(count, 1, seed).reshape(count, -1)
        return (np.argsort(np.argsort(flat[:, 0])) * self.classes) // count

    def rows(self, count: int = COUNT, copies: int = 1, precision: str | None = None) -> MemoryRows:
        return MemoryRows(
            self.features(count, copies),
            self.labels(count),
            precision=precision or self.precisions[0],
            augmented=True,
        )

    def data(self, count: int = 300, **facts: Any) -> Data:
        tests = self.features(60, 1, 1)[:, 0], self.labels(60, 1)
        return Data(self.features(count)[:, 0], self.labels(count), test=tests, **facts)

    @property
    def made(self) -> Any:
        return self.engine.for_data(DataFacts(COUNT, self.shape, 1, self.classes, "softmax"))

    def plan(self, **changes: Any) -> TrainPlan:
        fields = {"rows": 1, "steps": 1, "learning_rate": 1.0, "noise_multiplier": 0.0}
        return TrainPlan(**fields | {"momentum": 0.0, "clip_norm": CLIP} | changes)

    def fit(self, plan: TrainPlan, rows: Rows, start: Any = None, seed: int | None = 0) -> Any:
        streams = [Randomness(noise_seed=seed)]
        return self.made.fit_many([plan], rows, streams, [start])[0]

    def weights(self, model: Any) -> Tensor:
        """All that was trained, in one row."""
        packed = self.made.pack(model)
        others = ("velocity", SEEN_SHAPE, SEEN_LOGITS)
        kept = [packed[name] for name in sorted(packed) if name not in others]
        return torch.cat([part.double().flatten() for part in kept])

    def moved(self, rows: Rows, **changes: Any) -> Tensor:
        """What one step at rate 1 and divisor 1 takes off the weights: the sum it descends along.

        From the weights of an idle run, so that it does not matter where the engine begins; it is
        the same for all rows of one precision.
        """
        begun = self.__dict__.setdefault("begun", {})
        if rows.dtype not in begun:
            idle = self.fit(self.plan(learning_rate=1e-300), rows)
            begun[rows.dtype] = self.weights(idle)
        return begun[rows.dtype] - self.weights(self.fit(self.plan(**changes), rows))

    # -- training

    def test_a_step_without_clipping_goes_along_the_gradient_of_the_loss(self) -> None:
        """To first order, a small step lowers the mean loss by rate times the squared gradient."""
        rows, rate = self.rows(precision=self.precisions[-1]), 1e-3
        plan = self.plan(rows=COUNT, clip_norm=None, learning_rate=rate)
        before, after = self.fit(replace(plan, learning_rate=1e-300), rows), self.fit(plan, rows)
        loss = [one.loss for one in self.made.evaluate_many([before, after], rows)]
        gradient = (self.weights(before) - self.weights(after)) / rate
        assert (loss[0] - loss[1]) / rate == pytest.approx(float(gradient.square().sum()), rel=0.02)

    def test_a_clipped_step_is_the_sum_of_clipped_row_gradients(self) -> None:
        rows = self.rows()
        wanted = torch.zeros_like(self.moved(rows))
        cut = 0
        for number in range(COUNT):
            alone = rows.taken(torch.arange(COUNT) == number)
            gradient = self.moved(alone, clip_norm=None)
            cut += bool(gradient.norm() > CLIP)
            wanted += gradient * min(1.0, CLIP / float(gradient.norm()))
        assert cut > COUNT // 3  # or nothing was tested
        torch.testing.assert_close(self.moved(rows), wanted, rtol=self.margin, atol=2e-4)

    def test_copies_are_averaged_before_clipping(self) -> None:
        rows = self.rows(count=1, copies=3)
        apart = []
        for copy in range(3):
            one = MemoryRows(
                rows.features[:, copy], rows.targets, precision=self.precisions[0], augmented=False
            )
            apart.append(self.moved(one, clip_norm=None))
        wanted = torch.stack(apart).mean(0)
        wanted *= min(1.0, CLIP / float(wanted.norm()))
        found = self.moved(rows, augmentations=3)
        torch.testing.assert_close(found, wanted, rtol=self.margin, atol=2e-5)

    @pytest.mark.parametrize("size", [1e-8, 1.0, 1e4, 1e15])
    def test_no_row_moves_a_sum_by_more_than_the_clip_norm(self, size: float) -> None:
        """In the sum as it is really added up, whatever the precision and whoever the others are;
        one row is left out."""
        for precision in self.precisions:
            rows = self.rows(precision=precision)
            if not self.engine.takes_ids:
                scaled = torch.as_tensor(size * self.features())
                rows = MemoryRows(scaled, self.labels(), precision=precision, augmented=True)
            whole = self.moved(rows)
            for number in range(0, COUNT, 5):
                rest = rows.taken(torch.arange(COUNT) != number)
                moved = float((whole - self.moved(rest)).norm())
                # Weights of which a step is taken are rounded to float32.
                assert moved <= CLIP * (1 + 1e-5) + 1e-6 * float(whole.norm())

    def test_noise_is_what_the_plan_says_and_a_canary_shows_no_more_than_the_price(self) -> None:
        """The likelihood ratio of a row that is there or not is that of two Gaussians; their
        distance in standard deviations is the measured mu."""
        sigma, runs = 2.0, self.runs
        rows, plan = self.rows(), self.plan(noise_multiplier=2.0)
        without = rows.taken(torch.arange(COUNT) != 0)
        direction = self.moved(rows) - self.moved(without)
        shift = float(direction.norm())
        drawn = torch.stack([self.weights(self.fit(plan, rows, seed=seed)) for seed in range(runs)])
        along = drawn @ (direction / direction.norm())
        noise = float(along.std())
        # 5 standard errors of a standard deviation; the seeds are fixed.
        assert abs(noise / (sigma * CLIP) - 1) < 5 / np.sqrt(2 * runs)
        assert float(drawn.std(0).mean()) == pytest.approx(sigma * CLIP, rel=0.1)
        assert shift / (sigma * CLIP) <= price(plan.event).mu * (1 + 1e-5)
        assert shift > 0.2 * CLIP  # or the canary sang too low

    def test_noise_is_fresh_in_every_run(self) -> None:
        rows, plan, same = self.rows(), self.plan(noise_multiplier=1.0), Randomness(seed=1, trial=2)
        first, second = (self.made.fit_many([plan], rows, [same])[0] for _ in range(2))
        assert not torch.allclose(self.weights(first), self.weights(second))
        (again,) = self.made.fit_many([plan], rows, [pickle.loads(pickle.dumps(same))])
        assert not torch.allclose(self.weights(first), self.weights(again))

    def test_samples_are_of_the_rate_that_was_paid_for(self) -> None:
        """Each row adds its gradient in a share of the steps; where nobody is drawn, a step is
        taken all the same."""
        rows = self.rows()
        whole = self.moved(rows)
        plan = self.plan(sampling_rate=0.25, learning_rate=0.25)  # the divisor is the rate
        idle = self.weights(self.fit(self.plan(learning_rate=1e-300), rows))
        fits = (self.fit(plan, rows, seed=seed) for seed in range(self.runs))
        sums = torch.stack([idle - self.weights(model) for model in fits])
        along = (sums @ whole) / whole.square().sum()
        error = float(along.std()) / self.runs**0.5
        assert float(along.mean()) == pytest.approx(0.25, abs=5 * error)
        assert float(along.std()) > 0.01
        rare = self.plan(sampling_rate=1e-8, noise_multiplier=1.0, steps=3)
        assert bool(torch.isfinite(self.weights(self.fit(rare, rows))).all())

    def test_many_plans_at_once_equal_one_by_one(self) -> None:
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
            torch.testing.assert_close(
                self.weights(model), self.weights(alone), rtol=1e-4, atol=1e-5
            )
        assert self.made.fit_many([], rows, []) == []

    def test_a_run_in_legs_equals_one_run(self) -> None:
        rows, plan = self.rows(), self.plan(steps=6, momentum=0.9, rows=COUNT)
        if not self.made.can_continue(plan):
            pytest.skip("runs of this engine are not continued")
        whole = self.fit(plan, rows)
        model = None
        for steps in (1, 3, 2):
            model = self.fit(replace(plan, steps=steps), rows, model)
            model = self.made.unpack({k: v.clone() for k, v in self.made.pack(model).items()})
        torch.testing.assert_close(self.weights(model), self.weights(whole), rtol=1e-5, atol=1e-6)

    def test_rows_from_disk_train_like_rows_in_memory(self, tmp_path: Path) -> None:
        memory, plan = self.rows(), self.plan(steps=3, rows=COUNT)
        halves = np.split(self.features(), 2), np.split(self.labels(), 2)
        precision = IDS if self.engine.takes_ids else self.precisions[0]
        write_chunks(tmp_path, zip(*halves, strict=True), precision=precision, augmented=True)
        disk = DiskRows(tmp_path)
        assert disk.shape == memory.shape == self.shape
        one, other = self.fit(plan, memory), self.fit(plan, disk)
        torch.testing.assert_close(self.weights(one), self.weights(other), rtol=1e-4, atol=1e-6)

    def test_no_rows_at_all_leave_the_weights_alone(self) -> None:
        rows = self.rows()
        nobody = rows.taken(torch.zeros(COUNT, dtype=torch.bool))
        assert nobody.count == 0 and not self.moved(nobody).any()
        model = self.fit(self.plan(), nobody)
        (nothing,) = self.made.evaluate_many([model], nobody, loss_bound=1.0)
        assert (nothing.correct, nothing.rows, nothing.loss) == (0, 0, 0.0)

    # -- models

    def test_a_model_that_was_packed_and_unpacked_predicts_the_same(self) -> None:
        model = self.fit(self.plan(steps=2), self.rows())
        tensors = self.made.pack(model)
        assert all(isinstance(tensor, Tensor) for tensor in tensors.values())
        again = self.made.unpack(tensors)
        features = self.rows().features[:, 0]
        logits = model.logits(features)
        assert logits.shape == (COUNT, self.classes)
        torch.testing.assert_close(again.logits(features), logits)

    def test_a_row_is_predicted_alike_in_any_company(self) -> None:
        model = self.fit(self.plan(steps=2), self.rows())
        features = self.rows().features[:, 0]
        alone = torch.cat([model.logits(features[i : i + 1]) for i in range(COUNT)])
        torch.testing.assert_close(model.logits(features), alone, rtol=1e-4, atol=1e-5)

    def test_what_is_counted_is_what_is_predicted(self) -> None:
        rows = self.rows()
        models = [self.fit(self.plan(steps=s, rows=COUNT), rows) for s in (1, 4)]
        weights = torch.tensor([1.0, 0.5, 0.25])
        counted = self.made.evaluate_many(models, rows, row_weights=weights)
        for model, evaluation in zip(models, counted, strict=True):
            hits = model.logits(rows.features[:, 0]).argmax(1) == rows.targets
            assert evaluation.correct == int(hits.sum())
            assert evaluation.weighted_correct == float(weights[rows.targets[hits]].sum())

    def test_a_row_moves_bounded_losses_by_at_most_the_bound(self) -> None:
        rows, bound = self.rows(), 0.5
        model = self.fit(self.plan(steps=9, learning_rate=50.0), rows)
        (whole,) = self.made.evaluate_many([model], rows, loss_bound=bound)
        for number in range(COUNT):
            rest = rows.taken(torch.arange(COUNT) != number)
            (other,) = self.made.evaluate_many([model], rest, loss_bound=bound)
            assert abs(whole.loss * COUNT - other.loss * (COUNT - 1)) <= bound * (1 + 1e-12)

    def test_its_record_is_plain_and_builds_it_again(self) -> None:
        options = {"name": self.made.name, **self.made.options()}
        assert engine_from(options) == self.made
        assert engine_named(self.engine.name) is type(self.engine)
        assert pickle.loads(pickle.dumps(self.made)) == self.made

    # -- whole studies

    def study(self, data: Data, out: Path, **asked: Any) -> dptune.StudyResult:
        asked = {"space": Space(learning_rate=(0.1, 10.0), steps=(5, 10))} | asked
        return dptune.tune(data, budget=Budget(8.0, 1e-5), engine=self.engine, out=out, **asked)

    def test_it_is_tuned_resumed_and_loaded(self, tmp_path: Path) -> None:
        data, out = self.data(), tmp_path / "run"

        class Stop(Exception):
            pass

        def stop(progress: Any) -> None:
            if progress.doing.startswith("final run"):
                raise Stop

        with pytest.raises(Stop):
            self.study(data, out, watch=stop)
        assert f'name = "{self.engine.name}"' in (out / "run.toml").read_text()
        result = resume(out, data)
        assert result.guarantee.epsilon <= 8.0 and result.guarantee.covers_selection
        features = self.features(60, 1, 1)[:, 0]
        loaded = dptune.load(out)
        assert (loaded.predict(features) == result.model.predict(features)).all()
        right = (loaded.predict(features) == self.labels(60, 1)).mean()
        assert result.test_accuracy == pytest.approx(right)

    @pytest.mark.parametrize(
        "search", [RandomSearch(trials=3), dptune.PrivateSelection(expected_trials=3)], ids=repr
    )
    def test_every_kind_of_search_drives_it(self, search: SearchMethod, tmp_path: Path) -> None:
        result = self.study(self.data(), tmp_path / "run", search=search)
        assert result.guarantee.epsilon <= 8.0

    def test_it_is_tuned_on_rows_from_disk_with_held_out_scores(self, tmp_path: Path) -> None:
        parts = np.split(self.features(300, 2), 3), np.split(self.labels(300), 3)
        precision = IDS if self.engine.takes_ids else "float32"
        folder = tmp_path / "rows"
        write_chunks(folder, zip(*parts, strict=True), precision=precision, augmented=True)
        result = self.study(
            Data(DiskRows(folder)),
            tmp_path / "run",
            score=HeldOutScore(every=5),
            recipe={"augmentations": 2},
        )
        assert all(trial.plan.rows == 240 for trial in result.trials)
        assert result.final.plan.rows == 300 and result.final.plan.augmentations == 2

    @pytest.mark.usefixtures("warm_processes")
    def test_it_runs_in_processes_of_its_own(self, tmp_path: Path) -> None:
        search, executor = RandomSearch(trials=2), ProcessExecutor(workers=2)
        result = self.study(self.data(60), tmp_path / "run", search=search, executor=executor)
        assert [trial.lost for trial in result.trials] == [False, False]
