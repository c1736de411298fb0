"""Rows taken by their logarithm share nearly all of their length, so a leg of the final run is
given for a finer mean: what it is, what it costs, and who loses what when it is cut off."""

import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal

from dptune import Budget, Data, Ledger, Preparation, accounting, resume
from dptune.bench.harness import outline_of, prepared
from dptune.bench.tasks import load_task
from dptune.data.moments import nearer_mean, private_mean, reach_around
from dptune.errors import FolderProblem, InvalidInput
from dptune.noise import grid_step
from dptune.privacy import FullBatchRun, PrivateMean
from dptune.report.record import Record
from dptune.search.random_search import RandomSearch
from dptune.search.space import Space
from dptune.search.unit_noise import UnitNoise
from dptune.study import prepare
from dptune.study.config import preparation_from
from dptune.study.outline import Outline
from dptune.study.planning import foresee, read_config
from dptune.study.recipe import FINER_MEAN, MEAN, in_words, settled
from dptune.study.run_folder import RunFolder
from dptune.study.split import foreseen, slots
from dptune.study.study import tune
from support.studies import a_config, contents, stop_after
from support.tables import FINITE, TABLES

BUDGET = Budget(0.3, 1e-5)
COLUMNS = 40  # too many for ranges of 1,500 rows at this budget
UNIT_NOISE: dict[str, Any] = {"budget": BUDGET, "search": UnitNoise()}
LABEL = "finer mean or final run, leg 1"
FILE = "models/finer_mean.safetensors"


def a_table(rows: int, seed: int, *, unlike: bool = True) -> tuple[Any, Any]:
    """Seven numbers that are far from zero and tell nothing, and answers of yes and no, five of
    which tell the class; or all of them answers."""
    draws = np.random.default_rng(seed)
    made = draws.integers(0, 2, size=(rows, COLUMNS)).astype(float)
    labels = (made[:, :5].sum(1) + 0.3 * draws.normal(size=rows) > 2.5).astype(int)
    if unlike:
        made[:, -7:] = draws.lognormal(10, 0.3, (rows, 7))
    return made, labels


def a_data_set(rows: int = 1500, **kind: Any) -> Data:
    return Data(*a_table(rows, 0, **kind), test=a_table(1000, 1, **kind))


def outlined(data: Data, budget: Budget = BUDGET, **asked: Any) -> Outline:
    config = settled(a_config(budget=budget, **asked), data.facts)
    return Outline(config=config, data=data.facts, reused=False)


def no_noise(shape: Any) -> Any:
    return np.zeros(shape)


# What it is


@given(st.data(), TABLES, st.floats(0.1, 1.0))
def test_one_row_moves_it_by_at_most_1(data: st.DataObject, table: Any, reach: float) -> None:
    columns = table.shape[1]
    start = data.draw(arrays(np.float64, columns, elements=st.floats(-1, 1)))
    row = data.draw(arrays(np.float64, (1, columns), elements=FINITE))

    def sum_of(*tables: Any) -> Any:
        return nearer_mean(tables, columns, 2.0**-20, 1, no_noise, start=start, reach=reach)

    moved = sum_of(table, row) - sum_of(table)
    assert sum((Fraction(float(each)) ** 2 for each in moved), Fraction(0)) <= 1
    assert_array_equal(moved, sum_of(row), "by no more than itself, whatever lies beside it")


def test_what_cannot_be_is_refused() -> None:
    around: dict[str, Any] = {"start": np.zeros(3), "reach": 0.5}
    for table in (np.ones((5, 1)), np.ones((5, 2))):
        with pytest.raises(InvalidInput, match="must have 3 columns"):
            nearer_mean([table], 3, 1.0, 5, no_noise, **around)
    with pytest.raises(InvalidInput, match="reach"):
        nearer_mean([np.ones((5, 3))], 3, 1.0, 5, no_noise, start=np.zeros(3), reach=0.0)


def test_it_is_the_mean_where_all_rows_are_within_reach() -> None:
    draws = np.random.default_rng(0)
    rows = 0.6 + 0.01 * draws.normal(size=(5000, 3))
    start, reach = np.array([0.59, 0.62, 0.6]), 0.2
    found = nearer_mean([rows[:10], rows[10:]], 3, 1.0, 5000, no_noise, start=start, reach=reach)
    assert_allclose(start + reach * found, rows.mean(0), atol=1e-7)
    far = np.array([[9.0, 0.62, 0.6]])  # as if it lay where its way there leaves the reach
    moved = nearer_mean([far], 3, 1.0, 1, no_noise, start=start, reach=reach)
    assert_allclose(start + reach * moved, [0.79, 0.62, 0.6], atol=1e-7)


