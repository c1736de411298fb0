"""The check of a final model: one noisy count of the rows it gets right."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from dptune import accounting
from dptune.accounting import Budget
from dptune.data import Data
from dptune.ledger import Ledger
from dptune.privacy import NoisyCount
from dptune.report.card import model_card
from dptune.search.base import Census
from dptune.search.private_selection import PrivateSelection
from dptune.search.random_search import RandomSearch
from dptune.search.unit_noise import UnitNoise
from dptune.study.check import (
    BETTER,
    NO_BETTER,
    NO_BETTER_WEIGHTED,
    UNKNOWN,
    FinalCheck,
    final_check,
)
from dptune.study.measure import count_correct
from dptune.study.study import resume, tune
from support.noise import repeated_noise
from support.rows import make_data, make_rows
from support.spy import Spied
from support.studies import BUDGET, stop_after, study

RELEASE = "a noisy count of rows the final model gets right"
LARGE = {"budget": Budget(50.0, 1e-5), "allow_large_epsilon": True}


def check_of(**changes: float) -> FinalCheck:
    usual = {"accuracy": 0.8, "error": 0.01, "majority": 0.6, "majority_error": 0.01}
    return FinalCheck(**usual | changes)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, BETTER),
        ({"accuracy": 0.6424}, UNKNOWN),  # 0.04243 is three standard deviations of the difference
        ({"accuracy": 0.6425}, BETTER),
        ({"accuracy": 0.597}, NO_BETTER),  # it gains at most 0.0394, and 0.4 is all there is
        ({"accuracy": 0.598}, UNKNOWN),
        ({"accuracy": 0.3}, NO_BETTER),
        ({"accuracy": 0.6, "error": 0.1}, UNKNOWN),
        ({"accuracy": 3.0, "error": 2.0}, UNKNOWN),
        # A gain that a model of rows without anything to learn may have memorised is none.
        ({"accuracy": 0.6425, "memorised": 0.05}, UNKNOWN),
        ({"accuracy": 0.64, "error": 0, "majority_error": 0, "memorised": 0.05}, NO_BETTER),
        ({"accuracy": 0.7, "memorised": 0.05}, BETTER),
        # A large gain that might be memorised is not called none.
        ({"accuracy": 0.9, "majority": 0.31, "memorised": 1.0}, UNKNOWN),
        ({"accuracy": 0.9, "majority": 0.31, "memorised": 0.4}, BETTER),
        ({"accuracy": 0.991, "majority": 0.99, "error": 1e-5, "majority_error": 1e-5}, BETTER),
        ({"accuracy": 0.99, "majority": 0.99}, UNKNOWN),
        ({"accuracy": 0.2, "majority": 1.2, "majority_error": 0.2}, NO_BETTER),
    ],
)
def test_a_verdict_says_no_more_than_is_sure(changes: dict[str, float], verdict: str) -> None:
    check = check_of(**changes)
    assert check.verdict == verdict
    assert check.to_dict()["words"] == check.in_words
    assert ("inconclusive" in check.in_words) == (verdict == UNKNOWN)
    assert ("no better" in check.in_words) == (verdict == NO_BETTER)


def test_words_name_what_decided() -> None:
    memorised = check_of(accuracy=0.853, majority=0.396, memorised=0.47)
    assert memorised.verdict == UNKNOWN
    assert memorised.in_words.endswith(
        "inconclusive at this budget: 85.3 % of the training rows right, beside 39.6 %; a model "
        "of so many weights may have memorised up to 47.0 points of it, and the difference is "
        "known to within 4.2 points"
    )
    # No better is said because of it, too; where noise alone decides, it is not mentioned.
    none = check_of(accuracy=0.64, error=0.001, majority_error=0.001, memorised=0.05)
    assert none.verdict == NO_BETTER and "memorised up to 5.0 points of it" in none.in_words
    # But that it was memorised is not known: it may be better all the same.
    assert none.in_words.startswith("the final model may be no better than always answering")
    for changes in ({"accuracy": 0.61}, {"accuracy": 0.9}, {"accuracy": 0.3}):
        noise = check_of(**changes, memorised=0.01)
        assert "memorised" not in noise.in_words
        assert noise.in_words.endswith("; their difference is known to within 4.2 points")


def test_noise_beyond_all_rows_is_not_shown_to_people() -> None:
    check = check_of(accuracy=1.034, majority=-0.01)
    assert "about 100 % of the training rows right, beside about 0 %;" in check.in_words
    assert check.to_dict()["accuracy"] == 1.034 and check.to_dict()["majority"] == -0.01


def test_shares_are_of_public_numbers_and_of_weights_where_there_are_any() -> None:
    census = Census((900.0, 100.0), 3.0)
    plain = final_check(800.0, 4.0, census, None, 1000, parameters=0, mu=1.0)
    assert plain == FinalCheck(0.8, 0.004, 0.9, 0.003)
    noisy = Census((430.0, 390.0), 80.0)  # of two classes one has half of all rows, or more
    floored = final_check(800.0, 4.0, noisy, None, 1000, parameters=0, mu=1.0)
    assert floored == FinalCheck(0.8, 0.004, 0.5, 0.08)
    weighted = final_check(
        150.0, 4.0, census, census, 1000, parameters=0, mu=1.0
    )  # of 100 and 900 / 9
    assert weighted.accuracy == pytest.approx(150 / 200)
    assert weighted.error == pytest.approx(4 / 200)
    assert weighted.majority == pytest.approx(0.5)
    assert weighted.majority_error <= 3 / 200
    assert weighted.most_frequent == pytest.approx(0.9)


def test_check_of_weighted_rows_says_so_and_compares_with_one_class_and_with_all_rows() -> None:
    """A share in which every class counts alike is not one of the training rows."""
    census = Census((17_000.0, 1000.0), 3.0)
    check = final_check(1590.0, 4.0, census, census, 18_000, parameters=8, mu=1.0)
    assert check.verdict == BETTER
    assert check.in_words == (
        "the final model is better than always answering one class: with every class counting "
        "alike, 79.5 % right, beside 50.0 % (unweighted, 94.4 % of the training rows are of the "
        "most frequent class); their difference is known to within 0.8 points"
    )
    alike = final_check(1000.0, 4.0, census, census, 18_000, parameters=8, mu=1.0)
    assert alike.warns and alike.in_words.startswith(f"the final model is {NO_BETTER_WEIGHTED}:")


def test_a_study_says_how_its_final_model_does(tmp_path: Path, spied: Spied) -> None:
    out = tmp_path / "run"
    result = study(out, **LARGE)
    check = result.check
    assert check is not None and check.verdict == BETTER
    # Five standard deviations and more around what the model really gets right.
    features, labels = make_rows()
    right = float((result.model.predict(features) == labels).mean())
    assert abs(check.accuracy - right) < 6 * check.error
    assert check.majority == pytest.approx(max(labels.mean(), 1 - labels.mean()), abs=0.1)
    stored = json.loads((out / "result.json").read_text())
    assert stored["check"] == check.to_dict()
    assert RELEASE in result.guarantee.releases
    assert check.in_words in model_card(out).replace("\\", "")
    assert not any("no better" in note for note in result.notes)
    assert resume(out, make_data()).check == check


def test_the_check_is_paid_a_thousandth_and_its_noise_is_what_was_paid(tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = study(out)
    paid = Ledger.open(str(out / "ledger.db")).state().counted
    (check,) = [p for p in paid if p.label == "check of the final model"]
    assert check.state == "committed"
    event = check.event
    assert isinstance(event, NoisyCount) and event.counts == 1 and not event.centered
    # One row moves one count by at most 1: mu is 1 / noise. And by the price list.
    assert event.noise**-2 == pytest.approx(0.001 * BUDGET.mu_squared(), rel=1e-12)
    assert accounting.price(event).mu_squared == pytest.approx(event.noise**-2, rel=1e-12)
    assert math.fsum(p.price.mu_squared for p in paid) <= BUDGET.mu_squared()
    assert result.check is not None
    assert result.check.error == event.noise / 400


def test_the_count_has_fresh_noise_of_the_size_that_was_paid_for(spied: Spied) -> None:
    result = study(None, **LARGE)
    rows, _ = spied.evaluations[0]
    engine, model = result.model.engine, result.model.model
    exact = engine.evaluate_many([model], rows)[0].correct
    event = NoisyCount(counts=1, noise=7.0)
    with repeated_noise():
        drawn = [count_correct(engine, model, rows, event, None) for _ in range(2000)]
    assert np.std(drawn) == pytest.approx(7.0, rel=0.1)
    assert np.mean(drawn) == pytest.approx(exact, abs=1.0)


@pytest.mark.usefixtures("same_noise")
@pytest.mark.parametrize("balance", ["none", "classes"])
def test_a_model_of_rows_that_are_all_alike_is_told_to_be_no_better(balance: str) -> None:
    data = Data(np.ones((20_000, 4)), (np.arange(20_000) % 5 == 0).astype(int))
    result = study(None, data, balance=balance, **LARGE)
    no_better = NO_BETTER if balance == "none" else NO_BETTER_WEIGHTED
    assert result.check is not None and result.check.verdict == no_better
    assert result.check.majority == pytest.approx(0.8 if balance == "none" else 0.5, abs=0.01)
    assert result.check.in_words in result.notes
    assert result.check.in_words in result.guarantee.caveats


def test_a_check_that_was_cut_off_is_lost_and_never_run_again(tmp_path: Path, spied: Spied) -> None:
    out, data = tmp_path / "run", make_data()
    stop_after(out, data, "checking the final model")
    spied.evaluations.clear()
    result = resume(out, data)
    assert [rows.count for rows, _ in spied.evaluations] == [50]  # test rows only
    assert result.check is None and RELEASE not in result.guarantee.releases
    assert "the check of the final model was interrupted after payment" in result.notes
    payments = Ledger.open(str(out / "ledger.db")).state().counted
    (check,) = [p for p in payments if p.label == "check of the final model"]
    assert check.state == "started"  # and so it stays paid
    assert resume(out, data).notes == result.notes
    assert json.loads((out / "result.json").read_text())["check"] is None


def test_a_check_on_disk_that_nobody_settled_is_settled(tmp_path: Path, spied: Spied) -> None:
    """Killed after the result was written and before the payment was committed."""
    out, data = tmp_path / "run", make_data()
    stop_after(out, data, "done")
    spied.evaluations.clear()
    found = json.loads((out / "check.json").read_text())["correct"]
    result = resume(out, data)
    assert [rows.count for rows, _ in spied.evaluations] == [50]
    assert result.check is not None and result.check.accuracy == found / 400


def test_without_counts_by_class_there_is_no_verdict(tmp_path: Path) -> None:
    """It is paid all the same: a copy of the folder that has the counts may be about to need it."""
    out, data = tmp_path / "run", make_data()
    stop_after(out, data, "counting rows")
    result = resume(out, data)
    assert result.check is None and not any("check" in note for note in result.notes)
    assert RELEASE in result.guarantee.releases and (out / "check.json").exists()


@pytest.mark.parametrize(
    "asked",
    [
        {"search": UnitNoise()},  # counts nothing
        {"search": RandomSearch(trials=2)},
        {"search": PrivateSelection()},  # alone
        {"check": False},
    ],
)
def test_only_what_can_be_judged_is_checked(tmp_path: Path, asked: dict[str, Any]) -> None:
    out = tmp_path / "run"
    result = study(out, **asked)
    assert result.check is None and RELEASE not in result.guarantee.releases
    payments = Ledger.open(str(out / "ledger.db")).state().payments
    assert not [p for p in payments if p.label == "check of the final model"]


def test_what_can_be_known_memorised_is_bounded_by_privacy() -> None:
    """More weights than rows may know every row; a private model knows each of them only as well
    as an attacker may: the total variation of its two Gaussians."""
    census = Census(classes=(400.0, 300.0, 300.0), noise=4.0)
    many = {"parameters": 10_000, "mu": 0.8}
    check = final_check(900.0, 4.0, census, None, 1000, **many)
    assert check.memorised == pytest.approx(2 * norm.cdf(0.4) - 1, rel=1e-9)
    assert check.verdict == BETTER
    few = final_check(900.0, 4.0, census, None, 1000, parameters=10, mu=0.8)
    assert few.memorised == pytest.approx(0.05)


def test_what_is_learned_memorised_of_coins_is_not_called_better() -> None:
    """Training rows alone, so that fitting them counts for nothing: labels are drawn at random."""
    rng = np.random.default_rng(1)
    data = Data(rng.normal(size=(4000, 5)), rng.integers(3, size=4000))
    result = tune(data, budget=Budget(30.0, 1e-6), allow_large_epsilon=True)
    assert result.check is not None and result.check.verdict != BETTER
