"""The shape of the ledger's report, on few entries; no claim about speed."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from dptune import Ledger
from dptune.bench import ledger as bench
from dptune.cli import app as cli


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "SIZES", (10, 60))
    monkeypatch.setattr(bench, "RESERVATIONS", 3)
    monkeypatch.setattr(bench, "AT_ONCE", 7)
    monkeypatch.setattr(bench, "TRIALS", 4)


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *options: str) -> Any:
    """Exit code, output and errors of `dptune bench ledger`."""
    monkeypatch.setattr(sys, "argv", ["dptune", "bench", "ledger", *options])
    with pytest.raises(SystemExit) as exit:
        cli.main()
    captured = capsys.readouterr()
    return exit.value.code, captured.out, captured.err


def test_ratios_follow_from_the_times_beside_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    methods = dict(vars(Ledger))
    code, out, err = run(capsys, monkeypatch, "--json")
    assert code == 0, err
    measured = json.loads(out)
    small, large = measured["sizes"]
    assert (small["entries"], large["entries"]) == (10, 60)
    assert large["ratio"] == pytest.approx(large["reserve_seconds"] / small["reserve_seconds"])
    study = measured["study"]
    assert study["trials"] == 4 and study["entries"] >= 4 * 3
    assert study["share"] == pytest.approx(study["ledger_seconds"] / study["seconds"])
    assert 0 < study["share"] < 1
    assert dict(vars(Ledger)) == methods  # the stopwatch is gone


def test_ledgers_can_be_made_elsewhere_and_are_left_there(address: str, tmp_path: Path) -> None:
    bench.measure(lambda text: None, [str(tmp_path / "small.db"), address])
    assert Ledger.open(str(tmp_path / "small.db")).state().entries == 10 + 3
    state = Ledger.open(address).state()
    assert state.entries == 60 + 3
    assert sum(payment.study is not None for payment in state.payments) >= 4


def test_the_table_shows_the_figures(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    places = [str(tmp_path / name) for name in ("a.db", "b.db")]
    code, _, err = run(capsys, monkeypatch, "--ledger", places[0])
    assert code == 2 and "this benchmark times two ledgers; got 1" in err
    code, out, err = run(capsys, monkeypatch, *(f"--ledger={place}" for place in places))
    assert code == 0, err
    for text in ("entries", "times slower", "1.00", "a study of 4 trials", "%) in the ledger"):
        assert text in " ".join(out.split())