def test_its_noise_is_shorter_by_the_reach() -> None:
    fixed = np.random.default_rng(1).standard_normal(4)
    zeros = np.zeros((50, 4))
    at_once = private_mean([zeros], 4, 8.0, 50, lambda shape: fixed)
    nearer = nearer_mean([zeros], 4, 8.0, 50, lambda shape: fixed, start=zeros[0], reach=0.25)
    step = grid_step(8.0) / 50
    assert_allclose(0.25 * nearer, at_once / 4, atol=step)
    assert_allclose(at_once, 8.0 * fixed / 50, atol=step)


def test_the_reach_is_what_is_left_of_rows_beside_what_the_mean_is_off() -> None:
    exact = np.array([0.8, 0.0])
    assert reach_around(exact, 0.0) == pytest.approx(0.6)  # the other side of the triangle
    assert reach_around(np.array([1.0, 0.0]), 0.0) == 0.1 and reach_around(0 * exact, 0.0) == 1.0
    # Over many draws of the noise, by rows that are made: how far they lie from the noisy mean.
    draws, columns, noise = np.random.default_rng(2), 60, 0.02
    mean = np.full(columns, math.sqrt(0.91 / columns))
    apart = draws.normal(size=(4000, columns))
    apart -= apart @ np.outer(mean, mean) / (mean @ mean)
    rows = mean + 0.3 * apart / np.linalg.norm(apart, axis=1, keepdims=True)
    assert_allclose(np.linalg.norm(rows, axis=1), 1.0)
    noisy = mean + noise * draws.normal(size=(400, columns))
    squares = [reach_around(each, noise) ** 2 for each in noisy]
    lie = [np.square(rows[:200] - each).sum(1).mean() for each in noisy]
    assert np.mean(squares) == pytest.approx(np.mean(lie), rel=0.05)


@pytest.mark.usefixtures("same_noise")
def test_it_leaves_far_less_of_what_rows_share(tmp_path: Path) -> None:
    (made, labels), (new, right) = a_table(1500, 0), a_table(200, 1)
    np.savez(tmp_path / "t.npz", X_train=made, y_train=labels, X_test=new, y_test=right)
    task = load_task(str(tmp_path / "t.npz"))
    once = replace(task, preparation=Preparation(finer_mean=False))
    shared = []
    for each in (task, once):
        rows, known = prepared(each, outline_of(each, UnitNoise(), BUDGET, seed=0))
        assert known.gave_a_leg == (each is task)
        shared.append(float(rows.train.features[:, 0].double().mean(0).norm()))
    # Of rows whose differences are a fifth as long as they are, a mean that is off by a quarter
    # leaves most.
    assert shared[0] < 0.6 < 0.7 < shared[1]


# What it costs


@pytest.mark.parametrize(
    ("epsilon", "rows", "columns", "planned"),
    [
        (0.3, 1500, 40, True),  # off by a quarter: sqrt(40 / 0.036) / (0.08926 x 1,500)
        (0.3, 1500, 4, False),  # of whose columns rough ranges are bought instead
        (2.0, 1500, 150, True),  # off by 0.163 at 1 % of mu^2
        (4.0, 1500, 150, False),  # by 0.088, a tenth or less
        (0.1, 700, 40, False),  # no mean at all
    ],
)
def test_it_is_planned_where_the_first_mean_is_coarse(
    epsilon: float, rows: int, columns: int, *, planned: bool
) -> None:
    data = Data(np.ones((9, columns)), np.arange(9) % 2)
    facts = replace(data.facts, count=rows)
    config = settled(a_config(budget=Budget(epsilon, 1e-5), space=Space()), facts)
    outline = Outline(config=config, data=facts, reused=False)
    assert config.preparation.finer_mean == outline.refines == planned
    if outline.mean and outline.unlike:  # by the noise itself
        off = outline.mean.noise_multiplier * math.sqrt(columns) / rows
        assert (off > 0.1) == planned
    said = [each for each in in_words(config, facts) if "centred once more" in each]
    line = (
        "centred once more if taken by their logarithm: for the first of the 5 legs of the final "
        "run, a fifth of its price"
    )
    assert said == [line] * planned
    assert (LABEL in dict(outline.payments)) == planned


