"""The paper's tables and figures, on a small file and coarse grids."""

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dptune import Budget, accounting, gdp
from dptune.bench import harness
from dptune.bench.outcome import Outcome
from dptune.bench.tables import Table
from dptune.bench.tasks import load_task
from dptune.engines.linear import LinearEngine
from dptune.errors import DptuneError, InvalidInput
from dptune.plan import TrainPlan
from dptune.privacy import FullBatchRun
from dptune.search.methods import METHODS
from dptune.search.paper_line import PaperLine
from experiments import __main__ as command_line
from experiments.law import best_noise, clip_norms, fit_law
from experiments.paper import budgets, lab, methods, own_setting, reproduce, runtime
from experiments.paper.experiment import data_set
from experiments.paper.lab import EFFORTS, PLAIN, Lab, at_noises, priced
from experiments.paper.radius import Curvature, radius_bound
from experiments.paper.recipe import rdp_mu
from experiments.paper.setting import CODED, LINES, RECIPE, SAID, SPACES, natural
from support.noise import repeated_noise
from support.rows import three_classes

NAMES = [
    "paper",
    "methods",
    "rerr",
    "recipe",
    "momentum",
    "clipping",
    "batch-size",
    "averaging",
    "weight-decay",
    "augmult",
    "split",
    "fits",
    "batch-and-clip",
    "runtime",
    "subset-noise",
    "decompositions",
    "architectures",
    "heatmaps",
    "pareto",
    "scatter",
    "one-search",
    "radius",
]


