"""What every search method must do, whatever it is: one class, run for all of them."""

import io
import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, ClassVar

import dp_accounting
import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.special import ndtr
from typer.testing import CliRunner

from dptune import accounting
from dptune.accounting import Budget
from dptune.accounting.trial_count import TrialCount
from dptune.cli.app import app
from dptune.data import Data
from dptune.data.rows import MemoryRows
from dptune.engines.linear import LinearEngine
from dptune.engines.randomness import Randomness
from dptune.errors import DptuneError, FolderProblem, InvalidInput
from dptune.ledger import Ledger
from dptune.plan import TrainPlan
from dptune.privacy import (
    Composition,
    Event,
    FullBatchRun,
    NoisyCount,
    NoisyRanks,
    PrivateMean,
    PrivateSecondMoment,
    RandomStopping,
    SubsetSearch,
)
from dptune.report.card import model_card
from dptune.report.plots import search_picture
from dptune.search.base import SearchMethod, Situation, Stage
from dptune.search.grid_search import GridSearch
from dptune.search.hypo import Hypo
from dptune.search.linear_scaling import LinearScaling
from dptune.search.one_step import OneStep
from dptune.search.paper_line import PaperLine
from dptune.search.private_selection import PrivateSelection, SubsetSelection
from dptune.search.random_search import RandomSearch
from dptune.search.score import HeldOutScore, NoisyScore, PublicScore, Score, UnpaidScore
from dptune.search.space import Setting, Space
from dptune.search.unit_noise import UnitNoise
from dptune.search.wosm import Wosm
from dptune.study.config import Preparation
from dptune.study.outline import Outline
from dptune.study.planning import outline
from dptune.study.result import StudyResult
from dptune.study.runner import Progress
from dptune.study.study import resume, tune
from support.methods import METHOD_NAMES
from support.studies import a_config

EXAMPLE = Path(__file__).parent.parent / "examples" / "narrowing.py"