@pytest.mark.parametrize(
    "asked",
    [
        {"preparation": Preparation(finer_mean=False)},
        {"preparation": Preparation(center_share=0)},
        {"preparation": Preparation(logarithm_share=0)},
        {"recipe": {"sampling_rate": 0.5}},  # whose final run has no legs
        {"recipe": {"optimizer": "adam"}},
        {"search": RandomSearch(trials=4)},  # whose final run is the best trial
        {"space": Space(steps=(1, 20))},
        {"space": Space(steps=(4, 20))},  # a leg of four would be more than was measured
    ],
)
def test_where_there_is_no_leg_or_nobody_wants_one_it_is_not_planned(asked: Any) -> None:
    planned = outlined(a_data_set(), **asked)
    assert not planned.refines and not planned.config.preparation.finer_mean
    assert LABEL not in dict(planned.payments)
    assert not any("once more" in each for each in in_words(planned.config, a_data_set().facts))


@pytest.mark.usefixtures("same_noise")
def test_it_takes_the_place_of_a_leg_and_all_is_the_budget(tmp_path: Path) -> None:
    planned, promised = foresee(a_data_set(), a_config(**UNIT_NOISE))
    result = tune(a_data_set(), out=tmp_path / "run", **UNIT_NOISE)
    # Whatever rows turn out to be, the same is promised.
    kinds = [tune(a_data_set(unlike=kind), **UNIT_NOISE).guarantee for kind in (True, False)]
    finer = "a finer noisy mean of the rows"
    assert [finer in each.releases for each in (promised, *kinds)] == [True, True, False]
    assert kinds[0].mu == kinds[1].mu == pytest.approx(promised.mu, rel=1e-12)
    assert kinds[0].epsilon == kinds[1].epsilon == promised.epsilon
    state = Ledger.open(str(tmp_path / "run" / "ledger.db")).state()
    paid = {payment.label: payment for payment in state.counted}
    legs = [f"final run, leg {number}" for number in range(2, 6)]
    assert [label for label in paid if label and "leg" in label] == [LABEL, *legs]
    leg = planned.payments[[label for label, _ in planned.payments].index(LABEL)][1]
    # By the accountant, and by the noise that was drawn: 1 / noise^2 for a sum that one row moves
    # by 1, and steps / noise^2 for as many of them.
    mean, (run, *_) = paid[LABEL].event, [paid[label].event for label in legs]
    assert isinstance(mean, PrivateMean) and isinstance(run, FullBatchRun)
    price = accounting.price(leg).mu_squared
    assert price * (1 - 1e-9) <= 1 / mean.noise_multiplier**2 <= price
    by_hand = run.steps / run.noise_multiplier**2
    assert by_hand == pytest.approx(price, rel=1e-9)
    spent = math.fsum(payment.price.mu_squared for payment in paid.values())
    assert spent <= BUDGET.mu_squared() and state.spent_epsilon <= 0.3
    final = result.final
    assert final.mu**2 == pytest.approx(4 * price, rel=1e-9)
    assert final.plan.event.steps == sum(paid[label].event.steps for label in legs)
    noises = {paid[label].event.noise_multiplier for label in legs}
    assert max(noises) == pytest.approx(final.plan.noise_multiplier, rel=0.2)
    (said,) = (each for each in result.preparation if "once more" in each)
    assert said == (
        "centred once more, as they are unlike: for the first of the 5 legs of the final run"
    )
    record = Record.read(tmp_path / "run")
    assert record.outline.gave_a_leg
    shown = {slot.purpose: slot.mu_squared for slot in slots(record.outline)}
    assert shown[FINER_MEAN] == pytest.approx(price) and shown["final run"] == pytest.approx(
        4 * price
    )
    assert math.fsum(shown.values()) <= BUDGET.mu_squared()
    # A plan lists the same, and so of rows of which nobody knows what they are.
    for each in (planned, foresee(a_data_set(unlike=False), a_config(**UNIT_NOISE))[0]):
        in_plan = {slot.purpose: slot.mu_squared for slot in foreseen(each)}
        assert in_plan.pop("finer mean or leg 1") == pytest.approx(price)
        assert in_plan == {name: paid for name, paid in shown.items() if name != FINER_MEAN}


@pytest.mark.usefixtures("same_noise")
def test_the_noise_that_is_drawn_is_that_which_is_paid_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[float] = []

    def seen(tables: Any, columns: int, noise: float, *rest: Any, **around: Any) -> Any:
        drawn.append(noise)
        return nearer_mean(tables, columns, noise, *rest, **around)

    monkeypatch.setattr(prepare, "nearer_mean", seen)
    result = tune(a_data_set(), out=tmp_path / "run", **UNIT_NOISE)
    state = Ledger.open(str(tmp_path / "run" / "ledger.db")).state()
    (paid,) = (payment.event for payment in state.counted if payment.label == LABEL)
    assert drawn == [paid.noise_multiplier]
    stored = RunFolder.open(tmp_path / "run").read_tensors(FILE)
    assert stored is not None and result.model.preprocessing.center is not None
    assert_array_equal(stored[0]["finer_mean"].numpy(), result.model.preprocessing.center)
    assert len(result.model.preprocessing.center) == COLUMNS
    assert result.test_accuracy > 0.6


