"""A study from data to guarantee, on rows so few that it takes a moment."""

import json
import math
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dptune import accounting
from dptune.accounting import Budget
from dptune.data import Data, Origin
from dptune.data.preprocess import Preprocessing
from dptune.data.row_maps import Scale
from dptune.engines.linear import LinearEngine, LinearModel
from dptune.errors import (
    BudgetExceeded,
    DptuneError,
    FolderProblem,
    InvalidInput,
    LedgerNotFound,
    WrongDataset,
)
from dptune.ledger import Ledger
from dptune.privacy import FullBatchRun, NoisyCount, Parallel, PrivateMean, SampledRun
from dptune.search.methods import METHODS
from dptune.search.paper_line import PaperLine
from dptune.search.score import HeldOutScore, NoisyScore, PublicScore, UnpaidScore
from dptune.search.space import Space
from dptune.search.unit_noise import UnitNoise
from dptune.study import measure
from dptune.study.config import SCORES, Preparation
from dptune.study.runner import Progress
from dptune.study.study import resume, tune
from dptune.study.trained_model import load
from support.methods import OPEN_METHOD_NAMES
from support.row_maps import mean_of
from support.rows import make_data, make_rows
from support.spy import Spied
from support.studies import BUDGET, contents, stop_after, study


def test_a_study_gives_a_model_its_trials_and_one_guarantee(tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = study(out)
    assert [trial.stage for trial in result.trials] == ["sweep"] * 3
    assert all(trial.score is not None and not trial.lost for trial in result.trials)
    assert result.final.stage == "final run"
    assert result.census is not None and len(result.census.classes) == 2
    assert result.test_rows == 50 and result.test_accuracy is not None
    assert result.guarantee.covers_search and result.guarantee.covers_selection
    assert 0.999 * BUDGET.epsilon < result.guarantee.epsilon <= BUDGET.epsilon
    assert result.folder == out
    features, _ = make_rows(30, 5)
    loaded = load(out)
    assert (loaded.predict(features) == result.model.predict(features)).all()
    assert loaded.guarantee == result.guarantee and loaded.trials == result.trials
    stored = json.loads((out / "result.json").read_text())
    assert {"dptune", "sha256", "files"} == stored.keys() - result.to_dict().keys()
    assert stored | json.loads(json.dumps(result.to_dict())) == stored


def test_without_a_folder_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert study(None).folder is None
    assert list(tmp_path.iterdir()) == []


def test_what_was_paid_is_what_the_guarantee_says_and_fits_the_budget(tmp_path: Path) -> None:
    result = study(tmp_path / "run")
    state = Ledger.open(str(tmp_path / "run" / "ledger.db")).state()
    assert {payment.state for payment in state.counted} == {"committed"}
    paid = math.fsum(payment.price.mu_squared for payment in state.counted)
    assert paid <= result.guarantee.mu**2 == pytest.approx(paid, rel=1e-12)
    assert paid <= BUDGET.mu_squared()
    assert paid > 0.999 * BUDGET.mu_squared()


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("method", OPEN_METHOD_NAMES)
def test_every_open_method_goes_with_every_score(method: str, score: str, tmp_path: Path) -> None:
    result = study(tmp_path / "run", search=METHODS[method](), score=SCORES[score]())
    promise = result.guarantee
    assert promise.covers_selection is (score != "unpaid")
    assert promise.covers_search
    assert promise.epsilon <= BUDGET.epsilon
    assert torch.isfinite(result.model.model.weights).all()
    compared = method in ("linear-scaling", "paper-line", "grid-search")
    assert ("their noisy scores" in promise.releases) == (
        compared and score in ("noisy", "held-out")
    )
    assert all(trial.score is not None for trial in result.trials)
    assert bool(result.trials) == compared
    unpaid = [caveat for caveat in promise.caveats if "exact unpaid scores" in caveat]
    assert bool(unpaid) == (score == "unpaid")
    assert ("the rows that score the trials" in promise.public_facts) == (score == "public")


def test_a_finished_study_is_only_read_again(tmp_path: Path, spied: Spied) -> None:
    out, data = tmp_path / "run", make_data()
    first = study(out, data)
    before, entries = contents(out), Ledger.open(str(out / "ledger.db")).state().entries
    spied.runs.clear()
    again = resume(out, data)
    assert spied.runs == []
    assert contents(out) == before
    assert Ledger.open(str(out / "ledger.db")).state().entries == entries
    assert again.guarantee == first.guarantee and again.notes == first.notes


def test_held_out_rows_score_trials_that_never_saw_them(tmp_path: Path, spied: Spied) -> None:
    data = make_data(test=None)
    result = study(tmp_path / "run", data, score=HeldOutScore(every=10))
    train = [rows for plan, rows in spied.runs if rows.count == 360]
    (held, _), _ = spied.evaluations  # of all trials, and of the final model
    assert len(train) == 3 and held.count == 40
    seen = {tuple(row) for row in train[0].features[:, 0].tolist()}
    assert not seen & {tuple(row) for row in held.features[:, 0].tolist()}
    assert all(plan.rows == 360 for plan, rows in spied.runs if rows.count == 360)
    # The final run has all rows, and its divisor is their public number.
    assert {(plan.rows, rows.count) for plan, rows in spied.runs[3:]} == {(400, 400)}
    state = Ledger.open(str(tmp_path / "run" / "ledger.db")).state()
    (sweep,) = (payment.event for payment in state.counted if "sweep" in payment.purpose)
    assert isinstance(sweep, Parallel)
    trials, scores = sweep.parts
    assert [part.noise_multiplier for part in trials.parts] == [
        plan.noise_multiplier for plan, _ in spied.runs[:3]
    ]
    assert isinstance(scores, NoisyCount) and scores.centered and scores.counts == 3
    assert "which rows are held out (one in 10)" in result.guarantee.public_facts


def test_trials_are_not_compared_on_test_rows(tmp_path: Path) -> None:
    rows = make_rows(50, 1)
    with pytest.raises(InvalidInput, match="some public rows are test rows"):
        study(tmp_path / "run", make_data(test=rows, public=rows), score=PublicScore())
    with pytest.raises(InvalidInput, match="needs public rows"):
        study(tmp_path / "run", make_data(public=None), score=PublicScore())
    assert not (tmp_path / "run").exists()


def test_test_rows_are_looked_at_once_and_after_everything(tmp_path: Path, spied: Spied) -> None:
    study(tmp_path / "run")
    assert [rows.count for rows, _ in spied.evaluations] == [
        400,
        400,
        50,
    ]  # trials, the final model


def test_a_private_mean_is_paid_for_and_subtracted(tmp_path: Path, spied: Spied) -> None:
    features, labels = make_rows()
    data = Data(features + 3, labels)
    asked = Preparation(center_share=0.2, whiten_share=0)
    result = study(tmp_path / "run", data, preparation=asked)
    state = Ledger.open(str(tmp_path / "run" / "ledger.db")).state()
    (mean,) = (payment for payment in state.counted if "private mean" in payment.purpose)
    assert isinstance(mean.event, PrivateMean)
    assert mean.price.mu_squared == pytest.approx(0.2 * BUDGET.mu_squared())
    centre = mean_of(result.model.preprocessing)
    assert centre is not None and np.linalg.norm(centre - 0.5) < 0.2  # unit rows about (1,1,1,1)/2
    _, rows = spied.runs[-1]
    assert abs(float(rows.features[..., :4].mean())) < 0.1  # without the constant beside them
    assert rows.norms.numpy() == pytest.approx(
        1, abs=1e-5
    )  # scaled again, so no lengths are counted
    assert "a noisy mean of the rows" in result.guarantee.releases
    assert "noisy counts of rows by class" in result.guarantee.releases
    assert result.guarantee.epsilon <= BUDGET.epsilon
    kept = load(tmp_path / "run")
    assert (kept.predict(features) == result.model.predict(features)).all()


def test_columns_are_standardised_by_public_rows_only(tmp_path: Path) -> None:
    public, labels = make_rows(100, 2)
    data = make_data(public=(public * [1, 10, 100, 1000] + 5, labels))
    result = study(tmp_path / "run", data, preparation=Preparation(standardize=True))
    scale = result.model.preprocessing.find(Scale)
    assert scale is not None and scale.scale == pytest.approx(public.std(0) * [1, 10, 100, 1000])
    assert "the rows that standardise the columns" in result.guarantee.public_facts
    with pytest.raises(InvalidInput, match="standardised by public rows"):
        study(None, make_data(public=None), preparation=Preparation(standardize=True))


def test_rows_of_any_length_have_their_lengths_counted(tmp_path: Path) -> None:
    features, labels = make_rows()
    preparation = Preparation(unit_rows=False)
    result = study(tmp_path / "run", Data(1000 * features, labels), preparation=preparation)
    state = Ledger.open(str(tmp_path / "run" / "ledger.db")).state()
    (census,) = (p.event for p in state.counted if p.purpose.startswith("census"))
    assert isinstance(census, NoisyCount) and census.counts == 2  # a row is in both histograms
    assert result.census is not None and result.census.noise == census.noise


def test_values_are_learned_and_compared_by_their_loss(tmp_path: Path, spied: Spied) -> None:
    features, _ = make_rows()
    data = Data(features, 3 * features[:, 0] + 7, task="values", target_range=(0, 14))
    result = study(tmp_path / "run", data)
    predicted = result.model.predict(features)
    assert predicted.dtype == np.float64
    assert result.test_accuracy is None and result.census is None
    assert all(trial.score is not None for trial in result.trials)
    kept = load(tmp_path / "run")
    assert (kept.predict(features) == predicted).all() and kept.target_range == (0, 14)
    with pytest.raises(InvalidInput, match="no probabilities"):
        kept.predict_proba(features)
    with pytest.raises(InvalidInput, match="compared by their loss"):
        study(None, data, score=NoisyScore())
    loss = study(None, data, preparation=Preparation(unit_rows=False))
    assert "noisy counts of rows by length" in loss.guarantee.releases


def test_sampled_runs_have_their_failure_probability_accounted(tmp_path: Path) -> None:
    result = study(tmp_path / "run", recipe={"sampling_rate": 0.3})
    state = Ledger.open(str(tmp_path / "run" / "ledger.db")).state()
    runs = [p for p in state.counted if isinstance(p.event, SampledRun)]
    assert len(runs) == 4  # three trials and a final run in one segment
    slack = math.fsum(payment.price.slack for payment in runs)
    assert slack == pytest.approx(4 * 1e-3 * BUDGET.delta)
    assert result.guarantee.slack == slack
    assert accounting.direct_epsilon(state.events, BUDGET.delta) <= BUDGET.epsilon
    assert "Poisson sampling at rate 0.3" in result.guarantee.sampler
    assert result.guarantee.epsilon <= BUDGET.epsilon
    with pytest.raises(InvalidInput, match="full-batch runs only"):
        study(None, recipe={"sampling_rate": 0.3}, score=HeldOutScore())


def test_a_searched_sampling_rate_is_paid_with_slack_too(tmp_path: Path, spied: Spied) -> None:
    search = PaperLine(sampling_rate=(0.2, 0.5), trials=2)
    result = study(tmp_path / "run", search=search)
    state = Ledger.open(str(tmp_path / "run" / "ledger.db")).state()
    paid = [p.event for p in state.counted if isinstance(p.event, SampledRun)]
    assert paid == [plan.event for plan, _ in spied.runs]
    assert len({event.sampling_rate for event in paid}) > 2
    assert result.guarantee.slack == pytest.approx(5 * 1e-3 * BUDGET.delta)
    assert result.guarantee.epsilon <= BUDGET.epsilon


def test_the_promise_was_fixed_before_any_output(tmp_path: Path) -> None:
    """What sampled runs cost depends on the steps and rates that outputs led to: it is not told."""
    search = PaperLine(sampling_rate=(0.2, 0.5), trials=2)
    promises = [study(tmp_path / name, search=search, seed=4).guarantee for name in ("a", "b")]
    spent = [
        Ledger.open(str(tmp_path / name / "ledger.db")).state().spent.mu_squared
        for name in ("a", "b")
    ]
    assert len({(promise.epsilon, promise.mu, promise.slack) for promise in promises}) == 1
    assert promises[0].epsilon == BUDGET.epsilon
    assert max(spent) <= promises[0].mu ** 2
    assert "may depend on outputs, so all of it is promised" in promises[0].in_words()


def test_the_promise_of_a_reused_search_was_fixed_before_any_output(tmp_path: Path) -> None:
    promises = []
    for name in ("a", "b"):
        address, data = str(tmp_path / f"{name}.db"), make_data()
        Ledger.create(address, Budget(8.0, 1e-5), dataset="people", fingerprint=data.fingerprint)
        recipe = {"ledger": address, "recipe": {"sampling_rate": 0.3}}
        study(tmp_path / name / "first", data, **recipe)
        reused = study(tmp_path / name / "second", data, **recipe, reuse=tmp_path / name / "first")
        promises.append(reused.guarantee)
    assert len({(promise.epsilon, promise.mu, promise.slack) for promise in promises}) == 1
    assert promises[0].epsilon > BUDGET.epsilon


def test_an_earlier_search_serves_another_final_run(tmp_path: Path, spied: Spied) -> None:
    address = str(tmp_path / "ledger.db")
    data = make_data()
    Ledger.create(address, Budget(5.0, 1e-5), dataset="people", fingerprint=data.fingerprint)
    first = study(tmp_path / "first", data, ledger=address)
    spied.runs.clear()
    second = study(tmp_path / "second", data, ledger=address, reuse=tmp_path / "first")
    assert len(spied.runs) == 5  # the segments of a final run, no trial
    assert second.trials == first.trials and second.census == first.census
    state = Ledger.open(address).state()
    search = [p for p in state.counted if "final" not in p.purpose][:5]
    mine = [p for p in state.counted if p.number > max(q.number for q in search)][-6:]
    together = math.fsum(p.price.mu_squared for p in [*search, *mine])
    assert together <= second.guarantee.mu**2 == pytest.approx(together, rel=1e-12)
    # The budget was for the final run; the search comes on top, and the guarantee covers both.
    assert second.guarantee.epsilon > BUDGET.epsilon
    mus = re.search(r"of mu, (\S+) is for the search of first,.* own payments are (\S+),",
                    " ".join(second.guarantee.caveats))  # fmt: skip
    assert mus and math.hypot(*map(float, mus.groups())) == pytest.approx(
        second.guarantee.mu, rel=1e-3
    )
    # The first final run's segments, and its check.
    assert "6 other payments" in " ".join(second.guarantee.caveats)
    alone = "only studies that share a ledger are counted together"
    assert alone not in " ".join(second.guarantee.caveats)
    assert alone in study(None).guarantee.in_words()
    assert resume(tmp_path / "second", data).guarantee == second.guarantee


def test_a_search_is_not_reused_where_the_promise_would_be_wrong(tmp_path: Path) -> None:
    address, data = str(tmp_path / "ledger.db"), make_data()
    large = Budget(8.0, 1e-5)
    Ledger.create(address, large, dataset="people", fingerprint=data.fingerprint)
    ledger = Ledger.open(address)
    study(tmp_path / "unpaid", data, ledger=address, score=UnpaidScore())
    study(tmp_path / "paid", data, ledger=address)
    study(tmp_path / "own", data)
    again = {"budget": Budget(0.5, 1e-5), "ledger": address, "reuse": tmp_path / "paid"}
    study(tmp_path / "reused", data, **again)
    entries = ledger.state().entries
    wrong = {
        "is UnpaidScore": {"reuse": tmp_path / "unpaid"},  # its selection was not paid for
        "no search of its own": {"reuse": tmp_path / "reused"},  # its search was another's
        "paid from another ledger": {"reuse": tmp_path / "own"},
        "the search in": {"search": PaperLine(epsilons=(0.01, 0.02))},
        "the preparation in": {"preparation": Preparation(unit_rows=False)},
        "holds no run": {"reuse": tmp_path / "nowhere"},
    }
    for message, asked in wrong.items():
        with pytest.raises(InvalidInput, match=message):
            study(tmp_path / "wrong", data, **again | asked)
        assert not (tmp_path / "wrong").exists()
    with pytest.raises(InvalidInput, match="paid from another ledger"):
        study(tmp_path / "wrong", data, **again | {"ledger": ""})
    assert ledger.state().entries == entries


def test_where_the_space_ends_a_note_says_so(tmp_path: Path) -> None:
    result = study(tmp_path / "run", space=Space(learning_rate=(1e-4, 1e-3), steps=(5, 6)))
    assert any("the space ends at learning rate" in note for note in result.notes)
    assert set(result.notes) <= set(result.guarantee.caveats)


@pytest.mark.parametrize("columns", [2, 10])
def test_three_rows_give_a_model_and_a_plain_word(tmp_path: Path, columns: int) -> None:
    data = Data(np.eye(3, columns), [0, 1, 1])
    result = study(tmp_path / "run", data, budget=Budget(1.0, 1e-5))
    assert any("nothing can be learned" in note for note in result.notes)
    assert any("nothing can be learned" in caveat for caveat in result.guarantee.caveats)
    assert not any("nothing can be learned" in note for note in study(None).notes)


def test_public_facts_are_named_one_by_one(tmp_path: Path) -> None:
    facts = study(None, make_data(rows=500)).guarantee.public_facts
    assert facts == (
        "the number of rows (500), as declared",
        "the number of columns (4), taken from the data",
        "the classes (2), taken from the data",
        "the test rows, whose accuracy is shown exactly",
    )


def unbalanced_data() -> Data:
    features, _ = make_rows(900)
    return Data(features, (np.arange(900) % 9 == 0).astype(int))


def test_rare_classes_weigh_in_scores_and_no_row_counts_more_than_one(
    tmp_path: Path, spied: Spied
) -> None:
    budget, data = Budget(50.0, 1e-5), unbalanced_data()
    asked = {"budget": budget, "allow_large_epsilon": True}
    result = study(tmp_path / "run", data, balance="classes", **asked)
    assert result.census is not None
    weights = result.census.weights
    assert weights is not None and max(weights) == 1.0 and 0 < weights[0] < 0.3
    for _, used in spied.evaluations:  # of the trials, and of the final model
        assert used.tolist() == list(weights)


def test_trials_are_compared_by_plain_accuracy_unless_classes_are_to_count_alike(
    spied: Spied,
) -> None:
    result = study(None, unbalanced_data(), budget=Budget(50.0, 1e-5), allow_large_epsilon=True)
    assert result.census is not None and result.census.weights is not None
    assert {used for _, used in spied.evaluations} == {None}
    assert {plan.class_weights for plan, _ in spied.runs} == {None}


def test_a_row_moves_weighted_scores_by_no_more_than_was_paid_for() -> None:
    """Over all single rows, whatever their class and whichever models get them right."""
    features, labels = make_rows(60)
    engine = LinearEngine(outputs=2)
    rng = np.random.default_rng(3)
    models = [
        LinearModel(torch.tensor(rng.normal(size=(2, 4)), dtype=torch.float32), None, "softmax")
        for _ in range(3)
    ]
    census = measure.Census((55.0, 5.0), 1.0)
    assert census.weights is not None
    bound = math.sqrt(2 / 3) * (1 + 1e-12)  # of three centred counts that a row moves by at most 1
    for kind in ("correct", "loss"):
        score = NoisyScore(measure=kind, loss_bound=2.0)
        everything = exact_scores(engine, models, features, labels, score, census)
        for row in range(60):
            kept = np.arange(60) != row
            without = exact_scores(engine, models, features[kept], labels[kept], score, census)
            moved = everything - without
            assert np.linalg.norm(moved - moved.mean()) <= bound


def exact_scores(
    engine: LinearEngine, models: Any, features: Any, labels: Any, score: NoisyScore, census: Any
) -> Any:
    weights = torch.tensor(census.weights) if score.measure == "correct" else None
    bound = score.loss_bound if score.measure == "loss" else None
    data = Data(features, labels, classes=[0, 1])
    rows = data._rows("train", Preprocessing(), "cpu", "float32")
    found = engine.evaluate_many(models, rows, loss_bound=bound, row_weights=weights)
    return np.array([measure._worth(evaluation, score) for evaluation in found])


def test_whoever_watches_is_told_only_what_was_paid_for(tmp_path: Path) -> None:
    told: list[Progress] = []
    study(tmp_path / "run", watch=told.append)
    assert [progress.doing for progress in told][-1] == "done"
    assert any(progress.doing.startswith("sweep: comparing 3") for progress in told)
    shares = [progress.spent for progress in told]
    assert told[0].doing == "counting rows by class" and shares[0] > 0
    assert shares == sorted(shares) and shares[1] > 0 and shares[-1] <= 1
    assert all(math.isfinite(share) for share in shares)


# What cannot be done is refused before anything is paid.

X, Y = make_rows()
BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "shapes": (lambda: study(None, Data(X, Y[:-1])), "399 for 400 rows"),
    "no table": (lambda: study(None, Data(X[:, 0], Y)), "must be a table"),
    "nan": (lambda: study(None, Data(np.where(X > 2, np.nan, X), Y)), "not finite"),
    "one class": (lambda: study(None, Data(X, np.zeros(400, int))), "all rows have the same label"),
    "epsilon": (lambda: study(None, budget=Budget(0.0, 1e-5)), "epsilon must be"),
    "negative": (lambda: study(None, budget=Budget(-1.0, 1e-5)), "epsilon must be"),
    "delta": (lambda: study(None, budget=Budget(1.0, 1.0)), "delta must lie"),
    "device": (lambda: study(None, device="abacus"), "device must be"),
    "precision": (lambda: study(None, precision="float8"), "precision must be"),
    "recipe": (lambda: study(None, recipe={"momentun": 0.5}), "no setting momentun"),
    "searched": (lambda: study(None, recipe={"steps": 5}), "no setting steps"),
    "copies": (lambda: study(None, recipe={"augmentations": 2}), "2 copies of each row"),
    "seed": (lambda: study(None, seed=-1), "seed must be"),
    "held out": (
        lambda: study(None, Data([[1.0], [2.0]], [0, 1], rows=1), score=HeldOutScore()),
        "held out of two or more",
    ),
    "engine": (
        lambda: tune(make_data(), engine=LinearEngine(outputs=3), budget=BUDGET),
        "2 outputs",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_named(what: str) -> None:
    attempt, message = BAD[what]
    with pytest.raises(InvalidInput, match=message):
        attempt()


def test_what_the_engine_refuses_costs_nothing(tmp_path: Path, ledger: Ledger) -> None:
    before = ledger.state().entries
    data = make_data(origin=Origin(fingerprint="digest of the rows"))
    for asked in ({"recipe": {"augmentations": 3}}, {"recipe": {"clip_norm": None}}):
        with pytest.raises(DptuneError):
            study(tmp_path / "run", data, ledger=ledger.address, **asked)
    torch.set_float32_matmul_precision("high")
    try:
        with pytest.raises(InvalidInput, match="round float32 products"):
            study(tmp_path / "run", data, ledger=ledger.address, budget=Budget(0.5, 1e-5))
    finally:
        torch.set_float32_matmul_precision("highest")
    assert ledger.state().entries == before
    assert not (tmp_path / "run").exists()


def test_a_ledger_of_other_rows_pays_for_nothing(tmp_path: Path, ledger: Ledger) -> None:
    before = ledger.state().entries
    with pytest.raises(WrongDataset, match="not a declared version"):
        study(tmp_path / "run", ledger=ledger.address)
    with pytest.raises(LedgerNotFound):
        study(tmp_path / "run", ledger=str(tmp_path / "nowhere.db"))
    assert ledger.state().entries == before
    assert not (tmp_path / "run").exists()


def test_a_study_that_does_not_fit_holds_nothing(tmp_path: Path, ledger: Ledger) -> None:
    data = make_data(origin=Origin(fingerprint="digest of the rows"))
    with pytest.raises(BudgetExceeded):
        study(tmp_path / "run", data, ledger=ledger.address)  # 2.0 of 1.0
    assert ledger.spent().mu_squared == 0
    assert not (tmp_path / "run").exists()
    with pytest.raises(InvalidInput, match="does not fit in a budget"):
        study(tmp_path / "run", data, search=PaperLine(), budget=Budget(0.05, 1e-5))
    with pytest.raises(BudgetExceeded, match="leaves nothing for the final run"):
        study(tmp_path / "run", data, search=PaperLine(trials=50), budget=Budget(0.11, 1e-5))
    assert not (tmp_path / "run").exists()


def test_a_folder_that_holds_a_run_is_left_alone(tmp_path: Path) -> None:
    study(tmp_path / "run", search=UnitNoise())
    before = contents(tmp_path / "run")
    with pytest.raises(InvalidInput, match="holds a run already"):
        study(tmp_path / "run")
    assert contents(tmp_path / "run") == before
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="cannot be made"):
        study(tmp_path / "file")
    with pytest.raises(InvalidInput, match="holds no run"):
        resume(tmp_path / "nowhere")


def test_a_ledger_that_lies_in_the_folder_is_neither_replaced_nor_removed(tmp_path: Path) -> None:
    """Else whoever starts a study where another ledger lies would forget what was spent."""
    out, data = tmp_path / "run", make_data()
    study(out, data, search=UnitNoise())
    (out / "run.toml").unlink()
    before = (out / "ledger.db").read_bytes()
    with pytest.raises(InvalidInput, match="holds other files"):
        study(out, data)
    assert (out / "ledger.db").read_bytes() == before
    # One that nothing was paid from is taken if it is what this study would have made.
    other = tmp_path / "other"
    other.mkdir()
    opened = {"dataset": "d", "fingerprint": data.fingerprint, "slack": 0.0}
    Ledger.create(str(other / "ledger.db"), BUDGET, **opened)
    for asked in ({"budget": Budget(0.5, 1e-5)}, {"recipe": {"sampling_rate": 0.3}}):
        with pytest.raises(InvalidInput, match="ledger of another study"):
            study(other, data, **asked)
    assert Ledger.open(str(other / "ledger.db")).spent().mu_squared == 0
    assert study(other, data).guarantee.epsilon == BUDGET.epsilon


def test_a_finished_study_can_be_resumed_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = make_data()
    monkeypatch.chdir(tmp_path)
    Ledger.create("ledger.db", BUDGET, dataset="people", fingerprint=data.fingerprint)
    first = study(Path("run"), data, ledger="ledger.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert resume(tmp_path / "run", data).guarantee == first.guarantee


def test_rows_that_a_program_passed_must_be_passed_again(tmp_path: Path) -> None:
    study(tmp_path / "run", search=UnitNoise())
    with pytest.raises(InvalidInput, match="passed its data, so it must be passed again"):
        resume(tmp_path / "run")


@pytest.mark.parametrize(
    "file",
    ["models/trial-2.safetensors", "models/final.safetensors", "trials.jsonl", "census.json"],
)
@pytest.mark.parametrize("damage", ["cut", "emptied", "replaced"])
def test_a_damaged_file_is_named_and_the_study_goes_on_without_it(
    file: str, damage: str, tmp_path: Path
) -> None:
    out, data = tmp_path / "run", make_data()
    stopped = stop_after(out, data, "final run: segment 3")
    ledger = Ledger.open(str(out / "ledger.db"))
    if file.endswith("trial-2.safetensors"):  # it is needed as long as there are no scores
        shutil.rmtree(out)
        stopped = stop_after(out, data, "sweep: comparing")
        ledger = Ledger.open(str(out / "ledger.db"))
    assert stopped
    spent = ledger.spent()
    whole = (out / file).read_bytes()
    broken = {"cut": whole[: len(whole) * 2 // 3 - 9], "emptied": b"", "replaced": b'{"odd": 1}\n'}
    (out / file).write_bytes(broken[damage])
    if file == "trials.jsonl" and damage == "emptied":  # no trials yet is no damage
        (out / file).write_bytes(b"\xff\xfe")
    with pytest.raises(FolderProblem, match=r"is damaged .* remove it"):
        resume(out, data)
    assert ledger.spent() == spent
    (out / file).unlink()
    result = resume(out, data)
    assert torch.isfinite(result.model.model.weights).all()
    assert result.guarantee.epsilon <= BUDGET.epsilon
    assert ledger.spent().mu_squared <= BUDGET.mu_squared()


def test_a_damaged_model_file_is_named(tmp_path: Path) -> None:
    out, data = tmp_path / "run", make_data()
    first = study(out, data)
    model, guarantee = out / "model.safetensors", out / "guarantee.json"
    for file in (model, guarantee):
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(FolderProblem, match=rf"{file.name} is damaged"):
            load(out)
        file.unlink()
        with pytest.raises(FolderProblem, match=rf"{file.name} is missing.*dptune resume"):
            load(out)
        resume(out, data)
        assert file.read_bytes() == whole
    assert load(out).guarantee == first.guarantee


@pytest.mark.parametrize(
    ("lost", "averaged"),
    [  # of 20 steps in segments of 4, the last 10
        ((), 10),
        ((1,), 10),
        ((3,), 8),  # in which the last half begins
        ((4,), 6),
        ((5,), 6),
        ((2, 4), 6),
        ((3, 4, 5), 0),  # the run ends before: its last weights
    ],
)
def test_the_mean_of_the_last_half_is_of_what_segments_were_not_cut_off(
    lost: tuple[int, ...], averaged: int, tmp_path: Path
) -> None:
    out, data = tmp_path / "run", make_data()

    def stopping(progress: Progress) -> None:
        if progress.doing.startswith(f"final run: segment {stops[0]}"):
            raise KeyboardInterrupt

    stops = [*lost, 9]
    for begin in (study, *[resume] * len(lost)):
        with suppress(KeyboardInterrupt):
            begin(out, data, watch=stopping)
        stops.pop(0)
    model = load(out).model
    assert isinstance(model, LinearModel) and model.last is not None
    assert model.averaged == averaged
    assert torch.isfinite(model.weights).all()
    assert torch.equal(model.weights, model.last) == (averaged == 0)


def test_segments_that_were_cut_off_are_told_even_after_several_crashes(tmp_path: Path) -> None:
    out, data = tmp_path / "run", make_data()
    stop_after(out, data, "final run: segment 2")

    def watch(progress: Progress) -> None:
        if progress.doing.startswith("final run: segment 4"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        resume(out, data, watch=watch)
    result = resume(out, data)
    (note,) = (note for note in result.notes if "interrupted" in note)
    assert note.startswith("segments of the final run that were interrupted after payment: 2 of 5")
    assert result.final.plan.steps == 12  # of 20
    # Of mu^2, three trials, and 0.7 % for scores, counts and the check.
    trials = 3 * 0.005 * math.sqrt(BUDGET.mu * 400 / (4 * 2) / 5)
    left = (1 - trials - 0.007) * BUDGET.mu_squared()
    assert math.isclose(result.final.mu**2, 0.6 * left, rel_tol=1e-6)
    state = Ledger.open(str(out / "ledger.db")).state()
    left = [p.purpose.split(" (")[0] for p in state.counted if p.state == "started"]
    assert left == ["final run, leg 2", "final run, leg 4"]  # what is lost is not called done
    assert resume(out, data).notes == result.notes


def test_trials_and_scores_that_were_cut_off_are_lost_and_the_study_goes_on(
    tmp_path: Path, spied: Spied
) -> None:
    data = make_data()
    stop_after(tmp_path / "trials", data, "sweep: training")
    result = resume(tmp_path / "trials", data)
    assert [trial.lost for trial in result.trials] == [True] * 3
    # Lost is paid all the same; scores that nobody could need any more were given back.
    spent = Ledger.open(str(tmp_path / "trials" / "ledger.db")).spent().mu_squared
    assert math.isclose(spent, 0.995 * BUDGET.mu_squared(), rel_tol=1e-9)
    assert result.guarantee.epsilon == BUDGET.epsilon  # which may not tell of that
    assert "their noisy scores" not in result.guarantee.releases
    assert any(
        note.startswith("trials that were interrupted after payment: 3 of 3")
        for note in result.notes
    )
    assert any(note.startswith("no trial has a score") for note in result.notes)
    entries = Ledger.open(str(tmp_path / "trials" / "ledger.db")).state().entries
    assert resume(tmp_path / "trials", data).notes == result.notes  # read again, nothing paid
    assert Ledger.open(str(tmp_path / "trials" / "ledger.db")).state().entries == entries
    assert len(spied.runs) == 5
    stop_after(tmp_path / "scores", data, "sweep: comparing")
    result = resume(tmp_path / "scores", data)
    assert [trial.score for trial in result.trials] == [None] * 3
    stop_after(tmp_path / "census", data, "counting rows")
    result = resume(tmp_path / "census", data)
    assert result.census is None
    assert (
        "the counts of rows were interrupted after payment: the search goes without" in result.notes
    )
    assert not any("counts of rows" in released for released in result.guarantee.releases)
    asked = {"preparation": Preparation(center_share=0.1, whiten_share=0)}
    stop_after(tmp_path / "mean", data, "private mean", **asked)
    result = resume(tmp_path / "mean", data)
    assert mean_of(result.model.preprocessing) is None
    assert "the private mean was interrupted after payment: rows are not centred" in result.notes
    assert "a noisy mean of the rows" not in result.guarantee.releases
    asked = {"score": HeldOutScore()}
    stop_after(tmp_path / "held", data, "sweep: comparing", **asked)
    result = resume(tmp_path / "held", data)
    assert [trial.score for trial in result.trials] == [None] * 3


def test_a_study_whose_every_run_was_cut_off_says_so(tmp_path: Path) -> None:
    out, data = tmp_path / "run", make_data()
    stop_after(out, data, "final run: segment 1", search=UnitNoise(), recipe={"schedule": "cosine"})
    with pytest.raises(FolderProblem, match="every run of this study was interrupted"):
        resume(out, data)


def test_a_lost_final_run_leaves_the_best_trial(tmp_path: Path) -> None:
    out, data = tmp_path / "run", make_data()
    stop_after(out, data, "final run: segment 1", recipe={"optimizer": "adam"})
    result = resume(out, data)
    best = max(result.trials, key=lambda trial: trial.score or 0.0)
    assert result.final.number == best.number
    assert any("lost as a whole" in note for note in result.notes)


def test_full_batch_runs_are_paid_exactly_and_settled(tmp_path: Path, spied: Spied) -> None:
    study(tmp_path / "run")
    state = Ledger.open(str(tmp_path / "run" / "ledger.db")).state()
    paid = [p.event for p in state.counted if isinstance(p.event, FullBatchRun)]
    assert paid == [plan.event for plan, _ in spied.runs]
    assert all(plan.clip_norm == 0.5 and plan.rows == 400 for plan, _ in spied.runs)


def test_the_private_rows_are_not_taken_for_public_ones() -> None:
    with pytest.raises(InvalidInput, match="some public rows are private rows"):
        make_data(public=make_rows())


def test_a_study_without_a_folder_gives_back_what_it_did_not_begin(tmp_path: Path) -> None:
    data, address = make_data(), str(tmp_path / "ledger.db")
    ledger = Ledger.create(address, BUDGET, dataset="data", fingerprint=data.fingerprint)

    def interrupt(progress: Any) -> None:
        if progress.doing.startswith("sweep: comparing"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study(None, data, ledger=address, watch=interrupt)
    left = {p.purpose.partition(" (")[0]: p.state for p in ledger.state().payments if p.counts}
    assert set(left.values()) == {"started", "committed"}
    assert not any(label.startswith("final run") for label in left)


def test_a_reused_search_that_delta_cannot_bear_is_refused_before_anything_is_paid(
    tmp_path: Path,
) -> None:
    address, data = str(tmp_path / "ledger.db"), make_data()
    opened = {"dataset": "people", "fingerprint": data.fingerprint, "slack": 5e-6}
    Ledger.create(address, Budget(8.0, 1e-5), **opened)
    asked = {"ledger": address, "recipe": {"sampling_rate": 0.3}}
    study(tmp_path / "first", data, **asked)
    entries = Ledger.open(address).state().entries
    with pytest.raises(InvalidInput, match="use up delta"):
        study(
            tmp_path / "second",
            data,
            **{**asked, "budget": Budget(1.5, 1e-8), "reuse": tmp_path / "first"},
        )
    assert Ledger.open(address).state().entries == entries
    assert not (tmp_path / "second").exists()


def test_a_result_is_shown_in_one_line() -> None:
    shown = repr(study(None))
    assert shown.startswith("StudyResult('data', epsilon 2.0000 at delta 1e-05, test accuracy 0.")
    assert len(shown) < 100