def small_grids(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(harness, "_GRID_RATES", 4)
    patch.setattr(harness, "_GRID_STEPS", (5, 10))
    patch.setattr(harness, "_FINALISTS_RUNS", 2)
    few = ("linear-scaling", "paper-line", "random-search", "private-selection")
    for module, names in ((methods, few), (runtime, few[:1])):
        patch.setattr(module, "METHODS", {name: METHODS[name] for name in names})
    for module in (methods, own_setting):
        patch.setattr(module, "DRAWS", 2)


@pytest.fixture(autouse=True)
def _small_grids(monkeypatch: pytest.MonkeyPatch) -> None:
    small_grids(monkeypatch)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copies = np.random.default_rng(1).normal(size=(600, 2, 6))
    return three_classes(tmp_path_factory.mktemp("data") / "small.npz", X_train_augmented=copies)


@pytest.fixture(scope="module")
def everything(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with all experiments."""
    out = tmp_path_factory.mktemp("all")
    with pytest.MonkeyPatch.context() as patch, repeated_noise():
        small_grids(patch)
        run("all", file, out)
    yield out


def run(name: str, file: Path, out: Path, **changed: Any) -> dict[str, Any]:
    asked: dict[str, Any] = {
        "repeats": 2, "device": "cpu", "effort": "quick", "report": lambda _: None
    } | changed  # fmt: skip
    return reproduce.reproduce(name, [str(file)], out=out, **asked)


def make_lab(file: Path, out: Path, repeats: int = 2) -> Lab:
    return Lab((str(file),), repeats, out, "cpu", lambda _: None, EFFORTS["quick"])


def rows_of(out: Path, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((out / f"{name}.json").read_text())["rows"]
    return found


def test_every_table_and_figure_has_a_name() -> None:
    assert list(reproduce.EXPERIMENTS) == NAMES
    assert all(one.title and one.paper for one in reproduce.EXPERIMENTS.values())


@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_leaves_a_page_two_tables_and_a_picture(everything: Path, name: str) -> None:
    plain = json.loads((everything / f"{name}.json").read_text())
    assert plain["repeats"] == 2 and plain["data"] == ["small"]
    table = plain["details"] or plain["rows"]
    assert (everything / f"{name}.csv").read_text().count("\n") == len(table) + 1
    page = (everything / f"{name}.md").read_text()
    assert page.startswith(f"# {plain['title']}\n") and f"![{plain['title']}]({name}.png)" in page
    assert page.count("\n| ") >= len(plain["rows"]) + 1
    picture = (everything / f"{name}.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) > 10_000
    assert f"[{name}]({name}.md)" in (everything / "README.md").read_text()


def test_the_page_of_contents_says_what_was_measured_otherwise(
    everything: Path, tmp_path: Path
) -> None:
    assert "Older" not in (everything / "README.md").read_text()
    for name in ("split", "fits"):
        (tmp_path / f"{name}.json").write_bytes((everything / f"{name}.json").read_bytes())
    before = json.loads((tmp_path / "fits.json").read_text())
    (tmp_path / "fits.json").write_text(json.dumps(before | {"setting": "As it once was."}))
    last = reproduce._contents(tmp_path).splitlines()[-1]
    assert last.startswith("Older") and "[fits](fits.md)" in last and "split" not in last


def test_accuracies_are_means_of_runs_that_can_be_looked_up(everything: Path, file: Path) -> None:
    """Every mean and spread of a heat map comes from a cell."""
    cells = [json.loads(cell.read_text()) for cell in (everything / "cells").glob("runs-*.json")]
    stored = [cell["value"] for cell in cells]
    for row in json.loads((everything / "heatmaps.json").read_text())["details"]:
        own = [
            values
            for values in stored
            if np.mean(values) == pytest.approx(row["accuracy"])
            and np.std(values, ddof=1) == pytest.approx(row["spread"])
        ]
        assert own
    assert len(rows_of(everything, "heatmaps")) == len(EFFORTS["quick"].epsilons)


def test_what_was_measured_is_not_measured_again(
    everything: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {name: rows_of(everything, name) for name in NAMES}
    monkeypatch.setattr(Lab, "_write", lambda *_: pytest.fail("measured again"))
    monkeypatch.setattr(reproduce, "draw", lambda *_: True)  # the pictures stay as they are
    run("all", file, everything)
    assert {name: rows_of(everything, name) for name in NAMES} == before


def test_a_killed_run_goes_on_where_it_stopped(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab, "_RUNS_AT_ONCE", 2)  # one plan at a time
    measured: list[int] = []

    def killed_at_the_third(*given: Any) -> Any:
        measured.append(len(given[2]))
        if len(measured) == 3:
            raise KeyboardInterrupt
        return harness.accuracies(*given)

    monkeypatch.setattr(lab, "accuracies", killed_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        run("heatmaps", file, tmp_path)
    assert measured == [2, 2, 2] and not (tmp_path / "heatmaps.json").exists()
    run("heatmaps", file, tmp_path)
    assert len(measured) == 3 + 8 - 2  # a grid of 2 x 2 at two budgets, of which two were there


def test_other_repeats_and_other_rows_are_measured_anew(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = at_noises(priced(make_lab(file, tmp_path).task(str(file)), Budget(1.0, 1e-5), 5), [1.0])
    make_lab(file, tmp_path).runs(str(file), plan)
    calls: list[int] = []

    def counted(*given: Any) -> Any:
        calls.append(len(given[2]))
        return harness.accuracies(*given)

    monkeypatch.setattr(lab, "accuracies", counted)
    make_lab(file, tmp_path).runs(str(file), plan)
    assert calls == []
    make_lab(file, tmp_path, repeats=3).runs(str(file), plan)
    other = three_classes(tmp_path / "small.npz", more=np.zeros(1))
    make_lab(other, tmp_path).runs(str(other), plan)
    make_lab(file, tmp_path).runs(f"{file}?rows=300", plan)
    assert calls == [3, 2, 2]


def test_the_best_of_some_plans_is_run_afresh(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever scouts read, the repeats that are reported are others."""
    here = make_lab(file, tmp_path)
    plans = at_noises(priced(here.task(str(file)), Budget(1.0, 1e-5), 5), [0.1, 1.0, 10.0])
    readings = iter([(10.0, 90.0, 20.0), (55.0, 65.0)])
    monkeypatch.setattr(lab, "accuracies", lambda *_: next(readings))
    chosen, runs = here.best(str(file), plans)
    assert chosen == plans[1]
    assert (runs.mean, runs.accuracies) == (60.0, (55.0, 65.0))
    assert runs.spread == pytest.approx(math.sqrt(50))


def test_a_damaged_cell_is_not_taken_for_a_measurement(file: Path, tmp_path: Path) -> None:
    run("heatmaps", file, tmp_path)
    for cell in (tmp_path / "cells").iterdir():
        cell.write_text("{")
    with pytest.raises(DptuneError, match="remove it to measure again"):
        run("heatmaps", file, tmp_path)


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("tables", {}, "no table or figure called 'tables'; give some of paper, .* or all"),
        ("fits,tables", {}, "no table or figure called 'tables'"),
        ("fits", {"repeats": 1}, "repeats must be"),
        ("fits", {"effort": "none"}, "effort must be one of"),
    ],
)
def test_bad_requests_are_refused(
    file: Path, tmp_path: Path, name: str, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        run(name, file, tmp_path / "out", **changed)
    assert not (tmp_path / "out").exists()


def test_the_papers_figures_stand_beside_ours(everything: Path) -> None:
    recipe = {row["variant"]: row for row in rows_of(everything, "recipe")}
    assert recipe["random initialisation"]["paper: gains"] == 6.81
    assert recipe["the recipe"]["paper: gains"] is None
    rerr = {(row["task"], row["method"]): row for row in rows_of(everything, "rerr")}
    line = "paper-line, as the paper says"
    assert rerr["SQuAD", line]["paper"] == "86.85"
    assert rerr["CIFAR-10 without public data", line]["paper"] == "77.63"
    assert rerr["ImageNet", line]["accuracy"] is None
    assert rerr["small", line]["accuracy"] > 0
    whose = {row["method"]: row["paper"] for row in rows_of(everything, "methods")}
    assert (whose[line], whose["private-selection"]) == ("70.5", "66")
    assert whose["paper-line, authors' ranges"] is None
    fits = {row["fit (sweeps)"]: row for row in rows_of(everything, "fits")}
    assert fits["linear (3)"]["paper: below its oracle"] == pytest.approx(0.79)
    subset = rows_of(everything, "subset-noise")[0]
    assert (subset["paper: subset"], subset["paper: more noise"]) == ("45.66", "2.93")
    left = {row["paper's epsilon left"]: row for row in rows_of(everything, "split")}
    assert list(left) == ["0.99", "0.96", "0.9", "0.88", "0.7"]
    # Without scores 0.884046 would be left, which is not more than the paper's last row claims.
    assert 0.88 < left["0.88"]["epsilon left"] < 0.884046
    assert left["0.7"]["epsilon left"] < 0.7
    noise = {row["paper"]: row for row in rows_of(everything, "batch-size")}
    assert noise["noise multiplier 2561"]["noise multiplier"] == pytest.approx(2437.854, abs=1e-3)
    assert noise["noise multiplier 1145"]["noise multiplier"] == pytest.approx(1090.3, abs=0.5)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("demo", "CIFAR-10"),
        ("demo?rows=1000", "CIFAR-10"),
        ("/data/cifar10_lite0.npz", "CIFAR-10"),
        ("/data/cifar100_lite0.npz", "CIFAR-100"),
        ("/cifar10_/trec.npz", "trec.npz"),
    ],
)
def test_a_source_is_compared_with_its_own_data_set(source: str, expected: str) -> None:
    assert data_set(source) == expected


