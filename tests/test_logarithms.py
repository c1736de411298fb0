"""Rows of unlike numbers whose ranges nobody can buy: what says that they are, what becomes of
them, and what a mean is worth that is partly noise."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.testing import assert_allclose, assert_array_equal
from torch import nn

from dptune import Budget, Data, Ledger, Preparation, accounting, load, resume
from dptune.bench.harness import outline_of, prepared
from dptune.bench.tasks import load_task
from dptune.data.preprocess import Preprocessing
from dptune.data.row_maps import Asinh, UnitLength
from dptune.data.rows import DataFacts
from dptune.data.sources import load_data
from dptune.engines import TorchModule
from dptune.errors import InvalidInput
from dptune.export import to_onnx, to_sklearn
from dptune.preparation.centring import MEAN
from dptune.preparation.lengths import LENGTHS
from dptune.preparation.logarithms import LOGARITHMS, are_unlike, private_unlike
from dptune.preparation.moments import private_mean, shrunk
from dptune.preparation.pipeline import STEPS, plan
from dptune.preparation.ranges import RANGES
from dptune.preparation.step import Outcome, PrivateRows, State
from dptune.preparation.whitening import SECOND_MOMENT
from dptune.privacy import NoisyCount
from dptune.report import model_card
from dptune.search.private_selection import PrivateSelection
from dptune.search.unit_noise import UnitNoise
from dptune.study.config import Config, preparation_from
from dptune.study.outline import Outline
from dptune.study.planning import foresee, read_config
from dptune.study.recipe import case_of, in_words, settled
from dptune.study.run_folder import RunFolder
from dptune.study.study import tune
from support.row_maps import is_log_scaled, mean_of
from support.studies import a_config, contents, stop_after

BUDGET = Budget(0.3, 1e-5)
COLUMNS = 40  # too many for ranges of 1,500 rows at this budget
UNIT_NOISE: dict[str, Any] = {"budget": BUDGET, "search": UnitNoise()}
NUMBERS = st.floats(-1e9, 1e9, width=32)


def a_table(rows: int, seed: int, *, unlike: bool = True) -> tuple[Any, Any]:
    """An income and a year that tell nothing, and answers of yes and no, five of which tell the
    class; or all of them answers."""
    draws = np.random.default_rng(seed)
    made = draws.integers(0, 2, size=(rows, COLUMNS)).astype(float)
    labels = (made[:, :5].sum(1) + 0.3 * draws.normal(size=rows) > 2.5).astype(int)
    if unlike:
        made[:, -2] = draws.lognormal(10, 0.5, rows)
        made[:, -1] = draws.integers(1990, 2020, rows)
    return made, labels


def a_data_set(rows: int = 1500, **kind: Any) -> Data:
    return Data(*a_table(rows, 0, **kind), test=a_table(1000, 1, **kind))


def network() -> nn.Module:
    return nn.Linear(COLUMNS, 2)


def outlined(data: Data, budget: Budget = BUDGET, **asked: Any) -> Outline:
    config = settled(a_config(budget=budget, **asked), data.facts)
    return Outline(config=config, data=data.facts, reused=False)


# Which rows are unlike


@given(arrays(np.float32, array_shapes(min_dims=2, max_dims=2, max_side=7), elements=NUMBERS))
def test_a_row_is_unlike_by_itself_as_its_sorted_numbers_say(rows: Any) -> None:
    found = are_unlike(rows.astype(float))
    for row, answer in zip(rows.tolist(), found, strict=True):
        sizes = sorted(abs(number) for number in row if number != 0)
        small = sizes[(len(sizes) - 1) // 3] if sizes else 0.0
        assert answer == bool(sizes and sizes[-1] > 30 * small)
        assert are_unlike(np.array([row[::-1]]))[0] == answer, "whatever the order of columns"


def test_incomes_beside_answers_are_unlike_and_features_are_not() -> None:
    draws = np.random.default_rng(0)
    assert are_unlike(np.array([[51_000.0, 1994, 38, 1, 0, 0]])).all()
    assert not are_unlike(np.array([[0.0, 0, 0], [5, 0, 0], [1, 2, 5], [0, 1, 1]])).any()
    assert are_unlike(draws.normal(size=(5000, 64))).mean() < 0.01
    assert are_unlike(np.maximum(draws.normal(size=(5000, 64)), 0)).mean() < 0.05
    for columns in (64, 256, 1000):  # in their principal directions, as pixels are
        shrinking = draws.normal(size=(2000, columns)) / np.arange(1, columns + 1)
        assert are_unlike(shrinking).mean() < 0.2
        assert are_unlike(np.c_[[[51_000.0]] * 2000, np.ones((2000, columns - 1))]).all()
    assert are_unlike(a_table(500, 0)[0]).all()
    assert not are_unlike(a_table(500, 0, unlike=False)[0]).any()


# What it costs


def test_one_row_is_counted_once_and_noise_is_as_paid_for() -> None:
    rows = a_table(30, 0)[0]
    fixed = np.random.default_rng(3).standard_normal
    counted = private_unlike([rows[:20], rows[20:]], 4.0, lambda shape: fixed(shape))
    drawn = np.random.default_rng(3).standard_normal((1,))
    assert counted == pytest.approx(30 + 4.0 * drawn)
    for number in range(30):
        without = rows.copy()
        without[number] = 0
        fewer = private_unlike([without], 1.0, np.zeros)
        assert fewer[0] == 29


@pytest.mark.parametrize(
    ("rows", "epsilon", "share"),
    [
        (1500, 0.3, 0.009),  # (0.08 x 1,500 x 0.08926)^-2 = 0.0087
        (500, 0.3, 0.0),  # 0.0784 is more than a twentieth
        (2000, 0.1, 0.037),  # (0.08 x 2,000 x 0.03253)^-2
        (50_000, 0.3, 0.001),  # at least
    ],
)
def test_the_count_costs_what_tells_a_quarter_of_the_rows_from_none(
    rows: int, epsilon: float, share: float
) -> None:
    wide = Data(np.ones((9, 900)), np.arange(9) % 2)  # of which no ranges are bought here
    facts = replace(wide.facts, count=rows)
    planned = Outline(
        config=settled(a_config(budget=Budget(epsilon, 1e-5)), facts), data=facts, reused=False
    )
    assert planned.preparation[RANGES].share == 0 and planned.preparation[LOGARITHMS].share == share
    event = planned.preparing.get(LOGARITHMS)
    if not isinstance(event, NoisyCount):
        assert not share
        return
    # By the noise, and by the price that the accountant gives the same count.
    off = event.noise / rows
    assert off <= 0.0801 and (share == 0.001 or off > 0.075)
    price = accounting.price(event).mu_squared
    assert price == pytest.approx(share * planned.config.budget.mu_squared())
    assert price == pytest.approx(1 / event.noise**2)


def test_all_that_is_paid_is_the_budget() -> None:
    planned = outlined(a_data_set(), search=UnitNoise())
    assert next(iter(planned.preparing)) == LOGARITHMS
    prices = [accounting.price(event).mu_squared for _, event in planned.payments]
    whole = BUDGET.mu_squared()
    assert whole * (1 - 1e-9) <= math.fsum(prices) <= whole


@pytest.mark.parametrize("label", [LOGARITHMS, LENGTHS, MEAN, SECOND_MOMENT])
def test_the_noise_that_is_drawn_is_that_which_is_paid_for(
    label: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each statistic is measured again, without noise, from what its step is given."""
    drawn: list[Any] = []
    (kind,) = (type(step) for step in STEPS if step.name == label)
    measure = kind.measure

    def seen(self: Any, case: Any, decision: Any, state: Any, rows: PrivateRows) -> Any:
        once = rows.normal

        def kept(shape: Any) -> Any:
            drawn.append(once(shape))
            return drawn[-1]

        noisy = measure(self, case, decision, state, replace(rows, normal=kept))
        exact = measure(self, case, decision, state, replace(rows, normal=np.zeros))
        drawn.append(noisy - exact)
        return noisy

    monkeypatch.setattr(kind, "measure", seen)
    few_columns = Data(a_table(1500, 0, unlike=False)[0][:, :4], a_table(1500, 0)[1])
    data = a_data_set() if label == LOGARITHMS else few_columns
    tune(data, out=tmp_path / "run", **UNIT_NOISE)
    state = Ledger.open(str(tmp_path / "run" / "ledger.db")).state()
    (paid,) = (payment for payment in state.counted if payment.label == label)
    normal, added = drawn
    if label == SECOND_MOMENT:  # on and below the diagonal, which has all of the noise
        on, below = np.tril_indices(4)
        normal, added = normal[on == below], np.diag(added)
    rows = 1500 if label in (MEAN, SECOND_MOMENT) else 1
    noise = np.abs(rows * added).max() / np.abs(normal).max()
    assert 1 / noise**2 == pytest.approx(paid.price.mu_squared, rel=1e-4)


