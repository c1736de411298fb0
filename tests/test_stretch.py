"""Numbers far out: when a column is stretched, what becomes of a row then, and that everything that
keeps, resumes, predicts or exports a model knows it."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial import Chebyshev
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from dptune import Budget, Data, DPLinearClassifier, Preparation, load, resume
from dptune.columns import Columns, Encoding, Stretch
from dptune.columns.marks import COARSE, FINE
from dptune.columns.private_ranges import Range, noise_for, private_ranges
from dptune.data.declared import describe_column
from dptune.errors import InvalidInput
from dptune.export import to_onnx, to_sklearn
from dptune.report import model_card
from dptune.search.unit_noise import UnitNoise
from dptune.study.planning import read_config
from dptune.study.recipe import in_words, settled
from dptune.study.run_folder import RunFolder
from dptune.study.study import tune
from support.noise import repeated_noise
from support.old_folders import without_digests
from support.studies import stop_after

Array = NDArray[np.float64]
BUDGET = Budget(8.0, 1e-5)
ROWS = 4000
GAP = 99_999.0


def with_codes(rows: int, seed: int) -> tuple[Array, Array]:
    """The middle half of ages is ill; of a twentieth of the rows there is a code instead of it."""
    draws = np.random.default_rng(seed)
    age, weight = draws.uniform(0, 100, rows), draws.normal(70, 10, rows)
    ill = np.where(abs(age - 50) < 25, "ill", "well")
    age[draws.random(rows) < 0.05] = GAP
    return np.stack([age, weight], axis=1), ill


def noise_of(seed: int) -> Callable[[Any], Array]:
    draws = np.random.default_rng(seed)
    return lambda shape: draws.normal(size=shape)


def bought(values: Any, part: float = 1e-4, marks: Any = FINE, **more: Any) -> Range:
    """By ranks that are off by such a part of all rows, but were not: their noise is drawn as 0."""
    made = np.asarray(values, dtype=np.float64)[:, None]
    noise = noise_for(len(made), part, marks)
    (found,) = private_ranges([made], 1, noise, len(made), np.zeros, marks, **more)
    return found


DRAWS = np.random.default_rng(7)
EVEN = DRAWS.uniform(0, 100, ROWS)
CODES = np.where(DRAWS.random(ROWS) < 0.05, GAP, EVEN)


# When


@pytest.mark.parametrize(
    "values",
    [
        EVEN,
        DRAWS.normal(size=ROWS),
        DRAWS.integers(0, 2, ROWS) * 1e6,  # two values
        np.full(ROWS, 5.0),
        DRAWS.integers(1990, 2021, ROWS),
        np.where(EVEN < 0.5, GAP, EVEN),  # rarer than what is looked at
    ],
    ids=["even", "normal", "two", "one", "years", "rare"],
)
def test_usual_columns_are_not_stretched(values: Array) -> None:
    assert bought(values).stretch is None


@pytest.mark.parametrize(
    "values",
    [np.exp(DRAWS.normal(10, 1.5, ROWS)), DRAWS.exponential(size=ROWS)],
    ids=["incomes", "times"],
)
def test_skew_columns_are_stretched(values: Array) -> None:
    found = bought(values)
    assert found.stretch is not None
    assert found.stretch.center == pytest.approx(np.median(values), rel=0.03)
    # In the middle half a straight line is nearly right, and its ends are a third of the whole.
    low, high = found.stretch.ends(found[:2])
    lower, upper = found.stretch.of(np.quantile(values, [0.25, 0.75]))
    assert 0.25 < (upper - lower) / (high - low) < 0.6


@pytest.mark.parametrize("sign", [1, -1])
def test_heavy_tails_are_log_scaled_around_the_middle(sign: int) -> None:
    found = bought(sign * CODES)
    assert found.stretch is not None and found.between
    lower, middle, upper = np.quantile(sign * CODES, [0.25, 0.5, 0.75])
    assert found.stretch.center == pytest.approx(middle, rel=0.02)
    assert found.stretch.scale == pytest.approx((upper - lower) / 2, rel=0.02)
    far, near = (found.high, found.low) if sign > 0 else (-found.low, -found.high)
    assert GAP <= far <= 1.01 * GAP and -5 < near < 5


def test_tails_within_five_half_widths_are_not_log_scaled() -> None:
    """The middle is 50 wide, so half of that is 25; marks are less than a hundredth apart. A
    twentieth of the rows lies there and moves it a little."""
    for code, stretched in [(120, False), (145, True)]:
        values = np.where(np.arange(ROWS) % 20 == 0, 50.0 + code, np.linspace(0, 100, ROWS))
        assert (bought(values).stretch is not None) == stretched


def test_middle_of_many_zeros_reaches_other_values() -> None:
    values = np.where(DRAWS.random(ROWS) < 0.6, 0.0, DRAWS.uniform(10, 20, ROWS))
    values[:160] = 1e6
    found = bought(values)
    assert found.stretch is not None
    assert abs(found.stretch.center) < 1e-5 and 5 <= found.stretch.scale <= 10


@pytest.mark.parametrize("zeros", [0.72, 0.74, 0.75, 0.76, 0.78, 0.87, 0.9])
def test_column_of_few_values_has_no_middle_from_noise(zeros: float) -> None:
    """The upper quarter begins at 0, or at noise anywhere below 1."""
    values = np.where(np.arange(ROWS) < zeros * ROWS, 0.0, 1.0 + np.arange(ROWS) % 3)
    values[-ROWS // 20 :] = 1e6
    noise = noise_for(ROWS, 0.005)
    for seed in range(20):
        (found,) = private_ranges([values[:, None]], 1, noise, ROWS, noise_of(seed))
        assert found.stretch is None or 0.5 <= found.stretch.scale <= 2.1


@pytest.mark.parametrize(
    ("share", "stretched"), [(0.2, True), (0.3, True), (0.35, True), (0.4, False)]
)
def test_code_for_missing_values_may_fill_third_of_column(share: float, stretched: bool) -> None:
    """Beyond, the middle of the rows is no longer that of the others."""
    found = bought(np.where(np.arange(ROWS) < share * ROWS, GAP, EVEN))
    assert (found.stretch is not None) == stretched
    if found.stretch is not None:
        assert 0 < found.stretch.center < 100 and 5 < found.stretch.scale < 50


def test_tails_hidden_by_noise_are_not_log_scaled() -> None:
    """Ends are looked for where three times the noise of a rank lies beyond."""
    assert bought(CODES, part=0.015).stretch is not None
    assert bought(CODES, part=0.018).stretch is None


def test_ranges_for_scales_only_are_not_log_scaled() -> None:
    plain = bought(CODES, stretching=False)
    assert plain.stretch is None and plain.high >= GAP
    assert bought(CODES, marks=COARSE, stretching=False).stretch is None


@settings(max_examples=50)
@given(st.integers(-15, 15))
def test_units_do_not_matter(octaves: int) -> None:
    """Marks are the same in every octave."""
    unit, other = bought(CODES + 1), bought((CODES + 1) * 2.0**octaves)
    assert unit.stretch is not None and other.stretch is not None
    assert_allclose(other.stretch, np.array(unit.stretch) * 2.0**octaves, rtol=1e-12)
    assert_allclose(other[:2], np.array(unit[:2]) * 2.0**octaves, rtol=1e-9)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("far", [1e12, 1e30, math.inf])
def test_ends_stay_in_order_and_finite_however_far_out(far: float, seed: int) -> None:
    values = np.where(np.arange(ROWS) % 10 == 0, far, 1e-3 * EVEN)
    (found,) = private_ranges([values[:, None]], 1, 20.0, ROWS, noise_of(seed))
    assert -1 < found.low < found.high <= 2.0**40
    assert found.stretch is not None and 1e-3 < found.stretch.scale < 0.1


# What becomes of a row


FAR = Stretch(50.0, 25.0)


def stretched(degree: int = 3) -> Encoding:
    plain = Encoding(Columns.of_numbers(["age"])).with_ranges({"age": (0.0, GAP)}, {"age": FAR})
    return plain.with_curves(["age"], degree)


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=5), st.integers(1, 6))
def test_features_are_curves_over_the_logarithm(ages: list[float], degree: int) -> None:
    """asinh as its logarithm, polynomials as numpy's, in place of what the code calls."""

    def logarithm(value: float) -> float:
        place = (value - 50) / 25
        return math.copysign(math.log(abs(place) + math.sqrt(place**2 + 1)), place)

    low, high = logarithm(0.0), logarithm(GAP)
    features = stretched(degree).apply(np.array(ages, dtype=np.float32)[:, None])
    for row, age in zip(features, ages, strict=True):
        place = 2 * (logarithm(min(max(age, 0.0), GAP)) - low) / (high - low) - 1
        wanted = [Chebyshev.basis(power)(place) for power in range(1, degree + 1)]
        assert_allclose(row, wanted, atol=1e-9)


