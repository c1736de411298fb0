"""Commands as a shell would call them, in this process."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from dptune.study import runner
from experiments import __main__ as command_line


def called(
    verb: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, str, str]:
    """Exit code, output and errors of a verb of the experiments."""
    monkeypatch.setattr(sys, "argv", ["experiments", *verb])
    with pytest.raises(SystemExit) as exit:
        command_line.main()
    captured = capsys.readouterr()
    return exit.value.code, captured.out, captured.err


def cut_off(
    run: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch, *asked: str
) -> tuple[int, str]:
    """Exit code and errors of a study whose search is interrupted."""

    def stop(*given: object, **named: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(runner.Runner, "search", stop)
        code, _, said = run(*asked)
    return code, said