@pytest.mark.parametrize(("count", "taken"), [(0.26, True), (0.24, False)])
def test_a_quarter_of_the_rows_decides(count: float, taken: bool) -> None:
    planned = outlined(a_data_set()).preparation
    (step,) = (step for step in STEPS if step.name == LOGARITHMS)
    released = np.array([1500 * count])
    state, outcome = step.apply(planned.case, planned[LOGARITHMS], released, State())
    assert bool(state.maps) == taken
    assert outcome == Outcome("taken" if taken else "not taken", {"percent": 100 * count})


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"budget": Budget(8.0, 1e-5)}, "every number has a range, gets one"),
        ({"search": PrivateSelection()}, "a sealed search is priced"),
        ({"engine": TorchModule(network)}, "linear models"),
    ],
)
def test_a_named_share_that_is_of_no_use_is_refused(asked: Any, why: str) -> None:
    with pytest.raises(InvalidInput, match=f"logarithm_share is 0.03, .*{why}.*Nothing was spent"):
        outlined(a_data_set(), preparation=Preparation(logarithm_share=0.03), **asked)


@pytest.mark.parametrize(
    "asked",
    [
        {"preparation": Preparation(range_share=0)},
        {"preparation": Preparation(logarithm_share=0)},
        {"preparation": Preparation(unit_rows=False)},
        {"preparation": Preparation(rescale=False)},
        {"preparation": Preparation(ranges=((-1, 1),) * COLUMNS)},
        {"search": PrivateSelection()},
        {"engine": TorchModule(network)},
        {"budget": Budget(8.0, 1e-5)},  # which buys ranges
    ],
)
def test_nothing_is_counted_where_it_is_not_wanted_or_known(asked: Any) -> None:
    assert LOGARITHMS in outlined(a_data_set()).preparing
    assert LOGARITHMS not in outlined(a_data_set(), **asked).preparing