def test_every_feature_stays_between_its_ends() -> None:
    ages = np.array([[-np.inf], [-1e30], [0], [50], [GAP], [1e30], [np.inf]], dtype=np.float32)
    features = stretched(6).apply(ages)
    assert np.abs(features).max() <= 1 + 1e-12
    assert_array_equal(features[0], features[2])
    assert_array_equal(features[-1], features[4])
    assert np.all(np.diff(features[:, 0])[2:4] > 0)


def test_it_is_stored_and_what_older_models_stored_has_none() -> None:
    encoding = stretched()
    plain = json.loads(json.dumps(encoding.to_plain()))
    assert Encoding.of(plain) == encoding
    del plain["stretches"]
    assert Encoding.of(plain).stretches == {}


@pytest.mark.parametrize(
    ("name", "stretch"),
    [("age", (0.0, 0.0)), ("age", (0.0, -1.0)), ("age", (math.nan, 1.0)), ("age", (0.0, math.inf))],
)
def test_invalid_stretch_is_refused(name: str, stretch: Any) -> None:
    with pytest.raises(InvalidInput, match="age: only a number with an estimated range"):
        Encoding(Columns.of_numbers([name])).with_ranges({name: (0, 1)}, {name: Stretch(*stretch)})


def test_only_estimated_range_can_be_stretched() -> None:
    columns = Columns.of({"age": {"kind": "number", "range": [0, 100]}})
    with pytest.raises(InvalidInput, match="only a number with an estimated range"):
        Encoding(columns, stretches={"age": FAR})


