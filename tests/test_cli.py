"""The command line as its users meet it: exit codes, JSON, and errors without traceback."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dptune import accounting
from dptune.accounting import Budget
from dptune.accounting.split import Slot
from dptune.cli import app as cli
from dptune.cli import ledger_screen, screen
from dptune.data.sources import fingerprint_source
from dptune.ledger import Ledger
from dptune.privacy import (
    FullBatchRun,
    NoisyCount,
    Price,
    PrivateMean,
    PrivateSecondMoment,
    SampledRun,
)
from support.ledgers import ROWS as FINGERPRINT
from support.ledgers import new_ledger

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def dptune(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Run:
    """Call the command in an empty folder; returns exit code, output and errors."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "patients.csv").write_text("age,ill\n41,0\n67,1\n")

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["dptune", *arguments])
        with pytest.raises(SystemExit) as exit:
            cli.main()
        captured = capsys.readouterr()
        return int(exit.value.code or 0), captured.out, captured.err

    return run


def as_json(result: tuple[int, str, str]) -> Any:
    assert result[0] == 0, result[2]
    return json.loads(result[1])


def one_line(text: str) -> str:
    return " ".join(text.split())


PLAN = ("plan", "--epsilon", "1", "--delta", "1e-5", "--sweep", "3@0.1", "--sweep", "3@0.2")
OPEN = (
    "ledger", "open", "l.db", "--dataset", "patients", "--data", "patients.csv",
    "--epsilon", "1", "--delta", "1e-5",
)  # fmt: skip
RESERVE = (
    "ledger", "reserve", "l.db", "--data", "patients.csv", "--purpose", "trial 1",
    "--steps", "100", "--noise-multiplier",
)  # fmt: skip


def test_plan_leaves_0_884_for_the_final_run(dptune: Run) -> None:
    plan = as_json(dptune(*PLAN, "--score", "public", "--json"))
    assert plan["final"]["epsilon"] == pytest.approx(0.884046, abs=1e-6)
    assert plan["final"]["mu"] == pytest.approx(0.2395683, abs=1e-7)
    assert plan["budget"]["mu"] == pytest.approx(0.26805112, abs=1e-8)
    assert sum(slot["share"] for slot in plan["slots"]) == pytest.approx(1.0)
    guarantee = plan["guarantee"]
    assert guarantee["epsilon"] == pytest.approx(1.0)
    assert guarantee["covers_search"] is True and guarantee["covers_selection"] is True


def test_plan_pays_for_selection_by_default(dptune: Run) -> None:
    plan = as_json(dptune(*PLAN, "--json"))
    assert plan["score"] == {"kind": "noisy", "noise": pytest.approx([60.92, 60.92], abs=0.01)}
    single = as_json(dptune(*PLAN[:5], "--sweep", "1@0.1", "--json"))
    assert single["score"] == {"kind": "noisy", "noise": []}
    assert "the rows that score the trials" not in single["guarantee"]["public_facts"]
    assert plan["final"]["epsilon"] == pytest.approx(0.88101, abs=1e-5)


def test_plan_prints_a_table_rounded_toward_privacy(dptune: Run) -> None:
    code, out, err = dptune(*PLAN, "--score", "public")
    assert (code, err) == (0, "")
    out = one_line(out)
    assert "sweep 2 3 0.2000 0.06134 15.7 %" in out
    assert "final run 1 0.8840 0.23956 79.9 %" in out
    assert "the search for hyperparameters is covered" in out


def test_a_plan_above_its_budget_exits_with_3(dptune: Run) -> None:
    code, out, err = dptune(
        "plan", "--epsilon", "1", "--delta", "1e-5", "--sweep", "9@0.5", "--json"
    )
    assert code == 3
    assert json.loads(out)["error"]["kind"] == "BudgetExceeded"
    assert "leaves nothing for the final run" in err