def test_error_reduction_is_the_share_of_the_gap_that_is_closed() -> None:
    def runs(*accuracies: float) -> Outcome:
        return Outcome(
            accuracies, task="t", method="m", epsilon=1.0, delta=1e-5, spent_epsilon=1.0,
            total_step_sizes=(1.0,), seconds=1.0, compute_seconds=1.0,
        )  # fmt: skip

    found: dict[str, Outcome | str] = {
        "random-search": runs(60, 60), "oracle": runs(80, 80), "good": runs(74, 76), "bad": "no"
    }  # fmt: skip
    assert methods.reduction(found, "good") == pytest.approx((75.0, 5.0))
    assert methods.reduction(found, "bad") is None
    assert methods.reduction({**found, "oracle": runs(50, 50)}, "good") is None


@pytest.mark.parametrize(("epsilon", "expected"), [(0.1, 0.02942764), (1.0, 0.24721082)])
def test_renyi_accounting_asks_for_more_noise(epsilon: float, expected: float) -> None:
    mu = rdp_mu(epsilon, 1e-5)
    assert mu == pytest.approx(expected, rel=1e-5)
    assert mu < gdp.mu_from_epsilon(epsilon, 1e-5)
    run_at_mu = FullBatchRun(steps=1, noise_multiplier=1 / mu)
    assert accounting.rdp_epsilon([run_at_mu], 1e-5) == pytest.approx(epsilon, rel=2e-3)


