"""Studies that buy ranges and categories of columns: said before, paid once, found again."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dptune import accounting
from dptune.accounting import Budget
from dptune.columns import Columns
from dptune.columns.marks import COARSE
from dptune.columns.private_ranges import marks_for
from dptune.data import Data
from dptune.data.rows import DataFacts
from dptune.data.sources import load_data
from dptune.engines.linear import LinearEngine
from dptune.errors import BudgetExceeded, FolderProblem, InvalidInput
from dptune.ledger import Ledger
from dptune.preparation.categories import CATEGORIES, Categories, CategoriesDecision
from dptune.preparation.ranges import RANGES, RangesDecision, decide_columns
from dptune.preparation.step import Reason
from dptune.privacy import NoisyRanks, ThresholdedCount
from dptune.report.card import model_card
from dptune.search.linear_scaling import LinearScaling
from dptune.search.private_selection import PrivateSelection
from dptune.search.random_search import RandomSearch
from dptune.search.score import NoisyScore
from dptune.study.config import Config, Preparation
from dptune.study.outline import Outline
from dptune.study.payments import Payments
from dptune.study.planning import foresee, read_config
from dptune.study.recipe import case_of, in_words, settled
from dptune.study.run_folder import RunFolder
from dptune.study.split import slots
from dptune.study.study import resume
from dptune.study.trained_model import load
from support.studies import SPACE, contents, stop_after, study

BUDGET = Budget(8.0, 1e-5)
ONLY_COLUMNS = Preparation(center_share=0, whiten_share=0)
ASKED: dict[str, Any] = {"budget": BUDGET, "preparation": ONLY_COLUMNS}
COLUMNS = {
    "year": "number",
    "income": {"kind": "number", "range": "paid", "fill": "middle"},
    "known": {"kind": "number", "range": [0, 1]},
    "city": {"kind": "category", "values": "paid", "at_most": 4},
    "id": "drop",
}


def make_table(rows: int = 600, seed: int = 0) -> tuple[pd.DataFrame, Any]:
    draws = np.random.default_rng(seed)
    years = draws.integers(1990, 2021, rows)
    income = np.exp(draws.normal(10.5, 0.8, rows))
    income[:10] = np.nan
    cities = draws.choice(["Ulm", "Bonn"], rows).astype(object)
    cities[:3] = ["Secret 1", "Secret 2", "Secret 3"]
    table = pd.DataFrame(
        {"year": years, "income": income, "known": draws.random(rows), "city": cities, "id": 7}
    )
    return table, (years > 2005).astype(int)


def make_data(rows: int = 600, columns: Any = COLUMNS, **facts: Any) -> Data:
    table, labels = make_table(rows)
    return Data.from_columns(table, labels, columns, test=make_table(100, 1), **facts)


def planned(data: Data, **asked: Any) -> Outline:
    found, _ = foresee(data, a_config(data, **asked))
    return found


def a_config(data: Data, **asked: Any) -> Config:
    usual: dict[str, Any] = {
        "study": "",
        "search": LinearScaling(),
        "score": NoisyScore(),
        "space": SPACE,
        "recipe": {},
        "engine": LinearEngine(),
        "source": {},
        "columns": data.declared,
    }
    return Config(**usual | ASKED | asked)


def ranges_of(config: Config, known: DataFacts) -> RangesDecision:
    return decide_columns(case_of(config, known))


def categories_of(config: Config, known: DataFacts) -> CategoriesDecision:
    return Categories().decide(case_of(config, known), {})


def test_what_is_bought_has_slots_of_its_own_and_is_said_before() -> None:
    data = make_data()
    plan, promise = foresee(data, a_config(data))
    assert list(plan.preparing) == [CATEGORIES, RANGES]
    ranks, names = plan.preparing[RANGES], plan.preparing[CATEGORIES]
    assert isinstance(ranks, NoisyRanks) and isinstance(names, ThresholdedCount)
    decided = plan.preparation
    assert decided[RANGES].columns == ("year", "income")
    assert decided[CATEGORIES].columns == ("city",)
    assert [label for label, _ in plan.payments][:2] == [CATEGORIES, RANGES]
    ranges, categories = decided[RANGES].share, decided[CATEGORIES].share
    listed = {slot.purpose: slot.mu_squared / BUDGET.mu_squared() for slot in slots(plan)}
    assert listed[RANGES] == pytest.approx(ranges, rel=1e-9)
    assert listed[CATEGORIES] == pytest.approx(categories, rel=1e-9)
    said = in_words(plan.config, plan.data)
    assert said[:2] == (
        f"category names in 1 column estimated privately: {100 * categories:g} % of the budget",
        f"scaled by private ranges of 2 columns: {100 * ranges:g} % of the budget",
    )
    assert plan.price.slack == accounting.price(names).slack <= 1e-8
    assert plan.price.mu_squared <= BUDGET.mu_squared(plan.price.slack)
    assert plan.epsilon <= BUDGET.epsilon and promise.slack == plan.price.slack
    assert "ranges of 2 columns" in " ".join(promise.releases)


def test_a_study_buys_once_and_its_model_and_a_resume_know_what(tmp_path: Path) -> None:
    data, out = make_data(), tmp_path / "run"
    result = study(out, data, **ASKED)
    ranges, names = (
        json.loads((out / f"{name}.json").read_text())["columns"]
        for name in ("ranges", "categories")
    )
    assert list(ranges) == ["year", "income"] and list(names) == ["city"]
    assert set(names["city"]) == {"Ulm", "Bonn"}  # 300 rows each, noise below 10
    assert ranges["year"][0] < 2000 < ranges["year"][1]
    state = Ledger.open(str(out / "ledger.db")).state()
    paid = {payment.label: payment for payment in state.counted}
    assert isinstance(paid[RANGES].event, NoisyRanks)
    assert isinstance(paid[CATEGORIES].event, ThresholdedCount)
    assert state.slack == paid[CATEGORIES].price.slack == result.guarantee.slack
    assert state.spent_epsilon <= BUDGET.epsilon == result.guarantee.epsilon
    released = " ".join(result.guarantee.releases)
    assert "names of categories that many rows have, in 1 column " in f"{released} "
    assert "ranges of 2 columns, from" in released
    everything = " ".join(file.decode("utf8", "replace") for file in contents(out).values())
    assert "Secret" not in everything and "Secret" not in repr(data)
    encoding = load(out).preprocessing.encoding
    assert encoding is not None and not encoding.undecided and not encoding.unbought
    # Rows lie between the ends, and none of them far out.
    assert [*encoding.ranges["year"], True, None] == ranges["year"]
    table, labels = make_table(200, 2)
    assert (load(out).predict(table) == labels).mean() > 0.7  # the year says it all
    before = contents(out)
    assert resume(out, data).guarantee == result.guarantee
    assert contents(out) == before
    assert "noisy ranks" in model_card(out)
    decided = read_config(RunFolder.open(out)).preparation
    assert {decided.range_share, decided.category_share} <= {k / 1000 for k in range(5, 51)}


@pytest.mark.parametrize("doing", [CATEGORIES, RANGES])
def test_what_is_cut_off_is_lost_and_said_and_never_paid_again(doing: str, tmp_path: Path) -> None:
    data, out = make_data(), tmp_path / "run"
    stop_after(out, data, doing, **ASKED)
    result = resume(out, data)
    encoding = result.model.preprocessing.encoding
    assert encoding is not None
    assert bool(encoding.ranges) == (doing != RANGES)
    assert bool(encoding.categories) == (doing != CATEGORIES)
    notes, released = " ".join(result.guarantee.caveats), " ".join(result.guarantee.releases)
    assert ("every category counts as other" in notes) == (doing == CATEGORIES)
    assert ("columns are taken as they are" in notes) == (doing == RANGES)
    assert ("names of categories" in released) == (doing != CATEGORIES)
    assert ("ranges of" in released) == (doing != RANGES)
    labels = [p.label for p in Ledger.open(str(out / "ledger.db")).state().counted]
    assert labels.count(doing) == 1
    assert resume(out, data).notes == result.notes


@pytest.mark.parametrize(("label", "file"), [(CATEGORIES, "categories"), (RANGES, "ranges")])
def test_what_is_on_disk_is_not_bought_again_and_damage_is_told(
    label: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the result was written and before the ledger heard of it."""
    data, out, settle = make_data(), tmp_path / "run", Payments.settle

    def killed(self: Payments, what: str) -> None:
        if what == label:
            raise KeyboardInterrupt
        settle(self, what)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Payments, "settle", killed)
        study(out, data, **ASKED)
    bought = (out / f"{file}.json").read_text()
    for damaged in ("[1", "{}", '{"year": 3, "city": 3}'):
        (out / f"{file}.json").write_text(damaged)
        with pytest.raises(FolderProblem, match="is damaged"):
            resume(out, data)
    (out / f"{file}.json").write_text(bought)
    result = resume(out, data)
    assert (out / f"{file}.json").read_text() == bought
    assert not any("interrupted" in note for note in result.notes)
    state = Ledger.open(str(out / "ledger.db")).state()
    assert all(payment.state == "committed" for payment in state.counted)


