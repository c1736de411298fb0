"""Curves over numbers and dates: what they make of a row, when they are drawn, and that everything
that keeps, resumes, predicts or exports a model knows them."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from torch import nn

from dptune import Budget, Data, DPLinearClassifier, Ledger, Preparation, load, resume
from dptune.bench.harness import outline_of, prepared
from dptune.bench.tasks import load_task
from dptune.columns import Columns, Encoding
from dptune.columns.private_ranges import private_ranges
from dptune.data.preprocess import Preprocessing
from dptune.data.row_maps import Scale
from dptune.data.rows import DataFacts
from dptune.data.sources import load_data
from dptune.engines import TorchModule
from dptune.errors import InvalidInput
from dptune.export import to_sklearn
from dptune.preparation.allowance import Allowance
from dptune.preparation.curves import CURVES
from dptune.preparation.pipeline import plan
from dptune.preparation.ranges import RANGES
from dptune.preparation.whitening import SECOND_MOMENT
from dptune.privacy import PrivateSecondMoment
from dptune.report import model_card
from dptune.report.record import Record
from dptune.search.linear_scaling import LinearScaling
from dptune.search.unit_noise import UnitNoise
from dptune.study.config import Config, preparation_from
from dptune.study.outline import Outline
from dptune.study.planning import read_config
from dptune.study.recipe import case_of, in_words, settled
from dptune.study.run_folder import RunFolder
from dptune.study.study import tune
from support.studies import SPACE, a_config, stop_after

AGE = {"kind": "number", "range": [0.0, 100.0]}
BUDGET = Budget(1.0, 1e-5)


def some_line(lines: Any, how: str, words: str) -> bool:
    """Whether one of the lines starts or ends with these words."""
    return any(getattr(line, how)(words) for line in lines)


def allowed(config: Config, known: DataFacts) -> Allowance:
    """The polynomial features that are planned."""
    found: Allowance = plan(case_of(config, known))[CURVES].allowed
    return found


def columns(numbers: int, others: int = 0) -> Columns:
    declared: dict[str, Any] = {f"n{place}": AGE for place in range(numbers)}
    return Columns.of(declared | {f"b{place}": "boolean" for place in range(others)})


def facts(rows: int, named: Columns | None, outputs: int = 2, **more: Any) -> DataFacts:
    width = 5 if named is None else Encoding(named).width
    return DataFacts(rows, (width,), 1, outputs, "softmax", named, **more)


def asked(epsilon: float = 1.0, **changed: Any) -> Any:
    return a_config(budget=Budget(epsilon, 1e-5), **changed)


def waves(rows: int, seed: int) -> tuple[pd.DataFrame, Any]:
    """Every other quarter of ages is ill, which no straight line tells."""
    draws = np.random.default_rng(seed)
    age, weight = draws.uniform(0, 100, rows), draws.normal(70, 10, rows)
    ill = (age // 25 % 2 == 0) ^ (draws.random(rows) < 0.05)
    return pd.DataFrame({"age": age, "weight": weight}), ill.astype(int)


def network() -> nn.Module:
    return nn.Linear(5, 2)


DECLARED = {"age": AGE, "weight": {"kind": "number", "range": [30, 150]}}


# What they make of a row


@given(st.lists(st.floats(-50, 150), min_size=1, max_size=5), st.integers(1, 9))
def test_features_are_chebyshev_polynomials_of_the_place_in_the_range(
    ages: list[float], degree: int
) -> None:
    encoding = Encoding(Columns.of({"age": AGE})).with_curves(["age"], degree)
    found = encoding.apply(np.array(ages)[:, None])
    place = np.clip(np.array(ages) / 50 - 1, -1, 1)
    # Another way to say the same: cosines of multiples of an angle.
    expected = np.cos(np.outer(np.arccos(place), np.arange(1, degree + 1)))
    assert_allclose(found, expected, atol=1e-6)
    assert np.abs(found).max() <= 1 and found.shape[1] == encoding.width == len(encoding.names)


def test_the_first_feature_is_the_straight_line_and_names_say_which_is_which() -> None:
    bent = Encoding(Columns.of({"age": AGE, "on": "boolean"})).with_curves(["age"], 3)
    rows = np.array([[10.0, 1.0], [99.0, 0.0]])
    straight = Encoding(bent.columns).apply(rows)
    assert_array_equal(bent.apply(rows)[:, [0, 3]], straight)
    assert bent.names == ("age", "age (curve 2)", "age (curve 3)", "on")
    assert bent.blocks == {"age": slice(0, 3), "on": slice(3, 4)}


def test_gaps_lie_in_the_middle_of_the_curve_and_are_indicated_after_it() -> None:
    entry = AGE | {"fill": "middle", "indicator": True}
    encoding = Encoding(Columns.of({"age": entry})).with_curves(["age"], 4)
    assert_array_equal(encoding.apply(np.array([[np.nan]])), [[0, -1, 0, 1, 1]])


def test_dates_bend_too_and_their_parts_stand_after_the_curve() -> None:
    span = ["2020-01-01", "2020-01-11"]
    entry = {"kind": "date", "range": span, "parts": ["weekday"], "indicator": True}
    encoding = Encoding(Columns.of({"day": entry})).with_curves(["day"], 2)
    table = pa.table({"day": pa.array(["2020-01-06", None])})
    known, gap = encoding.apply(encoding.code(table, where="it"))
    assert_allclose(known, [0, -1, 1, 0, 0, 0, 0, 0, 0, 0], atol=1e-12)  # a Monday
    assert_allclose(gap, [0, -1, 0, 0, 0, 0, 0, 0, 0, 1])


def test_curves_are_stored_and_what_older_models_stored_has_none() -> None:
    encoding = Encoding(columns(2, 1)).with_curves(["n1"], 5)
    plain = encoding.to_plain()
    assert Encoding.of(plain) == encoding
    del plain["degrees"]
    assert Encoding.of(plain) == encoding.with_curves((), 1) == Encoding(columns(2, 1))


@pytest.mark.parametrize(("name", "degree"), [("b0", 2), ("x", 2), ("u", 2), ("n0", 0), ("n0", 21)])
def test_curves_are_over_numbers_and_dates_and_of_a_sensible_degree(name: str, degree: int) -> None:
    with pytest.raises(InvalidInput, match=r"polynomial|degree"):
        Encoding(Columns.of({"n0": AGE, "b0": "boolean", "u": "number"}), degrees={name: degree})


# When they are drawn


@pytest.mark.parametrize(
    ("rows", "numbers", "others", "classes", "epsilon", "degree"),
    [
        (43_152, 7, 15, 5, 1.0, 6),  # diamonds
        (43_152, 7, 15, 5, 0.03, 4),
        (43_152, 7, 15, 5, 0.01, 1),
        (7_886, 14, 5, 7, 8.0, 1),  # 60 rows for every weight, and 32 with squares
        (5_000, 10, 0, 2, 8.0, 6),
        (4_000, 10, 0, 2, 8.0, 5),
        (1_700, 10, 0, 2, 8.0, 2),
        (1_500, 10, 0, 2, 8.0, 1),
        (50_000, 10, 0, 2, 0.01, 5),
    ],
)
def test_the_degree_is_as_high_as_rows_and_budget_bear(
    rows: int, numbers: int, others: int, classes: int, epsilon: float, degree: int
) -> None:
    drawn = allowed(asked(epsilon), facts(rows, columns(numbers, others), classes))
    assert drawn.degree == degree
    assert numbers + others + drawn.room == others + numbers * degree


def test_more_rows_or_budget_never_lower_the_degree() -> None:
    found = [
        [allowed(asked(epsilon), facts(rows, columns(8, 3))).degree for epsilon in (0.1, 1, 8)]
        for rows in (100, 1000, 3000, 10_000, 100_000)
    ]
    assert (np.diff(found, axis=0) >= 0).all() and (np.diff(found, axis=1) >= 0).all()
    assert found[0] == [1, 1, 1] and found[-1] == [6, 6, 6]


def test_so_many_rows_that_curves_would_fill_the_memory_stay_straight() -> None:
    assert allowed(asked(), facts(2_000_000, columns(20))).degree == 6
    assert allowed(asked(), facts(5_000_000, columns(20))).degree == 2
    assert allowed(asked(), facts(50_000_000, columns(20))).degree == 1


def array(rows: int) -> DataFacts:
    return facts(rows, Columns.of_numbers(f"column {n}" for n in range(10)), as_given=True)


def test_arrays_need_more_signal_than_tables() -> None:
    ranges = {"preparation": Preparation(ranges=((0.0, 100.0),) * 10)}
    for epsilon, degrees in ((0.05, (3, 6)), (1.0, (6, 6))):
        of_array = allowed(asked(epsilon, **ranges), array(20_000)).degree
        assert (of_array, allowed(asked(epsilon), facts(20_000, columns(10))).degree) == degrees


def test_arrays_stay_so_narrow_that_they_are_whitened() -> None:
    named = Columns.of_numbers(f"column {n}" for n in range(40))
    wide = facts(40_000, named, as_given=True)
    planned = Outline(config=settled(asked(0.3), wide), data=wide, reused=False)
    event = planned.preparing[SECOND_MOMENT]
    assert isinstance(event, PrivateSecondMoment)
    assert planned.preparation[CURVES].allowed == Allowance(named.kept, 107, 6)
    for width, at_most in ((40 + 107, True), (40 + 108, False)):  # of 5 mean eigenvalues
        noise = 1.4 * width**1.5 * event.noise_multiplier / 40_000
        assert (noise <= 5) == at_most
    # A table that was declared gains more by curves than it loses.
    declared = facts(40_000, columns(40))
    assert allowed(asked(0.3), declared).degree > 3
    wide = Outline(config=settled(asked(0.3), declared), data=declared, reused=False)
    assert SECOND_MOMENT not in wide.preparing


@pytest.mark.parametrize(
    ("rows", "bent", "bought"), [(400, False, False), (1_500, False, True), (20_000, True, True)]
)
def test_of_arrays_ranges_are_bought_for_curves_or_to_tell_sizes(
    rows: int, bent: bool, bought: bool
) -> None:
    planned = Outline(config=settled(asked(), array(rows)), data=array(rows), reused=False)
    assert (RANGES in planned.preparing) == bought and (
        planned.preparation[CURVES].allowed.room > 0
    ) == bent
    assert planned.preparation[RANGES].tells_scales == (bought and not bent)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"preparation": Preparation(curves=1)}, "no polynomial features in 3 columns: as asked"),
        (
            {"preparation": Preparation(unit_rows=False)},
            "no polynomial features in 3 columns: rows are not scaled to unit length",
        ),
        (
            {"engine": TorchModule(network)},
            "no polynomial features in 3 columns: not measured for a",
        ),
        ({}, "polynomial features of degree 6 in 3 columns (no privacy cost)"),
        (
            {"preparation": Preparation(curves=2)},
            "polynomial features of degree 2 in 3 columns (no privacy cost)",
        ),
    ],
)
def test_it_is_said_what_is_drawn_and_why_not(changed: Any, why: str) -> None:
    config, known = asked(**changed), facts(50_000, columns(3, 2))
    assert any(said.startswith(why) for said in in_words(config, known))
    if "engine" not in changed:  # a later version decides no other, and says the same
        decided = settled(config, known)
        assert isinstance(decided.preparation.curves, int)
        assert any(said.startswith(why) for said in in_words(decided, known))


def test_too_few_rows_are_named() -> None:
    said = in_words(asked(), facts(300, columns(3)))
    assert any("would need too many weights for 300 rows at this budget" in line for line in said)
    assert not any("polynomial" in line for line in in_words(asked(), facts(50_000, None)))


@pytest.mark.parametrize("curves", [0, 21, 2.5, True, "many"])
def test_bad_degrees_are_refused(curves: Any) -> None:
    with pytest.raises(
        InvalidInput, match=r'curves, if not "auto", must be a whole number from 1 to 20'
    ):
        Preparation(curves=curves)


def test_curves_over_nothing_are_refused_before_anything_is_paid() -> None:
    declared = {"on": "boolean", "of": "boolean"}
    of_table = r"no number or date has a range.*declare ranges under \[columns\], ask for them"
    with pytest.raises(InvalidInput, match=of_table):
        settled(asked(preparation=Preparation(curves=3)), facts(5000, Columns.of(declared)))
    few = facts(600, Columns.of({"age": "number", "cost": "number"}))
    said = r"\(2 columns are too many for 600 rows at this budget\); declare ranges under \[columns"
    with pytest.raises(InvalidInput, match=said) as told:
        settled(asked(preparation=Preparation(curves=3)), few)
    named = re.search(
        r"estimate them with range_share = (0\.\d+), or leave curves out", str(told.value)
    )
    assert named
    enough = Preparation(curves=3, range_share=float(named[1]))
    assert settled(asked(preparation=enough), few).preparation.curves == 3
    wide, of_array = (
        facts(5000, None),
        r"estimated; declare them as ranges under \[preparation\], or",
    )
    with pytest.raises(InvalidInput, match=of_array):
        settled(asked(preparation=Preparation(curves=3)), wide)


def test_networks_take_no_curves() -> None:
    config = asked(preparation=Preparation(curves=3), engine=TorchModule(network))
    with pytest.raises(InvalidInput, match=r"for linear models, not for a .*; leave curves out"):
        settled(config, facts(5000, columns(5)))


def test_what_was_begun_before_there_were_curves_goes_on_without() -> None:
    assert preparation_from({"whiten_share": 0.02, "range_share": 0.0}).curves == 1


# Whole studies


@pytest.fixture(scope="module", params=["table", "array", "ranges"])
def study(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A finished run, its rows, and new rows: of declared columns, of an array, of an array with
    ranges by position."""
    made, labels = waves(4000, 0)
    new, right = waves(1000, 1)
    more: dict[str, Any] = {}
    if request.param == "table":
        data = Data.from_columns(made, labels, DECLARED, test=(new, right))
    else:
        made, new = made.to_numpy(), new.to_numpy()
        data = Data(made, labels, test=(new, right))
    if request.param == "ranges":
        more["preparation"] = Preparation(ranges=((0.0, 100.0), (30.0, 150.0)))
    folder = tmp_path_factory.mktemp("bent") / "run"
    result = tune(data, budget=BUDGET, search=UnitNoise(), out=folder, **more)
    return folder, data, result, new