@pytest.mark.usefixtures("same_noise")
def test_rows_of_like_numbers_keep_all_legs(tmp_path: Path) -> None:
    result = tune(a_data_set(unlike=False), out=tmp_path / "run", **UNIT_NOISE)
    state = Ledger.open(str(tmp_path / "run" / "ledger.db")).state()
    (first,) = (payment.event for payment in state.counted if payment.label == LABEL)
    assert isinstance(first, FullBatchRun)
    assert not any("once more" in each for each in result.preparation)
    assert not (tmp_path / "run" / FILE).exists()
    assert not Record.read(tmp_path / "run").outline.gave_a_leg
    assert "finer" not in json.dumps(result.to_dict())


# Whoever is killed, reuses a search, or began with an older version


@pytest.mark.usefixtures("same_noise")
def test_one_that_is_cut_off_leaves_the_first(tmp_path: Path) -> None:
    data, run = a_data_set(), tmp_path / "run"
    assert stop_after(run, data, FINER_MEAN, preparation=Preparation(), **UNIT_NOISE)
    result = resume(run, data)
    assert "the finer mean was cut off: paid for, and not subtracted" in result.notes
    assert not any("finer" in each for each in result.guarantee.releases)
    assert any("not centred once more" in each for each in result.preparation)
    first = RunFolder.open(run).read_tensors("models/mean.safetensors")
    assert first is not None
    mean, noise = first[0]["mean"].numpy(), outlined(data).mean
    assert noise is not None
    assert_allclose(result.model.preprocessing.center, mean)  # clear enough not to be shrunk
    state = Ledger.open(str(run / "ledger.db")).state()
    assert [p.label for p in state.counted].count(LABEL) == 1
    assert state.spent_epsilon <= 0.3
    assert not any("legs of the final run that were cut off" in note for note in result.notes)
    assert resume(run, data).guarantee == result.guarantee


@pytest.mark.usefixtures("same_noise")
@pytest.mark.parametrize(("doing", "lost"), [(MEAN, 0), ("final run: leg 2", 1), ("done", 0)])
def test_it_is_taken_once_and_later_legs_go_on(doing: str, lost: int, tmp_path: Path) -> None:
    data, run = a_data_set(), tmp_path / "run"
    assert stop_after(run, data, doing, preparation=Preparation(), **UNIT_NOISE)
    before = contents(run).get(FILE)
    assert (before is None) == (doing == MEAN)
    result = resume(run, data)
    if doing != MEAN:
        assert contents(run)[FILE] == before
    alone = "centred by a finer mean alone, as they are unlike: for the first of the 5 legs"
    said = [each for each in result.preparation if "finer mean alone" in each]
    assert said == [f"{alone} of the final run"] * (doing == MEAN)
    released = [each for each in result.guarantee.releases if "mean" in each]
    first, finer = "a noisy mean of the rows", "a finer noisy mean of the rows"
    assert released == ([finer] if doing == MEAN else [first, finer])
    state = Ledger.open(str(run / "ledger.db")).state()
    labels = [payment.label for payment in state.counted]
    assert len(set(labels)) == len(labels) and state.spent_epsilon <= 0.3
    said = [note for note in result.notes if note.startswith("legs of the final run that were cut")]
    assert len(said) == lost and all(" off: 1 of 4; " in note for note in said)
    leg = outlined(data, search=UnitNoise()).finer_mean.noise_multiplier ** -2
    assert result.final.mu**2 == pytest.approx((4 - lost) * leg, rel=1e-6)


@pytest.mark.usefixtures("same_noise")
def test_legs_go_on_around_it_though_the_first_mean_is_lost_since(tmp_path: Path) -> None:
    data, run = a_data_set(), tmp_path / "run"
    assert stop_after(run, data, "final run: leg 4", preparation=Preparation(), **UNIT_NOISE)
    stored = RunFolder.open(run).read_tensors(FILE)
    assert stored is not None
    (run / "models" / "mean.safetensors").unlink()  # as a message says of a file that is damaged
    result = resume(run, data)
    assert_array_equal(result.model.preprocessing.center, stored[0]["finer_mean"].numpy())
    assert "the private mean was cut off: paid for, and not subtracted" in result.notes


