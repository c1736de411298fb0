"""Rows that are centred and whitened where that is worth its price: decided by public numbers, paid
for, kept, lost, and taken up again."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from dptune import Budget, Data, Ledger, Preparation, accounting, load, resume
from dptune.data import DiskRows, write_chunks
from dptune.data.row_maps import Encode, Multiply, Subtract, UnitLength
from dptune.data.rows import DataFacts
from dptune.engines.linear import LinearEngine
from dptune.engines.traits import Traits
from dptune.errors import BudgetExceeded, FolderProblem, InvalidInput
from dptune.preparation.centring import MEAN
from dptune.preparation.lengths import private_lengths, typical_length
from dptune.preparation.pipeline import plan, prepare
from dptune.preparation.step import State
from dptune.preparation.whitening import SECOND_MOMENT, WhiteningMatrix
from dptune.privacy import FullBatchRun, PrivateMean, PrivateSecondMoment, total
from dptune.report import model_card
from dptune.report.record import Record
from dptune.search.linear_scaling import LinearScaling
from dptune.search.private_selection import PrivateSelection
from dptune.search.random_search import RandomSearch
from dptune.search.score import HeldOutScore, NoisyScore
from dptune.search.unit_noise import UnitNoise
from dptune.search.wosm import Wosm
from dptune.study.config import Config, parse, preparation_from
from dptune.study.outline import Outline
from dptune.study.payments import Payments
from dptune.study.planning import read_config
from dptune.study.recipe import case_of, in_words, settled
from dptune.study.run_folder import RunFolder
from dptune.study.runner import Progress
from support.old_folders import without_digests
from support.row_maps import appended, matrix_of, mean_of
from support.rows import make_data, make_rows
from support.spy import Spied, spy_on_engine
from support.studies import BUDGET, SPACE, contents, stop_after, study

LARGE: dict[str, Any] = {"budget": Budget(30.0, 1e-5), "allow_large_epsilon": True}
AUTO = {"preparation": Preparation()}
# What prepares rows, and the file that keeps it.
FIGURES = {"row lengths": "lengths", "private mean": "mean", "second moment": "second_moment"}


@pytest.fixture
def spied(monkeypatch: pytest.MonkeyPatch) -> Spied:
    return spy_on_engine(monkeypatch)


def facts(rows: int, columns: int, outputs: int = 10, loss: str = "softmax") -> DataFacts:
    return DataFacts(rows, (columns,), 1, outputs, loss)


def asked(**changed: Any) -> Config:
    usual: dict[str, Any] = {
        "study": "s", "budget": Budget(1.0, 1e-5), "search": LinearScaling(),
        "score": NoisyScore(), "space": SPACE, "recipe": {}, "preparation": Preparation(),
        "source": {},
    }  # fmt: skip
    return Config(**usual | changed)


def stretched(count: int = 400, seed: int = 0) -> tuple[Any, Any]:
    """Rows that share a direction, and of which another holds most of what is left."""
    features, labels = make_rows(count, seed)
    return features * [1, 1, 1, 4] + [0, 0, 3, 0], labels


def on_disk(folder: Path, features: Any, labels: Any, **kind: Any) -> DiskRows:
    parts = zip(np.array_split(features, 3), np.array_split(labels, 3), strict=True)
    write_chunks(folder, parts, **kind)
    return DiskRows(folder)


# What is decided, before anything is paid.


@pytest.mark.parametrize(
    ("epsilon", "rows", "columns", "center", "whiten", "share_of_mean", "most_off"),
    [
        (0.1, 50_000, 64, True, True, 0.01, 0.25),
        (1.0, 50_000, 256, True, True, 0.01, 0.25),
        (0.1, 50_000, 256, True, False, 0.01, 0.25),
        (1.0, 15_326, 384, True, False, 0.01, 0.25),
        (0.1, 5_452, 384, False, False, 0.02, 0.25),
        (8.0, 5_452, 384, True, False, 0.01, 0.25),
        (0.3, 300, 4, True, True, 0.05, 0.7),  # their noise hardly bends the directions
        (0.3, 100, 4, False, False, 0.05, 0.7),
    ],
)
def test_the_gates_open_where_noise_does_not_outweigh_what_is_bought(
    epsilon: float,
    rows: int,
    columns: int,
    center: bool,
    whiten: bool,
    share_of_mean: float,
    most_off: float,
) -> None:
    config = asked(budget=Budget(epsilon, 1e-5))
    planned = plan(case_of(config, facts(rows, columns)))
    assert (MEAN in planned.events, SECOND_MOMENT in planned.events) == (center, whiten)
    mu = config.budget.mu
    assert center == (math.sqrt(columns / share_of_mean) / (mu * rows) <= most_off)
    assert whiten == (1.4 * columns**1.5 / (math.sqrt(0.02) * mu * rows) <= 5)


def test_each_gate_says_why_in_one_sentence() -> None:
    unscaled = (
        "columns are not scaled one by one: more than 100 columns are taken for features of one "
        "scale (declare ranges if they are not)"
    )
    assert in_words(asked(), facts(15_326, 384)) == (
        unscaled,
        "centred with a private mean: 1 % of the budget",
        "not whitened: 384 columns are too many for 15,326 rows at this budget",
    )
    both = Preparation(center_share=0, whiten_share=0.025)
    assert in_words(asked(preparation=both), facts(15_326, 384)) == (
        unscaled,
        "not centred: as asked",
        "whitened with a private second moment: 2.5 % of the budget",
    )
    pictures = DataFacts(1000, (3, 8, 8), 1, 10, "softmax")
    assert in_words(asked(preparation=Preparation(unit_rows=False)), pictures) == ()


NEVER: dict[str, tuple[dict[str, Any], DataFacts]] = {
    "a sealed search is priced": ({"search": PrivateSelection()}, facts(50_000, 64)),
    "not scaled to unit length": (
        {"preparation": Preparation(unit_rows=False)},
        facts(50_000, 64),
    ),
    "only for classification": (
        {"preparation": Preparation(shorten=False)},
        facts(50_000, 64, 1, "squared"),
    ),
    "there is one column": ({}, facts(50_000, 1)),
}


@pytest.mark.parametrize("why", NEVER)
def test_where_it_is_no_use_nothing_is_bought_unless_asked(why: str) -> None:
    changed, known = NEVER[why]
    assert not {MEAN, SECOND_MOMENT} & set(plan(case_of(asked(**changed), known)).events)
    assert all(why in sentence for sentence in in_words(asked(**changed), known))


def test_rows_that_are_not_scaled_again_are_not_whitened_unless_asked() -> None:
    config = settled(asked(preparation=Preparation(rescale=False)), facts(50_000, 64))
    assert config.preparation.whiten_share == 0
    assert "not whitened: as asked" not in in_words(config, facts(50_000, 64))


def test_another_engine_gets_its_rows_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LinearEngine, "traits", Traits())
    assert MEAN not in plan(case_of(asked(), facts(50_000, 64))).events
    assert "not measured for a" in in_words(asked(), facts(50_000, 64))[0]


def test_the_decision_is_the_same_whatever_the_rows_hold() -> None:
    features, labels = make_rows()
    others = Data(1e6 * features[:, ::-1] + 3, 1 - labels)
    assert others.facts == Data(features, labels).facts
    plans = [Outline(config=settled(asked(), d.facts), data=d.facts, reused=False)
             for d in (Data(features, labels), others)]  # fmt: skip
    assert plans[0].payments == plans[1].payments
    assert plans[0].recipe == plans[1].recipe
    assert plans[0].preparation["constant"] == plans[1].preparation["constant"]


def test_what_is_decided_is_written_down_for_later_versions(tmp_path: Path) -> None:
    study(tmp_path / "run", **AUTO)
    config = read_config(RunFolder.open(tmp_path / "run"))
    # 4 / (0.5001 x 400 / 32.523)^2
    for_columns = {"range_share": 0.106, "category_share": 0, "class_share": 0}
    decided = Preparation(
        center_share=0.01,
        whiten_share=0.02,
        logarithm_share=0,
        shorten=False,
        curves=1,
        **for_columns,
    )
    assert config.preparation == decided
    assert config.recipe == {"clip_norm": 0.5, "averaging": "swa"}


@pytest.mark.parametrize(
    ("changed", "known", "clip_norm"),
    [
        ({}, facts(100, 4), 0.1),
        ({"recipe": {"clip_norm": 0.5}}, facts(100, 4), 0.5),
        ({"recipe": {"momentum": 0.5}}, facts(100, 4), 0.1),
        ({"search": Wosm()}, facts(100, 4), 0.1),
        ({}, facts(100, 4, 1, "squared"), 0.2),
        ({"preparation": Preparation(unit_rows=False)}, facts(100, 4), 1.0),
    ],
)
def test_rows_of_unit_length_are_clipped_far_below_their_gradients(
    changed: dict[str, Any], known: DataFacts, clip_norm: float
) -> None:
    config = settled(asked(**changed), known)
    assert config.plan(1).clip_norm == clip_norm
    assert config.recipe.get("momentum") == changed.get("recipe", {}).get("momentum")


@pytest.mark.parametrize(
    ("rows", "columns", "clip_norm"),
    [(50_000, 4, 0.5), (50_000, 16, 0.5), (50_000, 64, 0.25), (10**6, 1000, 0.1), (100, 4, 0.1)],
)
def test_near_an_optimum_fewer_columns_are_clipped_less(
    rows: int, columns: int, clip_norm: float
) -> None:
    config = settled(asked(), facts(rows, columns))
    assert config.plan(rows).clip_norm == clip_norm
    assert (config.plan(rows).averaging == "swa") == (rows > 100)


@pytest.mark.parametrize(
    ("epsilon", "rows", "columns", "outputs", "averaging"),
    [  # a mu of 0.268 at epsilon 1, of 1.69 at epsilon 8
        (1.0, 50_000, 64, 10, "swa"),  # 20.9 for every weight
        (1.0, 50_000, 512, 10, "none"),  # 2.6
        (8.0, 50_000, 512, 10, "swa"),  # 16.5
        (8.0, 5_000, 512, 10, "none"),  # 1.65
        (8.0, 50_000, 512, 100, "none"),
    ],
)
def test_the_last_half_is_averaged_where_there_is_signal_enough(
    epsilon: float, rows: int, columns: int, outputs: int, averaging: str
) -> None:
    config = settled(asked(budget=Budget(epsilon, 1e-5)), facts(rows, columns, outputs))
    assert config.plan(rows).averaging == averaging
    said = "final weights: average of the last half of the iterates (no privacy cost)"
    assert (said in in_words(config, facts(rows, columns, outputs))) == (averaging == "swa")


@pytest.mark.parametrize(
    ("changed", "averaging"),
    [
        ({}, "swa"),
        ({"recipe": {"averaging": "none"}}, "none"),
        ({"recipe": {"averaging": "ema"}}, "ema"),
        ({"recipe": {"momentum": 0.5}}, "swa"),
        ({"recipe": {"optimizer": "adam"}}, "none"),
        ({"recipe": {"schedule": "cosine"}}, "none"),
        ({"recipe": {"free_steps": 2}}, "none"),  # which no average would see
        ({"search": Wosm()}, "none"),
        ({"preparation": Preparation(unit_rows=False)}, "none"),
    ],
)
def test_averages_are_taken_only_where_they_were_measured(
    changed: dict[str, Any], averaging: str
) -> None:
    known = facts(50_000, 16)
    config = settled(asked(**changed), known)
    assert Outline(config=config, data=known, reused=False).recipe.averaging == averaging


# A constant beside centred rows.


def outlined(known: DataFacts, **changed: Any) -> Outline:
    return Outline(config=settled(asked(**changed), known), data=known, reused=False)


def constant_of(planned: Outline) -> float:
    found: float = planned.preparation["constant"].constant
    return found


@pytest.mark.parametrize(
    ("columns", "changed", "constant"),
    [
        (64, {}, 0.25),
        (256, {}, 0.125),  # twice as long as a column of theirs
        (64, {"engine": LinearEngine(bias=True)}, 0.0),  # it has its own
        (64, {"preparation": Preparation(center_share=0)}, 0.0),
        (64, {"preparation": Preparation(whiten_share=0)}, 0.25),
        (64, {"preparation": Preparation(center_share=0.1, whiten_share=0, rescale=False)}, 0.0),
        (64, {"preparation": Preparation(unit_rows=False, center_share=0.1)}, 0.0),
        # A signal of 0.013 for every weight: more noise than it is worth.
        (100_000, {"preparation": Preparation(center_share=0.1)}, 0.0),
    ],
)
def test_centred_rows_of_unit_length_get_a_constant(
    columns: int, changed: dict[str, Any], constant: float
) -> None:
    assert constant_of(outlined(facts(50_000, columns), **changed)) == constant


@pytest.mark.parametrize(
    ("changed", "counted"),
    [
        ({}, True),
        ({"engine": LinearEngine(bias=True)}, False),
        ({"preparation": Preparation(whiten_share=0)}, False),
        ({"preparation": Preparation(center_share=0)}, True),
    ],
)
def test_lengths_are_counted_where_rows_are_whitened(
    changed: dict[str, Any], counted: bool
) -> None:
    planned = outlined(facts(50_000, 64), **changed)
    assert ("row lengths" in planned.preparing) == counted


def without_noise(shape: tuple[int, ...]) -> Any:
    return np.zeros(shape)


@pytest.mark.parametrize("row", [np.zeros(4), np.full(4, 1e-300), np.ones(4), np.full(4, 1e300)])
def test_a_row_is_in_one_cell_of_the_lengths(row: Any) -> None:
    """So all of them together are one count, whatever the row."""
    features, _ = make_rows()
    with_row = np.concatenate([features, row[None]])
    counts = [private_lengths([t], 1.0, without_noise) for t in (features, with_row)]
    moved = counts[1] - counts[0]
    assert sorted(moved)[-1] == 1 == moved.sum() and np.count_nonzero(moved) == 1


def test_lengths_are_counted_exactly_before_there_is_noise_on_them() -> None:
    """Added to noise one table after the other, they would be rounded by their company."""
    features, _ = make_rows(8000)
    large: Callable[..., Any] = lambda shape: np.full(shape, 2.0**53)  # noqa: E731
    parts = np.array_split(features, 50)
    whole = private_lengths([features], 1.0, without_noise)
    assert np.array_equal(private_lengths(parts, 1.0, large), whole + 2.0**53)


def test_the_typical_length_is_the_median_unless_noise_drowns_it() -> None:
    features = (
        np.eye(4)[np.arange(400) % 4] * np.repeat([0.5, 8.0, 100.0], [100, 200, 100])[:, None]
    )
    counts = private_lengths([features], 1.0, without_noise)
    assert typical_length(counts, 1.0) == pytest.approx(8.0, rel=0.2)
    assert typical_length(counts, 60.0) is None


def prepared_by(planned: Outline, figures: dict[str, Any]) -> State:
    """The state of rows whose statistics are these."""
    steps = planned.preparation
    return prepare(steps, lambda step, *_: figures.get(step.name), steps.start(None))


def test_the_curvature_counts_the_constant_in() -> None:
    """The largest eigenvalue of rows of unit length with a constant beside them, scaled again."""
    planned = outlined(facts(50_000, 4))
    event = planned.preparing[SECOND_MOMENT]
    assert isinstance(event, PrivateSecondMoment)
    for moment in (np.diag([0.7, 0.1, 0.1, 0.1]), np.eye(4) / 4):
        figures = {"private mean": np.zeros(4), "second moment": moment}
        made = prepared_by(planned, figures)
        alone = WhiteningMatrix.of(moment, event.noise_multiplier, 50_000).curvature
        assert appended(made.preprocessing) == [0.25]
        beside = np.linalg.eigvalsh(np.diag([alone, 0.25**2]) / (1 + 0.25**2))[-1]
        assert made.curvature == pytest.approx(beside)


@pytest.mark.parametrize("lost", ["private mean", "second moment", "both"])
def test_what_is_lost_leaves_the_constant_where_it_was(lost: str) -> None:
    """Models and rows keep the shape that the study was begun with."""
    figures: dict[str, Any] = {"private mean": np.zeros(4), "second moment": np.eye(4) / 4}
    figures |= dict.fromkeys(figures if lost == "both" else [lost])
    made = prepared_by(outlined(facts(50_000, 4)), figures)
    assert made.preprocessing.columns(4) == 5
    assert (mean_of(made.preprocessing) is None) == (lost != "second moment")
    assert made.curvature <= 1


@pytest.mark.parametrize("source", ["memory", "disk"])
def test_a_model_predicts_raw_rows_as_the_prepared_ones_it_was_trained_on(
    source: str, tmp_path: Path, spied: Spied
) -> None:
    features, labels = stretched()
    data = Data(features, labels)
    if source == "disk":
        data = Data.from_disk(on_disk(tmp_path / "rows", features, labels, precision="float64"))
    result = study(tmp_path / "run", data, **LARGE, **AUTO)
    assert appended(result.model.preprocessing)[-1] == 0.25 and result.model.shape == (4,)
    assert result.model.model.weights.shape == (2, 6)  # the length of a row, and the constant
    _, seen = spied.runs[-1]
    trained = np.concatenate([chunk.features[:, 0].numpy() for chunk in seen.chunks()])
    assert trained.shape == (400, 6)
    # Rows on disk are prepared as they are read, to the same bits.
    np.testing.assert_array_equal(trained, result.model.preprocessing.apply(features))
    logits = result.model.model.logits(torch.from_numpy(trained)).numpy()
    for model in (result.model, load(tmp_path / "run")):
        found = model.decision_function(features)
        np.testing.assert_allclose(found, logits, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(model.predict(features), logits.argmax(1))


def test_an_engine_with_a_bias_trains_on_rows_as_wide_as_they_were(
    tmp_path: Path, spied: Spied
) -> None:
    result = study(tmp_path / "run", Data(*stretched()), engine=LinearEngine(bias=True), **AUTO)
    assert mean_of(result.model.preprocessing) is not None
    assert not appended(result.model.preprocessing)
    assert spied.runs[-1][1].columns == 4


def test_models_of_older_versions_have_no_constant(tmp_path: Path) -> None:
    features, labels = make_rows()
    preparation = Preparation(center_share=0.1, whiten_share=0, rescale=False)
    result = study(tmp_path / "run", Data(features, labels), preparation=preparation)
    without_digests(tmp_path / "run")
    file = tmp_path / "run" / "model.safetensors"
    with safe_open(file, "pt") as stored:
        tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        about = json.loads(stored.metadata()["facts"])
    encode, *_ = about.pop("row_maps")
    about["encoding"] = encode["encoding"]
    tensors["prepare.center"] = tensors.pop("prepare.2.mean")
    save_file(tensors, file, {"facts": json.dumps(about)})
    again = load(tmp_path / "run")
    assert [type(each) for each in again.preprocessing.maps] == [Encode, UnitLength, Subtract]
    np.testing.assert_array_equal(
        again.decision_function(features), result.model.decision_function(features)
    )


# What is paid.


@pytest.mark.parametrize("search", [LinearScaling(), UnitNoise(), RandomSearch(trials=3)], ids=str)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_all_slots_together_are_the_budget_and_no_more(epsilon: float, search: Any) -> None:
    config = settled(asked(budget=Budget(epsilon, 1e-5), search=search), facts(50_000, 64))
    planned = Outline(config=config, data=facts(50_000, 64), reused=False)
    (zeroth, lengths), (first, mean), (second, moment), *rest = planned.payments
    assert (zeroth, first, second) == ("row lengths", "private mean", "second moment")
    assert isinstance(mean, PrivateMean) and isinstance(moment, PrivateSecondMoment)
    everything = config.budget.mu_squared()
    assert accounting.price(lengths).mu_squared == pytest.approx(0.001 * everything)
    assert accounting.price(mean).mu_squared == pytest.approx(0.01 * everything)
    assert accounting.price(moment).mu_squared == pytest.approx(0.02 * everything)
    paid = total(accounting.price(event) for _, event in planned.payments).mu_squared
    assert 0.999 * everything < paid <= everything
    assert planned.epsilon <= epsilon
    # Another derivation: one Gaussian release of all noise multipliers, by hand.
    by_hand = math.fsum(
        steps / event.noise_multiplier**2
        for _, event in [(first, mean), (second, moment), *rest]
        if (steps := getattr(event, "steps", 1)) and not hasattr(event, "counts")
    )
    counted = [event for event in (lengths, *(e for _, e in rest)) if hasattr(event, "counts")]
    by_hand += math.fsum(accounting.price(event).mu_squared for event in counted)
    assert by_hand == pytest.approx(paid)


def test_first_trials_wait_for_what_prepares_rows() -> None:
    """Settings may depend on it, so only the price of the longest run is known before."""
    known = facts(50_000, 64)
    for center, whiten, alike in ((0.0, 0.02, True), (0.01, 0.0, True), (0.0, 0.0, False)):
        preparation = Preparation(center_share=center, whiten_share=whiten)
        config = asked(search=RandomSearch(trials=3), preparation=preparation)
        planned = Outline(config=config, data=known, reused=False)
        trials = [event for label, event in planned.payments if label.startswith("trial")]
        assert (len({e.steps for e in trials if isinstance(e, FullBatchRun)}) == 1) == alike


def test_no_price_depends_on_the_curvature() -> None:
    config = settled(asked(), facts(50_000, 64))
    before = Outline(config=config, data=facts(50_000, 64), reused=False)
    after = replace(before, curvature=0.1)
    assert after.payments == before.payments and after.schedule == before.schedule
    assert after.situation(after.schedule.final, (), None).curvature == 0.1


def test_what_a_constant_tells_of_values_makes_no_trial_dearer_than_was_held() -> None:
    """Nothing is counted there before the first trials, whose steps follow from the curvature."""
    known = facts(20_000, 4, 1, "squared")
    config = asked(
        budget=Budget(4.0, 1e-6),
        score=NoisyScore(measure="loss"),
        space=LinearScaling.usual_space,
        preparation=Preparation(center_share=0.02, whiten_share=0),
    )
    before = Outline(config=config, data=known, reused=False)
    constant = constant_of(before)
    assert before.schedule.census is None and constant
    after = replace(before, curvature=1 / (1 + constant**2))
    assert after.payments == before.payments
    held = dict(before.payments)
    ((sweep, numbers),) = after.sweeps()
    for number, setting in zip(numbers, after.suggest(sweep, (), None), strict=True):
        run = accounting.price(after.plan(setting, sweep).event)
        assert run.mu_squared <= accounting.price(held[f"trial {number}"]).mu_squared


def test_shares_that_leave_nothing_cost_nothing(tmp_path: Path) -> None:
    everything = Preparation(center_share=0.5, whiten_share=0.5)
    with pytest.raises(BudgetExceeded, match="Nothing was spent"):
        study(tmp_path / "run", preparation=everything)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["center_share", "whiten_share"])
@pytest.mark.parametrize("share", ["yes", "", -0.1, 0.6, math.nan, True, None])
def test_a_share_is_a_part_or_auto(name: str, share: Any) -> None:
    with pytest.raises(InvalidInput, match=name):
        Preparation(**{name: share})


def test_rows_are_whitened_at_unit_length_only() -> None:
    for way in ("unit_rows", "rescale"):
        with pytest.raises(InvalidInput, match="make it 0"):
            Preparation(**{way: False}, whiten_share=0.02)


def test_a_sealed_search_stays_alone(tmp_path: Path) -> None:
    result = study(tmp_path / "run", search=PrivateSelection(), **AUTO)
    assert matrix_of(result.model.preprocessing) is None
    assert sum("a sealed search" in sentence for sentence in result.preparation) == 2
    with pytest.raises(InvalidInput, match="second moment"):
        study(None, search=PrivateSelection(), preparation=Preparation(whiten_share=0.1))


# What comes of it.


def test_rows_are_centred_whitened_and_of_unit_length(tmp_path: Path, spied: Spied) -> None:
    heard: list[Progress] = []
    features, labels = stretched()
    data = Data(features, labels, test=stretched(50, 1))
    result = study(tmp_path / "run", data, watch=heard.append, **LARGE, **AUTO)
    assert heard[0].doing.startswith(
        "preparing: ranges of columns 0.5 %, row lengths 0.1 %, private mean 1 %, second moment 2 %"
    )
    assert heard[0].spent == 0
    figures = ["ranges of columns", "row lengths", "private mean", "second moment"]
    assert [progress.doing for progress in heard[1:5]] == figures
    paid = Ledger.open(str(tmp_path / "run" / "ledger.db")).state().counted
    assert [payment.label for payment in paid[:5]] == [*figures, "census"]
    assert "a noisy mean of the rows" in result.guarantee.releases
    assert "a noisy second moment of the rows" in result.guarantee.releases
    assert "noisy counts of rows by length" in result.guarantee.releases
    assert list(result.preparation) == result.to_dict()["preparation"]
    assert len(result.preparation) == 6
    for _, rows in spied.runs:
        trained = rows.features[:, 0].double().numpy()
        assert np.linalg.norm(trained, axis=1) == pytest.approx(1, abs=1e-6)
        assert np.linalg.eigvalsh(trained.T @ trained / 400)[-1] < 0.52  # only centred: 0.63
    # What the search knows of it, then and when the record is read.
    curvature = heard[-1].situation.curvature
    moment = load_file(tmp_path / "run" / "models" / "second_moment.safetensors")
    noise = next(p.event.noise_multiplier for p in paid if p.label == "second moment")  # type: ignore[union-attr]
    alone = WhiteningMatrix.of(moment["second_moment"].numpy(), noise, 400).curvature
    assert curvature == alone / (1 + 0.25**2) < 0.6
    assert Record.read(tmp_path / "run").situation.curvature == curvature
    card = model_card(tmp_path / "run")
    assert re.search(r"centred with a private mean, 0\.\d\d of a row long: 1 %", card)
    assert re.search(r"direction from \d+ % to \d+ % of a row: 2 % of the budget", card)
    kept, given = load(tmp_path / "run"), features[:50]
    assert np.array_equal(kept.decision_function(given), result.model.decision_function(given))


COMBINED: dict[str, dict[str, Any]] = {
    "held out": {"score": HeldOutScore(every=4)},
    "sampled": {"recipe": {"sampling_rate": 0.3}},
    "ranges": {"preparation": Preparation(ranges=((-4, 4),) * 4)},
    "public rows": {"preparation": Preparation(standardize=True)},
    "bias": {"engine": LinearEngine(bias=True), **AUTO},
    "bfloat16": {"precision": "bfloat16"},
    "adam": {"recipe": {"optimizer": "adam"}},
    "whitened only": {"preparation": Preparation(center_share=0)},
}


@pytest.mark.parametrize("source", ["memory", "disk"])
@pytest.mark.parametrize("combined", COMBINED)
def test_it_goes_with_everything_else(combined: str, source: str, tmp_path: Path) -> None:
    features, labels = make_rows()
    data = make_data()
    if source == "disk":
        chunks = on_disk(tmp_path / "rows", features, labels)
        data = Data.from_disk(chunks, public=make_rows(100, 2))
    result = study(tmp_path / "run", data, **AUTO | COMBINED[combined])
    assert matrix_of(result.model.preprocessing) is not None
    assert result.guarantee.epsilon <= BUDGET.epsilon
    spent = Ledger.open(str(tmp_path / "run" / "ledger.db")).state()
    assert spent.spent_epsilon <= BUDGET.epsilon
    kept = load(tmp_path / "run")
    assert np.array_equal(
        kept.decision_function(features), result.model.decision_function(features)
    )


# Killed, lost, taken up again.


@pytest.mark.usefixtures("same_noise")
@pytest.mark.parametrize(
    "doing", ["row lengths", "private mean", "second moment", "counting", "final run: segment 2"]
)
def test_a_study_goes_on_without_what_was_lost(doing: str, tmp_path: Path) -> None:
    data = make_data()
    stop_after(tmp_path / "run", data, doing, **AUTO)
    before = contents(tmp_path / "run")
    result = resume(tmp_path / "run", data)
    made, lost = result.model.preprocessing, " ".join(result.notes)
    assert (mean_of(made) is None) == (doing == "private mean")
    assert (matrix_of(made) is None) == (doing == "second moment")
    interrupted = "interrupted after payment"
    assert (f"row lengths were {interrupted}" in lost) == (doing == "row lengths")
    assert (f"mean was {interrupted}" in lost) == (doing == "private mean")
    assert (f"second moment was {interrupted}" in lost) == (doing == "second moment")
    released = " ".join(result.guarantee.releases)
    assert ("mean of the rows" in released) == (doing != "private mean")
    assert ("second moment of the rows" in released) == (doing != "second moment")
    for name in (f"models/{figure}.safetensors" for figure in FIGURES.values()):
        if name in before:  # released once, with one noise
            assert contents(tmp_path / "run")[name] == before[name]
    ledger = Ledger.open(str(tmp_path / "run" / "ledger.db"))
    labels = [payment.label for payment in ledger.state().counted]
    assert [labels.count(label) for label in FIGURES] == [1, 1, 1]
    assert ledger.state().spent_epsilon <= BUDGET.epsilon == result.guarantee.epsilon
    assert resume(tmp_path / "run", data).notes == result.notes


@pytest.mark.parametrize("label", FIGURES)
def test_what_is_on_disk_is_not_taken_again(
    label: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the result was written and before the ledger heard of it."""
    data, settle = make_data(), Payments.settle

    def killed(self: Payments, what: str) -> None:
        if what == label:
            raise KeyboardInterrupt
        settle(self, what)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Payments, "settle", killed)
        study(tmp_path / "run", data, **AUTO)
    name = FIGURES[label]
    before = contents(tmp_path / "run")[f"models/{name}.safetensors"]
    result = resume(tmp_path / "run", data)
    assert contents(tmp_path / "run")[f"models/{name}.safetensors"] == before
    assert not any("interrupted" in note for note in result.notes)
    state = Ledger.open(str(tmp_path / "run" / "ledger.db")).state()
    assert all(p.state == "committed" for p in state.counted)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:50])