def test_ranges_that_nobody_paid_for_are_refused(tmp_path: Path) -> None:
    data, out = make_data(), tmp_path / "run"
    stop_after(out, data, CATEGORIES, **ASKED)
    (out / "ranges.json").write_text('{"year": [0, 1], "income": [0, 1]}')
    with pytest.raises(FolderProblem, match="never began"):
        resume(out, data)


def facts(rows: int, columns: Any, width: int = 9) -> DataFacts:
    return DataFacts(rows, (width,), 1, 2, "softmax", Columns.of(columns))


NUMBERS = {f"n{number}": "number" for number in range(9)}
PAID = {f"p{number}": {"kind": "number", "range": "paid"} for number in range(3)}


@pytest.mark.parametrize(
    ("rows", "share"),
    [(400, 0.0), (410, 0.2), (800, 0.2), (1100, 0.11), (2000, 0.034), (2200, 0.05)],
)
def test_numbers_without_a_range_are_bought_where_rows_stand_against_the_noise(
    rows: int, share: float
) -> None:
    config, known = a_config(make_data(), budget=Budget(1.0, 1e-5)), facts(rows, NUMBERS)
    found = ranges_of(config, known)
    assert found.columns == (tuple(NUMBERS) if share else ())
    assert found.share == share and found.rough == (share > 0 and rows < 2200)
    words = " ".join(in_words(settled(config, known), known))
    bought = f"scaled by private ranges of 9 columns: {100 * share:g} % of the budget"
    assert (bought in words) == bool(share)
    too_many = (
        f"no range estimated for 9 columns: 9 columns are too many for {rows:,} rows at this budget"
    )
    assert (too_many in words) != bool(share)
    later = settled(config, known)  # a resume decides the same
    assert settled(later, known) == later and ranges_of(later, known).share == share
    planned = Outline(config=later, data=known, reused=False)
    event, rough = planned.preparing.get(RANGES), planned.preparation[RANGES].rough_ends
    coarse = isinstance(event, NoisyRanks) and marks_for(event.noise, rows) is COARSE
    assert rough == found.rough == coarse


