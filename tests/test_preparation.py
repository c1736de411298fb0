"""Declared ranges: columns of very different size on one scale, from file to promise."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dptune import Budget, Data, Ledger, Preparation, load, resume, tune
from dptune.data.preprocess import Preprocessing, from_ranges
from dptune.errors import InvalidInput
from dptune.report import model_card
from dptune.study.config import build, parse

RANGES = ((-3.0, 3.0), (20_000.0, 80_000.0))
BUDGET = Budget(2.0, 1e-5)


def rows(count: int, seed: int) -> tuple[Any, Any]:
    """All that tells the classes apart is in the small column."""
    draw = np.random.default_rng(seed)
    labels = draw.choice(["no", "yes"], count)
    small = draw.normal(np.where(labels == "yes", 1.0, -1.0), 0.8)
    return np.column_stack([small, draw.normal(50_000, 10_000, count)]), labels


def data() -> Data:
    return Data(*rows(4000, 0), test=rows(1000, 1))


@pytest.mark.usefixtures("same_noise")
def test_declared_ranges_let_small_columns_speak(tmp_path: Path) -> None:
    asked = Preparation(ranges=RANGES)
    nothing = Preparation(curves=1, range_share=0)
    plain = tune(data(), budget=BUDGET, preparation=nothing).test_accuracy
    ranged = tune(data(), budget=BUDGET, preparation=asked, out=tmp_path / "run")
    assert plain is not None and plain < 0.65
    assert ranged.test_accuracy is not None and ranged.test_accuracy > 0.8
    assert "the ranges of the columns, as declared" in ranged.guarantee.public_facts
    # The same ranges serve predictions, a resume and the card.
    features, _ = rows(100, 2)
    assert (load(tmp_path / "run").predict(features) == ranged.model.predict(features)).all()
    assert resume(tmp_path / "run", data()).test_accuracy == ranged.test_accuracy
    card = model_card(tmp_path / "run")
    assert "| ranges of the columns, as declared | -3 to 3, 20000 to 80000 |" in card
    assert "- the ranges of the columns, as declared" in card


def test_a_range_is_mapped_to_minus_one_to_one_and_beyond_is_not_clipped() -> None:
    made = Preprocessing([from_ranges([(18, 90), (-1.7e308, 1.7e308)])])
    done = made.apply(np.array([[18, -1.7e308], [54, 0], [90, 1.7e308], [126, 0]]))
    assert done == pytest.approx(np.array([[-1, -1], [0, 0], [1, 1], [2, 0]]))


def test_ranges_that_do_not_fit_the_columns_cost_nothing(tmp_path: Path) -> None:
    rows = data()
    address = str(tmp_path / "ledger.db")
    ledger = Ledger.create(address, BUDGET, dataset="data", fingerprint=rows.fingerprint)
    before = ledger.state().entries
    asked = Preparation(ranges=RANGES[:1])
    with pytest.raises(InvalidInput, match="ranges has 1 pairs, and the data have 2 columns"):
        tune(rows, budget=BUDGET, preparation=asked, ledger=address, out=tmp_path / "run")
    assert ledger.state().entries == before and not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ([[1, 1]], "column 1 goes from 1 to 1"),
        ([[0, 1], [2, 1]], "column 2 goes from 2 to 1"),
        ([[0, 5e-324]], "column 1"),
        ([[0, float("inf")]], "pairs of finite numbers"),
        ([[0, float("nan")]], "pairs of finite numbers"),
        ([[0, 10**400]], "pairs of finite numbers"),
        ([[0, "1"]], "pairs of finite numbers"),
        ([[False, True]], "pairs of finite numbers"),
        ([[1, 2, 3]], "pairs of finite numbers"),
        ([1, 2], "pairs of finite numbers"),
        (3, "pairs of finite numbers"),
    ],
)
def test_ranges_that_cannot_be_are_refused(ranges: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        build(Preparation, {"ranges": ranges}, "[preparation]")


def test_ranges_and_public_rows_do_not_go_together() -> None:
    with pytest.raises(InvalidInput, match="leave one out"):
        Preparation(standardize=True, ranges=RANGES)


def test_ranges_are_read_from_toml() -> None:
    text = "[preparation]\nranges = [[18, 90], [10000, 200000]]\n"
    found = build(Preparation, parse(text, "x.toml")["preparation"], "[preparation]")
    assert found == Preparation(ranges=((18.0, 90.0), (10_000.0, 200_000.0)))