def test_values_and_single_columns_are_not_looked_at() -> None:
    features, labels = a_table(1500, 0)
    values = Data(features, labels.astype(float), task="values", target_range=(0, 1))
    assert LOGARITHMS not in outlined(values).preparing
    assert LOGARITHMS not in outlined(Data(features[:, :1], labels)).preparing


def test_a_share_that_tells_nothing_is_refused_with_one_that_does() -> None:
    too_little = Preparation(logarithm_share=0.008)
    with pytest.raises(InvalidInput, match=r"is 0.008, too little .* make it 0.009 or more"):
        outlined(a_data_set(), preparation=too_little)
    assert outlined(a_data_set(), preparation=Preparation(logarithm_share=0.009)).preparing
    hopeless = Budget(0.01, 1e-5)
    with pytest.raises(InvalidInput, match=r"too little .* please leave it out"):
        outlined(a_data_set(), hopeless, preparation=Preparation(logarithm_share=0.5))
    for asked in (a_config(budget=hopeless), outlined(a_data_set(), hopeless).config):
        said = in_words(asked, a_data_set().facts)
        assert any("takes more rows or budget" in each for each in said)
    declined = a_config(budget=BUDGET, preparation=Preparation(logarithm_share=0))
    assert not any("log-scaled" in each for each in in_words(declined, a_data_set().facts))


