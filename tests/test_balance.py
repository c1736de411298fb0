"""Studies in which every class counts alike, however rare."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from module_engine import SmallNetwork

from dptune.accounting import Budget
from dptune.data import Data
from dptune.errors import InvalidInput
from dptune.ledger import Ledger
from dptune.report.card import model_card
from dptune.search.hypo import Hypo
from dptune.search.private_selection import PrivateSelection
from dptune.search.random_search import RandomSearch
from dptune.search.score import HeldOutScore, NoisyScore, PublicScore
from dptune.search.space import Space
from dptune.search.unit_noise import UnitNoise
from dptune.study.study import resume
from support.rows import make_data
from support.spy import Spied
from support.studies import stop_after, study

BUDGET = Budget(50.0, 1e-5)
LARGE = {"budget": BUDGET, "allow_large_epsilon": True}


def rare_rows(count: int = 1800, seed: int = 1) -> tuple[Any, Any]:
    """One row in nine is of the second class, and a little apart from the first."""
    rng = np.random.default_rng(seed)
    labels = (np.arange(count) % 9 == 0).astype(int)
    features = rng.normal(size=(count, 4)) + 0.7 * labels[:, None]
    return np.c_[features, np.ones(count)], labels


def rare() -> Data:
    return Data(*rare_rows())


def balanced(out: Path | None = None, data: Data | None = None, **asked: Any) -> Any:
    asked = LARGE | {"balance": "classes"} | asked
    return study(out, data or rare(), **asked)


def hits(result: Any, label: int) -> float:
    """The share of a class's rows that the model finds."""
    features, labels = rare_rows()
    return float((result.model.predict(features[labels == label]) == label).mean())


@pytest.mark.parametrize("search", [None, UnitNoise(), RandomSearch(trials=3)])
def test_every_run_weighs_rows_by_the_noisy_counts(search: Any, spied: Spied) -> None:
    result = balanced(search=search)
    census = result.census
    assert census is not None and census.weights is not None
    assert census.weights[1] == 1.0
    assert census.weights[0] == pytest.approx(1 / 8, rel=0.2)
    assert {plan.class_weights for plan, _ in spied.runs} == {census.weights}
    # Sums are divided by the number of rows so weighted: 200 of each class, up to noise.
    assert {plan.rows for plan, _ in spied.runs} == {round(1800 * census.effective_share)}
    assert result.final.plan.rows == pytest.approx(400, rel=0.2)
    assert result.final.plan.class_weights == census.weights
    assert "by which rows are weighted" in " ".join(result.guarantee.releases)


def test_weights_cost_nothing_but_the_counts(tmp_path: Path, spied: Spied) -> None:
    """The default search counts classes anyway: its payments are the same, event by event."""
    paid = {}
    for balance in ("none", "classes"):
        out = tmp_path / balance
        result = balanced(out, balance=balance)
        assert result.guarantee.epsilon == BUDGET.epsilon
        payments = Ledger.open(str(out / "ledger.db")).state().counted
        paid[balance] = [(payment.purpose.split(" of ")[0], payment.price) for payment in payments]
    prices = [[price.mu_squared for _, price in paid[balance]] for balance in paid]
    assert prices[0] == pytest.approx(prices[1], rel=1e-9)
    for plan, _ in spied.runs:  # noise is in clip norms, of which no weight is above 1
        assert plan.clip_norm == 0.5 and max(plan.class_weights or (1.0,)) <= 1.0


@pytest.mark.usefixtures("same_noise")
def test_a_rare_class_is_found_where_classes_count_alike() -> None:
    asked = {"search": UnitNoise(noise=0.3), "space": Space(steps=(5, 100))}
    plain, alike = balanced(balance="none", **asked), balanced(**asked)
    assert hits(alike, 1) > hits(plain, 1) + 0.2
    assert hits(alike, 0) > 0.5


def test_weights_are_stored_and_survive_a_resume(tmp_path: Path, spied: Spied) -> None:
    out, data = tmp_path / "run", rare()
    stop_after(out, data, "final run: segment 3", balance="classes", **LARGE)
    before = {plan.class_weights for plan, _ in spied.runs}
    result = resume(out, data)
    assert {plan.class_weights for plan, _ in spied.runs} == before
    assert result.final.plan.class_weights in before
    assert result.trials[0].plan.class_weights == result.final.plan.class_weights
    card = model_card(out)
    assert "every class counts alike: rows are weighted by noisy class counts" in card