def test_a_curve_tells_what_no_line_does(study: Any) -> None:
    _, data, result, _ = study
    straight = tune(data, budget=BUDGET, search=UnitNoise(), preparation=Preparation(curves=1))
    # Means of 0.58 and 0.92, and a deviation of 0.01 each.
    assert straight.test_accuracy < 0.7 < 0.85 < result.test_accuracy


def test_the_model_is_found_again_with_its_curves(study: Any) -> None:
    folder, data, result, new = study
    again = load(folder)
    assert again.preprocessing.encoding == result.model.preprocessing.encoding
    assert_array_equal(again.predict_proba(new), result.model.predict_proba(new))
    assert read_config(RunFolder.open(folder)).preparation.curves == 6
    assert resume(folder, data).test_accuracy == result.test_accuracy
    card = model_card(folder)
    assert "differentially private linear model" in card
    assert card.count("polynomial of degree 6 | 6 |") == 2  # of arrays, too
    assert Record.read(folder).outline.data.columns == again.preprocessing.encoding.width


@pytest.mark.parametrize("rows", [100, 4000])
def test_ranges_by_position_scale_or_bend_a_file_of_numbers(rows: int, tmp_path: Path) -> None:
    made, labels = waves(rows, 0)
    made.assign(state=labels).to_csv(tmp_path / "a.csv", index=False)
    data = load_data(tmp_path / "a.csv", label="state")
    asked_for = Preparation(ranges=((0.0, 100.0), (30.0, 150.0)))
    done = tune(data, budget=BUDGET, search=UnitNoise(), preparation=asked_for).model.preprocessing
    assert done.encoding is not None
    scale = done.find(Scale)
    if scale is None:
        assert rows == 4000 and set(done.encoding.degrees.values()) == {6}
    else:  # nothing is clipped, as ever
        assert rows == 100 and not done.encoding.ranges
        assert_array_equal([scale.shift, scale.scale], [[50, 90], [50, 60]])