@pytest.mark.parametrize(("columns", "epsilon"), [(NUMBERS, 1.0), (PAID, 0.3), (PAID, 1.0)])
@pytest.mark.parametrize("curves", ["auto", 1])
def test_of_a_share_that_is_too_small_it_is_said_which_would_do(
    columns: Any, epsilon: float, curves: Any
) -> None:
    """For columns that ask for a range as for those that declare none."""
    known = facts(1500, columns, len(columns))

    def bought(share: float) -> Any:
        asked = Preparation(range_share=share, curves=curves)
        config = a_config(make_data(), budget=Budget(epsilon, 1e-5), preparation=asked)
        return ranges_of(config, known)

    with pytest.raises(InvalidInput, match="and ranges are not estimated") as told:
        bought(0.001)
    named = re.search(r"make it (0\.\d+) or more", str(told.value))
    assert named
    enough = float(named[1])
    assert bought(enough).columns == tuple(columns)
    with pytest.raises(InvalidInput, match="too little for"):
        bought(enough - 0.001)


def test_a_table_without_any_range_says_which_share_would_buy_them() -> None:
    config, known = a_config(make_data(), budget=Budget(0.3, 1e-5)), facts(900, NUMBERS)
    each = (config, settled(config, known))
    (said,), (later,) = (
        [line for line in in_words(one, known) if line.startswith("no range estimated for 9")]
        for one in each
    )
    named = re.search(r" \(range_share = (0\.\d+) and curves = 1 would\)$", said)
    assert named and said == later
    asked = Preparation(range_share=float(named[1]), curves=1)
    config = a_config(make_data(), budget=Budget(0.3, 1e-5), preparation=asked)
    assert ranges_of(config, known).columns == tuple(NUMBERS)


