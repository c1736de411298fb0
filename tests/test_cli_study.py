"""A study from the command line, end to end on tiny data: what it writes, refuses and prints."""

import csv
import errno
import inspect
import io
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dptune
from dptune.cli import app as cli
from dptune.data.sources import load_data
from dptune.study import config
from support.loaded import loaded_by_command

Run = Callable[..., tuple[int, str, str]]
TUNE = ("tune", "--data", "ill.csv", "--label", "state", "--classes", '"ill, very",well')
QUICK = (*TUNE, "--config", "quick.toml")


@pytest.fixture
def run(command: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Call the command in a folder with data; returns exit code, output and errors."""
    monkeypatch.chdir(tmp_path)
    write_data()
    return command


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A folder with data and a finished run r, to look at only; and what tune printed as JSON."""
    folder, printed = tmp_path_factory.mktemp("finished"), io.StringIO()
    arguments = (*QUICK, "--delta", "1e-4", "--seed", "7", "--out", "r", "--json")
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.chdir(folder)
        write_data()
        patch.setattr(sys, "argv", ["dptune", *arguments])
        with pytest.raises(SystemExit):
            cli.main()
    return folder, json.loads(printed.getvalue())


@pytest.fixture
def there(run: Run, finished: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command, called beside the finished run."""
    monkeypatch.chdir(finished[0])
    return run


def write_data() -> None:
    random = np.random.default_rng(0)
    for name, rows in (("ill", 300), ("new", 40)):
        features = random.normal(size=(rows, 5))
        states = np.where(features[:, 0] + features[:, 1] > 0, "ill, very", "well")
        with open(f"{name}.csv", "w", newline="") as file:
            head = [f"f{number}" for number in range(5)]
            csv.writer(file).writerows(
                [[*head, "state"], *([*row, s] for row, s in zip(features, states, strict=True))]
            )
    Path("quick.toml").write_text("[space]\nsteps = [5, 10]\n")


def as_json(result: tuple[int, str, str]) -> Any:
    assert result[0] == 0, result[2]
    return json.loads(result[1])


def one_line(text: str) -> str:
    return " ".join(text.replace("│", " ").split())


def test_a_study_leaves_a_model_a_guarantee_and_a_picture(run: Run) -> None:
    code, out, err = run(*QUICK, "--test", "new.csv", "--epsilon", "2", "--out", "r")
    assert code == 0, err
    for name in ("run.toml", "model.safetensors", "guarantee.txt", "result.json", "search.png"):
        assert (Path("r") / name).exists()
    words = one_line(out)
    for shown in (
        "test accuracy",
        "on 40 rows",
        "majority class",
        "chance 50.0 % one of 2 classes",
        "Differential privacy with epsilon = 2 and delta = 0.000333 for one row, the search",
        "No --delta was given, so delta is 1 / (10 x 300 rows) = 0.000333",
        "budget ██",
        "picture r/search.png",
        "dptune predict r --data FILE",
        "dptune card r",
        "dptune.load('r')",
    ):
        assert shown in words, shown
    assert max(map(len, out.splitlines())) <= 80 and len(out.splitlines()) <= 25
    assert "sweep: training 3 trials" in err and "final run: segment 1 of 5" in err
    code, out, _ = run("resume", "r", "--verbose")
    words = one_line(out)
    for shown in ("total step size r", "final run 1", "-differential privacy for one row"):
        assert code == 0 and shown in words, shown
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (("--epsilon", "0"), "epsilon must be"),
        (("--delta", "2"), "delta must lie"),
        (("--engine", "magic"), "magic"),
        (("--method", "magic"), "method must be one of linear-scaling, unit-noise"),
        (("--score", "magic"), "kind must be one of noisy"),
    ],
)
def test_what_is_wrong_whatever_the_rows_are_is_told_before_they_are_read(
    run: Run, asked: tuple[str, str], told: str
) -> None:
    code, _, err = run("tune", "--data", "nowhere.csv", *asked)
    assert code == 2 and told in one_line(err) and "nowhere" not in err


@pytest.mark.parametrize(
    ("section", "told"),
    [("[preparation]\nrange_share = 2", "range_share must be"), ("[space]\nsteps = 3", "steps")],
)
def test_so_is_what_is_wrong_in_a_file(run: Run, tmp_path: Path, section: str, told: str) -> None:
    (tmp_path / "wrong.toml").write_text(section)
    code, _, err = run("tune", "--data", "nowhere.csv", "--config", str(tmp_path / "wrong.toml"))
    assert code == 2 and told in one_line(err) and "nowhere" not in err


def test_json_tells_everything(there: Run, finished: tuple[Path, Any]) -> None:
    told = finished[1]
    assert told["out"] == "r" and told["picture"] == "r/search.png"
    assert told["test_accuracy"] is None and told["delta_chosen"] is False
    assert told["total_step_size"] == pytest.approx(told["learning_rate"] * told["steps"])
    assert told["data"] == {"name": "ill", "rows": 300, "columns": 5, "classes": 2, "made_by": None}
    assert len(told["trials"]) == 3 and told["final"]["stage"] == "final run"
    guarantee = told["guarantee"]
    assert (guarantee["epsilon"], guarantee["delta"]) == (pytest.approx(1.0), 1e-4)
    assert guarantee["neighbours"].startswith("zero-out") and guarantee["mu"] > 0
    assert guarantee["covers_search"] is True and guarantee["covers_selection"] is True
    spent = as_json(there("budget", "r/ledger.db", "--json"))["spent"]["mu"]
    assert spent <= guarantee["mu"] == pytest.approx(spent, rel=1e-12)
    written = json.loads(Path("r/result.json").read_text())
    for kept_with_it in ("files", "dptune", "sha256"):
        del written[kept_with_it]
    assert written == {key: told[key] for key in written}


def test_folders_are_numbered_and_a_run_is_never_overwritten(run: Run) -> None:
    quick = (*QUICK, "--method", "unit-noise", "--json")
    assert [as_json(run(*quick))["out"] for _ in range(2)] == ["runs/ill-1", "runs/ill-2"]
    before = Path("runs/ill-1/model.safetensors").read_bytes()
    code, _, err = run(*quick, "--out", "runs/ill-1")
    assert code == 2 and "holds a run already" in one_line(err)
    assert Path("runs/ill-1/model.safetensors").read_bytes() == before


def test_whoever_repeats_a_command_that_was_cut_off_is_told_to_go_on(run: Run) -> None:
    quick = (*QUICK, "--method", "unit-noise")
    assert run(*quick)[0] == 0
    assert run(*quick)[0] == 0  # a finished run is not in the way
    Path("runs/ill-2/result.json").unlink()
    code, _, err = run(*quick)
    assert code == 2 and not Path("runs/ill-3").exists()
    assert "runs/ill-2 is unfinished and was paid for: go on with dptune resume runs/ill-2" in err
    assert run(*quick, "--dry-run")[0] == 0 and run(*quick, "--out", "other")[0] == 0
    Path("elsewhere").mkdir()
    Path("elsewhere/ill.csv").write_bytes(Path("ill.csv").read_bytes())
    elsewhere = [word.replace("ill.csv", "elsewhere/ill.csv") for word in quick]
    assert as_json(run(*elsewhere, "--json"))["out"] == "runs/ill-3"
    assert run("resume", "runs/ill-2")[0] == 0
    assert run(*quick)[0] == 0


def test_a_finished_run_is_resumed_by_reading_it_from_anywhere(
    run: Run, finished: tuple[Path, Any], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(finished[0] / "r", tmp_path / "copy"))
    spent = run("budget", f"{folder}/ledger.db", "--json")
    (folder / "search.png").unlink()
    again = as_json(run("resume", str(folder), "--json"))
    assert again == {**finished[1], "out": str(folder), "picture": f"{folder}/search.png"}
    assert run("budget", f"{folder}/ledger.db", "--json") == spent
    assert (folder / "search.png").exists()


def test_predictions_are_those_of_the_loaded_model(there: Run) -> None:
    code, out, _ = there("predict", "r", "--data", "new.csv", "-o", "p.csv")
    assert code == 0 and out == "Wrote 40 predictions to p.csv.\n"
    with open("p.csv", newline="") as file:
        head, *rows = csv.reader(file)
    features = np.genfromtxt("new.csv", delimiter=",", skip_header=1, usecols=range(5))
    assert head == ["prediction"]
    assert [row[0] for row in rows] == dptune.load("r").predict(features).tolist()


def test_predicting_numbers_loads_neither_a_database_nor_pandas(there: Run) -> None:
    loaded = loaded_by_command("predict", "r", "--data", "new.csv", "-o", "p.csv")
    assert "dptune.study.trained_model" in loaded
    assert loaded.isdisjoint(("sqlalchemy", "pandas", "sklearn", "scipy.optimize", "scipy.stats"))


def test_predictions_never_replace_the_data(there: Run) -> None:
    before = Path("new.csv").read_text()
    assert there("predict", "r", "--data", "new.csv", "-o", "./new.csv")[0] == 2
    assert Path("new.csv").read_text() == before
    assert there("predict", "r", "--data", "new.csv", "-o", "no/p.csv")[0] == 2
    assert there("predict", "r", "--data", "gone.csv", "-o", "q.csv")[0] == 2
    assert not Path("q.csv").exists()


def test_the_card_says_everything(there: Run) -> None:
    code, card, _ = there("card", "r")
    assert code == 0
    for heading, sentence in dptune.load("r").guarantee.sections():
        assert f"- **{heading}**: {sentence}." in card
    trials = [json.loads(line) for line in Path("r/trials.jsonl").read_text().splitlines()]
    for trial in trials:
        assert f"| {trial['number']} | sweep | {trial['plan']['learning_rate']:.4g} |" in card
    assert "dptune budget r/ledger.db" in card
    assert as_json(there("card", "r", "--json")) == {"markdown": card}


def test_a_dry_run_spends_and_writes_nothing(run: Run) -> None:
    run(*OPEN)
    before, files = run("budget", "l.db", "--json"), sorted(Path().rglob("*"))
    code, out, _ = run(*TUNE, "--dry-run", "--ledger", "l.db", "--delta", "1e-5", "--verbose")
    assert code == 0
    words = one_line(out)
    assert "sweep 3" in words and "final run 1" in words and "a plan: true of a study" in words
    assert run("budget", "l.db", "--json") == before
    assert sorted(Path().rglob("*")) == files


def test_a_dry_run_promises_what_the_study_does(there: Run, finished: tuple[Path, Any]) -> None:
    planned = as_json(there(*QUICK, "--delta", "1e-4", "--dry-run", "--json"))
    assert sum(slot["share"] for slot in planned["slots"]) == pytest.approx(1.0)
    done = finished[1]["guarantee"]
    assert planned["guarantee"]["epsilon"] == pytest.approx(done["epsilon"], rel=1e-9)
    for same in ("delta", "releases", "public_facts", "covers_search", "covers_selection"):
        assert planned["guarantee"][same] == done[same]


def test_what_prepares_rows_is_said_before_it_is_paid(run: Run) -> None:
    said = "- centred with a private mean: 1 % of the budget - whitened with a private second "
    asked = (*QUICK, "--epsilon", "4", "--verbose")
    code, out, _ = run(*asked, "--dry-run", "--delta", "1e-5")
    assert code == 0 and said in one_line(out)
    assert re.search(
        r"preparation of rows - scaled by private ranges of \d columns: 6.9 % of the budget",
        one_line(out),
    )
    code, _, err = run(*asked, "--out", "r", "--whiten", "no")
    assert code == 0 and "private mean 1 %" in one_line(err) and "second moment" not in err
    planned = as_json(run(*QUICK, "--dry-run", "--center", "no", "--whiten", "0.05", "--json"))
    bought = ["ranges of columns", "row lengths", "second moment"]
    assert [slot["purpose"] for slot in planned["slots"][:3]] == bought
    assert planned["slots"][2]["share"] == pytest.approx(0.05)
    assert {
        "not centred: as asked",
        "whitened with a private second moment: 5 % of the budget",
    } <= set(planned["preparation"])
    Path("never.toml").write_text("[preparation]\ncenter_share = 0\nwhiten_share = 0\n")
    never = (*TUNE, "--config", "never.toml", "--dry-run", "--json")
    purposes = [slot["purpose"] for slot in as_json(run(*never))["slots"]]
    assert purposes[:2] == ["ranges of columns", "census"]
    found = as_json(run(*never, "--center", "auto", "--epsilon", "4"))
    bought = ["ranges of columns", "private mean", "census"]
    assert [slot["purpose"] for slot in found["slots"][:3]] == bought


@pytest.mark.parametrize("option", ["--center", "--whiten"])
@pytest.mark.parametrize("share", ["yes", "1 %", "-1", "0.7", "nan"])
def test_a_share_that_is_none_is_refused(option: str, share: str, run: Run) -> None:
    code, _, err = run(*QUICK, option, share)
    assert code == 2 and option.removeprefix("--") in err
    assert not Path("runs").exists()


def test_a_plan_says_what_counts_alike(run: Run) -> None:
    _, printed, _ = run(*QUICK, "--dry-run")
    assert "Every row counts alike." in printed
    code, printed, _ = run(*QUICK, "--method", "unit-noise", "--balance", "classes", "--dry-run")
    assert code == 0
    assert "Every class counts alike: rows are weighted by noisy class counts." in printed
    assert "census" in printed  # which this method would not buy by itself
    _, printed, _ = run(*QUICK, "--balance", "classes", "--dry-run", "--json")
    assert json.loads(printed)["objective"].startswith("every class counts alike")


def test_a_dry_run_says_what_does_not_fit(run: Run) -> None:
    run(*OPEN)
    code, _, err = run(*TUNE, "--dry-run", "--ledger", "l.db", "--epsilon", "5")
    assert code == 3 and "Ask for less" in one_line(err)


def test_a_run_s_own_file_asks_for_the_same_study(run: Run) -> None:
    as_json(
        run(*QUICK, "--epsilon", "2", "--score", "held-out", "--seed", "3", "--out", "a", "--json")
    )
    as_json(run("tune", "--config", "a/run.toml", "--out", "b", "--json"))
    first, second = (config.parse(Path(n, "run.toml").read_text(), n) for n in "ab")
    assert first.pop("study") != second.pop("study")
    assert first == second
    assert first["score"]["kind"] == "held-out" and first["run"]["seed"] == 3


def test_options_win_over_the_file(run: Run) -> None:
    Path("mine.toml").write_text(
        '[budget]\nepsilon = 3.0\n[search]\nmethod = "paper-line"\ntrials = 2\n'
        '[score]\nkind = "noisy"\nshare = 0.01\n[run]\nseed = 5\n'
    )
    run(*TUNE, "--config", "mine.toml", "--epsilon", "2", "--method", "unit-noise", "--out", "r")
    asked = config.parse(Path("r/run.toml").read_text(), "")
    assert asked["budget"]["epsilon"] == 2.0 and asked["run"]["seed"] == 5
    assert asked["search"] == {"method": "unit-noise", "noise": 1.0}
    assert asked["score"]["share"] == 0.01


def test_what_a_file_may_say_of_data_is_what_load_data_takes() -> None:
    # Columns have a section of their own, and what is told while reading says nothing of data.
    in_data = set(inspect.signature(load_data).parameters) - {"columns", "told"}
    assert set(config.DATA) == in_data


def test_an_npz_with_scale_is_tuned_and_predicted(run: Run) -> None:
    random = np.random.default_rng(1)
    features = random.integers(-9, 9, (200, 4)).astype(np.int8)
    labels = (features[:, 0] > 0).astype(np.int64)
    scale = np.full(4, 0.5, dtype=np.float32)
    np.savez("n.npz", X_train=features[50:], y_train=labels[50:], X_test=features[:50], scale=scale,
             y_test=labels[:50])  # fmt: skip
    asked = ("tune", "--data", "n.npz", "--config", "quick.toml", "--test", "n.npz", "--json")
    assert as_json(run(*asked, "--out", "r"))["test_rows"] == 50
    assert run("predict", "r", "--data", "n.npz", "-o", "p.csv")[0] == 0
    shown = [int(line) for line in Path("p.csv").read_text().split()[1:]]
    assert shown == dptune.load("r").predict(features[:50] * scale).tolist()


def test_test_rows_that_nobody_asked_for_stay_unused_and_are_pointed_out(run: Run) -> None:
    features = np.random.default_rng(1).normal(size=(200, 4))
    labels = (features[:, 0] > 0).astype(np.int64)
    np.savez("n.npz", X_train=features[50:], y_train=labels[50:], X_test=features[:50],
             y_test=labels[:50])  # fmt: skip
    asked = ("tune", "--data", "n.npz", "--config", "quick.toml")
    told = run(*asked, "--out", "r", "--json")
    assert (as_json(told)["test_accuracy"], as_json(told)["test_rows"]) == (None, 0)
    (line,) = (line for line in told[2].splitlines() if "test rows, which stay unused" in line)
    assert line.endswith(f"--test {Path('n.npz').absolute()}.")
    assert "test rows" not in Path("r/guarantee.txt").read_text()
    _, out, err = run(*asked, "--test", "n.npz", "--dry-run", "--verbose")
    assert "the test rows" in one_line(out) and "unused" not in err


def test_nobody_s_value_is_released_with_a_model_of_values(run: Run) -> None:
    draws = np.random.default_rng(0)
    ages, salaries = draws.uniform(-1, 1, 200), draws.uniform(20_000, 90_000, 200)
    salaries[17] = 987_654
    lines = [f"{age},{salary}" for age, salary in zip(ages, salaries, strict=True)]
    Path("pay.csv").write_text("\n".join(["age,label", *lines]))
    task = '[data]\nsource = "pay.csv"\ntask = "values"\n'
    Path("pay.toml").write_text(task)
    code, out, err = run("tune", "--config", "pay.toml", "--out", "r")
    assert (code, out, "target_range = [LOW, HIGH]" in err) == (2, "", True)
    assert "987" not in err and not Path("r").exists()
    Path("pay.toml").write_text(f"{task}target_range = [0, 100000]\n[space]\nsteps = [5, 10]\n")
    told = as_json(run("tune", "--config", "pay.toml", "--out", "r", "--json"))
    written = [path for path in Path("r").rglob("*") if path.is_file()]
    assert len(written) > 5 and "0 to 100000" in json.dumps(told)
    assert not any(b"987654" in path.read_bytes() for path in written)


@pytest.mark.parametrize("method", ["paper-line", "random-search"])
def test_every_method_has_a_screen(run: Run, method: str) -> None:
    code, out, _ = run(*QUICK, "--epsilon", "3", "--method", method, "--out", "r")
    assert code == 0 and f"ill: {method}" in out
    assert Path("r/search.png").stat().st_size > 20_000


def test_unpaid_scores_are_not_covered(run: Run) -> None:
    told = as_json(run(*QUICK, "--score", "unpaid", "--dry-run", "--json"))
    assert told["guarantee"]["covers_selection"] is False


OPEN = (
    "ledger", "open", "l.db", "--dataset", "ill", "--data", "ill.csv", "--epsilon", "1",
    "--delta", "1e-5",
)  # fmt: skip


def test_a_ledger_opened_here_pays_for_a_study_and_its_reuse(run: Run) -> None:
    run(*OPEN[:-4], "--epsilon", "3", "--delta", "1e-5")
    paid = ("--ledger", "l.db", "--delta", "1e-5", "--json")
    as_json(run(*QUICK, *paid, "--out", "a"))
    plan = as_json(run(*QUICK, *paid, "--reuse", "a", "--dry-run"))
    told = as_json(run(*QUICK, *paid, "--out", "b", "--reuse", "a"))
    others = [
        [caveat for caveat in each["guarantee"]["caveats"] if "other payments" in caveat]
        for each in (plan, told)
    ]
    assert len(others[0]) == 1 and others[0] == others[1], "the search is none of the others"
    assert told["guarantee"]["epsilon"] > 1.0 and len(told["trials"]) == 3
    assert not Path("a/ledger.db").exists()


def test_the_shares_of_a_study_that_was_fixed_beforehand_are_parts_of_one_whole(run: Run) -> None:
    Path("sampled.toml").write_text(
        Path("quick.toml").read_text() + "\n[recipe]\nsampling_rate = 0.05\n"
    )
    assert run(*TUNE, "--config", "sampled.toml", "--epsilon", "3", "--out", "s")[0] == 0
    state = dptune.Ledger.open("s/ledger.db").state()
    mu_squared = sum(payment.price.mu_squared for payment in state.counted)
    assert mu_squared > 1.02 * state.budget.mu_squared(state.slack), "together they are cheaper"
    shown = run("budget", "s")[1].partition("payments")[2].partition("changes")[0]
    shares = [float(share) for share in re.findall(r"([\d.]+) %", shown)]
    assert len(shares) == len(state.counted)
    assert sum(shares) == pytest.approx(100, abs=0.06 * len(shares))


def test_a_ledger_of_the_bundled_data_or_a_folder_is_the_one_tune_uses(run: Run) -> None:
    from datasets import Dataset

    Dataset.from_dict({"f": [0.0, 1.0] * 50, "label": [0, 1] * 50}).save_to_disk("stored")
    budget = ("--epsilon", "1", "--delta", "1e-5")
    for source in ("demo", "stored"):
        ledger = f"{source}.db"
        opened = run("ledger", "open", ledger, "--dataset", "x", "--data", source, *budget)
        assert opened[0] == 0, opened[2]
        fingerprint = load_data(source).fingerprint
        assert dptune.Ledger.open(ledger).declare(fingerprint, reason="again") is False
    assert run("ledger", "open", "h.db", "--dataset", "x", "--data", "hub:x/y", *budget)[0] == 2


BAD = {
    "no such data": ("tune", "--data", "gone.csv"),
    "no such label": ("tune", "--data", "ill.csv", "--label", "gone"),
    "labels missing": ("tune", "--data", "gaps.csv"),
    "one class": ("tune", "--data", "one.csv"),
    "not a number": ("tune", "--data", "nan.csv"),
    "unreadable": ("tune", "--data", "torn.npz"),
    "epsilon 0": (*TUNE, "--epsilon", "0"),
    "epsilon negative": (*TUNE, "--epsilon", "-1"),
    "epsilon nan": (*TUNE, "--epsilon", "nan"),
    "delta 1": (*TUNE, "--delta", "1"),
    "delta 0": (*TUNE, "--delta", "0"),
    "seed negative": (*TUNE, "--seed", "-1"),
    "no public rows": (*TUNE, "--score", "public"),
    "public rows that are private": (*TUNE, "--score", "public", "--public", "ill.csv"),
    "test rows that are private": (*TUNE, "--test", "ill.csv"),
    "test rows that are private, reordered": (*TUNE, "--test", "turned.csv"),
    "public rows that are private, reordered": (*TUNE, "--public", "turned.csv"),
    "no such method": (*TUNE, "--method", "luck"),
    "no such ledger": (*TUNE, "--ledger", "gone.db"),
    "a ledger of other data": ("tune", "--data", "other.csv", "--ledger", "l.db"),
    "reuse without ledger": (*TUNE, "--reuse", "."),
    "reuse of nothing": (*TUNE, "--reuse", "gone", "--ledger", "l.db"),
    "a folder that is a file": (*TUNE, "--out", "ill.csv/r"),
    "no such config": (*TUNE, "--config", "gone.toml"),
    "a config that is none": (*TUNE, "--config", "ill.csv"),
    "a config that is no text": (*TUNE, "--config", "torn.npz"),
    "a config with a typo": (*TUNE, "--config", "typo.toml"),
    "a config with a wrong kind": (*TUNE, "--config", "kind.toml"),
    "nothing to resume": ("resume", "."),
    "nothing to predict with": ("predict", ".", "--data", "new.csv", "-o", "p.csv"),
    "nothing to describe": ("card", "."),
}  # fmt: skip


@pytest.mark.parametrize("arguments", BAD.values(), ids=BAD.keys())
def test_bad_input_costs_nothing_and_leaves_nothing(arguments: tuple[str, ...], run: Run) -> None:
    Path("gaps.csv").write_text("f,label\n1,a\n2,\n3,b\n")
    Path("one.csv").write_text("f,label\n1,a\n2,a\n")
    Path("nan.csv").write_text("f,label\n1,a\nnan,b\n")
    Path("other.csv").write_text("f,label\n1,a\n2,b\n")
    head, *lines = Path("ill.csv").read_text().splitlines()
    Path("turned.csv").write_text("\n".join([head, *lines[::-1]]))
    Path("torn.npz").write_bytes(b"PK\x03\x04\xff\xfe torn")
    Path("typo.toml").write_text("[budget]\nepsilom = 1\n")
    Path("kind.toml").write_text('[search]\nmethod = "paper-line"\nepsilons = 3\n')
    run(*OPEN)
    before, files = run("budget", "l.db", "--json"), sorted(Path().rglob("*"))
    code, out, err = run(*arguments)
    assert code == 2 and out == ""
    first, *problems = err.splitlines()
    assert first.startswith("error: ") and len(err) > 40
    assert all(line.startswith("  ") for line in problems)  # one a column
    assert "Traceback" not in err
    assert sorted(Path().rglob("*")) == files
    assert run("budget", "l.db", "--json") == before


def test_more_than_is_left_exits_with_3_and_leaves_nothing(run: Run) -> None:
    run(*OPEN)
    spent = as_json(run("budget", "l.db", "--json"))["spent"]
    code, _, err = run(*TUNE, "--ledger", "l.db", "--epsilon", "5", "--out", "r")
    assert code == 3 and "nothing was spent" in one_line(err)
    assert as_json(run("budget", "l.db", "--json"))["spent"] == spent
    assert not Path("r").exists()


def test_a_full_disk_in_the_beginning_costs_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(*OPEN)
    before = run("budget", "l.db", "--json")

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        code, _, err = run(*QUICK, "--ledger", "l.db", "--out", "r")
    assert code == 1 and "No space left on device" in one_line(err)
    assert run("budget", "l.db", "--json") == before
    assert not Path("r").exists()


def test_an_interrupted_study_says_how_to_go_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from dptune.study.runner import Runner

    def interrupted(self: Runner, *_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Runner, "_segment", interrupted)
        code, _, err = run(*QUICK, "--out", "r")
    assert code == 130 and "dptune resume r" in err
    assert as_json(run("resume", "r", "--json"))["final"]["stage"] == "final run"


def test_a_terminated_study_ends_as_an_interrupted_one(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dptune.study.runner import Runner

    def terminated(self: Runner, *_: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(1000):  # Python hears of signals between two instructions
            pass

    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(Runner, "_segment", terminated)
            code, _, err = run(*QUICK, "--out", "r")
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)
    assert code == 130 and "interrupted; go on with: dptune resume r" in err
    assert as_json(run("resume", "r", "--json"))["final"]["stage"] == "final run"


@pytest.mark.parametrize(
    "problem", [RuntimeError("no font"), OSError(errno.ENOSPC, "No space left on device")]
)
def test_a_picture_that_cannot_be_written_is_a_remark(
    problem: Exception, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.figure import Figure

    def fail(*_: Any, **__: Any) -> None:
        raise problem

    with monkeypatch.context() as patch:
        patch.setattr(Figure, "savefig", fail)
        code, out, err = run(*QUICK, "--out", "r", "--json")
        assert code == 0 and json.loads(out)["picture"] is None
        assert f"its picture could not be written ({type(problem).__name__}: " in one_line(err)
        code, out, _ = run("resume", "r")
        assert code == 0 and "dptune card r" in out and "search.png" not in out
    assert run("card", "r")[0] == 0


@pytest.mark.parametrize(
    "verb", ["tune", "tune-pictures", "tune-texts", "resume", "predict", "card"]
)
def test_help_reads_well(verb: str, run: Run) -> None:
    code, out, _ = run(verb, "--help")
    assert code == 0 and "--json" in out and "Example: dptune" in out


def test_without_a_delta_the_ledgers_is_used(run: Run) -> None:
    opened = ("ledger", "open", "ill.db", "--dataset", "ill", "--data", "ill.csv")
    assert run(*opened, "--epsilon", "1", "--delta", "1e-6")[0] == 0
    code, out, _ = run(*QUICK, "--ledger", "ill.db", "--dry-run", "--json")
    assert code == 0
    assert json.loads(out)["budget"]["delta"] == 1e-6
    code, out, _ = run(*QUICK, "--ledger", "ill.db", "--dry-run")
    assert "No --delta was given, so delta is that of the ledger = 1e-06" in out


def test_methods_are_compared_from_the_command_line(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(0)
    features = random.normal(size=(300, 5))
    labels = (features[:, 0] > 0).astype(int)
    np.savez("small.npz", X_train=features[:250], y_train=labels[:250], X_test=features[250:],
             y_test=labels[250:])  # fmt: skip
    asked = ("bench", "compare", "--data", "small.npz", "--methods", "unit-noise,random-search")
    code, out, _ = run(*asked, "--repeats", "2", "--out", "compared")
    assert (code, "small: epsilon 1 at delta 1e-05" in out) == (0, True)
    assert Path("compared/compare.md").read_text().count("\n") == 4
    code, out, _ = run(*asked, "--repeats", "2", "--out", "compared", "--json")
    assert [row["method"] for row in json.loads(out)["rows"]] == ["unit-noise", "random-search"]
    assert run(*asked, "--epsilon", "one")[0] == 2


def test_a_table_without_ranges_gets_a_hint_before_anything_is_paid(run: Run) -> None:
    _, out, _ = run(*TUNE, "--dry-run", "--epsilon", "0.3")  # for which none are bought
    assert "declare their ranges" in one_line(out)
    pairs = ", ".join(["[-3, 3]"] * 5)
    Path("ranges.toml").write_text(f"[preparation]\nranges = [{pairs}]")
    code, out, _ = run(*TUNE, "--config", "ranges.toml", "--dry-run")
    assert (code, "declare their ranges" in one_line(out)) == (0, False)