def test_account_goes_both_ways(dptune: Run) -> None:
    given = as_json(
        dptune("account", "--epsilon", "1", "--delta", "1e-5", "--steps", "100", "--json")
    )
    assert given["noise_multiplier"] == pytest.approx(37.3063, abs=1e-4)
    noise = repr(given["noise_multiplier"])
    back = as_json(
        dptune(
            "account", "--noise-multiplier", noise, "--delta", "1e-5", "--steps", "100", "--json"
        )
    )
    assert back["epsilon"] == pytest.approx(1.0, rel=1e-9)
    assert back["rdp_epsilon"] > 1.08
    assert back["guarantee"]["covers_search"] is False


def test_account_and_plan_say_what_tune_refuses(dptune: Run) -> None:
    for asked in (("account", "--steps", "3"), ("plan",)):
        code, _, said = dptune(*asked, "--epsilon", "30", "--delta", "1e-5")
        assert code == 0 and "refuses an epsilon above 20 unless it is given --allow-large" in said
        code, _, said = dptune(*asked, "--epsilon", "20", "--delta", "1e-5")
        assert code == 0 and not said
    run = ("account", "--noise-multiplier", "1e-5", "--steps", "3", "--delta", "1e-5")
    code, _, said = dptune(*run)
    assert code == 2 and "a noise multiplier of 1e-05 over 3 steps protects nothing" in said


def test_account_of_a_sampled_run_goes_both_ways(dptune: Run) -> None:
    run = ("--delta", "1e-5", "--steps", "200", "--sampling-rate", "0.03", "--json")
    given = as_json(dptune("account", "--epsilon", "0.2", *run))
    assert given["noise_multiplier"] == pytest.approx(7.0619, rel=2e-4)
    assert given["epsilon"] <= 0.2
    event = SampledRun(steps=200, noise_multiplier=given["noise_multiplier"], sampling_rate=0.03)
    assert given["mu"] == accounting.price(event, slack=given["slack"]).mu
    code, out, _ = dptune("account", "--noise-multiplier", "7", *run[:-1])
    assert code == 0 and "Poisson sampling at rate 0.03" in out


def test_a_sampling_rate_of_one_is_full_batch(dptune: Run) -> None:
    run = ("--delta", "1e-5", "--steps", "100", "--sampling-rate", "1", "--json")
    assert as_json(dptune("account", "--epsilon", "1", *run))["slack"] == 0
    assert as_json(dptune("account", "--noise-multiplier", "40", *run))["slack"] == 0


def test_a_ledger_is_opened_paid_from_and_shown(dptune: Run) -> None:
    opened = as_json(dptune(*OPEN, "--json"))
    assert opened["dataset"] == "patients" and opened["spent"]["epsilon"] == 0
    paid = as_json(dptune(*RESERVE, "60", "--json"))
    price = accounting.price(FullBatchRun(steps=100, noise_multiplier=60.0))
    assert paid["state"] == "reserved" and paid["mu_squared"] == price.mu_squared
    number = str(paid["payment"])
    assert as_json(dptune("ledger", "commit", "l.db", number, "--json"))["state"] == "committed"
    shown = as_json(dptune("budget", "l.db", "--json"))
    assert shown["payments"][0]["state"] == "committed"
    assert shown["payments"][0]["event"]["kind"] == "full-batch-run"
    charged = Price(price.mu_squared, 0.02 * 1e-5)
    assert shown["spent"]["epsilon"] == pytest.approx(accounting.epsilon(charged, 1e-5))
    assert shown["chain"] == {"verified": True, "entries": 4, "head": shown["chain"]["head"]}
    assert shown["left"]["mu_squared"] + shown["spent"]["mu_squared"] == pytest.approx(
        Budget(1.0, 1e-5).mu_squared(2e-7)
    )


def test_the_longest_names_of_slots_fit_into_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(screen.out, "width", 80)
    slot = Slot("check of the final model", 1, 1.0, 0.0123)
    screen.out.print(screen.draw_slots(Budget(1.0, 1e-5), [slot]))
    assert "check of the final model" in capsys.readouterr().out


def test_one_count_is_no_counts() -> None:
    one, two = (ledger_screen._event(NoisyCount(counts=n, noise=2.0)) for n in (1, 2))
    assert (one, two) == ("1 noisy count, noise 2", "2 noisy counts, noise 2")