def test_a_share_that_buys_nothing_is_refused_for_tables_as_for_arrays() -> None:
    known = facts(1000, NUMBERS)
    config = a_config(
        make_data(), budget=Budget(1.0, 1e-5), preparation=Preparation(range_share=0.01)
    )
    with pytest.raises(
        InvalidInput, match=r"range_share is 0.01, and ranges are not estimated .*make it"
    ):
        settled(config, known)
    paid = facts(20_000, {**NUMBERS, **PAID}, 12)  # which are bought all the same
    assert set(ranges_of(config, paid).columns) >= set(PAID)


@pytest.mark.parametrize(("rows", "epsilon"), [(1500, 1.0), (700, 2.0)])  # with curves, without
def test_beside_declared_ranges_numbers_without_one_are_not_bought_roughly(
    rows: int, epsilon: float
) -> None:
    known = facts(rows, NUMBERS | {"age": {"kind": "number", "range": [0, 100]}}, width=10)
    config = a_config(make_data(), budget=Budget(epsilon, 1e-5))
    assert not ranges_of(config, known).columns
    for each in (config, settled(config, known)):  # which nobody asked for
        why = f"9 columns are too many for {rows:,} rows at this budget"
        assert f"no range estimated for 9 columns: {why}" in in_words(each, known)


def test_more_rows_make_it_cheaper_down_to_a_least_share() -> None:
    config = a_config(make_data(), budget=Budget(1.0, 1e-5))
    at = [ranges_of(config, facts(rows, NUMBERS)).share for rows in (20_000, 10**5, 10**7)]
    assert at[0] == pytest.approx(0.014, abs=0.002) and at[1] == at[2] == 0.005
    at = [
        categories_of(config, facts(rows, {"c": COLUMNS["city"]})).share
        for rows in (3000, 10_000, 10**6)
    ]
    assert at[0] > at[1] > at[2] == 0.005


def test_columns_that_insist_are_bought_where_the_others_are_left() -> None:
    declared = {"age": {"kind": "number", "range": [0, 100]}}
    config = a_config(make_data(), budget=Budget(1.0, 1e-5))
    known = facts(1500, NUMBERS | PAID | declared, width=13)
    found = ranges_of(config, known)
    assert (found.columns, found.left) == (tuple(PAID), tuple(NUMBERS))
    later = settled(config, known)
    assert ranges_of(later, known) == found  # a resume decides the same
    assert settled(later, known) == later


def test_so_many_columns_are_features_that_somebody_made() -> None:
    many = {f"n{number}": "number" for number in range(101)}
    found = ranges_of(a_config(make_data()), facts(10**6, many, 101))
    assert not found.columns and found.against == Reason("features of one scale")


def few(**asked: Any) -> Callable[[], object]:
    return lambda: planned(make_data(40), budget=Budget(0.5, 1e-5), **asked)


def with_share(**shares: Any) -> Callable[[], object]:
    asked = Preparation(center_share=0, whiten_share=0, **shares)
    return lambda: planned(make_data(), preparation=asked)


def without_columns() -> object:
    data = Data(np.ones((600, 1001)), make_table()[1])  # features of one scale
    return planned(data, preparation=Preparation(range_share=0.1))


def too_few_for_an_array() -> object:
    data = Data(np.ones((40, 5)), make_table(40)[1])
    return planned(data, preparation=Preparation(range_share=0.1))