def _of_other_columns(path: Path) -> None:
    save_file({name: t[:3] for name, t in load_file(path).items()}, path)


def _of_another_name(path: Path) -> None:
    save_file({f"{name}s": t for name, t in load_file(path).items()}, path)


@pytest.mark.parametrize("damage", [_cut, _of_other_columns, _of_another_name])
@pytest.mark.parametrize("name", ["mean", "second_moment"])
def test_damage_is_told_and_what_was_removed_is_lost(
    name: str, damage: Callable[[Path], None], tmp_path: Path
) -> None:
    data, file = make_data(), tmp_path / "run" / "models" / f"{name}.safetensors"
    stop_after(tmp_path / "run", data, "counting", **AUTO)
    damage(file)
    with pytest.raises(FolderProblem, match="is damaged"):
        resume(tmp_path / "run", data)
    file.unlink()
    result = resume(tmp_path / "run", data)
    kind: Any = {"mean": Subtract, "second_moment": Multiply}[name]
    assert result.model.preprocessing.find(kind) is None
    assert any("interrupted" in note for note in result.notes)


@pytest.mark.parametrize("name", ["mean", "second_moment"])
def test_a_figure_that_nobody_paid_for_is_refused(name: str, tmp_path: Path) -> None:
    data = make_data()
    study(tmp_path / "other", data, **AUTO)
    stop_after(tmp_path / "run", data, "private mean", **AUTO)
    if name == "mean":
        stop_after(tmp_path / "plain", data, "counting")
    folder = tmp_path / ("plain" if name == "mean" else "run")
    file = f"models/{name}.safetensors"
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_bytes((tmp_path / "other" / file).read_bytes())
    with pytest.raises(FolderProblem, match="never began"):
        resume(folder, data)