def test_the_recipe_is_compared_at_its_own_noise(everything: Path) -> None:
    found = rows_of(everything, "recipe")
    rows = {row["variant"]: row["noise multiplier"] for row in found}
    (steps,) = {row["steps"] for row in found}
    exact = gdp.noise_multiplier(gdp.mu_from_epsilon(0.1, 1e-5), steps)
    assert rows["the recipe"] == rows["bias"] == pytest.approx(exact)
    assert 1.08 < rows["RDP accounting"] / exact < 1.11
    assert rows["batches of 4,096"] < 0.2 * exact


@pytest.mark.parametrize("name", ["recipe", "momentum", "clipping", "weight-decay", "averaging"])
def test_as_the_paper_did_nothing_is_tuned_again(everything: Path, name: str) -> None:
    rows = rows_of(everything, name)
    assert len({(row["learning rate"], row["steps"]) for row in rows}) == 1
    tried = EFFORTS["quick"].rates  # tuning goes by noises and tries other rates
    assert all(row["learning rate"] in tried for row in rows)
    assert all(row["re-tuned rate"] not in tried for row in rows)


def test_a_secret_subset_lowers_epsilon_as_much_as_more_noise(everything: Path) -> None:
    for row in rows_of(everything, "subset-noise"):
        amplified = math.log1p(row["rows of the subset"] / 600 * math.expm1(1.0))
        assert amplified == pytest.approx(row["epsilon"], rel=0.02)  # of whole rows


def test_the_papers_setting_is_what_its_text_says() -> None:
    space = SPACES[SAID](50_000)
    assert space.learning_rate == pytest.approx((0.005, 5.0)) and space.steps == (1, 100)
    line = LINES[SAID]
    assert (line.epsilons, line.trials, line.degree) == ((0.1, 0.2), 3, 1)
    assert (line.axis, line.ranges) == ("epsilon", "full")
    assert (RECIPE["clip_norm"], RECIPE["momentum"], RECIPE["free_steps"]) == (1.0, 0.9, 1)
    assert natural("demo") == "demo?unscaled"
    assert natural("a.npz?rows=5") == "a.npz?rows=5&unscaled"
    assert natural("demo?unscaled") == "demo?unscaled"


def test_the_authors_code_has_a_space_of_its_own() -> None:
    space, line = SPACES[CODED](50_000), LINES[CODED]
    assert space.learning_rate == pytest.approx((1e-5, 10 ** (-5 + 0.15 * 33)))
    assert (line.epsilons, line.ranges) == ((0.05, 0.1), "authors")


@pytest.mark.parametrize(("paid", "left"), [(False, 0.884046), (True, 0.881)])
def test_unpaid_scores_leave_what_the_paper_says(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paid: bool, left: float
) -> None:
    """0.88 by the paper, which rounds down; scores that are paid leave a little less."""
    finals: list[float] = []
    outline_of = harness.outline_of

    def noted(*given: Any) -> Any:
        outline = outline_of(*given)
        assert outline.recipe.free_steps == 1 and not outline.config.preparation.unit_rows
        finals.append(gdp.epsilon_from_mu(outline.schedule.final.mu, 1e-5))
        return outline

    monkeypatch.setattr(harness, "outline_of", noted)
    own_setting.search(make_lab(file, tmp_path), LINES[SAID], paid=paid)
    assert finals == pytest.approx([left, left], abs=1e-4)


def test_experiments_train_plain_gradient_descent_whatever_the_defaults(
    file: Path, tmp_path: Path
) -> None:
    task = make_lab(file, tmp_path).task(str(file))
    asked = task.preparation
    assert asked.unit_rows and (asked.center_share, asked.whiten_share) == (0.0, 0.0)
    plan = priced(task, Budget(1.0, 1e-5), 5)
    assert {name: getattr(plan, name) for name in PLAIN} == PLAIN
    assert (PLAIN["clip_norm"], PLAIN["momentum"]) == (1.0, 0.9)