def test_what_is_exported_draws_the_same_curves(study: Any) -> None:
    _, _, result, new = study
    pipeline = to_sklearn(result.model)
    assert_allclose(pipeline.predict_proba(new), result.model.predict_proba(new), atol=1e-5)


def test_prepared_rows_are_no_longer_than_promised(study: Any) -> None:
    _, _, result, _ = study
    far = np.array([[-1e30, 1e30], [0, 0], [50, 70], [1e30, 30]], dtype=np.float32)
    rows = result.model.preprocessing.apply(far)
    assert np.linalg.norm(rows.astype(np.float64), axis=1).max() <= 1 + 1e-6


@pytest.mark.usefixtures("same_noise")  # which goes on: what is bought twice is other
def test_a_study_of_an_array_that_is_killed_buys_its_ranges_once(tmp_path: Path) -> None:
    made, labels = waves(4000, 0)
    data = Data(made.to_numpy(), labels)
    options = {"budget": BUDGET, "preparation": Preparation()}
    assert stop_after(tmp_path / "run", data, "sweep", **options)
    before = (tmp_path / "run" / "ranges.json").read_bytes()
    told: list[str] = []
    result = resume(tmp_path / "run", data, watch=lambda progress: told.append(progress.doing))
    assert told[0] == "going on after census"  # all that is there already
    assert (tmp_path / "run" / "ranges.json").read_bytes() == before
    assert result.model.guarantee.epsilon <= 1.0
    (column, _) = result.model.preprocessing.encoding.ranges.values()
    assert -20 < column[0] < 20 and 80 < column[1] < 120


