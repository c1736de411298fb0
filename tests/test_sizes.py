"""Columns of arrays that may be of very different size: what is bought to see it, and what becomes
of the rows."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from torch import nn

from dptune import Budget, Data, Ledger, Preparation, accounting, load, resume
from dptune.bench.harness import outline_of, prepared
from dptune.bench.tasks import load_task
from dptune.columns import marks
from dptune.data.sources import load_data
from dptune.engines import TorchModule
from dptune.errors import InvalidInput
from dptune.export import to_sklearn
from dptune.preparation import ranges
from dptune.preparation.curves import CURVES
from dptune.preparation.pipeline import plan
from dptune.preparation.ranges import RANGES
from dptune.report import model_card
from dptune.search.private_selection import PrivateSelection
from dptune.search.unit_noise import UnitNoise
from dptune.study.figures import RMSE
from dptune.study.outline import Outline
from dptune.study.recipe import case_of, in_words, settled
from dptune.study.study import tune
from support.studies import a_config, contents, stop_after

BUDGET = Budget(1.0, 1e-5)
STRAIGHT = Preparation(curves=1)
ONE_SIZE = "not scaled by private ranges of 6 columns, which are of one scale"
UNLIKE = "scaled by private ranges of 6 columns, whose scales differ much"


def a_table(rows: int, seed: int, sizes: Any = 1.0) -> tuple[Any, Any]:
    """Two of six columns tell the class; of `sizes` 1 all are alike."""
    draws = np.random.default_rng(seed)
    rows_of_it = draws.normal(size=(rows, 6))
    labels = (rows_of_it[:, 0] + rows_of_it[:, 1] + 0.5 * draws.normal(size=rows)) > 0
    return rows_of_it * np.asarray(sizes), labels.astype(int)


# Two that tell, then an income in cents, a year, a part and a yes or no.
SIZES = [1.0, 0.01, 1e6, 50.0, 0.1, 1.0]


def unit(rows: Any) -> Any:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def network() -> nn.Module:
    return nn.Linear(6, 2)


def a_data_set(sizes: Any = 1.0, rows: int = 4000) -> Data:
    return Data(*a_table(rows, 0, sizes), test=a_table(1000, 1, sizes))


def outlined(data: Data, epsilon: float = 1.0, **asked: Any) -> Outline:
    config = a_config(budget=Budget(epsilon, 1e-5), **{"preparation": STRAIGHT} | asked)
    return Outline(config=settled(config, data.facts), data=data.facts, reused=False)


# What becomes of rows


@pytest.mark.usefixtures("same_noise")
def test_columns_of_very_different_size_are_brought_to_one() -> None:
    unlike, alike = a_data_set(SIZES), a_data_set()
    options: dict[str, Any] = {"budget": BUDGET, "search": UnitNoise()}
    as_they_are = tune(unlike, preparation=replace(STRAIGHT, range_share=0), **options)
    scaled = tune(unlike, preparation=STRAIGHT, **options)
    of_one_size = tune(alike, preparation=STRAIGHT, **options)
    # The income hides all else: coins are as good. Scaled, it is as if all had been alike.
    assert as_they_are.test_accuracy < 0.6 < 0.8 < scaled.test_accuracy
    assert abs(scaled.test_accuracy - of_one_size.test_accuracy) < 0.06
    assert any(said.startswith(UNLIKE) for said in scaled.preparation)
    ranges = scaled.model.preprocessing.encoding.ranges.values()
    widths = np.array([high - low for low, high in ranges]) / SIZES
    assert widths.min() > 1 and widths.max() < 40  # where sizes are a factor of 10^8 apart


@pytest.mark.usefixtures("same_noise")
def test_columns_of_one_size_stay_as_they_are(tmp_path: Path) -> None:
    options: dict[str, Any] = {"budget": BUDGET, "search": UnitNoise(), "preparation": STRAIGHT}
    result = tune(a_data_set(), out=tmp_path / "run", **options)
    ((low, high),) = set(result.model.preprocessing.encoding.ranges.values())
    assert -low == high > np.abs(a_table(4000, 0)[0]).max()  # nothing is cut off
    rows = a_table(50, 1)[0]
    directions = result.model.preprocessing.encoding.apply(rows)
    assert_allclose(unit(directions), unit(rows), atol=1e-6)
    assert any(said.startswith(ONE_SIZE) for said in result.preparation)
    said = (
        "The 6 columns have similar scales by their private ranges (ranges.json), so they are not"
    )
    card = model_card(tmp_path / "run")
    assert said in card and "(estimated privately)" not in card
    assert not any("interrupted" in note for note in result.guarantee.caveats)
    assert "ranges of 6 columns, from noisy ranks of the rows" in result.guarantee.releases


def test_before_it_is_known_it_is_said_what_it_hangs_on() -> None:
    data = a_data_set()
    for config in (a_config(preparation=STRAIGHT), outlined(data, 2.0).config):
        said = in_words(config, data.facts)
        doubt = "scaled by private ranges of 6 columns if their scales differ much, paid for in"
        assert said[0].startswith(f"{doubt} either case: 0.5 % of the budget") and not any(
            "declare ranges" in each for each in said
        )


def test_what_is_paid_hangs_on_public_numbers_alone() -> None:
    plans = [outlined(a_data_set(sizes)) for sizes in (1.0, SIZES)]
    assert plans[0].payments == plans[1].payments
    assert [plan.preparation[RANGES].tells_scales for plan in plans] == [True, True]
    paid = sum(accounting.price(event).mu_squared for _, event in plans[0].payments)
    assert paid <= BUDGET.mu_squared() * (1 + 1e-12)


def alike(sizes: Any) -> bool:
    return ranges._alike([(-size, size / 2) for size in sizes])


@given(
    st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=30),
    st.floats(1e-2, 1e6),
    st.randoms(use_true_random=False),
)
def test_being_of_one_size_is_a_matter_of_ratios(sizes: Any, unit_of_it: float, mix: Any) -> None:
    small = sorted(sizes)[math.floor(0.35 * (len(sizes) - 1))] ** 2
    mean = np.mean(np.square(sizes))
    assume(abs(mean / small - 40) > 1e-6)
    assert alike(sizes) == (mean < 40 * small)
    other = [unit_of_it * size for size in sizes]
    mix.shuffle(other)
    assert alike(other) == alike(sizes)


@pytest.mark.parametrize("columns", [64, 256, 1000])
def test_features_in_their_principal_directions_are_of_one_size(columns: int) -> None:
    """Those of pixels shrink about as one over their number, and noisy ranges are off by a factor
    of up to 2; an income beside as many answers is 10,000 times as large as these."""
    noise = np.exp2(np.random.default_rng(columns).uniform(-1, 1, columns))
    assert alike(noise / np.arange(1, columns + 1))
    assert not alike([1e4, *np.ones(columns - 1)])


def test_half_of_the_columns_may_be_the_large_ones() -> None:
    for sizes in ([1e6, 1], [1e6, 1e6, 50], [1e6, 1e6, 1, 1], [1e6, 1e6, 1e6, 1, 1]):
        assert not alike(sizes)
    for sizes in ([3, 1], [5, 5, 1], [4, 4, 1, 1], [1, 1, 1, 6, 6]):
        assert alike(sizes)


def test_columns_that_are_mostly_0_may_be_of_any_size() -> None:
    def with_flags(ends: Any, sizes: Any) -> bool:
        return ranges._alike([(0.0, end) for end in ends] + [(-size, size) for size in sizes])

    noisy = (marks.SMALLEST, 1e-5, 0.02, 0.5)  # what noise makes of flags
    for sizes in ((3, 2), (1, 1, 5), (900, 900), ()):
        assert with_flags(noisy, sizes)
    assert not with_flags(noisy, (1, 1, 3000))
    assert not with_flags(noisy, (300,))  # alone it would hide all others
    assert not with_flags((1.0, 1.0), (300, 300))


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_rough_ranges_are_widened_around_their_middle(low: float, width: float) -> None:
    found = ranges._wider((low, low + width))
    assert_allclose(found, (low - width, low + 2 * width), rtol=1e-9, atol=1e-6)


# When they are bought


@pytest.mark.parametrize(
    ("rows", "epsilon", "share"),
    [
        (4000, 1.0, 0.009),  # 6 / (0.26805 x 4,000 / 41.346)^2: rows are ten times the noise
        (4000, 8.0, 0.005),  # at least
        (1700, 1.0, 0.05),
        (1680, 1.0, 0.032),  # 6 / (0.26805 x 1,680 / 32.523)^2: by coarse marks, else 0.0506
        (900, 1.0, 0.11),
        (660, 1.0, 0.2),  # 0.203 would be more than a fifth, for which rows are 9.9 times the noise
        (335, 1.0, 0.2),  # 5.04 times
        (330, 1.0, 0.0),  # 4.97 times
    ],
)
def test_they_cost_what_rough_ranges_need_and_at_most_a_fifth(
    rows: int, epsilon: float, share: float
) -> None:
    assert outlined(a_data_set(rows=rows), epsilon).preparation[RANGES].share == share


@pytest.mark.parametrize(
    ("logarithms", "classes", "share"),
    [
        ("auto", 2, 0.094),  # a signal of 7.6
        ("auto", 10, 0.0),  # of 1.5, and 2 % buy nothing
        (0, 10, 0.094),
        ("auto", None, 0.094),  # values know no count of unlike rows
    ],
)
def test_they_cost_little_where_rows_tell_little_and_a_count_says_it_for_less(
    logarithms: Any, classes: int | None, share: float
) -> None:
    labels = np.arange(4000) % (classes or 10)
    of_values: Any = {} if classes else {"task": "values", "target_range": (0, 9)}
    asked = Preparation(curves=1, logarithm_share=logarithms)
    data = Data(np.ones((4000, 40)), labels, **of_values)
    assert outlined(data, 0.6, preparation=asked).preparation[RANGES].share == share


@pytest.mark.parametrize(
    "asked",
    [
        {"preparation": Preparation(curves=1, range_share=0)},
        {"preparation": Preparation(curves=1, unit_rows=False)},
        {"preparation": Preparation(curves=1, ranges=((-1, 1),) * 6)},
        {"search": PrivateSelection()},
        {"engine": TorchModule(network)},
    ],
)
def test_nothing_is_bought_where_it_is_not_wanted_or_known(asked: Any) -> None:
    assert RANGES not in outlined(a_data_set(), **asked).preparing


def test_one_column_is_of_one_size() -> None:
    features, labels = a_table(4000, 0)
    assert RANGES not in outlined(Data(features[:, :1], labels)).preparing


def test_curves_that_were_asked_for_are_not_given_up_for_sizes() -> None:
    asked = a_config(budget=BUDGET, preparation=Preparation(curves=3))
    with pytest.raises(InvalidInput, match="no number or date has a range"):
        plan(case_of(asked, a_data_set(rows=1000).facts))


@pytest.mark.usefixtures("same_noise")
def test_a_share_that_was_named_is_taken_for_sizes_as_well() -> None:
    for sizes, kept in ((SIZES, 6), (1.0, 1)):
        preparation = Preparation(curves=1, range_share=0.05)
        result = tune(a_data_set(sizes), budget=BUDGET, search=UnitNoise(), preparation=preparation)
        assert len(set(result.model.preprocessing.encoding.ranges.values())) == kept
        assert "no polynomial features in 6 columns: as asked" in result.preparation


@pytest.mark.usefixtures("same_noise")
def test_tables_without_any_range_buy_rough_ones_too(tmp_path: Path) -> None:
    """What a file of numbers is, of which nobody declared a column."""
    for part, rows, seed in (("train", 2000, 0), ("test", 1000, 1)):
        features, labels = a_table(rows, seed, SIZES)
        frame = pd.DataFrame(features, columns=[f"n{place}" for place in range(6)])
        frame.assign(label=np.where(labels, "yes", "no")).to_csv(
            tmp_path / f"{part}.csv", index=False
        )
    data = load_data(f"{tmp_path}/train.csv", label="label", test=f"{tmp_path}/test.csv")
    assert not data.facts.as_given
    result = tune(data, budget=Budget(0.5, 1e-5), search=UnitNoise())
    assert "scaled by private ranges of 6 columns: 7.9 % of the budget" in result.preparation
    assert (
        "no polynomial features in 6 columns, whose ranges are only estimated roughly: 6 columns "
        "are too many for 2,000 rows at this budget"
    ) in result.preparation
    assert result.test_accuracy > 0.75  # 0.5 if taken as they are
    assert len(set(result.model.preprocessing.encoding.ranges.values())) == 6


# So many columns that they are rather features


def wide_table(rows: int, seed: int, sizes: Any) -> tuple[Any, Any]:
    """The six columns, and 114 that tell nothing."""
    tells, labels = a_table(rows, seed)
    others = np.random.default_rng(seed + 100).normal(size=(rows, 114))
    return np.concatenate([tells, others], axis=1) * sizes, labels


FROM_1000_TO_1 = 10.0 ** (np.arange(120) % 7 - 3)


@pytest.mark.parametrize(
    ("columns", "rows", "epsilon", "share"),
    [
        (101, 6950, 1.0, 0.05),  # 101 / (0.26805 x 6,950 / 41.346)^2: ten times the noise
        (101, 6900, 1.0, 0.0),  # 0.0505
        (100, 6900, 1.0, 0.05),
        (100, 6000, 1.0, 0.041),  # as of what may well be a table: by coarse marks
        (1000, 50_000, 1.0, 0.01),
        (1001, 50_000, 1.0, 0.0),
    ],
)
def test_what_may_well_be_features_pays_little(
    columns: int, rows: int, epsilon: float, share: float
) -> None:
    data = Data(np.ones((rows, columns), np.float32), np.arange(rows) % 2)
    planned = outlined(data, epsilon, preparation=Preparation())
    assert (
        planned.preparation[RANGES].share == share and not planned.preparation[CURVES].allowed.room
    )


@pytest.mark.usefixtures("same_noise")
@pytest.mark.parametrize("sizes", [1.0, FROM_1000_TO_1])
def test_many_columns_of_very_different_size_are_brought_to_one(sizes: Any, tmp_path: Path) -> None:
    """In a file of numbers, too, of which nobody declared a column."""
    for part, rows, seed in (("train", 4000, 0), ("test", 1000, 1)):
        features, labels = wide_table(rows, seed, sizes)
        frame = pd.DataFrame(features, columns=[f"n{place}" for place in range(120)])
        frame.assign(label=labels).to_csv(tmp_path / f"{part}.csv", index=False)
    data = load_data(f"{tmp_path}/train.csv", label="label", test=f"{tmp_path}/test.csv")
    options: dict[str, Any] = {"budget": Budget(8.0, 1e-5), "search": UnitNoise()}
    result = tune(data, out=tmp_path / "run", **options)
    unlike = "scaled by private ranges of 120 columns, whose scales differ much"
    alike = "not scaled by private ranges of 120 columns, which are of one scale"
    assert result.preparation[0].startswith(alike if np.ndim(sizes) == 0 else unlike)
    assert result.test_accuracy > 0.85
    again = load(tmp_path / "run").predict(wide_table(1000, 1, sizes)[0])
    assert abs(np.mean(again == wide_table(1000, 1, sizes)[1]) - result.test_accuracy) < 0.01
    if np.ndim(sizes):
        as_they_are = tune(data, preparation=Preparation(range_share=0), **options)
        assert as_they_are.test_accuracy < 0.6
        assert any("features of one scale" in each for each in as_they_are.preparation)


def test_ranges_of_many_columns_are_bought_where_that_is_asked_for() -> None:
    data = Data(*wide_table(1000, 0, FROM_1000_TO_1))
    dear = "scale, and a test for that would cost {} of the budget ("
    # 120 / (0.13763 x 1,000 / 16.262)^2 = 1.68 is more than may be asked for
    said = " ".join(in_words(a_config(budget=Budget(0.5, 1e-5)), data.facts))
    assert dear.format("more than half") + "declare ranges if they are not)" in said
    said = " ".join(in_words(a_config(budget=BUDGET), data.facts))
    buy = "if they are not, declare ranges, or estimate rough ones with range_share = {})"
    # 120 / (0.26805 x 1,000 / 16.262)^2
    assert dear.format("more than half") + buy.format(0.442) in said
    much, share = Budget(8.0, 1e-5), 0.012  # 120 / (1.66603 x 1,000 / 16.262)^2 = 0.0114
    said = " ".join(in_words(a_config(budget=much), data.facts))
    sure = "7.4 %"  # 120 / (1.66603 x 1,000 / 41.346)^2
    assert dear.format(sure) + buy.format(share) in said
    config = a_config(budget=much, preparation=Preparation(range_share=share))
    assert RANGES in Outline(config=config, data=data.facts, reused=False).preparing
    too_little = replace(config, preparation=Preparation(range_share=0.011))
    with pytest.raises(
        InvalidInput, match=f"too little for 120 columns of .* make it {share} or more"
    ):
        settled(too_little, data.facts)


# Whoever keeps, resumes, predicts or compares


@pytest.mark.usefixtures("same_noise")
@pytest.mark.parametrize("sizes", [1.0, SIZES])
def test_a_study_that_is_cut_off_goes_on_with_the_sizes_it_bought(
    sizes: Any, tmp_path: Path
) -> None:
    data, run = a_data_set(sizes), tmp_path / "run"
    options: dict[str, Any] = {"budget": BUDGET, "search": UnitNoise(), "preparation": STRAIGHT}
    assert stop_after(run, data, "private mean", **options)
    before = json.loads(contents(run)["ranges.json"])
    result = resume(run, data)
    assert json.loads(contents(run)["ranges.json"]) == before
    said = ONE_SIZE if np.isscalar(sizes) else UNLIKE
    assert any(sentence.startswith(said) for sentence in result.preparation)
    new, right = a_table(500, 2, sizes)
    model = load(run)
    assert_array_equal(model.predict(new), result.model.predict(new))
    assert_array_equal(to_sklearn(model).predict(new), model.predict(new))
    assert np.mean(model.predict(new) == right) > 0.75


@pytest.mark.usefixtures("same_noise")
def test_ranges_that_are_lost_leave_rows_as_they_are(tmp_path: Path) -> None:
    data, run = a_data_set(), tmp_path / "run"
    options: dict[str, Any] = {"budget": BUDGET, "search": UnitNoise(), "preparation": STRAIGHT}
    assert stop_after(run, data, RANGES, **options)
    result = resume(run, data)
    lost = (
        "not scaled by private ranges of 6 columns, interrupted after payment: 0.9 % of the budget"
    )
    assert "Columns:" not in model_card(run) and "ranges.json" not in model_card(run)
    assert any("ranges of columns were interrupted" in note for note in result.guarantee.caveats)
    assert lost in result.preparation and result.test_accuracy > 0.8
    assert not any(each.startswith("ranges of") for each in result.guarantee.releases)


def test_a_search_that_cannot_be_reused_says_in_what_it_is_other(tmp_path: Path) -> None:
    data, address = a_data_set(rows=1000), f"{tmp_path}/shared.db"
    Ledger.create(address, Budget(8.0, 1e-5), dataset="d", fingerprint=data.fingerprint)
    options: dict[str, Any] = {"preparation": STRAIGHT, "ledger": address}
    tune(data, budget=BUDGET, out=tmp_path / "first", **options)
    other = r"is range_share = 0\.\d+, this study asks for range_share = 0\.0; reuse it with"
    with pytest.raises(InvalidInput, match=other):
        tune(data, budget=Budget(0.2, 1e-5), reuse=tmp_path / "first", **options)


@pytest.mark.usefixtures("same_noise")
def test_values_of_columns_of_very_different_size_are_found_too() -> None:
    draws = np.random.default_rng(0)
    features = draws.normal(size=(6000, 4)) * [1.0, 1e5, 0.01, 30.0]
    values = features @ [1.0, 0.0, 100.0, 0.0]
    data = Data(
        features[:5000],
        values[:5000],
        task="values",
        target_range=(-5, 5),
        test=(features[5000:], values[5000:]),
    )
    options: dict[str, Any] = {"budget": BUDGET, "search": UnitNoise()}
    without = tune(data, preparation=replace(STRAIGHT, range_share=0), **options)
    result = tune(data, preparation=STRAIGHT, **options)
    errors = [each.test_figures[RMSE] for each in (result, without)]
    assert errors[0] < 0.7 < 1.2 < errors[1]  # around a mean they are 1.4


@pytest.mark.usefixtures("same_noise")
@pytest.mark.parametrize("sizes", [1.0, SIZES])
def test_benchmarks_scale_what_studies_scale(sizes: Any, tmp_path: Path) -> None:
    (made, labels), (new, right) = a_table(4000, 0, sizes), a_table(500, 1, sizes)
    np.savez(tmp_path / "t.npz", X_train=made, y_train=labels, X_test=new, y_test=right)
    task = replace(load_task(str(tmp_path / "t.npz")), preparation=STRAIGHT)
    planned = outline_of(task, UnitNoise(), BUDGET, seed=0)
    rows, known = prepared(task, planned)
    assert planned.preparation[RANGES].tells_scales and known.features == 6
    # Whitened rows tell alike in all directions but that of the constant.
    moment = rows.train.features[:, 0].double().numpy()
    assert np.linalg.eigvalsh(moment.T @ moment / 4000)[-1] < 0.5