def example() -> SearchMethod:
    """The method that the documentation shows how to write."""
    spec = spec_from_file_location("narrowing", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["narrowing"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    found: SearchMethod = module.Narrowing()
    return found


BUDGET = Budget(2.0, 1e-5)
SPACE = Space(steps=(5, 20))
EVERY: tuple[SearchMethod, ...] = (
    LinearScaling(),
    UnitNoise(),
    PaperLine(),
    RandomSearch(),
    RandomSearch(trials=3),
    GridSearch(rates=2, steps=2),
    PrivateSelection(expected_trials=3),
    PrivateSelection(expected_trials=3, distribution="geometric"),
    PrivateSelection(expected_trials=3, distribution="poisson"),
    PrivateSelection(expected_trials=3, distribution="negative-binomial", shape=0.5),
    PrivateSelection(expected_trials=3, accounting="published"),
    SubsetSelection(expected_trials=3),
    SubsetSelection(expected_trials=3, final_rows="all", distribution="geometric"),
    Hypo(expected_trials=3),
    Wosm(),
    OneStep(),
    example(),
)
SEALED = tuple(method for method in EVERY if method.sealing)


def named(method: SearchMethod) -> str:
    return str(method).replace("'", "")


def rows(count: int = 300, seed: int = 0) -> tuple[Any, Any]:
    draws = np.random.default_rng(seed)
    features = draws.normal(size=(count, 4))
    return features, (features[:, 0] + 0.3 * draws.normal(size=count) > 0.1).astype(int)


def make_data(**changes: Any) -> Data:
    return Data(*rows(), **{"test": rows(50, 1), "public": rows(100, 2)} | changes)


def planned(method: SearchMethod, score: Score | None = None, **changes: Any) -> Outline:
    asked = {"budget": BUDGET, "search": method, "score": score or NoisyScore()} | changes
    return outline(make_data(), a_config(**asked))


def study(method: SearchMethod, out: Path | None = None, **asked: Any) -> StudyResult:
    return tune(
        **{"data": make_data(), "budget": BUDGET, "space": SPACE, "search": method} | asked,
        out=out,
    )


@pytest.fixture(params=EVERY, ids=named)
def method(request: pytest.FixtureRequest) -> SearchMethod:
    found: SearchMethod = request.param
    return found


@pytest.fixture(params=SEALED, ids=named)
def sealed(request: pytest.FixtureRequest) -> SearchMethod:
    found: SearchMethod = request.param
    return found


class TestEveryMethod:
    """Conformance."""

    def test_search_method_spends_the_budget_by_a_second_derivation(
        self, method: SearchMethod
    ) -> None:
        found = planned(method)
        events = [event for _, event in found.payments]
        spent = accounting.epsilon_of(events, found.price, BUDGET.delta)
        assert accounting.fits(events, found.price, BUDGET, found.price.slack)
        low, high = independent_epsilon(events, BUDGET.delta)
        assert low * (1 - 1e-3) <= spent <= min(high * (1 + 1e-3), BUDGET.epsilon * (1 + 1e-9))
        if getattr(method, "accounting", "") != "published":
            assert spent > 0.999 * BUDGET.epsilon  # nothing is left unused

    def test_search_method_runs_and_guarantees_the_budget(
        self, method: SearchMethod, tmp_path: Path
    ) -> None:
        result = study(method, tmp_path / "run")
        assert 0 < result.guarantee.epsilon <= BUDGET.epsilon
        assert result.guarantee.covers_search and result.guarantee.covers_selection
        assert result.test_accuracy is not None
        state = Ledger.open(str(tmp_path / "run" / "ledger.db")).state()
        assert accounting.fits(state.events, state.spent, BUDGET, state.slack)
        assert {payment.state for payment in state.counted} == {"committed"}
        assert search_picture(tmp_path / "run").stat().st_size > 10_000
        assert method.name in model_card(tmp_path / "run")

    def test_payments_of_search_method_do_not_depend_on_a_row(self, method: SearchMethod) -> None:
        features, labels = rows()
        features[7] = 0.0
        neighbour = Data(features, labels, test=rows(50, 1), public=rows(100, 2))
        config = planned(method).config
        assert outline(neighbour, config).payments == planned(method).payments

    def test_a_finished_study_is_read_again_without_a_payment(
        self, method: SearchMethod, tmp_path: Path
    ) -> None:
        first = study(method, tmp_path / "run")
        before = Ledger.open(str(tmp_path / "run" / "ledger.db")).state().entries
        again = resume(tmp_path / "run", make_data())
        assert again.to_dict() == first.to_dict()
        assert Ledger.open(str(tmp_path / "run" / "ledger.db")).state().entries == before

    def test_interrupted_search_method_resumes_or_explains_why_not(
        self, method: SearchMethod, tmp_path: Path
    ) -> None:
        moments = len(told(method))
        for stop in sorted({0, moments // 2, moments - 1}):
            out = tmp_path / f"run-{stop}"
            with pytest.raises(KeyboardInterrupt):
                study(method, out, watch=stopping_at(stop))
            try:
                result = resume(out, make_data())
            except FolderProblem as problem:
                assert method.sealing or "interrupted" in str(problem)
            else:
                assert result.guarantee.epsilon <= BUDGET.epsilon
            state = Ledger.open(str(out / "ledger.db")).state()
            assert accounting.fits(state.events, state.spent, BUDGET, state.slack)

    def test_search_method_suggests_settings_inside_the_space(self, method: SearchMethod) -> None:
        if method.fixes:
            return  # rates of other optimizers are their own
        for trial in [*study(method).trials, study(method).final]:
            low, high = SPACE.learning_rate
            assert low * (1 - 1e-9) <= trial.plan.learning_rate <= high * (1 + 1e-9)
            assert SPACE.steps[0] <= trial.plan.steps <= SPACE.steps[1]

    @pytest.mark.parametrize("score", [PublicScore(), UnpaidScore(), NoisyScore(share=0.2)])
    def test_search_method_accepts_every_score(self, method: SearchMethod, score: Score) -> None:
        result = study(method, score=score)
        assert result.guarantee.covers_selection is score.covers_selection
        assert result.guarantee.epsilon <= BUDGET.epsilon

    def test_held_out_scores_work_or_are_refused(self, method: SearchMethod) -> None:
        if not method.sealing:
            assert study(method, score=HeldOutScore()).guarantee.epsilon <= BUDGET.epsilon
            return
        with pytest.raises(InvalidInput, match="held-out"):
            planned(method, HeldOutScore())

    def test_search_method_accepts_sampled_rows_or_explains_why_not(
        self, method: SearchMethod
    ) -> None:
        recipe = {"sampling_rate": 0.3}
        if isinstance(method, SubsetSelection):
            with pytest.raises(InvalidInput, match="sampling rate"):
                planned(method, recipe=recipe)
            return
        result = study(method, recipe=recipe)
        assert result.guarantee.epsilon <= BUDGET.epsilon
        assert "Poisson" in result.guarantee.sampler

    def test_search_method_accepts_regression(self, method: SearchMethod) -> None:
        features, _ = rows()
        data = Data(features, features[:, 0], task="values", target_range=(-3, 3))
        assert study(method, data=data).guarantee.epsilon <= BUDGET.epsilon

    def test_search_method_survives_its_configuration_file(
        self, method: SearchMethod, tmp_path: Path
    ) -> None:
        from dptune.study.planning import read_config
        from dptune.study.run_folder import RunFolder

        study(method, tmp_path / "run")
        assert read_config(RunFolder.open(tmp_path / "run")).search == method


def told(method: SearchMethod) -> list[str]:
    heard: list[str] = []
    study(method, watch=lambda progress: heard.append(progress.doing))
    return heard


def stopping_at(moment: int) -> Callable[[Progress], None]:
    left = iter(range(moment, -1, -1))

    def watch(progress: Progress) -> None:
        if next(left, -1) == 0:
            raise KeyboardInterrupt

    return watch


def independent_epsilon(events: list[Event], delta: float) -> tuple[float, float]:
    """Bounds between which the epsilon of a study must lie; equal where we know it exactly."""
    match events:
        case [RandomStopping(density_ratio=None) as search]:
            return (by_ratio(search, delta),) * 2
        case [RandomStopping() as search]:
            return (by_adaptive_renyi(search, delta),) * 2
        case [SubsetSearch() as search]:
            # One trial tells less than the best of many; the published bound is looser.
            assert isinstance(search.search, RandomStopping)
            trial, final = gaussian_mu(search.search.trial), gaussian_mu(search.final)
            least = mixture_epsilon(trial, final, search.sampling_rate, search.disjoint, delta)
            return least, accounting.sealed_bound(search, delta).published
    mu = math.sqrt(sum(gaussian_mu(event) ** 2 for event in events))
    return (dp_accounting.get_epsilon_gaussian(1 / mu, delta),) * 2


def gaussian_mu(event: Event) -> float:
    match event:
        case PrivateMean(noise_multiplier=noise) | PrivateSecondMoment(noise_multiplier=noise):
            return 1 / noise
        case FullBatchRun(steps=steps, noise_multiplier=noise):
            return math.sqrt(steps) / noise
        case NoisyCount(counts=n, noise=noise, centered=True):
            half = n // 2
            return math.sqrt(half * (n - half) / n) / noise
        case NoisyCount(counts=n, noise=noise) | NoisyRanks(columns=n, noise=noise):
            return math.sqrt(n) / noise
        case Composition(parts=parts):
            return math.hypot(*map(gaussian_mu, parts))
    raise AssertionError(event)


def law_of(search: RandomStopping) -> tuple[float, float]:
    """Shape and gamma of the truncated negative binomial, from its mean."""
    shapes = {"geometric": 1.0, "logarithmic": 0.0}
    shape = shapes.get(search.distribution, search.shape)
    assert shape is not None

    def mean(gamma: float) -> float:
        if shape == 0:
            return (1 / gamma - 1) / math.log(1 / gamma)
        return shape * (1 - gamma) / (gamma * (1 - gamma**shape))

    return shape, brentq(lambda gamma: mean(gamma) - search.expected_trials, 1e-9, 1 - 1e-9)


def by_ratio(search: RandomStopping, delta: float) -> float:
    """eps(mu, delta / mean) + log R, with R maximised over a grid; for Poisson also by Renyi DP."""
    mu, mean = gaussian_mu(search.trial), search.expected_trials
    one = dp_accounting.get_epsilon_gaussian(1 / mu, delta / mean)
    if search.distribution == "poisson":
        renyi = min(
            alpha * mu**2 / 2
            + mean * gaussian_delta(mu, math.log1p(1 / (alpha - 1)))
            + math.log(mean) / (alpha - 1)
            + math.log1p(-1 / alpha)
            - math.log(delta * alpha) / (alpha - 1)
            for alpha in 1 + np.geomspace(1e-2, 1e4, 4000)
        )
        return min(one + mean * (2 * float(ndtr(mu / 2)) - 1), renyi)
    shape, gamma = law_of(search)
    z = np.linspace(-12, 12, 200_001)
    larger, smaller = 1 - (1 - gamma) * ndtr(z), 1 - (1 - gamma) * ndtr(z - mu)
    return one + float(np.max((shape + 1) * np.log(smaller / larger)))


def by_adaptive_renyi(search: RandomStopping, delta: float) -> float:
    """The theorem of DP-HyPO, order by order."""
    mu, mean = gaussian_mu(search.trial), search.expected_trials
    shape, gamma = law_of(search)
    assert search.density_ratio is not None
    orders = 1 + np.geomspace(1e-2, 1e4, 4000)
    curve = orders * mu**2 / 2
    ratio = (1 + shape) * np.min((1 - 1 / orders) * curve + math.log(1 / gamma) / orders)
    extra = (orders / (orders - 1) + 1 + shape) * math.log(search.density_ratio)
    values = curve + ratio + extra + math.log(mean) / (orders - 1)
    return float(np.min(values + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1)))


def gaussian_delta(mu: float, epsilon: float) -> float:
    return float(ndtr(-epsilon / mu + mu / 2) - math.exp(epsilon) * ndtr(-epsilon / mu - mu / 2))


def mixture_epsilon(trial: float, final: float, share: float, rest: bool, delta: float) -> float:
    """One trial on a sample, then the final run, on a grid of both outputs."""
    x = np.linspace(-9, 9, 1201)
    weight = np.exp(-(x**2) / 2) * (x[1] - x[0]) / math.sqrt(2 * math.pi)
    both = np.outer(weight, weight)
    first = np.exp(trial * x - trial**2 / 2)[:, None]
    second = np.exp(final * x - final**2 / 2)[None, :]
    ratio = (share * first + 1 - share) * second
    if rest:
        ratio = share * first + (1 - share) * second

    def leaked(epsilon: float) -> float:
        grown = math.exp(epsilon)
        there = float((both * np.maximum(ratio - grown, 0)).sum())
        back = float((both * np.maximum(1 - grown * ratio, 0)).sum())
        return max(there, back) - delta

    return brentq(leaked, 1e-3, 20, xtol=1e-6)


@pytest.fixture
def trials_drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Decide how many trials a sealed search has."""

    def fix(count: int) -> None:
        monkeypatch.setattr(TrialCount, "draw", lambda self, uniform: count)

    yield fix


class TestSealedSearches:
    """Nothing but the winner leaves."""

    def test_the_number_of_trials_leaves_no_trace(
        self,
        sealed: SearchMethod,
        tmp_path: Path,
        trials_drawn: Callable[[int], None],
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        traces = []
        for count in (1, 40):
            trials_drawn(count)
            heard: list[str] = []
            out = tmp_path / str(count)
            result = study(
                sealed, out, watch=lambda progress, heard=heard: heard.append(repr_of(progress))
            )
            assert result.trials == () and result.final.number == 1
            assert json.loads((out / "result.json").read_text())["trials"] == []
            files = sorted(str(file.relative_to(out)) for file in out.rglob("*"))
            entries = len(Ledger.open(str(out / "ledger.db")).state().payments)
            traces.append((heard, files, entries, capfd.readouterr()))
        assert traces[0] == traces[1]

    def test_as_many_trials_are_trained_as_were_drawn_and_the_best_one_is_kept(
        self,
        sealed: SearchMethod,
        trials_drawn: Callable[[int], None],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        trained, scores = [], []
        fit_many, evaluate_many = LinearEngine.fit_many, LinearEngine.evaluate_many

        def fit(self: Any, plans: Any, seen: Any, *more: Any, **also: Any) -> Any:
            trained.extend((plan, seen.count) for plan in plans)
            return fit_many(self, plans, seen, *more, **also)

        def evaluate(self: Any, models: Any, seen: Any, **more: Any) -> Any:
            found = evaluate_many(self, models, seen, **more)
            if seen.count > 3:  # not the rehearsal
                scores.extend(evaluation.correct for evaluation in found)
            return found

        trials_drawn(21)
        monkeypatch.setattr(LinearEngine, "fit_many", fit)
        monkeypatch.setattr(LinearEngine, "evaluate_many", evaluate)
        monkeypatch.setattr("dptune.study.measure.fresh_normal", lambda shape: np.zeros(shape))
        result = study(sealed)
        subset = sealed.sealing.subset if sealed.sealing else None
        rehearsed = 1
        assert len(trained) == rehearsed + 21 + (subset is not None)
        best = int(np.argmax(scores[:21]))
        winner, seen = trained[rehearsed + best]
        if subset is None:
            assert result.final.plan == winner and seen == 300
        else:
            plan, rest = trained[-1]
            assert result.final.plan == plan and plan.steps == winner.steps
            assert plan.learning_rate == pytest.approx(winner.learning_rate * subset.growth)
            assert 3 <= seen <= 90  # about a tenth of 300
            assert rest == 300 - seen if subset.rest else rest == 300
            assert plan.rows == (270 if subset.rest else 300) and winner.rows == 30

    def test_settings_of_sealed_search_are_secret_draws(self, sealed: SearchMethod) -> None:
        plans = [study(sealed, seed=5).final.plan for _ in range(5)]
        # Fewest has Hypo, 160 cells, of which one wins with a chance of 0.02 at most: (0.02)^4.
        assert len({(plan.learning_rate, plan.steps) for plan in plans}) > 1

    def test_trials_cost_the_same_whatever_they_draw(self, sealed: SearchMethod) -> None:
        found = planned(sealed)
        search = found.schedule.sealed
        assert search is not None
        target = accounting.price(search.run).mu_squared
        for setting in (SPACE.draw(np.random.default_rng(seed)) for seed in range(20)):
            price = accounting.price(found.sealed_plan(setting).event).mu_squared
            assert target * (1 - 1e-12) <= price <= target

    def test_interrupted_trial_is_lost_and_noted(
        self, sealed: SearchMethod, tmp_path: Path
    ) -> None:
        with pytest.raises(KeyboardInterrupt):
            study(sealed, tmp_path / "run", watch=stopping_at(0))
        with pytest.raises(FolderProblem, match="interrupted"):
            resume(tmp_path / "run", make_data())

    def test_sealed_search_after_other_payments_is_priced_or_refused(
        self, sealed: SearchMethod, tmp_path: Path
    ) -> None:
        data = make_data()
        address = str(tmp_path / "shared.db")
        Ledger.create(address, BUDGET, dataset=data.name, fingerprint=data.fingerprint)
        study(UnitNoise(), data=data, budget=Budget(0.5, 1e-5), ledger=address)
        with pytest.raises(DptuneError, match="nothing was spent"):
            study(sealed, data=data, ledger=address)

    def test_sealed_search_refuses_private_mean(self, sealed: SearchMethod) -> None:
        with pytest.raises(InvalidInput, match="private mean"):
            planned(sealed, preparation=Preparation(center_share=0.05))

    def test_sealed_search_cannot_be_reused(self, sealed: SearchMethod, tmp_path: Path) -> None:
        with pytest.raises(InvalidInput, match="reuse"):
            study(sealed, reuse=tmp_path, ledger=str(tmp_path / "ledger.db"))


def repr_of(progress: Progress) -> str:
    return f"{progress.doing} {len(progress.trials)} {progress.spent:.3f}"


def test_no_trials_at_all_give_a_model_of_noise(
    trials_drawn: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    trials_drawn(0)
    seen = []
    fit_many = LinearEngine.fit_many

    def fit(self: Any, plans: Any, rows: Any, *more: Any, **also: Any) -> Any:
        seen.append(float(rows.features.abs().sum()))
        return fit_many(self, plans, rows, *more, **also)

    monkeypatch.setattr(LinearEngine, "fit_many", fit)
    study(PrivateSelection(expected_trials=3, distribution="poisson"))
    assert seen[1:] == [0.0]  # after the rehearsal, the model of noise


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (RandomSearch, {"trials": 0}),
        (GridSearch, {"rates": 0}),
        (GridSearch, {"steps": 1.5}),
        (PrivateSelection, {"expected_trials": 1.0}),
        (PrivateSelection, {"distribution": "fixed"}),
        (PrivateSelection, {"distribution": "negative-binomial"}),
        (PrivateSelection, {"accounting": "loose"}),
        (SubsetSelection, {"share": 1.0}),
        (SubsetSelection, {"final_rows": "some"}),
        (Hypo, {"density_ratio": 0.0}),
        (Wosm, {"steps": 0}),
        (OneStep, {"learning_rate": -1.0}),
    ],
)
def test_senseless_options_are_refused(method: Any, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        method(**options)


def test_proposals_that_cost_more_than_the_budget_are_refused() -> None:
    with pytest.raises(InvalidInput, match="density_ratio"):
        planned(Hypo(density_ratio=8 / 3), budget=Budget(1.0, 1e-5))


@pytest.mark.parametrize(("method", "optimizer"), [(Wosm(), "wosm"), (OneStep(), "adam")])
def test_parameter_free_recipes_bring_their_optimizer(method: SearchMethod, optimizer: str) -> None:
    result = study(method)
    assert result.final.plan.optimizer == optimizer and not result.trials
    with pytest.raises(InvalidInput, match="leave optimizer out"):
        study(method, recipe={"optimizer": "sgd"})


def test_the_steps_of_wosm_are_a_hundred_or_what_the_space_has() -> None:
    assert study(Wosm()).final.plan.steps == 20
    assert study(Wosm(), space=Space()).final.plan.steps == 100
    assert study(Wosm(steps=7)).final.plan.steps == 7


def test_a_grid_is_even_and_its_best_cell_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dptune.study.measure.fresh_normal", lambda shape: np.zeros(shape))
    result = study(GridSearch(rates=3, steps=2), space=Space((0.1, 10.0), (5, 20)))
    found = [(round(t.plan.learning_rate, 6), t.plan.steps) for t in result.trials]
    assert found == [(rate, steps) for rate in (0.1, 1.0, 10.0) for steps in (5, 20)]
    best = max(result.trials, key=lambda trial: trial.score or -1.0)
    assert result.final == best
    mus = {trial.mu for trial in result.trials}
    assert len(mus) == 1


def test_runs_that_share_a_budget_leave_no_final_run() -> None:
    found = planned(RandomSearch(trials=4))
    assert [label for label, _ in found.payments] == [
        "ranges of columns",
        "row lengths",
        "private mean",
        "second moment",
        "trial 1",
        "trial 2",
        "trial 3",
        "trial 4",
        "scores of runs",
    ]


class TestProposals:
    """DP-HyPO's densities."""

    @pytest.mark.parametrize("ratio", [1.0, 1.1, 2.0, 8 / 3])
    def test_stay_within_their_ratio(self, ratio: float) -> None:
        from dptune.search.hypo import limit_odds

        draws = np.random.default_rng(0)
        for _ in range(50):
            wanted = draws.dirichlet(np.full(30, 0.2))
            odds = limit_odds(wanted, ratio)
            assert odds.sum() == pytest.approx(1)
            assert odds.max() * 30 <= math.sqrt(ratio) * (1 + 1e-12)
            assert odds.min() * 30 * math.sqrt(ratio) >= 1 - 1e-12
            assert (np.diff(odds[np.argsort(wanted)]) >= -1e-12).all()

    def test_are_the_nearest_within_it(self) -> None:
        from dptune.search.hypo import limit_odds

        wanted = np.array([0.4, 0.3, 0.2, 0.1])
        assert limit_odds(wanted, 1e6) == pytest.approx(wanted, abs=1e-9)
        bounded = limit_odds(wanted, 1.44)  # between 0.2083 and 0.3
        assert bounded.max() == pytest.approx(0.3, rel=1e-5)
        assert bounded.min() == pytest.approx(0.25 / 1.2, rel=1e-5)

    def test_hypo_prefers_settings_with_high_scores(self) -> None:
        from dptune.search.hypo import preferred_odds
        from dptune.search.trial import Trial

        space = Space((0.01, 100.0), (5, 200))
        cells = space.grid(16, 10)
        history = [
            Trial(
                number=1,
                stage="sealed search",
                plan=TrainPlan(rows=9, steps=30, learning_rate=rate, noise_multiplier=1.0),
                mu=0.1,
                score=score,
            )
            for rate, score in ((0.02, 0.1), (0.2, 0.3), (5.0, 0.9), (60.0, 0.2))
        ]
        odds = preferred_odds(cells, history, space)
        best = cells[int(odds.argmax())]
        assert 1 < best.learning_rate < 30
        assert preferred_odds(cells, history[:1], space) == pytest.approx(1 / len(cells))


def test_own_method_needs_less_than_80_lines() -> None:
    assert len(EXAMPLE.read_text().splitlines()) < 80


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_the_command_line_knows_it(name: str, tmp_path: Path) -> None:
    features, labels = rows(200)
    np.savez(
        tmp_path / "rows.npz",
        X_train=features,
        y_train=labels,
    )
    done = CliRunner().invoke(
        app,
        [
            "tune",
            "--data",
            str(tmp_path / "rows.npz"),
            "--method",
            name,
            "--epsilon",
            "3",
            "--delta",
            "1e-5",
            "--out",
            str(tmp_path / "run"),
            "--json",
        ],
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["guarantee"]["epsilon"] <= 3


@dataclass(frozen=True)
class Greedy(PrivateSelection):
    """A sealed method of somebody's own that asks for other runs than were priced."""

    name: ClassVar[str] = "greedy"
    wants: str = "more steps"

    def suggest(self, stage: Stage, situation: Situation) -> list[Setting]:
        assert stage.trials == 1 and not situation.history  # it may not learn, nor count
        rate = 0.5 if self.wants == "samples" else None
        return [Setting(1.0, 500 if self.wants == "more steps" else 5, sampling_rate=rate)]


@pytest.mark.parametrize(
    ("wants", "recipe"), [("samples", {}), ("more steps", {"sampling_rate": 0.2})]
)
def test_a_sealed_method_cannot_run_what_it_was_not_priced_for(
    wants: str, recipe: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput, match="not those it was priced for"):
        study(Greedy(wants=wants), recipe=recipe)


def test_full_batches_of_any_number_of_steps_cost_a_sealed_method_the_same() -> None:
    assert study(Greedy()).final.plan.steps == 500


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("precision", ["float64", "float32", "bfloat16"])
def test_a_sample_without_rows_adds_nothing_to_a_sum(bias: bool, precision: str) -> None:
    features, labels = rows()
    nobody = MemoryRows(features, labels, precision=precision).taken(
        torch.zeros(300, dtype=torch.bool)
    )
    silent = TrainPlan(rows=300, steps=3, learning_rate=1.0, noise_multiplier=0.0, clip_norm=0.5)
    (model,) = LinearEngine(outputs=2, bias=bias).fit_many([silent], nobody, [Randomness()])
    assert nobody.count == 0 and not model.weights.any()
    assert model.bias is None or not model.bias.any()


def test_plans_that_cannot_be_run_are_refused_before_they_are_paid(tmp_path: Path) -> None:
    """Afterwards the refusal would tell of a trial."""
    with pytest.raises(InvalidInput, match="noise_multiplier"):
        tiny = Budget(4e-8, 1e-12)
        study(PrivateSelection(), tmp_path / "run", budget=tiny, space=Space(steps=(1, 200)))
    assert not (tmp_path / "run").exists()
    with pytest.raises(InvalidInput, match="learning_rate"):
        Space(learning_rate=(1e308, 1e308))


def test_the_clock_of_a_sealed_search_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    from dptune.cli import progress_view

    for method, shown in ((UnitNoise(), True), (PrivateSelection(), False)):
        screen = Console(force_terminal=True, width=100, record=True, file=io.StringIO())
        monkeypatch.setattr(progress_view, "standard_error", lambda screen=screen: screen)
        with progress_view.live_view(method) as show:
            study(method, watch=show)
        assert bool(re.search(r"\d:\d\d:\d\d", screen.export_text())) is shown


def test_a_grid_of_equal_settings_is_refused_before_it_is_paid(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="only 4 different settings"):
        study(GridSearch(rates=2, steps=5), tmp_path / "run", space=Space(steps=(1, 2)))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        (PrivateSelection, {"distribution": "gauss"}, "distribution must be one of"),
        (PrivateSelection, {"expected_trials": 0.5}, "expected_trials must"),
        (Hypo, {"distribution": "poisson"}, "got poisson"),
        (Hypo, {"density_ratio": 0.5}, "at least 1; got 0.5"),
    ],
)
def test_what_is_wrong_with_an_option_is_said(
    method: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        method(**options)


def test_a_plan_of_a_sealed_search_says_what_a_trial_may_spend(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["tune", "--method", "private-selection", "--dry-run"])
    words = " ".join(done.output.split())
    assert "logarithmic, 10 on average" in words and "stays secret" in words
    assert "each trial trains with epsilon 0.6" in words