def test_experiments_of_cifar100_prefer_its_features(file: Path, tmp_path: Path) -> None:
    other = three_classes(tmp_path / "cifar100_small.npz")
    both = replace(make_lab(file, tmp_path), sources=(str(file), str(other)))
    recipe, heatmaps = (reproduce.EXPERIMENTS[name] for name in ("recipe", "heatmaps"))
    assert recipe.data(both) == ["cifar100_small"] and heatmaps.data(both) == ["small"]
    assert recipe.data(make_lab(file, tmp_path)) == ["small"]


def test_training_without_noise_is_epsilon_infinity(everything: Path) -> None:
    rows = {row["epsilon"]: row for row in rows_of(everything, "pareto")}
    assert rows["infinity"]["accuracy"] > 50 and rows["infinity"]["spread"] is None


def test_the_radius_bound_holds_and_is_met_by_one_step(
    file: Path, tmp_path: Path, same_noise: None
) -> None:
    """Theorem 3.1 against runs of the engine: the distance of one step is noise and nothing else,
    that of many is below the bound, and below the sharper one where squares add."""
    task = make_lab(file, tmp_path).task(str(file))
    parameters, repeats = 18, 200
    for decay in (0.0, 0.05):
        curvature = Curvature.of(task, decay)
        assert decay < curvature.greatest <= 0.5 + decay  # rows of unit length
        whole = priced(task, Budget(1.0, 1e-5), 30, clip_norm=1.5, momentum=0.0, weight_decay=decay)
        for steps in (1, 5, 30):
            plan = replace(whole, learning_rate=1 / curvature.greatest, steps=steps)
            engine = LinearEngine(outputs=3)
            (still,) = harness.fit(engine, task, [replace(plan, noise_multiplier=0.0)])
            moved = harness.fit(engine, task, [plan] * repeats)
            distance = np.mean([float((one.weights - still.weights).norm()) for one in moved])
            sharper = radius_bound(plan, parameters, curvature, power=2)
            assert distance < 1.01 * sharper <= 1.01 * radius_bound(plan, parameters, curvature)
            if steps == 1:
                assert distance > 0.95 * sharper