def test_cards_say_where_numbers_are_taken_by_their_logarithm() -> None:
    assert describe_column(stretched(), "age") == (
        "0 to 99999 (estimated privately); log-scaled beyond 25 from 50; polynomial of degree 3"
    )


# Whole studies


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Any:
    rows, labels = with_codes(ROWS, 0)
    new, right = with_codes(1000, 1)
    data = Data(rows, labels, test=(new, right))
    folder = tmp_path_factory.mktemp("far") / "run"
    with repeated_noise():
        return folder, data, tune(data, budget=BUDGET, search=UnitNoise(), out=folder), new


def test_extreme_code_does_not_hide_other_values(study: Any) -> None:
    folder, _, result, _ = study
    # With a range up to the code, all ages lie in a thousandth of it, and this is about a half.
    assert result.test_accuracy > 0.9
    assert set(result.model.preprocessing.encoding.stretches) == {"column 1"}
    assert "heavy tails in 1 column log-scaled (no privacy cost)" in result.preparation
    assert "log-scaled beyond" in model_card(folder)


def test_plan_announces_log_scale_before_rows_are_read(study: Any) -> None:
    folder, data, _, _ = study
    config = read_config(RunFolder.open(folder))
    assert "heavy-tailed columns log-scaled (no privacy cost)" in in_words(config, data.facts)
    none = replace(config, preparation=Preparation(range_share=0))
    assert not any("heavy" in said for said in in_words(settled(none, data.facts), data.facts))


def test_stored_model_keeps_stretch(study: Any) -> None:
    folder, data, result, new = study
    again = load(folder)
    assert again.preprocessing.encoding == result.model.preprocessing.encoding
    assert_array_equal(again.predict_proba(new), result.model.predict_proba(new))
    assert resume(folder, data).test_accuracy == result.test_accuracy


def test_exported_model_applies_stretch(study: Any, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    _, _, result, new = study
    rows = np.concatenate([new, [[-1e9, 70], [1e12, 70], [0.1, 70]]]).astype(np.float32)
    wanted = result.model.predict_proba(rows)
    assert_allclose(to_sklearn(result.model).predict_proba(rows), wanted, atol=1e-5)
    file = tmp_path / "model.onnx"
    to_onnx(result.model, file)
    session = runtime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    (found,) = session.run(["probabilities"], {"features": rows})
    assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.usefixtures("same_noise")  # which goes on: what is bought twice is other
def test_resumed_study_keeps_estimated_ranges(tmp_path: Path) -> None:
    data = Data(*with_codes(ROWS, 0))
    assert stop_after(tmp_path / "run", data, "sweep", budget=BUDGET, preparation=Preparation())
    before = (tmp_path / "run" / "ranges.json").read_bytes()
    result = resume(tmp_path / "run", data)
    assert (tmp_path / "run" / "ranges.json").read_bytes() == before
    (kept,) = result.model.preprocessing.encoding.stretches.values()
    assert list(kept) == json.loads(before)["columns"]["column 1"][3]
    assert result.model.guarantee.epsilon <= 8.0


def test_ranges_of_older_versions_are_not_stretched(tmp_path: Path) -> None:
    data = Data(*with_codes(ROWS, 0))
    assert stop_after(tmp_path / "run", data, "sweep", budget=BUDGET, preparation=Preparation())
    without_digests(tmp_path / "run")
    file = tmp_path / "run" / "ranges.json"
    older = {name: found[:3] for name, found in json.loads(file.read_text()).items()}
    file.write_text(json.dumps(older))
    encoding = resume(tmp_path / "run", data).model.preprocessing.encoding
    assert not encoding.stretches and encoding.degrees


def test_estimators_stretch_too() -> None:
    rows, labels = with_codes(ROWS, 0)
    new, right = with_codes(1000, 1)
    fitted = DPLinearClassifier(epsilon=8.0, delta=1e-5).fit(pd.DataFrame(rows), labels)
    assert fitted.score(pd.DataFrame(new), right) > 0.9