def test_a_study_whose_counts_are_lost_goes_on_unweighted_and_says_so(
    tmp_path: Path, spied: Spied
) -> None:
    out, data = tmp_path / "run", rare()
    stop_after(out, data, "counting rows", balance="classes", **LARGE)
    result = resume(out, data)
    assert result.census is None
    assert {plan.class_weights for plan, _ in spied.runs} == {None}
    notes = " ".join(result.notes)
    assert "rows are not weighted by class, because there are no counts" in notes
    assert "by which rows are weighted" not in " ".join(result.guarantee.releases)


@pytest.mark.usefixtures("same_noise")
def test_counts_that_cannot_tell_classes_apart_weigh_nothing(tmp_path: Path, spied: Spied) -> None:
    run = tmp_path / "run"
    result = study(run, make_data(), balance="classes", budget=Budget(0.5, 1e-5))
    assert result.census is not None and result.census.weights is None
    assert {plan.class_weights for plan, _ in spied.runs} == {None}
    assert "the counts cannot tell classes apart" in " ".join(result.notes)
    assert "noisy counts of rows by class" in result.guarantee.releases  # and no more of them
    card = model_card(run)
    assert "every row counts alike, for want of counts that tell the classes apart" in card
    assert "every class counts alike" not in card


def test_held_out_and_public_rows_are_weighted_too(spied: Spied) -> None:
    result = balanced(score=HeldOutScore())
    assert result.census is not None
    trial = round(1620 * result.census.effective_share)
    assert result.trials[0].plan.rows == trial
    with_public = Data(*rare_rows(), public=rare_rows(90, 2))
    spied.evaluations.clear()
    result = balanced(None, with_public, score=PublicScore())
    assert result.census is not None
    (_, used), _ = spied.evaluations  # of all trials, and of the final model
    assert used.tolist() == list(result.census.weights)


def test_a_search_is_reused_only_with_the_same_balance(tmp_path: Path) -> None:
    data, address = rare(), str(tmp_path / "ledger.db")
    Ledger.create(address, Budget(200.0, 1e-4), dataset="rows", fingerprint=data.fingerprint)
    first = balanced(tmp_path / "first", data, ledger=address)
    asked = {"ledger": address, "reuse": tmp_path / "first", "budget": Budget(10.0, 1e-5)}
    with pytest.raises(InvalidInput, match=r"the balance in .* is classes, this study asks for no"):
        balanced(None, data, balance="none", **asked)
    second = balanced(tmp_path / "second", data, **asked)
    assert second.final.plan.class_weights == first.final.plan.class_weights


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"search": PrivateSelection()}, "a sealed search is priced well only where it is alone"),
        ({"search": Hypo()}, "needs noisy counts of rows beside it"),
        ({"engine": SmallNetwork(hidden=3)}, "the engine .* does not weigh rows by class"),
        (
            {
                "data": Data([[1.0]] * 9, [0.5] * 9, task="values", target_range=(0, 1)),
                "score": NoisyScore(measure="loss"),
            },
            "values have no classes",
        ),
        ({"balance": "rows"}, "balance must be one of none, classes"),
        ({"recipe": {"class_weights": (1.0, 1.0)}}, "both were asked for"),
    ],
)
def test_what_cannot_be_balanced_is_refused_before_anything_is_paid(
    asked: dict[str, Any], why: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match=why):
        balanced(tmp_path / "run", **asked)
    assert not (tmp_path / "run").exists()


def test_declared_weights_train_cost_nothing_and_are_named(tmp_path: Path, spied: Spied) -> None:
    out = tmp_path / "run"
    weights = {"class_weights": (0.125, 1.0)}
    result = balanced(out, balance="none", recipe=weights)
    assert {plan.class_weights for plan, _ in spied.runs} == {(0.125, 1.0)}
    assert result.guarantee.epsilon == BUDGET.epsilon
    # 1,600 rows of weight 1/8 and 200 of weight 1, as far as noisy counts tell.
    assert result.final.plan.rows == pytest.approx(400, rel=0.2)
    assert "the weights of the classes, as declared" in result.guarantee.public_facts
    assert "rows are weighted by their classes, as declared" in model_card(out)
    assert resume(out, rare()).final == result.final
    with pytest.raises(InvalidInput, match="both were asked for"):
        balanced(recipe=weights)
    for wrong in ((0.0, 1.0), (1.0, 2.0), (1.0,)):
        with pytest.raises(InvalidInput, match="class_weights"):
            balanced(balance="none", recipe={"class_weights": wrong})