def test_a_share_is_a_part_or_auto() -> None:
    with pytest.raises(InvalidInput, match="logarithm_share must be"):
        Preparation(logarithm_share="yes")
    named = Preparation(logarithm_share=0.03)
    assert outlined(a_data_set(), preparation=named).preparation[LOGARITHMS].share == 0.03


def test_a_run_of_before_neither_counts_nor_shrinks() -> None:
    older = preparation_from({"whiten_share": 0.0, "range_share": 0.0, "curves": 1})
    assert older.logarithm_share == 0 and not older.shrink_mean
    assert Preparation().shrink_mean


def _as_before(self: Config, now: Any = Config.to_toml) -> str:
    lines = now(self).splitlines(keepends=True)
    known = ("logarithm_share", "shrink_mean")
    return "".join(line for line in lines if not line.startswith(known))


@pytest.mark.usefixtures("same_noise")
def test_a_study_of_before_keeps_its_mean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A named share that is too small for a clear mean, which is subtracted as it is there."""
    data, run = a_data_set(unlike=False), tmp_path / "run"
    noisy = Preparation(center_share=0.01, logarithm_share=0, shrink_mean=False)
    with monkeypatch.context() as patch:
        patch.setattr(Config, "to_toml", _as_before)
        begun = tune(data, preparation=noisy, out=run, **UNIT_NOISE)
    assert "shrink_mean" not in (run / "run.toml").read_text()
    result = resume(run, data)
    assert_array_equal(mean_of(result.model.preprocessing), mean_of(begun.model.preprocessing))
    assert result.test_accuracy == begun.test_accuracy
    anew = tune(data, preparation=replace(noisy, shrink_mean=True), **UNIT_NOISE)
    lengths = [np.linalg.norm(mean_of(each.model.preprocessing)) for each in (begun, anew)]
    assert lengths[1] < 0.9 * lengths[0]


# What becomes of rows


def test_numbers_are_taken_by_their_logarithm_before_anything_else() -> None:
    rows = np.array([[51_000.0, -1994, 0, 1], [0, 0, 0, 0]])
    by_hand = np.sign(rows) * np.log(np.abs(rows) + np.sqrt(rows**2 + 1))
    done = Preprocessing([Asinh()])
    assert_allclose(done.apply(rows), by_hand, rtol=1e-6)
    scaled = Preprocessing([Asinh(), UnitLength()]).apply(rows)
    assert_allclose(scaled[0], by_hand[0] / np.linalg.norm(by_hand[0]), rtol=1e-6)
    assert not done.changes_nothing and "log-scaled" in done.in_words()
    again = Preprocessing.from_arrays(done.arrays(), done.facts())
    assert_array_equal(again.apply(rows), done.apply(rows))


@pytest.mark.usefixtures("same_noise")
def test_small_tables_as_they_come_are_learned(tmp_path: Path) -> None:
    as_they_are = tune(a_data_set(), preparation=Preparation(range_share=0), **UNIT_NOISE)
    result = tune(a_data_set(), out=tmp_path / "run", **UNIT_NOISE)
    assert as_they_are.test_accuracy < 0.55 < 0.6 < result.test_accuracy
    assert is_log_scaled(result.model.preprocessing)
    (said,) = (each for each in result.preparation if "log-scaled" in each)
    assert said.startswith("log-scaled: columns are of very different scale in ")
    assert said.endswith("% of the rows, by a noisy count: 0.9 % of the budget")
    counted = "a noisy count of rows whose columns are of very different scale"
    _, promised = foresee(a_data_set(), a_config(**UNIT_NOISE))
    assert counted in promised.releases
    assert counted in result.guarantee.releases and counted in model_card(tmp_path / "run")
    state = Ledger.open(str(tmp_path / "run" / "ledger.db")).state()
    assert [p.label for p in state.counted].count(LOGARITHMS) == 1
    assert state.spent_epsilon <= 0.3


@pytest.mark.usefixtures("same_noise")
def test_rows_of_like_numbers_stay_as_they_are() -> None:
    result = tune(a_data_set(unlike=False), **UNIT_NOISE)
    assert not is_log_scaled(result.model.preprocessing) and result.test_accuracy > 0.6
    said = "not log-scaled: columns are of very different scale in"
    assert any(each.startswith(said) for each in result.preparation)


@pytest.mark.usefixtures("same_noise")
def test_numbers_of_a_file_are_looked_at_too(tmp_path: Path) -> None:
    for part, rows, seed in (("train", 1500, 0), ("test", 1000, 1)):
        features, labels = a_table(rows, seed)
        frame = pd.DataFrame(features, columns=[f"n{place}" for place in range(COLUMNS)])
        frame.assign(label=np.where(labels, "yes", "no")).to_csv(
            tmp_path / f"{part}.csv", index=False
        )
    data = load_data(f"{tmp_path}/train.csv", label="label", test=f"{tmp_path}/test.csv")
    result = tune(data, **UNIT_NOISE)
    assert is_log_scaled(result.model.preprocessing) and result.test_accuracy > 0.6


@pytest.mark.usefixtures("same_noise")
def test_exports_and_loaded_models_predict_alike(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    result = tune(a_data_set(), out=tmp_path / "run", **UNIT_NOISE)
    new = a_table(300, 2)[0]
    new[0], new[1] = 0, new[1] * 1e-14
    predicted = result.model.predict(new)
    assert_array_equal(load(tmp_path / "run").predict(new), predicted)
    assert_array_equal(to_sklearn(result.model).predict(new), predicted)
    to_onnx(result.model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    (label, _) = session.run(None, {"features": new.astype(np.float32)})
    assert_array_equal(label, predicted)


@pytest.mark.usefixtures("same_noise")
def test_benchmarks_take_rows_as_studies_do(tmp_path: Path) -> None:
    (made, labels), (new, right) = a_table(1500, 0), a_table(200, 1)
    np.savez(tmp_path / "t.npz", X_train=made, y_train=labels, X_test=new, y_test=right)
    task = load_task(str(tmp_path / "t.npz"))
    off = replace(task, preparation=Preparation(logarithm_share=0))
    shares_of_the_first = []
    for each in (task, off):
        rows, _ = prepared(each, outline_of(each, UnitNoise(), BUDGET, seed=0))
        moved = rows.train.features[:, 0].double().numpy()
        shares_of_the_first.append(float(np.var(moved, axis=0).max() / np.var(moved, axis=0).sum()))
    assert shares_of_the_first[0] < 0.15, "no column holds most of what rows differ in"
    assert shares_of_the_first[1] > 0.4


# Whoever is killed, or reuses a search


@pytest.mark.usefixtures("same_noise")
def test_a_count_that_is_cut_off_leaves_rows_as_they_are(tmp_path: Path) -> None:
    data, run = a_data_set(), tmp_path / "run"
    assert stop_after(run, data, LOGARITHMS, preparation=Preparation(), **UNIT_NOISE)
    result = resume(run, data)
    assert not is_log_scaled(result.model.preprocessing)
    assert any(
        "very different scale was interrupted after payment" in note for note in result.notes
    )
    assert not any("very different scale" in each for each in result.guarantee.releases)
    said = "not log-scaled: the noisy count for that was interrupted after payment: 0.9 % of the"
    assert f"{said} budget" in result.preparation


@pytest.mark.usefixtures("same_noise")
def test_a_count_is_taken_once(tmp_path: Path) -> None:
    data, run = a_data_set(), tmp_path / "run"
    assert stop_after(run, data, "private mean", preparation=Preparation(), **UNIT_NOISE)
    before = contents(run)["models/unlike.safetensors"]
    result = resume(run, data)
    assert is_log_scaled(result.model.preprocessing)
    assert contents(run)["models/unlike.safetensors"] == before


@pytest.mark.usefixtures("same_noise")
@pytest.mark.parametrize("epsilon", [0.1, 0.25, 2.0])
def test_a_search_is_reused_at_any_budget_and_counts_as_surely(
    epsilon: float, tmp_path: Path
) -> None:
    data, address = a_data_set(), f"{tmp_path}/shared.db"
    Ledger.create(address, Budget(8.0, 1e-5), dataset="d", fingerprint=data.fingerprint)
    options: dict[str, Any] = {"ledger": address, "search": UnitNoise()}
    tune(data, budget=BUDGET, out=tmp_path / "first", **options)
    other = {"budget": Budget(epsilon, 1e-5), "reuse": tmp_path / "first"}
    result = tune(data, out=tmp_path / "second", **other, **options)
    assert is_log_scaled(result.model.preprocessing)
    first, second = (
        read_config(RunFolder.open(tmp_path / name)).preparation.logarithm_share
        for name in ("first", "second")
    )
    assert first == 0.009 <= second and (second > first) == (epsilon < 0.3)


# A mean that is partly noise


@given(arrays(np.float64, st.integers(1, 30), elements=st.floats(-10, 10)), st.floats(1e-6, 10))
def test_a_mean_is_only_made_shorter(mean: Any, noise: float) -> None:
    found = shrunk(mean, noise)
    assert np.linalg.norm(found) <= np.linalg.norm(mean)
    squared = math.fsum(number**2 for number in mean.tolist())
    kept = squared - len(mean) * noise**2  # what is left when the noise's square is taken away
    expected = mean * (kept / squared) if kept > 0 else np.zeros(len(mean))
    assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    if kept < -1e-9 * squared:  # nearer to nothing than that, rounding decides
        assert not found.any()


def test_a_shrunk_mean_is_nearer_to_the_true_one() -> None:
    draws, noise, columns = np.random.default_rng(0), 0.1, 50
    for length in (0.0, 0.3, 1.0):
        true = np.full(columns, length / math.sqrt(columns))
        noisy = true + noise * draws.standard_normal((400, columns))
        nearer = np.array([shrunk(each, noise) for each in noisy])
        errors = [np.square(each - true).sum(1).mean() for each in (noisy, nearer)]
        assert errors[1] < (0.95 if length else 0.1) * errors[0]


@pytest.mark.parametrize(
    ("epsilon", "rows", "columns", "share"),
    [
        (0.3, 1500, 4, 0.01),  # off by 0.149 of a row at 1 %
        (0.3, 1500, 40, 0.036),  # (40 / (0.01 x (0.08926 x 1,500)^2)) / 0.25^2 of 1 %
        (0.1, 2000, 40, 0.05),  # off by 0.435 then
        (0.1, 700, 40, 0.0),  # by 1.24
    ],
)
def test_a_mean_costs_what_makes_it_clear_within_reason(
    epsilon: float, rows: int, columns: int, share: float
) -> None:
    config = a_config(budget=Budget(epsilon, 1e-5))
    assert plan(case_of(config, DataFacts(rows, (columns,), 1, 2, "softmax")))[MEAN].share == share
    of_values = plan(case_of(config, DataFacts(rows, (columns,), 1, 1, "squared")))[MEAN].share
    assert of_values == (0.01 if share == 0.01 else 0.0), "as they were measured"


@pytest.mark.usefixtures("same_noise")
def test_only_a_mean_of_much_noise_is_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    released: list[Any] = []

    def kept(*given: Any) -> Any:
        released.append(private_mean(*given))
        return released[-1]

    monkeypatch.setattr("dptune.preparation.centring.private_mean", kept)
    for rows, is_shrunk in ((2000, True), (8000, False)):
        data = Data(*a_table(rows, 0, unlike=False))
        result = tune(data, budget=Budget(0.1, 1e-5), search=UnitNoise())
        center = mean_of(result.model.preprocessing)
        assert (np.linalg.norm(center) < 0.999 * np.linalg.norm(released[-1])) == is_shrunk