def test_a_ledger_says_which_moments_were_paid(
    dptune: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screen.out, "width", 200)  # nothing wraps
    paid = (PrivateMean(noise_multiplier=50.0), PrivateSecondMoment(noise_multiplier=25.0))
    ledger = new_ledger(str(tmp_path / "moments.db"), Budget(1.0, 1e-5))
    for event in paid:
        ledger.reserve(event, purpose="preparation", fingerprint=FINGERPRINT)
    state = Ledger.open(str(tmp_path / "moments.db")).state()
    assert tuple(payment.event for payment in state.payments) == paid
    assert state.payments[1].price.mu_squared == pytest.approx(1 / 25**2)
    code, out, _ = dptune("budget", "moments.db")
    assert code == 0 and "private mean, noise 50" in out
    assert "private second moment, noise 25" in out
    held = "held for runs that have not begun (2 payments): dptune ledger commit or void settles"
    assert held in one_line(out.replace("│", "")) and "dptune resume" not in out


def test_overdrawing_exits_with_3_and_spends_nothing(dptune: Run) -> None:
    dptune(*OPEN)
    dptune(*RESERVE, "60")
    before = dptune("budget", "l.db", "--json")
    code, out, err = dptune(*RESERVE, "45", "--json")
    assert code == 3
    assert json.loads(out)["error"]["kind"] == "BudgetExceeded"
    assert "would bring data set 'patients' to epsilon 1.0414; the budget is epsilon 1" in one_line(
        err
    )
    assert "enough for one full-batch run of epsilon" in one_line(err)
    assert dptune("budget", "l.db", "--json") == before


def test_account_says_what_a_ledger_will_charge(dptune: Run) -> None:
    run = ("--steps", "1000", "--noise-multiplier", "2", "--sampling-rate", "0.01")
    said = as_json(dptune("account", "--delta", "1e-5", *run, "--json"))
    dptune(*OPEN)
    assert dptune(*RESERVE[:7], *run)[0] == 0
    shown = as_json(dptune("budget", "l.db", "--json"))
    assert shown["spent"]["epsilon"] == pytest.approx(said["ledger_epsilon"], rel=1e-9)
    assert shown["spent"]["mu"] == pytest.approx(said["mu"], rel=1e-9)
    assert said["epsilon"] < said["ledger_epsilon"]


def test_an_entry_noted_down_can_be_looked_for(dptune: Run) -> None:
    dptune(*OPEN)
    noted = as_json(dptune(*RESERVE, "60", "--json"))["entry"]
    dptune("ledger", "commit", "l.db", "1")
    assert dptune("budget", "l.db", "--contains", noted)[0] == 0
    code, _, err = dptune("budget", "l.db", "--contains", "0" * 64)
    assert code == 1 and "older copy" in one_line(err)


def test_usage_errors_are_json_too(dptune: Run) -> None:
    code, out, _ = dptune("plan", "--epsilon", "1", "--json")
    assert code == 2
    assert "--delta" in json.loads(out)["error"]["message"]


def test_a_result_that_cannot_be_printed_is_said_to_have_taken_effect(tmp_path: Path) -> None:
    command = [
        Path(sys.executable).with_name("dptune"),
        "plan",
        "--epsilon",
        "1",
        "--delta",
        "1e-5",
    ]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert "may have taken effect" in done.stderr and "Traceback" not in done.stderr


