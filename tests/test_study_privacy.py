"""What would make the promise false: prices that do not match what runs, exact numbers that leave,
changed settings, other rows, an older ledger."""

import json
import math
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from dptune import accounting
from dptune.accounting import Budget
from dptune.data import Data
from dptune.data.preprocess import Preprocessing
from dptune.errors import BudgetExceeded, FolderProblem, InvalidInput, LedgerLocked, WrongDataset
from dptune.ledger import Ledger
from dptune.noise import grid_step
from dptune.preparation.step import State
from dptune.privacy import FullBatchRun, Price, PrivateMean, total
from dptune.report.plots import search_picture
from dptune.search.methods import METHODS
from dptune.search.score import UnpaidScore
from dptune.search.space import Setting, Space
from dptune.study import measure
from dptune.study.config import SCORES, Config, Preparation, digest, parse
from dptune.study.payments import Payments
from dptune.study.planning import outline
from dptune.study.runner import Progress
from dptune.study.statement import Paid, Released, guarantee_for
from dptune.study.study import resume, tune
from support.methods import OPEN_METHOD_NAMES
from support.rows import make_data, make_rows
from support.spy import Spied
from support.studies import BUDGET, PLAIN, SPACE, contents, stop_after, study


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """The noise that counts really got, and what they were before."""
    seen: dict[str, list[Any]] = {"scores": [], "census": [], "exact": []}
    released, histograms, normal = measure.release_counts, measure.histograms, measure.fresh_normal

    def scores(exact: Any, noise: float, *more: Any) -> Any:
        seen["scores"].append((len(exact), noise))
        seen["exact"] += list(exact)
        return released(exact, noise, *more)

    def count(rows: Any, classes: int) -> Any:
        found = histograms(rows, classes)
        seen["exact"] += found[0].tolist()
        seen["before"] = [found[0].copy(), found[1].copy()]
        return found

    def drawn(shape: tuple[int, ...]) -> Any:
        numbers = normal(shape)
        seen["census"].append(numbers)
        return numbers

    monkeypatch.setattr(measure, "release_counts", scores)
    monkeypatch.setattr(measure, "histograms", count)
    monkeypatch.setattr(measure, "fresh_normal", drawn)
    return seen


def epsilon_by_bisection(mu: float, delta: float) -> float:
    """From the textbook profile of the Gaussian mechanism, with scipy's normal distribution."""

    def excess(epsilon: float) -> float:
        first = norm.cdf(mu / 2 - epsilon / mu)
        return float(first - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) - delta)

    return float(brentq(excess, 0, 100, xtol=1e-14))


def test_epsilon_has_independent_derivations_from_what_really_ran(
    tmp_path: Path,
    spied: Spied,
    counted: dict[str, list[Any]],
) -> None:
    from dp_accounting import dp_event, pld, rdp

    result = study(tmp_path / "run")
    assert result.census is not None
    # The noise on the census, from what came out, what was counted and what was drawn.
    moved, noise = np.array(result.census.classes) - counted["before"][0], result.census.noise
    assert moved == pytest.approx(noise * counted["census"][0], abs=grid_step(noise))
    ((trials, score_noise),) = counted["scores"]
    # By hand: prices add as mu^2.
    mu_squared = sum(
        Fraction(plan.steps) / Fraction(plan.noise_multiplier) ** 2 for plan, _ in spied.runs
    )
    mu_squared += 1 / Fraction(result.census.noise) ** 2
    # The noise on the check, in the same way: one count, of 400 rows.
    assert result.check is not None
    correct = spied.exact[3].correct
    check_noise, drawn = 400 * result.check.error, float(counted["census"][-1][0])
    moved = 400 * result.check.accuracy - correct
    assert moved == pytest.approx(check_noise * drawn, abs=grid_step(check_noise))
    mu_squared += 1 / Fraction(400 * result.check.error) ** 2
    # Three centred counts: a row that one or two of three get right moves them by sqrt(2/3).
    assert trials == 3
    mu_squared += Fraction(2, 3) / Fraction(score_noise) ** 2
    assert float(mu_squared) <= BUDGET.mu_squared()
    by_hand = epsilon_by_bisection(math.sqrt(mu_squared), BUDGET.delta)
    promised = result.guarantee.epsilon
    assert by_hand <= promised <= BUDGET.epsilon
    assert promised == pytest.approx(by_hand, rel=1e-9)
    # By accountants that somebody else wrote, from the same events.
    events = [
        dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(plan.noise_multiplier), plan.steps)
        for plan, _ in spied.runs
    ]
    events.append(dp_event.GaussianDpEvent(result.census.noise))
    events.append(dp_event.GaussianDpEvent(check_noise))
    events.append(dp_event.GaussianDpEvent(score_noise / math.sqrt(2 / 3)))
    composed = dp_event.ComposedDpEvent(events)
    by_losses = pld.PLDAccountant(value_discretization_interval=1e-3).compose(composed)
    assert by_losses.get_epsilon(BUDGET.delta) == pytest.approx(promised, rel=2e-3)
    by_renyi = rdp.RdpAccountant([1 + x / 10 for x in range(1, 1000)]).compose(composed)
    assert promised <= by_renyi.get_epsilon(BUDGET.delta) <= 1.2 * promised