# Runs of older versions.


def test_what_an_older_version_did_not_know_it_did_not_do() -> None:
    text = "[preparation]\nunit_rows = true\nstandardize = false\ncenter_share = {}\nranges = []\n"
    for share, rescale in (("0.0", True), ("0.1", False)):
        found = preparation_from(parse(text.format(share), "run.toml")["preparation"])
        expected = Preparation(
            center_share=float(share), whiten_share=0, rescale=rescale, shorten=None, curves=1
        )
        nothing = {"range_share": 0, "category_share": 0, "logarithm_share": 0, "class_share": 0}
        assert found == replace(expected, **nothing, shrink_mean=False)


def _as_older_versions_wrote(self: Config, now: Any = Config.to_toml) -> str:
    lines = now(self).splitlines(keepends=True)
    return "".join(li for li in lines if not li.startswith(("whiten_share", "rescale")))


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_a_study_of_an_older_version_goes_on_as_it_began(
    share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spied: Spied
) -> None:
    data = Data(*stretched())
    asked = Preparation(center_share=share, whiten_share=0, rescale=not share)
    with monkeypatch.context() as patch:
        patch.setattr(Config, "to_toml", _as_older_versions_wrote)
        stop_after(tmp_path / "run", data, "sweep: compared", preparation=asked)
    text = (tmp_path / "run" / "run.toml").read_text()
    assert "center_share" in text and "whiten_share" not in text and "rescale" not in text
    result = resume(tmp_path / "run", data)
    made = result.model.preprocessing
    assert (mean_of(made) is not None) == bool(share) and matrix_of(made) is None
    kinds = [type(each) for each in made.maps]
    assert kinds == [Encode, UnitLength] + [Subtract] * bool(share)
    lengths = spied.runs[-1][1].norms.numpy()
    assert (np.ptp(lengths) > 0.1) == bool(share)
    counted = "noisy counts of rows by class" + " and by length" * bool(share)
    assert counted in result.guarantee.releases
    features, _ = stretched(50, 3)
    assert np.array_equal(load(tmp_path / "run").predict(features), result.model.predict(features))


def test_a_search_is_reused_with_the_same_preparation_only(tmp_path: Path) -> None:
    address, data = str(tmp_path / "ledger.db"), make_data()
    Ledger.create(address, Budget(8.0, 1e-5), dataset="people", fingerprint=data.fingerprint)
    study(tmp_path / "first", data, ledger=address, **AUTO)
    again = {"ledger": address, "reuse": tmp_path / "first"}
    for budget, asked in ((BUDGET, {}), (Budget(0.5, 1e-5), AUTO)):  # plain; ranges are too dear
        with pytest.raises(InvalidInput, match="the preparation in"):
            study(tmp_path / "second", data, **again, budget=budget, **asked)
    less = Budget(1.9, 1e-5)  # for which a larger share of it buys them
    result = study(tmp_path / "second", data, **again, budget=less, **AUTO)
    assert matrix_of(result.model.preprocessing) is not None
    bought = [
        read_config(RunFolder.open(tmp_path / name)).preparation.range_share
        for name in ("first", "second")
    ]
    assert 0 < bought[0] < bought[1]