def test_one_search_is_paid_within_every_total(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the search cost and what a final run costs make up the total, not more."""
    trained: list[Any] = []

    def noted(engine: Any, task: Any, plans: Any) -> tuple[float, ...]:
        trained.extend(plans)
        return (50.0,) * len(plans)

    monkeypatch.setattr(budgets, "accuracies", noted)
    searches: list[float] = []
    watch = budgets.Watched.suggest

    def suggest(self: Any, stage: Any, situation: Any) -> Any:
        if stage.trials == 1:
            searches.append(Budget(0.5, 1e-5).mu_squared() - stage.mu_squared)
        return watch(self, stage, situation)

    monkeypatch.setattr(budgets.Watched, "suggest", suggest)
    place = budgets.Place(str(file), harness.SPACE, PLAIN)
    budgets._served(make_lab(file, tmp_path), PaperLine(), place)
    trials = 3 * sum(gdp.mu_from_epsilon(epsilon, 1e-5) ** 2 for epsilon in (0.05, 0.1))
    assert len(searches) == 2 and searches[0] > trials
    totals = np.repeat(budgets._SERVED, 2)
    for total, plan in zip(totals, trained, strict=True):
        final = plan.steps / plan.noise_multiplier**2
        spent = math.sqrt(final + searches[0])
        assert gdp.epsilon_from_mu(spent, 1e-5) == pytest.approx(total, rel=1e-6)


def test_features_without_copies_are_not_augmented(file: Path, tmp_path: Path) -> None:
    plain = three_classes(tmp_path / "small.npz")
    (tmp_path / "augmult.png").write_bytes(b"of another run")
    run("augmult", plain, tmp_path)
    assert (
        "not run: these features come without augmented copies"
        in (tmp_path / "augmult.md").read_text()
    )
    assert not (tmp_path / "augmult.png").exists()
    run("augmult", Path("demo?rows=100"), tmp_path)
    assert rows_of(tmp_path, "augmult")[0]["re-tuned"] is None


def test_copies_are_averaged_and_must_fit_the_rows(everything: Path, tmp_path: Path) -> None:
    assert [row["copies"] for row in rows_of(everything, "augmult")] == [1, 2]
    wrong = three_classes(tmp_path / "small.npz", X_train_augmented=np.zeros((600, 2, 5)))
    with pytest.raises(InvalidInput, match=r"must have shape \(600, copies, 6\)"):
        run("augmult", wrong, tmp_path)


def test_without_matplotlib_tables_are_written_and_pictures_follow(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "experiments.figures", None)
        patch.delattr("experiments.figures", raising=False)
        run("heatmaps", file, tmp_path, report=said.append)
    assert "heatmaps.png was not drawn: matplotlib is missing; run this again where it is" in said
    assert not (tmp_path / "heatmaps.png").exists()
    assert ".png" not in (tmp_path / "heatmaps.md").read_text()
    run("heatmaps", file, tmp_path)
    assert (tmp_path / "heatmaps.png").exists()


def test_a_table_says_the_same_in_every_form() -> None:
    table = Table({"name": "", "value": ".1f"}, [["a", 1.25], ["b, c", None]])
    assert table.markdown() == "| name | value |\n| --- | --- |\n| a | 1.2 |\n| b, c |  |\n"
    assert table.csv() == 'name,value\na,1.25\n"b, c",\n'
    assert table.plain() == [{"name": "a", "value": 1.25}, {"name": "b, c", "value": None}]


def test_noise_is_what_a_learning_rate_is_chosen_by(file: Path, tmp_path: Path) -> None:
    task = make_lab(file, tmp_path).task(str(file))
    plan = replace(priced(task, Budget(1.0, 1e-5), 7), momentum=0.5, clip_norm=0.3)
    assert [one.weight_noise for one in at_noises(plan, [0.2, 3.0])] == pytest.approx([0.2, 3.0])


def test_the_command_line_lists_measures_and_refuses(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["experiments", "run", *words])
        with pytest.raises(SystemExit) as ended:
            command_line.main()
        return (int(ended.value.code or 0), *capsys.readouterr())

    for words in ((), ("--list",), ("fits", "--list")):
        code, said, _ = call(*words)
        assert code == 0 and all(name in said for name in NAMES)
    code, said, _ = call("--json")
    assert code == 0 and list(json.loads(said)) == NAMES
    code, _, wrong = call("tables")
    assert code == 2 and "no table or figure called 'tables'" in wrong
    asked = ("heatmaps", "--data", str(file), "--repeats", "2", "--effort", "quick")
    code, said, _ = call(*asked, "--out", str(tmp_path))
    assert code == 0 and "learning rate" in said and "heatmaps.png" in said
    code, said, _ = call(*asked, "--out", str(tmp_path), "--json")
    assert json.loads(said)["heatmaps"] == rows_of(tmp_path, "heatmaps")


def scan_of(accuracies: Any, **changed: Any) -> best_noise.Scan:
    plain: dict[str, Any] = {
        "task": "t", "rows": 100, "columns": 5, "classes": 2, "majority": 50.0, "epsilon": 1.0,
        "mu": 0.25, "prepared": (), "averaged": False, "law": 0.5, "noises": best_noise.NOISES,
    }  # fmt: skip
    return best_noise.Scan(**plain | changed, accuracies=tuple(map(float, accuracies)))


def test_the_best_noise_of_a_scan_is_found() -> None:
    off = np.log(np.array(best_noise.NOISES) / 0.5)
    scan = scan_of(80 - 2 * off**2)  # smoothing leaves a parabola as it is
    best, low, high = scan.near_best(1.0)
    assert best == pytest.approx(0.5, rel=0.15)
    assert 0.5 * np.exp(-0.75) < low < 0.5 * np.exp(-0.4)
    assert 0.5 * np.exp(0.4) < high < 0.5 * np.exp(0.75)
    assert scan.regret(best * math.e) == pytest.approx(2.0, rel=0.3)
    assert scan.regret(best) == 0.0
    assert scan.signal == 0.25 * 100 / (5 * 2)


def test_errors_of_single_noises_are_smoothed() -> None:
    off = np.log(np.array(best_noise.NOISES) / 0.5)
    accuracies = 80 - 2 * off**2
    accuracies[-5] = accuracies.max() + 0.5
    assert scan_of(accuracies).near_best(1.0)[0] == pytest.approx(0.5, rel=0.15)


def test_no_noise_is_best_where_nothing_is_learned(tmp_path: Path) -> None:
    low, high = (scan_of([top] * 25) for top in (51.5, 52.5))
    assert (low.learned, high.learned) == (False, True)
    with pytest.raises(InvalidInput, match="nothing to draw"):
        best_noise.picture([low], tmp_path / "none.png")


def test_a_scan_trains_as_a_study_would(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the recipe, at what preparing leaves of the budget, on rows prepared anew every time."""
    seen: list[tuple[Any, Any]] = []

    def noted(engine: Any, task: Any, plans: Any) -> tuple[float, ...]:
        seen.append((task.train.features, plans))
        return (50.0 + len(seen),) * len(plans)

    monkeypatch.setattr(best_noise, "accuracies", noted)
    (scan,) = best_noise.measure([str(file)], [8.0], repeats=2, device="cpu", report=lambda _: None)
    (first, plans), (second, _) = seen
    assert first.shape == second.shape and not bool((first == second).all())
    assert scan.accuracies == (51.5,) * 25
    figures = ("ranges of columns", "row lengths", "private mean", "second moment")
    assert scan.prepared == figures
    whole = gdp.mu_from_epsilon(8.0, 1e-5)
    assert scan.mu**2 == pytest.approx((1 - 0.011 - 0.001 - 0.01 - 0.02) * whole**2)
    assert scan.averaged and {plan.averaging for plan in plans} == {"swa"}
    assert {plan.clip_norm for plan in plans} == {0.5}
    assert [plan.weight_noise for plan in plans] == pytest.approx(scan.noises)
    prices = [plan.steps / plan.noise_multiplier**2 for plan in plans]
    assert prices == pytest.approx([scan.mu**2] * 25)
    near, far = 18 / math.sqrt(6), 0.6 * (600 / 6) ** (2 / 3) / scan.mu
    converged = near * scan.signal
    near *= math.sqrt(1 + converged / 30)  # of three classes one is beyond two
    times = 1 + 0.8 * converged / (converged + 50)
    assert scan.law == pytest.approx(times / math.hypot(1 / near, 1 / far))
    assert (scan.rows, scan.columns, scan.classes) == (600, 6, 3)


def test_norms_are_compared_at_one_noise(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[TrainPlan] = []

    def noted(engine: Any, task: Any, plans: Any) -> tuple[float, ...]:
        seen[:] = plans
        return (60.0, 62.0, 61.0, 63.0, 60.0, 61.0)

    monkeypatch.setattr(best_noise, "accuracies", noted)
    cell = clip_norms.measure(load_task(str(file)), 8.0, 2)
    assert [plan.clip_norm for plan in seen] == [0.1, 0.1, 0.3, 0.3, 0.5, 0.5]
    noises = [plan.weight_noise for plan in seen]
    assert noises == pytest.approx(noises[:2] * 3) and noises[1] == pytest.approx(2 * noises[0])
    assert len({round(plan.steps / plan.noise_multiplier**2, 9) for plan in seen}) == 1
    assert clip_norms.gains([cell]).rows[0] == ["small", 1.0, -0.5]
    kind, *gained = clip_norms.gains([cell, {**cell, "averaged": False}]).rows[-1]
    assert "several classes" in kind and gained == [1.0, -0.5]


def test_rows_that_nothing_is_paid_for_are_those_of_the_task(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def noted(engine: Any, task: Any, plans: Any) -> tuple[float, ...]:
        seen.append(task)
        return (50.0,) * len(plans)

    monkeypatch.setattr(best_noise, "accuracies", noted)
    plain = [f"{file}?plain"]
    (scan,) = best_noise.measure(plain, [1.0], repeats=2, device="cpu", report=lambda _: None)
    assert seen[0] is seen[1] and scan.prepared == () and not scan.averaged
    assert scan.mu == pytest.approx(gdp.mu_from_epsilon(1.0, 1e-5))


def test_scans_of_another_version_are_refused(tmp_path: Path) -> None:
    stored = tmp_path / "best-noise.json"
    best_noise.save([scan_of([60.0] * 25)], stored)
    plain = json.loads(stored.read_text())
    del plain[0]["averaged"]
    stored.write_text(json.dumps(plain))
    with pytest.raises(InvalidInput, match="of another version"):
        best_noise.load(stored)


def test_scans_are_kept_and_drawn(file: Path, tmp_path: Path) -> None:
    found = best_noise.measure([str(file)], [1.0], repeats=1, device="cpu", report=lambda _: None)
    best_noise.save(found, tmp_path / "best-noise.json")
    assert best_noise.load(tmp_path / "best-noise.json") == found
    best_noise.picture(found, tmp_path / "best-noise.png")
    assert (tmp_path / "best-noise.png").stat().st_size > 10_000


def test_the_map_of_best_noise_is_measured_once_and_drawn_again(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "map"

    def call(*words: str) -> tuple[int, str, str]:
        asked = ["experiments", "best-noise", "--out", str(out), *words]
        monkeypatch.setattr(sys, "argv", asked)
        with pytest.raises(SystemExit) as ended:
            command_line.main()
        return (int(ended.value.code or 0), *capsys.readouterr())

    code, _, wrong = call()
    assert code == 2 and "give --data to measure it" in wrong
    code, _, wrong = call("--data", str(file), "--epsilon", "1,two")
    assert code == 2 and "got '1,two'" in wrong
    assert not out.exists()
    code, said, _ = call("--data", str(file), "--epsilon", "1", "--repeats", "1", "--json")
    measured = json.loads(said)["scans"]
    assert code == 0 and [scan["epsilon"] for scan in measured] == [1.0]
    monkeypatch.setattr(best_noise, "measure", lambda *_, **__: pytest.fail("measured again"))
    (out / "best-noise.png").unlink()
    code, said, _ = call()
    assert code == 0 and "small" in said and (out / "best-noise.png").exists()
    assert json.loads((out / "best-noise.json").read_text()) == measured


def test_the_stored_map_of_best_noise_can_be_read() -> None:
    """Whatever else changes, docs/design/law.md shows these."""
    stored = best_noise.load(Path(__file__).parent.parent / "benchmarks" / "best-noise.json")
    assert len(stored) > 200 and all(len(scan.accuracies) == len(scan.noises) for scan in stored)
    for scan in stored:  # the law is the one that searches start from
        apart = min(6 / scan.classes, 1) if scan.columns < 200 else 1
        near = 18 / math.sqrt(scan.columns**apart * 200 ** (1 - apart))
        far = 0.2 * (scan.rows / scan.columns) ** (2 / 3) / scan.mu
        assert scan.averaged == (scan.signal >= 8)
        converged = near * scan.signal * scan.averaged
        if scan.columns <= 200:
            near *= math.sqrt(1 + converged * (1 - 2 / scan.classes) / 10)
            far *= 3 if scan.averaged else 1
        times = 1 + 0.8 * converged / (converged + 50)
        times /= 2 if scan.averaged and scan.classes == 2 else 1
        assert scan.law == pytest.approx(times / math.hypot(1 / near, 1 / far))


def test_a_fit_of_the_law_speaks_of_the_law_and_of_regret_as_scans_do() -> None:
    stored = best_noise.load(Path(__file__).parent.parent / "benchmarks" / "best-noise.json")
    cells = fit_law.Cells(stored)
    assert np.exp(cells.law(fit_law.NOW)) == pytest.approx([scan.law for scan in stored])
    lost = [min(scan.regret(0.7), 3.0) for scan in stored]
    assert cells.regret(np.full(len(stored), math.log(0.7))) == pytest.approx(lost, abs=1e-9)


def test_the_numbers_of_a_law_are_found_again() -> None:
    """Where accuracies fall off from where other numbers say."""
    stored = best_noise.load(Path(__file__).parent.parent / "benchmarks" / "best-noise.json")
    wanted = fit_law.NOW + np.array([-0.3, 0.2, 0.0, 0.2, 0.2])
    tops = fit_law.Cells(stored).law(wanted)
    made = [
        replace(scan, accuracies=tuple(90 - (np.log(scan.noises) - top) ** 2))
        for scan, top in zip(stored, tops, strict=True)
    ]
    off = fit_law.Cells(made).fitted() - wanted
    noise, reach, reach_power, averaged, averaged_from = np.abs(off)
    assert max(noise, reach_power, averaged) < 0.1
    # The cells hardly tell these: few are so far out that reach is felt, which reach_power makes up
    # for, and many classes, of which the last says most, converge later by this law.
    assert max(reach, averaged_from) < 0.15


def test_the_module_answers_as_a_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "experiments", "best-noise", "--help"],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Usage: python -m experiments best-noise" in done.stdout