def numbers_in(value: Any) -> set[float]:
    """All numbers that a value holds, at any depth. Not by its repr, where an address looks like
    any number and so do weights, rounded to four digits."""
    match value:
        case None | Path() | np.random.Generator():
            return set()
        case int() | float():
            return {float(value)}
        case str():
            number = r"-?\d+\.?\d*(?:e[-+]?\d+)?"
            whole = re.sub(r"(?<=\d),(?=\d{3})", "", value)  # as in 1,500
            return {float(found) for text in (value, whole) for found in re.findall(number, text)}
        case torch.Tensor() | np.ndarray():
            return numbers_in(value.tolist())
        case Mapping():
            return numbers_in([*value, *value.values()])
        case list() | tuple():
            return set().union(*map(numbers_in, value))
    return numbers_in([getattr(value, field.name) for field in fields(value)])


@pytest.mark.parametrize("score", ["noisy", "held-out"])
def test_no_exact_number_about_private_rows_leaves(
    score: str,
    tmp_path: Path,
    spied: Spied,
    counted: dict[str, list[Any]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    # So many rows that no count is a small number, which would also be somebody's steps or rate or
    # by chance a weight: all are above 1,000, as trials get 0.91 of the rows right, give or take
    # 0.004, and weights are below 100.
    features, labels = make_rows(13967)
    told: list[Progress] = []
    data = Data(features, labels, rows=15000)  # not the true number, which is nobody's business
    result = study(tmp_path / "run", data, score=SCORES[score](), watch=told.append)
    private = {*map(float, counted["exact"]), 13967.0}
    for found in spied.exact:
        private |= {float(found.correct), found.weighted_correct, found.loss, float(found.rows)}
        private |= {found.correct / count for count in (found.rows, 13967, 15000)}
    private |= {float(np.sum(labels == kind)) for kind in (0, 1)}
    private = {number for number in private if number != round(number, 2) or number > 1}
    assert len(private) > 8  # round shares, such as 0.9, are also somebody's momentum
    files = {name: c.decode(errors="ignore") for name, c in contents(tmp_path / "run").items()}
    printed = capsys.readouterr()
    ours = (name for name in files if name != "environment.json" and "safetensors" not in name)
    # The folder's name and the study's are no numbers, though they may have digits.
    names = (str(tmp_path), parse(files["run.toml"], "run.toml")["study"])
    for shown in [*(files[name] for name in ours), result, told, str(result.to_dict())]:
        for name in names:
            shown = shown.replace(name, "") if isinstance(shown, str) else shown
        assert private & numbers_in(shown) == set()
    assert printed.out == printed.err == ""
    # A digest of the rows would confirm a guess of them.
    assert not any(data.fingerprint in text for text in files.values())
    # All that training knows of the number of rows is what was declared.
    declared = {15000} if score == "noisy" else {15000, 13500}
    assert {plan.rows for plan, _ in spied.runs} == declared


@pytest.mark.parametrize(
    "shown", ["(1,397)", "rows: 1397.", "x1397y", {"a": [(0, Budget(1397, 0.5))]}]
)
def test_a_private_number_would_be_found(shown: Any) -> None:
    assert 1397.0 in numbers_in(shown)


def test_what_is_planned_written_and_noted_does_not_depend_on_the_rows(tmp_path: Path) -> None:
    """Two data sets of one public description: all that differs is noise and what it covers."""
    planned = []
    for seed in (0, 7):
        features, labels = make_rows(30 + seed, seed)
        data = Data(features, labels, rows=500, classes=[0, 1])
        out = tmp_path / str(seed)
        result = study(out, data)
        plain = parse((out / "run.toml").read_text(), "run.toml")
        plain.pop("study")
        payments = outline(data, make_config()).payments
        planned.append((plain, payments, result.guarantee.public_facts))
    assert planned[0] == planned[1]


def make_config(**asked: Any) -> Config:
    values: dict[str, Any] = {
        "study": "x",
        "budget": BUDGET,
        "search": METHODS["linear-scaling"](),
        "score": SCORES["noisy"](),
        "space": SPACE,
        "recipe": {},
        "preparation": PLAIN,
        "source": {},
    }
    return Config(**values | asked)


def test_noise_is_fresh_though_the_seed_is_the_same(tmp_path: Path) -> None:
    data = make_data()
    first, second = (study(tmp_path / name, data, seed=5) for name in ("first", "second"))
    assert first.census and second.census and first.census.classes != second.census.classes
    for trial in (1, 2, 3):
        name = f"models/trial-{trial}.safetensors"
        assert contents(tmp_path / "first")[name] != contents(tmp_path / "second")[name]
    assert not np.array_equal(first.model.model.weights, second.model.model.weights)


@settings(max_examples=60)
@given(
    epsilon=st.floats(0.2, 20),
    log_delta=st.floats(-12, -3),
    method=st.sampled_from(OPEN_METHOD_NAMES),
    score=st.sampled_from(sorted(SCORES)),
    share=st.sampled_from([0.0, 0.1, 0.5]),
    steps=st.tuples(st.integers(1, 19), st.integers(20, 300)),
    data=st.data(),
)
def test_prices_fit_the_budget_and_every_setting_fits_its_price(
    epsilon: float,
    log_delta: float,
    method: str,
    score: str,
    share: float,
    steps: tuple[int, int],
    data: Any,
) -> None:
    """Not even by a rounding: exchanged for what is run, a payment never gets dearer."""
    config = make_config(
        budget=Budget(epsilon, 10**log_delta),
        search=METHODS[method](),
        score=SCORES[score](),
        space=Space(steps=steps),
        preparation=Preparation(center_share=share, whiten_share=share / 2),
    )
    try:
        planned = outline(make_data(), config)
    except BudgetExceeded:
        assume(False)
    prices = {label: accounting.price(event) for label, event in planned.payments}
    assert len(prices) == len(planned.payments)
    paid = total(prices.values())
    assert paid.mu_squared <= config.budget.mu_squared()
    assert paid.mu_squared > 0.99 * config.budget.mu_squared() or method != "unit-noise"
    setting = Setting(0.1, data.draw(st.integers(*steps)))
    segments = planned.segment_plans(setting) if planned.schedule.final.trials == 1 else []
    for number, plan in enumerate(segments, start=1):
        run = accounting.price(plan.event).mu_squared
        assert run <= prices[f"final run, leg {number}"].mu_squared <= run * (1 + 1e-9)
    assert sum(plan.steps for plan in segments) == (setting.steps if segments else 0)
    for sweep, trials in planned.sweeps():
        event = planned.plan(setting, sweep).event
        if not planned.holds_out:
            assert accounting.price(event).mu_squared <= prices[f"trial {trials[0]}"].mu_squared


def test_free_steps_read_no_rows_and_only_the_last_leg_takes_them() -> None:
    planned = outline(make_data(), make_config(recipe={"free_steps": 3}))
    plans = planned.segment_plans(Setting(0.1, 13))
    assert [plan.free_steps for plan in plans] == [0, 0, 0, 0, 3]
    assert sum(plan.steps for plan in plans) == 13


@pytest.mark.parametrize(
    "recipe", [{"optimizer": "adam"}, {"averaging": "ema"}, {"schedule": "cosine"}]
)
def test_what_cannot_be_continued_is_paid_in_one_segment(recipe: dict[str, Any]) -> None:
    assert outline(make_data(), make_config(recipe=recipe)).segments == 1


def test_one_row_is_in_one_cell_of_each_histogram() -> None:
    features, labels = make_rows(40)
    scaled = features * np.geomspace(1e-30, 1e30, 40)[:, None]
    scaled[0] = 0

    def histograms(kept: Any) -> Any:
        data = Data(scaled[kept], labels[kept], classes=[0, 1])
        rows = data._rows("train", Preprocessing(unit_rows=False), "cpu", "float32")
        return np.concatenate(measure.histograms(rows, 2))

    everything = histograms(slice(None))
    assert everything.sum() == 2 * 40
    for row in range(40):
        moved = everything - histograms(np.arange(40) != row)
        assert sorted(moved[moved != 0]) == [1, 1]  # so two counts were paid for


def test_an_unpaid_score_is_named_in_every_statement(tmp_path: Path) -> None:
    study(tmp_path / "run", score=UnpaidScore())
    assert "choosing among trials is NOT covered" in (tmp_path / "run/guarantee.txt").read_text()
    plain = json.loads((tmp_path / "run" / "guarantee.json").read_text())
    assert plain["covers_selection"] is False
    assert any("not for release" in caveat for caveat in plain["caveats"])


def test_epsilon_is_not_called_smaller_than_what_was_paid() -> None:
    """The budget is promised only where the payments fit in it."""
    data, planned = make_data(), outline(make_data(), make_config(budget=Budget(0.5, 1e-5)))
    spent = Price(BUDGET.mu_squared())
    event = FullBatchRun(steps=1, noise_multiplier=1 / BUDGET.mu)
    released = Released(
        preparation=State(),
        classes=False,
        counts=True,
        weighted=False,
        scores=True,
        check=True,
    )

    def promised(price: Price) -> float:
        paid = Paid(events=[event], price=price, others=0)
        return guarantee_for(planned, data, paid, released, ()).epsilon

    assert promised(spent) == pytest.approx(2.0)
    assert promised(planned.price) == 0.5


# Whatever was changed between the beginning and a resume.

EDITS: dict[str, Callable[[str], str]] = {
    "a larger epsilon": lambda text: text.replace("epsilon = 2.0", "epsilon = 8.0"),
    "a smaller epsilon": lambda text: text.replace("epsilon = 2.0", "epsilon = 0.1"),
    "another delta": lambda text: text.replace("delta = 1e-05", "delta = 1e-3"),
    "a score that nobody pays for": lambda text: text.replace('kind = "noisy"', 'kind = "public"'),
    "less noise on scores": lambda text: text.replace("share = 0.005", "share = 0.5"),
    "another search": lambda text: text.replace("linear-scaling", "unit-noise"),
    "another seed": lambda text: text.replace("seed = 0", "seed = 1"),
    "another number of rows": lambda text: text.replace("rows (400)", "rows (4)"),
    "another clipping norm": lambda text: text.replace("clip_norm = 0.5", "clip_norm = 2.0"),
    "a private mean": lambda text: text.replace("center_share = 0.0", "center_share = 0.4"),
    "longer runs": lambda text: text.replace("    20,", "    2000,"),
    "another study": lambda text: re.sub(r'study = "(.)(.*)-', r'study = "\2\1-', text),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_changed_run_toml_is_refused(edit: str, tmp_path: Path) -> None:
    out, data = tmp_path / "run", make_data()
    stop_after(out, data, "sweep: compared")
    entries = Ledger.open(str(out / "ledger.db")).state().entries
    text = (out / "run.toml").read_text()
    changed = EDITS[edit](text)
    assert changed != text
    (out / "run.toml").write_text(changed)
    with pytest.raises(FolderProblem):
        resume(out, data)
    # Nor does it help to forge it: then the results are another study's, unpaid by this one.
    plain = parse(changed, "run.toml")
    forged = re.sub(r'study = "([0-9a-f]{8})-\w+"', rf'study = "\1-{digest(plain)}"', changed)
    (out / "run.toml").write_text(forged)
    if forged != text:
        with pytest.raises((FolderProblem, InvalidInput)):
            resume(out, data)
    assert Ledger.open(str(out / "ledger.db")).state().entries == entries
    (out / "run.toml").write_text(text)
    assert resume(out, data).guarantee.epsilon <= BUDGET.epsilon


@pytest.mark.parametrize("text", ["", "study = 1\n", "[budget]\nepsilon = 'much'\n", "[[[", "\x00"])
def test_a_run_toml_that_says_nothing_is_refused(text: str, tmp_path: Path) -> None:
    out, data = tmp_path / "run", make_data()
    stop_after(out, data, "sweep: training")
    (out / "run.toml").write_text(text)
    with pytest.raises(FolderProblem, match="put it back as it was"):
        resume(out, data)


def test_where_things_lie_may_change(tmp_path: Path) -> None:
    out, data = tmp_path / "run", make_data()
    address = str(tmp_path / "ledger.db")
    Ledger.create(address, BUDGET, dataset="people", fingerprint=data.fingerprint)
    stop_after(out, data, "sweep: training", ledger=address)
    shutil.move(address, tmp_path / "moved.db")
    text = (out / "run.toml").read_text().replace("ledger.db", "moved.db")
    (out / "run.toml").write_text(text.replace("float32", "float64"))
    moved = shutil.move(out, tmp_path / "elsewhere")
    assert resume(moved, data).guarantee.epsilon <= BUDGET.epsilon


def test_other_rows_are_refused_and_nothing_is_begun(tmp_path: Path) -> None:
    """Else one data set's ledger would pay for another's rows, which nobody then accounts for."""
    out, data = tmp_path / "run", make_data()
    stop_after(out, data, "sweep: training")
    ledger = Ledger.open(str(out / "ledger.db"))
    entries = ledger.state().entries
    features, labels = make_rows()
    features[17, 2] += 1e-9
    with pytest.raises(WrongDataset, match="not those of payment"):
        resume(out, Data(features, labels))
    ledger.declare(Data(features, labels).fingerprint, reason="mended")
    with pytest.raises(WrongDataset, match="not those of payment"):
        resume(out, Data(features, labels))
    assert ledger.state().entries == entries + 1
    for facts in ({"rows": 1000}, {"classes": [0, 1, 2]}):
        with pytest.raises(InvalidInput, match="other public facts"):
            resume(out, make_data(**facts))
    assert ledger.state().entries == entries + 1
    assert resume(out, data).guarantee.epsilon <= BUDGET.epsilon


@pytest.mark.parametrize(
    "doing", ["counting", "sweep: training", "sweep: comp", "final run: segment 2"]
)
def test_an_older_copy_of_the_ledger_is_noticed(doing: str, tmp_path: Path) -> None:
    """It would let everything that the results cost be spent again."""
    out, data = tmp_path / "run", make_data()

    def watch(progress: Progress) -> None:
        if progress.doing.startswith(doing) and not (tmp_path / "older.db").exists():
            shutil.copy(out / "ledger.db", tmp_path / "older.db")
        if progress.doing.startswith("final run: segment 4"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study(out, data, watch=watch)
    newest = (out / "ledger.db").read_bytes()
    shutil.copy(tmp_path / "older.db", out / "ledger.db")
    with pytest.raises(FolderProblem, match="an older copy of the ledger was put back"):
        resume(out, data)
    (out / "ledger.db").write_bytes(newest)
    assert resume(out, data).guarantee.epsilon <= BUDGET.epsilon


def test_only_what_costs_no_more_is_begun_in_the_place_of_what_was_held(
    tmp_path: Path, ledger: Ledger
) -> None:
    payments = Payments(ledger, "s", "digest of the rows")
    held = PrivateMean(noise_multiplier=10.0)
    payments.reserve([("mean", held), ("census", held), ("scores", held)], 0.0, fixed=False)
    with pytest.raises(InvalidInput, match="can only be exchanged for an event of at most"):
        payments.begin("mean", replace(held, noise_multiplier=9.999))
    assert payments.used().mu_squared == 0
    receipt = payments.begin("mean", replace(held, noise_multiplier=11.0))
    assert receipt is not None and receipt.event.noise_multiplier == 11.0
    assert payments.begin("mean", held) is None
    assert [event.noise_multiplier for event in payments.events()] == [10.0, 10.0, 11.0]
    with pytest.raises(FolderProblem, match="holds no payment for 'other'"):
        payments.begin("other", held)
    with pytest.raises(FolderProblem, match="never began"):
        payments.must_be_begun(["mean", "census"])
    payments.must_be_begun(["mean"])


def test_of_two_who_begin_a_payment_at_once_one_gets_it(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    payments = Payments(ledger, "s", "digest of the rows")
    held = PrivateMean(noise_multiplier=10.0)
    payments.reserve([("one", held), ("other", held)], 0.0, fixed=False)
    payments_of = Ledger.payments_of

    def before_somebody_else(self: Ledger, study: str) -> Any:
        found = payments_of(self, study)
        for payment in found:
            if payment.state == "reserved":
                self.start(self.receipt(payment.number))
        return found

    monkeypatch.setattr(Ledger, "payments_of", before_somebody_else)
    assert payments.begin("one", held) is None
    monkeypatch.undo()
    assert payments.begin("other", replace(held, noise_multiplier=20.0)) is None


def test_payments_made_twice_under_one_label_all_count(ledger: Ledger) -> None:
    payments = Payments(ledger, "s", "digest of the rows")
    held = PrivateMean(noise_multiplier=10.0)
    for _ in range(2):
        ledger.reserve_all([("mean", held)], fingerprint="digest of the rows", study="s")
    assert ledger.spent().mu_squared == pytest.approx(0.02)
    assert len(payments.events()) == 2 and payments.others() == 0


def test_a_reservation_that_fails_half_way_leaves_no_trace(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    payments, before = Payments(ledger, "s", "digest of the rows"), ledger.state()
    reserve = Ledger._reserve

    def locked(*args: Any, **more: Any) -> Any:
        if more["text"].startswith("second"):
            raise LedgerLocked("busy")
        return reserve(*args, **more)

    monkeypatch.setattr(Ledger, "_reserve", locked)
    held = PrivateMean(noise_multiplier=10.0)
    with pytest.raises(LedgerLocked):
        payments.reserve([("first", held), ("second", held)], 0.0, fixed=False)
    assert ledger.state() == before


def test_what_is_given_back_is_given_back_at_once_but_what_somebody_began_meanwhile(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    payments = Payments(ledger, "s", "digest of the rows")
    held = PrivateMean(noise_multiplier=10.0)
    payments.reserve([("one", held), ("two", held), ("three", held)], 0.0, fixed=False)
    void_all = Ledger.void_all

    def after_a_copy_began(self: Ledger, receipts: Any, **more: Any) -> None:
        monkeypatch.undo()
        self.start(receipts[1])
        before = self.state().entries
        try:
            void_all(self, receipts, **more)
        finally:
            assert self.state().entries == before  # all or none of them

    monkeypatch.setattr(Ledger, "void_all", after_a_copy_began)
    payments.give_back()
    states = [payment.state for payment in ledger.state().payments]
    assert states == ["voided", "started", "voided"]


def test_a_payment_that_a_copy_of_the_study_gave_back_is_explained(ledger: Ledger) -> None:
    payments = Payments(ledger, "s", "digest of the rows")
    held = PrivateMean(noise_multiplier=10.0)
    payments.reserve([("scores", held)], 0.0, fixed=False)
    Payments(ledger, "s", "digest of the rows").give_back()
    with pytest.raises(FolderProblem, match=r"given back\. A copy of this folder was resumed"):
        payments.begin("scores", held)


def test_a_study_does_not_promise_for_others_in_the_same_ledger(tmp_path: Path) -> None:
    data, address = make_data(), str(tmp_path / "ledger.db")
    Ledger.create(address, Budget(4.0, 1e-5), dataset="people", fingerprint=data.fingerprint)
    study(tmp_path / "first", data, ledger=address)
    result = tune(
        data,
        budget=Budget(1.0, 1e-5),
        search=METHODS["random-search"](),
        space=SPACE,
        ledger=address,
    )
    assert any("11 other payments" in caveat for caveat in result.guarantee.caveats)
    assert result.guarantee.epsilon <= 1.0


def test_the_dates_of_a_sealed_search_do_not_tell_how_long_it_took(tmp_path: Path) -> None:
    out, data = tmp_path / "run", make_data()
    study(out, data, search=METHODS["private-selection"]())
    began = (out / "run.toml").stat().st_mtime_ns

    def dates() -> set[int]:
        shown = (path for path in out.rglob("*") if path.name != "ledger.db")
        return {path.stat().st_mtime_ns for path in (out, *shown)}

    assert dates() == {began}
    search_picture(out)
    assert dates() == {began}
    resume(out, data)
    assert dates() == {began}
    state = Ledger.open(str(out / "ledger.db")).state()
    assert [payment.state for payment in state.payments] == ["committed"]
    # Its entries are older than the search: nothing was added when that was done.
    assert (out / "ledger.db").stat().st_mtime_ns < (out / "result.json").stat().st_ctime_ns