REFUSED = {
    "few rows": (few(), "city: a private list of names was asked for.*40 rows are too few at"),
    "no share for ranges": (
        with_share(range_share=0),
        "income: a private range .*range_share is 0",
    ),
    "no share for names": (with_share(category_share=0), "city: .*category_share is 0"),
    "too few for an array": (
        too_few_for_an_array,
        "range_share is 0.1, and ranges are not estimated",
    ),
    "nothing to buy": (without_columns, "no declared column needs it"),
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_what_cannot_be_bought_is_refused_before_anything_is_paid(wrong: str) -> None:
    ask, words = REFUSED[wrong]
    with pytest.raises(InvalidInput, match=words):
        ask()


def test_sealed_searches_buy_nothing() -> None:
    search = PrivateSelection()
    with pytest.raises(InvalidInput, match="sealed search is priced well only where it is alone"):
        planned(make_data(), search=search)
    plan = planned(make_data(columns={**COLUMNS, "income": "drop", "city": "drop"}), search=search)
    assert not plan.preparing and plan.schedule.sealed
    assert "sealed search" in " ".join(in_words(plan.config, plan.data))
    with pytest.raises(InvalidInput, match="range_share"):
        planned(
            make_data(columns={**COLUMNS, "income": "drop", "city": "drop"}),
            search=search,
            preparation=Preparation(center_share=0, whiten_share=0, range_share=0.05),
        )


def test_a_ledger_must_have_set_aside_what_a_threshold_needs(tmp_path: Path) -> None:
    data = make_data()
    for name, slack in (("none", 0.0), ("some", None)):
        address = f"{tmp_path}/{name}.db"
        Ledger.create(address, BUDGET, dataset="d", fingerprint=data.fingerprint, slack=slack)
    with pytest.raises(BudgetExceeded, match="secret categories"):
        study(None, data, ledger=f"{tmp_path}/none.db", **ASKED)
    result = study(None, data, ledger=f"{tmp_path}/some.db", **ASKED)
    state = Ledger.open(f"{tmp_path}/some.db").state()
    assert 0 < state.spent.slack == result.guarantee.slack <= state.slack


def test_a_search_is_reused_with_the_same_columns_only(tmp_path: Path) -> None:
    data, address = make_data(), f"{tmp_path}/shared.db"
    Ledger.create(address, Budget(20.0, 1e-5), dataset="d", fingerprint=data.fingerprint)
    first = study(tmp_path / "first", data, ledger=address, **ASKED)
    again = {"ledger": address, "reuse": tmp_path / "first", **ASKED}
    result = study(tmp_path / "second", data, **again)
    assert result.guarantee.epsilon > first.guarantee.epsilon
    assert result.guarantee.slack > first.guarantee.slack  # names were bought twice
    other = make_data(columns={**COLUMNS, "known": {"kind": "number", "range": [0, 2]}})
    with pytest.raises(InvalidInput, match=r"the columns in .* reuse it with the same options"):
        study(tmp_path / "third", other, **again)


def test_a_fixed_schedule_of_sampled_runs_pays_for_the_threshold_too() -> None:
    data = make_data()
    plan = planned(data, recipe={"sampling_rate": 0.1}, search=RandomSearch(trials=2))
    assert (
        CATEGORIES in plan.preparing
        and plan.price.slack > accounting.price(plan.preparing[CATEGORIES]).slack
    )
    assert plan.epsilon <= BUDGET.epsilon


def test_what_is_bought_hangs_on_public_numbers_alone() -> None:
    table, labels = make_table()
    other = table.assign(year=-1e9 * table["year"], city=[f"city {n}" for n in range(len(table))])
    plans = [planned(Data.from_columns(rows, labels, COLUMNS)) for rows in (table, other)]
    assert plans[0].payments == plans[1].payments


def test_numbers_of_a_file_that_declares_nothing_are_bought(tmp_path: Path) -> None:
    table, labels = make_table()
    file = tmp_path / "rows.csv"
    table[["year", "known"]].assign(label=labels).to_csv(file, index=False)
    plan = planned(load_data(file))
    assert plan.preparation[RANGES].columns == ("year", "known")
    declared = Preparation(center_share=0, whiten_share=0, ranges=((1990, 2020), (0, 1)))
    assert not planned(load_data(file), preparation=declared).preparing