def test_no_number_is_cut_short_on_a_narrow_terminal(
    dptune: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    dptune(*OPEN)
    dptune(*RESERVE, "60")
    monkeypatch.setenv("COLUMNS", "40")
    assert "…" not in dptune("budget", "l.db")[1] + dptune(*PLAN)[1]


def test_what_was_exchanged_is_counted_not_listed(dptune: Run) -> None:
    dptune(*OPEN)
    dptune(*RESERVE, "60")
    ledger = Ledger.open("l.db")
    ledger.exchange(ledger.receipt(1), FullBatchRun(steps=100, noise_multiplier=70.0))
    code, out, _ = dptune("budget", "l.db")
    assert code == 0 and "1 more was exchanged for one of these before beginning: see --json" in out
    payments = out[out.index("payments") : out.index("changes")].splitlines()[2:]
    assert [line[0] for line in payments if line[0].strip()] == ["2"], "the one in its place"
    assert "payment 1 exchanged" not in out
    states = [each["state"] for each in as_json(dptune("budget", "l.db", "--json"))["payments"]]
    assert states == ["exchanged", "reserved"]


def test_budget_draws_the_last_hundred_rows_of_a_table_and_counts_the_others(
    dptune: Run,
) -> None:
    dptune(*OPEN)
    ledger, digest = Ledger.open("l.db"), fingerprint_source("patients.csv")
    run = ("run", FullBatchRun(steps=1, noise_multiplier=1000.0))
    for study in range(104):
        ledger.reserve_all([run], fingerprint=digest, study=f"{study}-x")
    ledger.void_all(ledger.reserve_all([run] * 103, fingerprint=digest), reason="typo")
    code, out, _ = dptune("budget", "l.db")
    assert code == 0
    payments, payers = out.index("payments (the last 100; 107 earlier"), out.index("spent by (")
    drawn = [line.split()[0] for line in out[payments:payers].splitlines() if " run " in line]
    assert drawn == [str(number) for number in range(108, 208)]
    # Beside 103 voids: the ledger was opened, and a version declared.
    changes = out.index("changes (the last 100; 5 earlier")
    assert "spent by (the last 100; 4 earlier" in out
    assert out[payers:changes].count("\nstudy ") == 100
    listed = as_json(dptune("budget", "l.db", "--json"))["payments"]
    assert [each["payment"] for each in listed] == list(range(1, 208))


def test_json_of_many_items_is_printed_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    printed = ""

    def items() -> Iterator[dict[str, int]]:
        nonlocal printed
        for number in range(3):
            yield {"number": number}
            printed += capsys.readouterr().out
            assert printed.count("number") == number + 1

    screen.show(True, {"a": [1, {"b": "\n"}], "many": items(), "none": iter(())}, lambda: None)
    printed += capsys.readouterr().out
    many = [{"number": number} for number in range(3)]
    assert json.loads(printed) == {"a": [1, {"b": "\n"}], "many": many, "none": []}


def test_a_ledger_says_what_each_study_spent(dptune: Run) -> None:
    dptune(*OPEN)
    dptune(*RESERVE, "60")
    assert "spent by" not in dptune("budget", "l.db")[1], "there is nobody else"
    ledger = Ledger.open("l.db")
    digest = fingerprint_source("patients.csv")
    runs = [(name, FullBatchRun(steps=100, noise_multiplier=80.0)) for name in ("one", "two")]
    ledger.reserve_all(runs, fingerprint=digest, study="spring-7f3a")
    code, out, _ = dptune("budget", "l.db")
    assert code == 0
    lines = out[out.index("spent by") : out.index("changes")].splitlines()
    by_hand, spring = (one_line(line) for line in lines if "%" in line)
    mu = math.sqrt(2 * 100) / 80  # of two runs of 100 steps with noise 80
    share = mu**2 / ledger.state().budget.mu_squared(ledger.state().slack)
    assert by_hand.startswith("by hand 1 ")
    assert spring.startswith("study spring 2 ") and spring.endswith(f"{100 * share:.1f} %")
    assert float(spring.split()[3]) == pytest.approx(mu, abs=1e-5)


def test_history_shows_voids_changes_and_versions(dptune: Run) -> None:
    dptune(*OPEN)
    dptune(*RESERVE, "60")
    assert dptune("ledger", "void", "l.db", "1", "--reason", "typo")[0] == 0
    budget = ("--epsilon", "2", "--delta", "1e-5", "--reason", "board")
    assert dptune("ledger", "change-budget", "l.db", *budget)[0] == 0
    Path("patients2.csv").write_text("age,ill\n41,0\n67,1\n50,1\n")
    declare = ("--data", "patients2.csv", "--reason", "one joined")
    assert dptune("ledger", "declare", "l.db", *declare)[0] == 0
    code, out, _ = dptune("budget", "l.db")
    out = one_line(out)
    assert code == 0
    for shown in (
        "payment 1 voided typo",
        "epsilon 2 at delta 1e-05 board",
        "declared one joined",
        "all verified",
        "the budget was changed from (1, 1e-05) to (2, 1e-05): board",
        "voided by users or programs as never started: 1",
    ):
        assert shown in out


def test_no_output_carries_a_fingerprint(dptune: Run) -> None:
    import hashlib

    digest = hashlib.sha256(Path("patients.csv").read_bytes()).hexdigest()
    outputs = [dptune(*OPEN, "--json"), dptune(*RESERVE, "60", "--json")]
    outputs += [dptune("budget", "l.db", "--json"), dptune("budget", "l.db")]
    assert all(digest not in out + err for _, out, err in outputs)


BAD = {
    "no such ledger": ("budget", "nowhere.db"),
    "a folder": ("budget", "."),
    "not a ledger": ("budget", "patients.csv"),
    "a URL that is none": ("budget", "postgresql://u:secret@host:bad/db"),
    "another database": ("budget", "mysql://host/db"),
    "a name that is too long": ("budget", "x" * 300),
    "no data file": (*OPEN[:6], "gone.csv", *OPEN[7:]),
    "data is a folder": (*OPEN[:6], ".", *OPEN[7:]),
    "no name": (*OPEN[:4], " ", *OPEN[5:]),
    "text that is none": (*OPEN[:4], "\udcff", *OPEN[5:]),
    "epsilon 0": ("plan", "--epsilon", "0", "--delta", "1e-5"),
    "epsilon negative": ("plan", "--epsilon", "-1", "--delta", "1e-5"),
    "epsilon nan": ("plan", "--epsilon", "nan", "--delta", "1e-5"),
    "epsilon huge": ("plan", "--epsilon", "1e30", "--delta", "1e-5"),
    "epsilon a word": ("plan", "--epsilon", "one", "--delta", "1e-5"),
    "delta 1": ("plan", "--epsilon", "1", "--delta", "1"),
    "delta 0": ("plan", "--epsilon", "1", "--delta", "0"),
    "delta missing": ("plan", "--epsilon", "1"),
    "a sweep without epsilon": (*PLAN, "--sweep", "3"),
    "a sweep of nothing": (*PLAN, "--sweep", "0@0.1"),
    "a sweep of words": (*PLAN, "--sweep", "a@b"),
    "a share of everything": (*PLAN, "--score-share", "1"),
    "a share of almost nothing": (*PLAN, "--score-share", "1e-300"),
    "a share for public rows": (*PLAN, "--score", "public", "--score-share", "0.01"),
    "a share of nothing": (*PLAN, "--score-share", "0"),
    "an empty data file": (*OPEN[:6], "/dev/null", *OPEN[7:]),
    "a ledger in no folder": (*OPEN[:2], "no/l.db", *OPEN[3:]),
    "neither noise nor epsilon": ("account", "--delta", "1e-5", "--steps", "100"),
    "both noise and epsilon": (
        "account", "--delta", "1e-5", "--steps", "1", "--epsilon", "1", "--noise-multiplier", "1",
    ),
    "steps 0": ("account", "--delta", "1e-5", "--steps", "0", "--epsilon", "1"),
    "steps beyond reason": ("account", "--delta", "1e-5", "--steps", "9" * 300, "--epsilon", "1"),
    "noise 0": ("account", "--delta", "1e-5", "--steps", "1", "--noise-multiplier", "0"),
    "noise tiny": ("account", "--delta", "1e-5", "--steps", "1", "--noise-multiplier", "1e-12"),
    "noise tiny, sampled": (
        "account", "--delta", "1e-5", "--steps", "1", "--noise-multiplier", "1e-5",
        "--sampling-rate", "0.5",
    ),
    "rate 2": (
        "account", "--delta", "1e-5", "--steps", "1", "--epsilon", "1", "--sampling-rate", "2",
    ),
    "rate 0": (
        "account", "--delta", "1e-5", "--steps", "9", "--epsilon", "1", "--sampling-rate", "0",
    ),
    "rate beyond reason": (
        "account", "--delta", "1e-5", "--steps", "9", "--epsilon", "1", "--sampling-rate", "1e-170",
    ),
    "noise beyond reason, sampled": (
        "account", "--delta", "1e-5", "--steps", "3", "--noise-multiplier", "1e-200",
        "--sampling-rate", "0.1",
    ),
    "more steps than memory": (
        "account", "--delta", "0.9", "--steps", "10000000000", "--noise-multiplier", "1e6",
        "--sampling-rate", "0.01",
    ),
    "a password in the query": ("budget", "postgresql://u@127.0.0.1:1/x?password=secret"),
    "an unknown verb": ("spend",),
}  # fmt: skip


@pytest.mark.parametrize("arguments", BAD.values(), ids=BAD.keys())
def test_bad_input_is_explained_without_traceback(arguments: tuple[str, ...], dptune: Run) -> None:
    code, out, err = dptune(*arguments)
    assert code in (1, 2)
    assert out == ""
    assert len(err) > 30
    assert "Traceback" not in err and "secret" not in err


@pytest.mark.parametrize("noise", ["1e25", "1e-3", "3e7"])
def test_odd_numbers_are_priced_and_printed(noise: str, dptune: Run) -> None:
    code, out, _ = dptune("account", "--delta", "1e-5", "--steps", "1", "--noise-multiplier", noise)
    assert code == 0 and "epsilon" in out


def test_extreme_sampling_is_priced_or_refused(dptune: Run) -> None:
    for rate, noise in [("1e-300", "1"), ("1e-7", "1"), ("0.999999", "100"), ("0.5", "1e90")]:
        code, _, err = dptune(
            "account", "--delta", "1e-5", "--steps", "1", "--noise-multiplier", noise,
            "--sampling-rate", rate,
        )  # fmt: skip
        assert code in (0, 2) and "Traceback" not in err


def test_markup_in_names_is_shown_as_it_is(dptune: Run) -> None:
    assert dptune(*OPEN[:4], "[/red]", *OPEN[5:])[0] == 0
    assert "[/red]" in dptune("budget", "l.db")[1]


@pytest.mark.parametrize("verb", [(), ("account",), ("plan",), ("budget",), ("ledger",)])
def test_help_reads_well(verb: tuple[str, ...], dptune: Run) -> None:
    code, out, _ = dptune(*verb, "--help")
    assert code == 0
    assert "Usage: dptune" in one_line(out)
    if verb and verb != ("ledger",):
        assert "--json" in out


def test_the_installed_command_runs(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("dptune")
    done = subprocess.run(
        [command, "--version"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "80"},
    )
    assert done.stdout.startswith("dptune 0.")


def test_bench_reports_ratios_from_one_run(dptune: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shape of the report, on quick stand-ins for the slow routes; no claim about speed."""
    from dptune.bench import accounting as bench

    monkeypatch.setattr(bench, "_pld_route", lambda: lambda: 37.3)
    monkeypatch.setattr(bench, "_prv_route", lambda: lambda: 37.6)
    monkeypatch.setattr(bench, "SAMPLED_RUNS", bench.SAMPLED_RUNS[:1])
    measured = as_json(dptune("bench", "accounting", "--json"))
    routes = measured["full_batch_calibration"]["routes"]
    assert [route["route"].split(",")[0] for route in routes] == [
        "dptune",
        "dp-accounting",
        "prv-accountant",
    ]
    assert routes[1]["ratio"] == pytest.approx(routes[1]["seconds"] / routes[0]["seconds"])
    assert measured["sampled_prices"][0]["seconds"] > 0
    code, out, _ = dptune("bench", "accounting")
    assert code == 0 and "times slower" in out
