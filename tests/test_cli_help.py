"""What the command says about itself: help that reads well in 80 columns, and shell completion."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from dptune.accounting.split import DEFAULT_SCORE_SHARE
from dptune.cli import app as cli
from dptune.cli.parameters import Device
from dptune.cli.price_verbs import Score
from dptune.study.config import SCORES
from support.methods import METHOD_NAMES


def commands(group: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command and group, with the words that call it."""
    yield path, group
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, *path, name)


COMMANDS = dict(commands(typer.main.get_command(cli.app)))

STUDIES = (("tune",), ("tune-pictures",), ("tune-texts",))
CHOICES: dict[tuple[str, ...], set[str]] = {
    **{path: {*METHOD_NAMES, *SCORES, *Device} for path in STUDIES},
    ("plan",): {*Score},
    ("bench", "compare"): {*Device},
}


def complete(line: str) -> list[str]:
    """What bash is told to offer for the last word of `line`."""
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    done = subprocess.run(
        [sys.executable, "-c", "from dptune.cli.app import main; main()"],
        env={**os.environ, **asked, "_DPTUNE_COMPLETE": "complete_bash"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_breaks_no_word_in_80_columns(
    path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "argv", ["dptune", *path, "--help"])
    with pytest.raises(SystemExit) as exit:
        cli.main()
    assert not exit.value.code
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    for option in COMMANDS[path].params:
        assert set((option.help or "").split()) <= set(shown.split())
    assert CHOICES.get(path, set()) <= set(re.findall(r"[\w-]+", shown))


@pytest.mark.parametrize(
    ("verb", "first"),
    [("tune", "--label"), ("tune-pictures", "--backbone"), ("tune-texts", "--label")],
)
def test_help_of_a_study_fits_two_screens_and_leads_with_what_matters(
    verb: str, first: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "argv", ["dptune", verb, "--help"])
    with pytest.raises(SystemExit):
        cli.main()
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) <= 100
    listed = re.findall(r"^│ \*? *(--[\w-]+)", shown, re.MULTILINE)
    assert listed[:5] == ["--data", first, "--epsilon", "--test", "--out"]


def test_the_shell_completes_verbs_options_and_choices() -> None:
    assert {"tune", "resume", "ledger"} <= set(complete("dptune "))
    assert complete("dptune tune --sc") == ["--score"]
    assert set(complete("dptune tune --method ")) == set(METHOD_NAMES)
    assert set(complete("dptune tune --score ")) == set(SCORES)


def test_completion_is_offered_by_the_command_itself() -> None:
    flags = {flag for option in COMMANDS[()].params for flag in option.opts}
    assert {"--install-completion", "--show-completion"} <= flags


def test_help_names_the_share_that_scores_have_by_default() -> None:
    (share,) = (option for option in COMMANDS["plan",].params if option.name == "score_share")
    assert f"Default: {DEFAULT_SCORE_SHARE}." in share.help