def test_where_ranges_are_lost_lines_are_straight_and_that_is_said(tmp_path: Path) -> None:
    made, labels = waves(4000, 0)
    data = Data(made.to_numpy(), labels)
    options = {"budget": BUDGET, "preparation": Preparation()}
    assert stop_after(tmp_path / "run", data, RANGES, **options)  # before they are on disk
    told: list[str] = []
    result = resume(tmp_path / "run", data, watch=lambda progress: told.append(progress.doing))
    told = [doing for doing in told if not doing.startswith("preparing")]
    assert any("without polynomial features" in note for note in result.notes)
    assert told[0] == "ranges of columns, which was interrupted after payment: going on without"
    assert any(said.startswith("not scaled by private ranges") for said in result.preparation)
    lost = "no polynomial features in 2 columns: their ranges were interrupted after payment"
    assert lost in result.preparation
    encoding = result.model.preprocessing.encoding
    assert not encoding.ranges and not encoding.degrees and encoding.width == 2


@pytest.fixture
def exact_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges without noise, by which one in some hundred columns of two values is taken for
    another."""

    def exactly(
        tables: Any, columns: int, noise: float, rows: int, _: Any, *more: Any, **also: Any
    ) -> Any:
        return private_ranges(tables, columns, noise, rows, np.zeros, *more, **also)

    monkeypatch.setattr("dptune.preparation.ranges.private_ranges", exactly)


@pytest.mark.usefixtures("exact_ranks")
def test_columns_of_two_values_stay_straight_where_ranges_are_bought() -> None:
    made, labels = waves(8000, 0)
    rows = np.column_stack([made, made["weight"] > 70])
    result = tune(Data(rows, labels), budget=BUDGET, search=UnitNoise())
    assert result.model.preprocessing.encoding.degrees == {"column 1": 6, "column 2": 6}


@given(st.integers(0, 200), st.integers(1, 40), st.integers(0, 40), st.integers(1, 20))
def test_what_stays_straight_leaves_room_for_higher_degrees_and_no_more_features(
    room: int, planned: int, bent: int, up_to: int
) -> None:
    drawn = Allowance(tuple(f"n{place}" for place in range(planned)), room, up_to)
    bent = min(bent, planned)
    over = drawn.degree_over(bent)
    assert 1 <= over <= up_to and (over - 1) * bent <= room
    if bent:
        assert over >= drawn.degree
        assert over == up_to or over * bent > room  # as high as can be


def mostly_two(rows: int, seed: int, others: int = 9, sides: int = 2) -> tuple[Any, Any]:
    """The waves beside columns of zeros and ones, or more, as an array."""
    made, labels = waves(rows, seed)
    coins = np.random.default_rng(100 + seed).integers(0, sides, (rows, others))
    return np.column_stack([made, coins]), labels


@pytest.mark.usefixtures("exact_ranks")
def test_room_is_used_as_planned_and_no_price_changes(tmp_path: Path) -> None:
    data = Data(*mostly_two(4000, 0), test=mostly_two(1000, 1))
    planned = Outline(config=settled(asked(), data.facts), data=data.facts, reused=False)
    assert (
        planned.preparation[CURVES].allowed == Allowance(data.facts.named.kept, 39, 6)
        and planned.preparation[CURVES].allowed.degree == 4
    )
    result = tune(data, budget=BUDGET, search=LinearScaling(), out=tmp_path / "run")
    encoding = result.model.preprocessing.encoding
    assert encoding.degrees == {"column 1": 6, "column 2": 6}
    assert encoding.width == 11 + 2 * 5 <= planned.data.columns == 50
    assert result.test_accuracy > 0.8  # a line tells nothing of waves
    two = "polynomial features of degree 6 in 2 of 11 columns; the others have only two values"
    assert some_line(result.preparation, "startswith", two)
    assert result.check.memorised == pytest.approx(math.sqrt(2 * 21 / 4000) / 2)
    # The law is told what a model sees, prices are what was said before.
    record = Record.read(tmp_path / "run")
    assert record.situation.facts.columns == record.outline.features == 21
    assert record.outline.facts.columns == 50
    assert replace(planned, features=21, curvature=0.1).payments == planned.payments
    kept = read_config(RunFolder.open(tmp_path / "run")).preparation
    assert (kept.curves, kept.curves_up_to, kept.curves_room) == (4, 6, 39)


def doubtful(sides: int) -> Data:
    """There is room for 13 of its 20 columns."""
    return Data(*mostly_two(2700, 0, 18, sides), test=mostly_two(1000, 1, 18, sides))


PLENTY = Budget(3.0, 1e-5)


@pytest.mark.usefixtures("exact_ranks")
@pytest.mark.parametrize(
    ("sides", "degrees", "said"),
    [
        (
            2,
            {"column 1": 6, "column 2": 6},
            "polynomial features of degree 6 in 2 of 20 columns; the others have only two values, "
            "or no range (no privacy cost)",
        ),
        (
            6,
            {},
            "no polynomial features in 20 columns: too few features are allowed for those with "
            "more than two values, or there are none",
        ),
    ],
)
def test_ranges_are_bought_where_there_is_room_for_half_of_the_columns(
    sides: int, degrees: dict[str, int], said: str, tmp_path: Path
) -> None:
    data = doubtful(sides)
    planned = Outline(config=settled(asked(3.0), data.facts), data=data.facts, reused=False)
    assert (
        planned.preparation[CURVES].allowed == Allowance(data.facts.named.kept, 13, 6)
        and planned.preparation[CURVES].allowed.degree == 1
    )
    for config in (asked(3.0), planned.config):
        assert (
            "polynomial features up to degree 6 in those of 20 columns with more than two values, "
            "13 in all (no privacy cost)"
        ) in in_words(config, data.facts)
    result = tune(data, budget=PLENTY, search=UnitNoise(), out=tmp_path / "run")
    assert result.model.preprocessing.encoding.degrees == degrees
    assert len(result.model.preprocessing.encoding.ranges) == 20
    assert said in result.preparation
    kept = read_config(RunFolder.open(tmp_path / "run")).preparation
    assert (kept.curves, kept.curves_up_to, kept.curves_room) == (1, 6, 13)
    if degrees:
        assert result.test_accuracy > 0.65  # a line tells nothing of waves
    new, _ = mostly_two(1000, 1, 18, sides)
    assert load(tmp_path / "run").predict(new).shape == (1000,)


@pytest.mark.parametrize(
    ("columns_of_it", "rows", "room"),
    [(20, 2300, 0), (20, 2400, 10), (50, 7900, 48), (51, 7900, 0), (51, 8160, 51)],
)
def test_of_many_columns_none_is_bent_unless_all_may_be(
    columns_of_it: int, rows: int, room: int
) -> None:
    named = Columns.of_numbers(f"column {n}" for n in range(columns_of_it))
    wide = facts(rows, named, as_given=True)
    planned = Outline(config=settled(asked(8.0), wide), data=wide, reused=False)
    assert planned.preparation[CURVES].allowed.room == room and RANGES in planned.preparing
    assert planned.preparation[RANGES].tells_scales == (not room)


def test_room_that_was_asked_for_is_as_far_as_auto_goes() -> None:
    known = doubtful(2).facts
    for asked_for, room in ((None, 13), (11, 11), (3, 3), (500, 13), (0, 0)):
        preparation = Preparation(curves_room=asked_for)
        assert allowed(asked(3.0, preparation=preparation), known).room == room
    declared = facts(50_000, columns(3))
    assert allowed(asked(preparation=Preparation(curves_room=8)), declared).degree == 3
    rising = Preparation(curves=2, curves_up_to=6, curves_room=8)
    assert allowed(asked(preparation=rising), declared).degree == 2  # nothing is bought here
    assert allowed(asked(3.0, preparation=rising), known) == Allowance(known.named.kept, 20, 6)
    wide = replace(rising, curves_room=500)  # more than curves of degree 6 over all would take
    decided = settled(asked(3.0, preparation=wide), known)
    assert allowed(decided, known) == Allowance(known.named.kept, 100, 6)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"curves_room": -1}, "curves_room must be a whole number from 0 to 10,000"),
        ({"curves": 3, "curves_room": 2}, "degree 3 are asked for, and room for more .*is 2"),
        ({"curves": 3, "curves_up_to": 3, "curves_room": 2}, "which is for curves that may rise"),
        ({"curves": 1, "curves_up_to": 4}, "straight lines are asked for .*curves_up_to is 4"),
    ],
)
def test_room_that_cannot_be_used_is_refused(wrong: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        Preparation(**wrong)


@pytest.mark.parametrize(
    ("rows", "epsilon", "why"),
    [
        (300, 1.0, ": they would need too many weights for 300 rows at this budget"),
        (
            4000,
            0.3,
            ", whose ranges are only estimated roughly: 11 columns are too many for 4,000 rows at",
        ),
    ],
)
def test_arrays_say_why_their_lines_are_straight(rows: int, epsilon: float, why: str) -> None:
    known = Data(*mostly_two(rows, 0)).facts
    for config in (asked(epsilon), settled(asked(epsilon), known)):
        assert some_line(
            in_words(config, known), "startswith", f"no polynomial features in 11 columns{why}"
        )


def test_arrays_say_that_ranges_are_missing_for_curves() -> None:
    known = facts(4000, Columns.of_numbers(["a", "b", "c"]), as_given=True)
    why = ", whose ranges are not estimated: 3 columns are too many for 4,000 rows at this budget"
    for config in (asked(0.04), settled(asked(0.04), known)):
        assert some_line(
            in_words(config, known), "startswith", f"no polynomial features in 3 columns{why}"
        )


def test_where_ranges_are_too_dear_it_is_said_what_would_buy_them() -> None:
    data = Data(*mostly_two(400, 0))
    said = " ".join(in_words(asked(), data.facts))
    both = "range_share = {} and curves = 1"
    hint = f" (if their scales differ much, declare ranges, or set {both})"
    share = 0.254  # 11 / (0.26805 x 400 / 16.262)^2: rows are five times the noise of a rank
    assert f"at this budget{hint.format(share)}" in said
    for named, bought in ((share, True), (share - 0.001, False)):
        config = asked(preparation=Preparation(range_share=named, curves=1))
        if bought:
            planned = Outline(config=config, data=data.facts, reused=False)
            assert RANGES in planned.preparing
        else:
            with pytest.raises(InvalidInput, match=f"make it {share} or more, leave it out, or"):
                settled(config, data.facts)
    # Also where more columns may well be features: 60 / (0.26805 x 1,000 / 16.262)^2.
    wide = facts(1000, Columns.of_numbers(f"column {n}" for n in range(60)), as_given=True)
    assert some_line(in_words(asked(), wide), "endswith", f"at this budget{hint.format(0.221)}")


def test_what_is_taken_for_features_is_said_to_be() -> None:
    known = replace(facts(50_000, None), shape=(101,))  # features that some network made
    why = (
        "columns are not scaled one by one: more than 100 columns are taken for features of one "
        "scale"
    )
    for config in (asked(), settled(asked(), known)):
        assert f"{why} (declare ranges if they are not)" in in_words(config, known)
    declared = asked(preparation=Preparation(ranges=[(0, 1)] * 101))
    public = asked(preparation=Preparation(standardize=True))
    for config, others in (
        (declared, known),
        (public, known),
        (asked(), replace(known, shape=(100,))),
        (asked(engine=TorchModule(network)), known),
    ):
        assert why not in " ".join(in_words(config, others))


def test_up_to_is_how_high_auto_goes() -> None:
    known = facts(50_000, columns(3))
    for most, degree in ((None, 6), (3, 3), (1, 1), (8, 8)):
        assert allowed(asked(preparation=Preparation(curves_up_to=most)), known).degree == degree
    with pytest.raises(
        InvalidInput, match="curves of degree 3 are asked for, and curves_up_to is 2"
    ):
        Preparation(curves=3, curves_up_to=2)


def test_a_degree_that_was_asked_for_is_not_raised() -> None:
    data, narrow = Data(*mostly_two(4000, 0)), Preparation(curves=2)
    result = tune(data, budget=BUDGET, search=UnitNoise(), preparation=narrow)
    assert set(result.model.preprocessing.encoding.degrees.values()) == {2}


def test_what_was_begun_before_there_was_room_goes_on_without() -> None:
    before = preparation_from({"whiten_share": 0.02, "range_share": 0.05, "curves": 4})
    assert before.curves_up_to is None
    known = Data(*mostly_two(4000, 0)).facts
    assert allowed(asked(preparation=before), known).up_to == 4


@pytest.mark.parametrize("most", [0, 21, 2.5, "auto"])
def test_bad_ends_are_refused(most: Any) -> None:
    with pytest.raises(InvalidInput, match="curves_up_to must be a whole number from 1 to 20"):
        Preparation(curves_up_to=most)


def test_estimators_draw_them_unless_told() -> None:
    made, labels = waves(4000, 0)
    for asked_for, width in (("auto", 2 * 6 + 1), (1, 2 + 1)):
        ranges = [(0, 100), (30, 150)]
        model = DPLinearClassifier(ranges=ranges, curves=asked_for).fit(made.to_numpy(), labels)
        assert model.coef_.shape == (1, width)


def test_a_search_is_reused_at_another_budget_with_the_curves_it_had(tmp_path: Path) -> None:
    made, labels = waves(600, 0)
    data = Data.from_columns(made, labels, DECLARED)
    address, small, large = str(tmp_path / "ledger.db"), Budget(0.1, 1e-5), Budget(1.0, 1e-5)
    Ledger.create(address, Budget(3.0, 1e-5), dataset="d", fingerprint=data.fingerprint)
    degrees = [allowed(asked(each.epsilon), data.facts).degree for each in (large, small)]
    assert degrees == [3, 2]
    options: dict[str, Any] = {"ledger": address, "space": SPACE}
    tune(data, budget=large, out=tmp_path / "first", **options)
    reused = tune(data, budget=small, reuse=tmp_path / "first", **options)
    assert set(reused.model.preprocessing.encoding.degrees.values()) == {3}


@pytest.mark.parametrize(("first", "second"), [(1.0, 3.0), (3.0, 1.0)])
def test_the_search_over_an_array_is_reused_at_another_budget(
    first: float, second: float, tmp_path: Path
) -> None:
    data, address = Data(*mostly_two(4000, 0)), str(tmp_path / "ledger.db")
    Ledger.create(address, Budget(8.0, 1e-5), dataset="d", fingerprint=data.fingerprint)
    options: dict[str, Any] = {"ledger": address, "space": SPACE}
    tune(data, budget=Budget(first, 1e-5), out=tmp_path / "first", **options)
    then = read_config(RunFolder.open(tmp_path / "first")).preparation
    assert then.curves_room is not None and then.curves_up_to is not None
    options |= {"reuse": tmp_path / "first", "out": tmp_path / "second"}
    assert tune(data, budget=Budget(second, 1e-5), **options).trials
    again = read_config(RunFolder.open(tmp_path / "second")).preparation
    assert replace(again, range_share=0) == replace(then, range_share=0)


def test_benchmarks_draw_the_curves_that_studies_draw(tmp_path: Path) -> None:
    made, labels = waves(4000, 0)
    new, right = waves(500, 1)
    arrays = {"X_train": made, "y_train": labels == 1, "X_test": new, "y_test": right == 1}
    np.savez(tmp_path / "waves.npz", **{name: np.asarray(a, float) for name, a in arrays.items()})
    task = load_task(str(tmp_path / "waves.npz"))
    planned = outline_of(task, LinearScaling(), BUDGET, seed=0)
    rows, _ = prepared(task, planned)
    assert planned.preparation[CURVES].allowed.degree == 6 and rows.train.shape == (2 * 6 + 1 + 1,)
    plain = outline_of(task.plain(), LinearScaling(), BUDGET, seed=0)
    assert plain.preparation[CURVES].allowed.degree == 1 and not plain.preparing


def test_benchmarks_take_for_a_table_what_studies_take_for_one(tmp_path: Path) -> None:
    parts = {"train": waves(1500, 0), "test": waves(50, 1)}
    tables = {
        part: datasets.Dataset.from_pandas(made.assign(label=labels))
        for part, (made, labels) in parts.items()
    }
    datasets.DatasetDict(tables).save_to_disk(tmp_path / "saved")
    arrays = {f"X_{part}": made for part, (made, _) in parts.items()}
    arrays |= {f"y_{part}": labels for part, (_, labels) in parts.items()}
    np.savez(tmp_path / "waves.npz", **arrays)
    tasks = [load_task(str(tmp_path / name)) for name in ("saved", "waves.npz")]
    assert [task.as_given for task in tasks] == [False, True]
    for task in tasks:  # ranges of tables are always of use to straight lines
        straight = replace(task, preparation=Preparation(curves=1))
        planned = outline_of(straight, UnitNoise(), BUDGET, seed=0)
        rows, known = prepared(straight, planned)
        assert (
            RANGES in planned.preparing
            and planned.preparation[RANGES].tells_scales == task.as_given
        )
        assert known.features == 2 and rows.train.count == 1500


def test_arrays_are_standardised_as_they_are_given() -> None:
    huge = np.array([[1e300, 1.0], [-1e300, 2.0]])  # beyond what codes of columns hold
    data = Data(np.zeros((4, 2)), [0, 1, 0, 1], public=(huge, [0, 1]))
    assert data.as_given
    assert_array_equal(data.public_features(), huge)


def test_what_prepares_rows_says_so_in_words() -> None:
    bent = Encoding(columns(1)).with_curves(["n0"], 2)
    assert "columns encoded one row at a time" in Preprocessing(encoding=bent).in_words()