@pytest.mark.usefixtures("same_noise")
@pytest.mark.parametrize(
    ("doing", "ended"),
    [
        ("counting rows by class", FINER_MEAN),
        ("sweep: comparing", "trial 3"),
        ("final run: leg 3", "final run, leg 2"),
    ],
)
def test_whoever_goes_on_hears_after_what(doing: str, ended: str, tmp_path: Path) -> None:
    data, run, told = a_data_set(), tmp_path / "run", list[str]()
    assert stop_after(run, data, doing, preparation=Preparation(), budget=BUDGET)
    resume(run, data, watch=lambda progress: told.append(progress.doing))
    assert f"going on after {ended}" in told


def test_one_that_nobody_paid_for_is_refused(tmp_path: Path) -> None:
    data, run = a_data_set(), tmp_path / "run"
    assert stop_after(run, data, MEAN, preparation=Preparation(), **UNIT_NOISE)
    stored = {"finer_mean": torch.zeros(COLUMNS, dtype=torch.float64)}
    RunFolder.open(run).write_tensors(FILE, stored)
    with pytest.raises(FolderProblem, match=f"there is a result of '{LABEL}', but .* never began"):
        resume(run, data)


@pytest.mark.usefixtures("same_noise")
def test_whitened_rows_are_centred_so_before(tmp_path: Path) -> None:
    data, asked = a_data_set(), Preparation(whiten_share=0.1)
    run = tmp_path / "run"
    assert stop_after(run, data, "second moment", preparation=asked, **UNIT_NOISE)
    assert (run / FILE).exists()
    told: list[str] = []
    result = resume(run, data, watch=lambda progress: told.append(progress.doing))
    assert f"going on after {FINER_MEAN}" in told
    assert any("the second moment was cut off" in note for note in result.notes)
    whole = tune(data, preparation=asked, **UNIT_NOISE)
    assert whole.guarantee.mu == result.guarantee.mu
    made = whole.model.preprocessing
    assert made.whitening is not None and made.center is not None
    assert len(made.center) == len(made.whitening) == COLUMNS


@pytest.mark.usefixtures("same_noise")
def test_a_search_is_reused_by_rows_that_are_centred_alike(tmp_path: Path) -> None:
    data, address = a_data_set(), f"{tmp_path}/shared.db"
    Ledger.create(address, Budget(8.0, 1e-5), dataset="d", fingerprint=data.fingerprint)
    options: dict[str, Any] = {"ledger": address, "data": data, **UNIT_NOISE}
    once = Preparation(finer_mean=False)
    tune(**options, preparation=once, out=tmp_path / "once")
    tune(**options, out=tmp_path / "more")
    after = tune(**options, reuse=tmp_path / "once")  # as it was then
    assert not any("once more" in each for each in after.preparation)
    with pytest.raises(InvalidInput, match="finer_mean"):
        tune(**options, reuse=tmp_path / "more", preparation=once)


@pytest.mark.usefixtures("same_noise")
def test_of_an_earlier_search_it_counts_as_a_part(tmp_path: Path) -> None:
    """The trials of the first saw rows that were centred so: its mean is in the second's price."""
    data, address = a_data_set(), f"{tmp_path}/shared.db"
    Ledger.create(address, Budget(8.0, 1e-5), dataset="d", fingerprint=data.fingerprint)
    options: dict[str, Any] = {"ledger": address, "search": UnitNoise()}
    tune(data, budget=BUDGET, out=tmp_path / "first", **options)
    state = Ledger.open(address).state()
    last = max(payment.number for payment in state.payments)
    search = [p for p in state.counted if p.label == LABEL or "final" not in str(p.label)]
    result = tune(data, budget=BUDGET, out=tmp_path / "second", reuse=tmp_path / "first", **options)
    mine = [p for p in Ledger.open(address).state().counted if p.number > last]
    together = math.fsum(p.price.mu_squared for p in [*search, *mine])
    assert MEAN in {p.label for p in search} and len([p for p in search if p.label == LABEL]) == 1
    assert together <= result.guarantee.mu**2 == pytest.approx(together, rel=1e-9)
    # At a budget where the first mean is fine, the search is reused all the same.
    plenty = tune(
        data, budget=Budget(2.0, 1e-5), out=tmp_path / "third", reuse=tmp_path / "first", **options
    )
    finer = [
        read_config(RunFolder.open(tmp_path / name)).preparation.finer_mean
        for name in ("first", "second", "third")
    ]
    assert finer == [True, True, False] and plenty.guarantee.epsilon > 2.0


def test_a_run_of_before_centres_once() -> None:
    older = preparation_from({"whiten_share": 0.0, "range_share": 0.0, "curves": 1})
    assert not older.finer_mean and Preparation().finer_mean
