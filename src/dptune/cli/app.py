"""The command line: verbs over the public API.

Every verb takes --json. Exit codes: 0 done, 2 bad input, 3 a budget would be exceeded, 1 anything
else (a damaged or locked ledger, a missing package, a module that cannot be trained). Errors are
one paragraph, never a traceback.
"""

import io
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from dptune.cli import (
    bench_verbs,
    columns_verb,
    doctor_verb,
    export_verb,
    finished_verbs,
    ledger_verbs,
    picture_verbs,
    price_verbs,
    screen,
    tune_verbs,
)
from dptune.cli.old_spellings import Verbs
from dptune.cli.parameters import HELP_FLAGS, flag
from dptune.errors import DptuneError
from dptune.version import __version__

# Typer may carry its own copy of click, so its errors are found through the one it exports.
_UsageError: Any = typer.BadParameter.__base__

app = typer.Typer(
    cls=Verbs,
    help="Tune and train models with differential privacy, the search for hyperparameters inside "
    "the same budget; price runs; keep a ledger that cannot be overspent.",
    no_args_is_help=True,
    context_settings=HELP_FLAGS,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
for verb in (
    tune_verbs.tune,
    tune_verbs.tune_pictures,
    tune_verbs.tune_texts,
    tune_verbs.resume,
    finished_verbs.predict,
    finished_verbs.card,
    finished_verbs.publish,
    export_verb.export,
    columns_verb.columns,
    picture_verbs.extract,
    picture_verbs.backbones,
    doctor_verb.doctor,
    price_verbs.account,
    price_verbs.plan,
    ledger_verbs.budget,
):
    app.command()(verb)
app.add_typer(ledger_verbs.app, name="ledger")
app.add_typer(bench_verbs.app, name="bench")


def main() -> None:
    """The `dptune` command."""
    # Threads of torch sleep while they wait for each other: if they spin beside other busy
    # processes, small steps take ten times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    run_verbs(app, "dptune")


def run_verbs(verbs: typer.Typer, name: str) -> None:
    """Run the command line with these verbs and exit with its code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows no box characters
    try:
        with _terminated_as_interrupted():
            exit_code = verbs(prog_name=name, standalone_mode=False)
            sys.stdout.flush()
    except DptuneError as error:
        exit_code = _fail(type(error).__name__, str(error), error.exit_code)
    except _UsageError as error:
        exit_code = _explain_usage(error, name)
    except OSError as error:
        # Whatever was asked may be done: printing comes last.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        message = (
            f"the result could not be written ({error}), but the command may have taken effect"
        )
        exit_code = _fail("OSError", f"{message}; check before you repeat it.", 1)
    except (typer.Abort, KeyboardInterrupt):
        exit_code = 130
    sys.exit(exit_code or 0)


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM, which schedulers and `kill` send, ends a verb as Ctrl-C does."""
    # Only the main thread may set it, and the parent process may want it ignored.
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _fail(kind: str, message: str, exit_code: int) -> int:
    if "--json" in sys.argv:
        print(json.dumps({"error": {"kind": kind, "message": message}}))
    screen.error(message)
    return exit_code


def _explain_usage(error: Any, name: str) -> int:
    command = error.ctx.command_path if error.ctx else name
    # Some versions of Typer put the class of a problem before its message.
    message = error.format_message().replace("Value error, ", "", 1)
    if not message:  # a verb without arguments has shown its help already
        return int(error.exit_code)
    end = "" if message[-1] in ".?" else "."
    return _fail("InvalidInput", f"{message}{end} See {command} --help.", error.exit_code)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"dptune {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, flag("Print the version.", "--version", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass
