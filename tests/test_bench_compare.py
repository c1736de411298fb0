"""Methods side by side, on a small file."""

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dptune import Budget, accounting
from dptune.bench import compare, harness
from dptune.bench.processes import side_by_side
from dptune.bench.tasks import Task, load_task
from dptune.errors import DptuneError, InvalidInput
from dptune.plan import TrainPlan
from dptune.search.linear_scaling import LinearScaling
from dptune.search.unit_noise import UnitNoise
from support.rows import three_classes

QUICK = ("linear-scaling", "unit-noise", "random-search", "oracle")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return three_classes(tmp_path_factory.mktemp("bench") / "small.npz")


@pytest.fixture(autouse=True)
def small_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "_GRID_RATES", 4)
    monkeypatch.setattr(harness, "_GRID_STEPS", (5, 10))
    monkeypatch.setattr(harness, "_GRID_STEPS_OF_NOISES", (5, 10))
    monkeypatch.setattr(harness, "_FINALISTS", 3)
    monkeypatch.setattr(harness, "_FINALISTS_RUNS", 6)


def run(file: Path, out: Path, **changed: object) -> list[dict[str, object]]:
    asked: dict[str, object] = {
        "methods": QUICK, "epsilons": [2.0], "repeats": 2, "device": "cpu", "delta": 1e-5
    } | changed  # fmt: skip
    methods, epsilons = asked.pop("methods"), asked.pop("epsilons")
    return compare.compare([str(file)], methods, epsilons, out=out, report=lambda _: None, **asked)


def test_a_comparison_has_a_row_for_every_method_and_measures_against_the_oracle(
    file: Path, tmp_path: Path
) -> None:
    table = run(file, tmp_path)
    rows = {str(row["method"]): row for row in table}
    assert list(rows) == list(QUICK)
    oracle, random = rows["oracle"]["mean"], rows["random-search"]["mean"]
    for row in table:
        assert row["mean"] == pytest.approx(np.mean(row["accuracies"]))
        assert row["spread"] == pytest.approx(np.std(row["accuracies"], ddof=1))
        assert row["below_oracle"] == pytest.approx(oracle - row["mean"])
        if oracle > random:
            expected = 100 * (row["mean"] - random) / (oracle - random)
            assert row["rerr"] == pytest.approx(expected)
    assert rows["oracle"]["spent_epsilon"] is None  # nobody paid for it
    assert rows["linear-scaling"]["spent_epsilon"] == pytest.approx(2.0, rel=1e-6)
    assert rows["linear-scaling"]["spent_epsilon"] <= 2.0
    assert json.loads((tmp_path / "compare.json").read_text()) == json.loads(json.dumps(table))
    assert (tmp_path / "compare.csv").read_text().count("\n") == 5
    page, best = (tmp_path / "compare.md").read_text(), rows["oracle"]
    error = best["spread"] / math.sqrt(best["repeats"])
    assert f"| small | 2 | 1e-05 | oracle | {best['mean']:.2f} | {error:.2f} |" in page


def test_what_was_measured_is_not_measured_again(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(file, tmp_path, methods=("unit-noise",))
    monkeypatch.setattr(compare, "run_method", lambda *_: pytest.fail("measured again"))
    again = run(file, tmp_path, methods=("unit-noise",))
    assert again[0]["accuracies"] == first[0]["accuracies"]


def test_what_another_version_measured_is_measured_anew(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(file, tmp_path, methods=("unit-noise",))
    monkeypatch.setattr(compare, "__version__", "0.0.1")
    run(file, tmp_path, methods=("unit-noise",))
    assert len(list((tmp_path / "cells").iterdir())) == 2


def test_another_file_of_the_same_name_is_measured_anew(file: Path, tmp_path: Path) -> None:
    run(file, tmp_path, methods=("unit-noise",))
    other = tmp_path / "other" / file.name
    other.parent.mkdir()
    with np.load(file) as arrays:
        np.savez(other, **{**arrays, "y_train": arrays["y_train"][::-1]})
    run(other, tmp_path, methods=("unit-noise",))
    assert len(list((tmp_path / "cells").iterdir())) == 2


def test_options_follow_a_name_and_workers_share_the_cells(file: Path, tmp_path: Path) -> None:
    methods = ("random-search:trials=3", "private-selection:distribution=geometric", "grid-search")
    heard: list[str] = []
    table = compare.compare(
        [str(file)], methods, [2.0], repeats=2, out=tmp_path, device="cpu", delta=1e-5,
        report=heard.append, workers=2,
    )  # fmt: skip
    assert [row["method"] for row in table] == list(methods)
    assert all(1.999 < row["spent_epsilon"] <= 2.0 for row in table)
    assert all(row["seconds"] > 0 and row["compute_seconds"] > 0 for row in table)
    assert sorted(text.split(" measured")[0] for text in heard) == ["1 of 3", "2 of 3", "3 of 3"]
    assert len(list((tmp_path / "cells").iterdir())) == 3


def test_items_are_measured_in_processes_and_one_that_fails_ends_them() -> None:
    words = ["4", "9", "16"]
    found = dict(side_by_side(int, words, 2, preload=compare.__name__))
    assert found == {"4": 4, "9": 9, "16": 16}
    with pytest.raises(ValueError, match="invalid literal"):
        dict(side_by_side(int, ["four", *words], 2, preload=compare.__name__))
    here = dict(side_by_side(lambda word: os.getpid(), words, 1, preload=compare.__name__))
    assert set(here.values()) == {os.getpid()}
    assert not list(side_by_side(int, [], 2, preload=compare.__name__))


def test_a_damaged_result_is_not_taken_for_a_measurement(file: Path, tmp_path: Path) -> None:
    run(file, tmp_path, methods=("unit-noise",))
    (cell,) = (tmp_path / "cells").iterdir()
    cell.write_text("{")
    with pytest.raises(DptuneError, match="remove it to measure again"):
        run(file, tmp_path, methods=("unit-noise",))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"methods": ("best",)}, "method must be one of"),
        ({"repeats": 1}, "repeats must be"),
        ({"epsilons": [0.0]}, "epsilon must be"),
        ({"methods": ("unit-noise:noize=2",)}, "unit-noise has no setting noize"),
        ({"methods": ("unit-noise", "hypo"), "epsilons": [0.1]}, "hypo cannot be run on small"),
        ({"workers": 0}, "workers must be"),
        ({"methods": ("nope",)}, "oracle"),
    ],
)
def test_bad_requests_are_refused(
    file: Path, tmp_path: Path, changed: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        run(file, tmp_path, **changed)
    assert not list(tmp_path.iterdir())


def test_a_task_can_be_made_smaller_unbalanced_or_unscaled(file: Path) -> None:
    plain = load_task(str(file))
    assert plain.train.norms.max() < 1 + 1e-5
    few = load_task(f"{file}?rows=100")
    assert (few.train.count, few.test.count) == (100, 300)
    counts = np.bincount(load_task(f"{file}?unbalanced=10").train.targets.numpy())
    whole = np.bincount(plain.train.targets.numpy())
    assert counts.tolist() == [round(n * 10 ** (-k / 2)) for k, n in enumerate(whole)]
    assert load_task(f"{file}?unscaled").train.norms.median() > 3


def test_a_plain_task_buys_nothing_and_clips_at_one(file: Path) -> None:
    budget = Budget(2.0, 1e-5)
    usual, plain = (
        harness.outline_of(load_task(f"{file}{change}"), UnitNoise(), budget, 0)
        for change in ("", "?plain")
    )
    figures = ["ranges of columns", "row lengths", "private mean", "second moment"]
    assert list(usual.preparing) == figures and not plain.preparing
    assert (usual.recipe.clip_norm, plain.recipe.clip_norm) == (0.5, 1.0)
    assert (usual.recipe.averaging, plain.recipe.averaging) == ("swa", "none")
    assert plain.space.steps == usual.space.steps == (5, 1000)
    # The same movements of weights in both.
    assert plain.space.learning_rate == harness.SPACE.learning_rate
    assert usual.space.learning_rate == pytest.approx((0.2, 200.0))


@pytest.mark.usefixtures("same_noise")
def test_every_repeat_prepares_its_rows_with_noise_of_its_own(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[Any] = []
    fit = harness.fit

    def watched(engine: Any, task: Task, *more: Any, **options: Any) -> Any:
        trained.append(task)
        return fit(engine, task, *more, **options)

    monkeypatch.setattr(harness, "fit", watched)
    task = load_task(str(file))
    harness.run_method(task, UnitNoise(), Budget(2.0, 1e-5), 3, lambda _: None)
    seen = {id(found.train): found for found in trained}
    assert len(seen) == 3  # the segments of one repeat share its rows
    first, second, _ = (found.train.features[:, 0] for found in seen.values())
    assert not torch.equal(first, second)
    for found in seen.values():
        assert found.train.norms.numpy() == pytest.approx(1, abs=1e-5)
        assert found.test.norms.numpy() == pytest.approx(1, abs=1e-5)
        moment = (features := found.train.features[:, 0].double()).T @ features / len(features)
        raw = (given := task.train.features[:, 0].double()).T @ given / len(given)
        assert torch.linalg.eigvalsh(moment)[-1] < torch.linalg.eigvalsh(raw)[-1]
    trained.clear()
    plain = load_task(f"{file}?plain")
    harness.run_method(plain, UnitNoise(), Budget(2.0, 1e-5), 3, lambda _: None)
    assert {id(found.train) for found in trained} == {id(plain.train)}  # in lockstep


@pytest.mark.usefixtures("same_noise")
@pytest.mark.parametrize("change", ["", "?plain"])
def test_the_oracle_has_the_recipe_of_the_methods(
    change: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[TrainPlan] = []
    fit = harness.fit

    def watched(engine: Any, task: Task, some: Any, *more: Any, **options: Any) -> Any:
        plans.extend(some)
        return fit(engine, task, some, *more, **options)

    monkeypatch.setattr(harness, "fit", watched)
    budget = Budget(2.0, 1e-5)
    found = harness.run_oracle(load_task(f"{file}{change}"), budget, 3, lambda _: None)
    assert len(found.accuracies) == 3
    assert 8 * 5 + 3 * 6 + 3 <= len(plans) <= 8 * 5 + 8 * 6 + 5 * 3  # parts may choose as they like
    share = 1.0 if change else 1 - 0.071 - 0.001 - 0.01 - 0.02  # ranges, lengths, moments
    for plan in plans:
        assert plan.clip_norm == (1.0 if change else 0.5)
        price = accounting.price(plan.event).mu_squared
        assert price == pytest.approx(share * budget.mu_squared(), rel=1e-6)
    if change:
        assert {plan.learning_rate for plan in plans} == {*np.geomspace(0.1, 100, 4).tolist()}
    else:
        noises = sorted({round(plan.weight_noise, 6) for plan in plans})
        assert noises == pytest.approx(np.geomspace(0.1, 60, 4).tolist(), rel=1e-3)


def test_of_the_settings_that_lead_more_runs_decide(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[list[TrainPlan], int]] = []

    def told(task: Task, planned: Any, plans: list[TrainPlan], times: int) -> Any:
        asked.append((plans, times))
        luck = -1 if len(asked) == 1 else 1  # the first have it, and only once
        return np.tile(luck * np.arange(len(plans), dtype=float)[:, None], (times, 1, 5))

    monkeypatch.setattr(harness, "_repeated", told)
    harness.run_oracle(load_task(str(file)), Budget(2.0, 1e-5), 4, lambda _: None)
    (grid, few), (leading, more), (best, repeats) = asked
    assert leading == grid[:3] and best == [grid[2]]
    assert (few, more, repeats) == (5, 6, 4)


def test_no_test_row_judges_what_it_chose(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Setting n is right on part n of the test rows and nowhere else: the other parts choose another
    # one, which is wrong there. Chosen by all rows, any of them would be right on a fifth.
    def told(task: Task, planned: Any, plans: list[TrainPlan], times: int) -> Any:
        known.extend(plans if not known else [])
        numbers = [known.index(plan) for plan in plans]
        right = np.where(np.arange(5) == np.array(numbers)[:, None], 100.0, 0.0)
        return np.tile(right, (times, 1, 1))

    known: list[TrainPlan] = []
    monkeypatch.setattr(harness, "_repeated", told)
    monkeypatch.setattr(harness, "_FINALISTS", 8)
    task = load_task(str(file))
    found = harness.run_oracle(task, Budget(2.0, 1e-5), 4, lambda _: None)
    assert found.accuracies == (0.0,) * 4 and "the best is 20.00" in found.note


@pytest.mark.usefixtures("same_noise")
def test_parts_of_the_test_rows_add_up_to_all_of_them(file: Path) -> None:
    task = load_task(str(file))
    parts = harness.parts(task)
    assert torch.equal(sum(part.int() for part in parts), torch.ones(task.test.count).int())
    assert max(part.sum() for part in parts) - min(part.sum() for part in parts) <= 1
    planned = harness.outline_of(task, UnitNoise(), Budget(2.0, 1e-5), 0)
    models = harness.fit(planned.engine, task, [planned.recipe] * 2)
    whole, _ = harness.tested(planned.engine, task, models)
    some = [replace(task, test=task.test.taken(part)) for part in parts]
    of_parts = [harness.tested(planned.engine, each, models)[0] for each in some]
    sizes = [int(part.sum()) for part in parts]
    assert np.average(of_parts, weights=sizes) == pytest.approx(whole)


@pytest.mark.parametrize(
    "change", ["?rows=many", "?unbalanced=", "?rows=0", "?rows=-1", "?shuffled"]
)
def test_unknown_change_of_task_is_refused(file: Path, change: str) -> None:
    with pytest.raises(InvalidInput):
        load_task(f"{file}{change}")


@pytest.mark.usefixtures("same_noise")  # drawn one after the other, so each study has its own
def test_repeats_are_independent_studies(file: Path) -> None:
    task = load_task(str(file))
    outcome = harness.run_method(task, LinearScaling(), Budget(1.0, 1e-5), 6, lambda _: None)
    assert len(set(outcome.total_step_sizes)) == 6  # each saw noise of its own
    fixed = harness.run_method(task, UnitNoise(), Budget(1.0, 1e-5), 6, lambda _: None)
    assert len(set(fixed.total_step_sizes)) == 1
    assert len(set(fixed.accuracies)) > 1
