"""docs/reference/command-line.md, made from what the verbs say of themselves:

PYTHONPATH=tests python -m support.command_line_page
"""

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from dptune.cli import app as cli

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "command-line.md"
INTRODUCTION = """\
# The command line

Every verb and option of `dptune`, made from its help (`PYTHONPATH=tests python -m
support.command_line_page`). `dptune VERB --help` shows the same. Most verbs take `--json`. After
`dptune --install-completion` your shell completes verbs, options and choices.

Exit codes: 0 done, 2 bad input, 3 a budget would be exceeded, 130 interrupted (Ctrl-C or SIGTERM),
1 anything else.
"""


def page() -> str:
    group = typer.main.get_command(cli.app)
    return INTRODUCTION + "".join(map(_section, _commands(group, "dptune")))


def _commands(group: Any, *path: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, *path, name)
        elif not command.hidden:
            yield " ".join((*path, name)), command


def _section(named: tuple[str, Any]) -> str:
    name, command = named
    summary = textwrap.fill(" ".join(command.help.partition("\n\n")[0].split()), 100)
    lines = [f"\n## {name}\n\n{summary}\n\n| option | |\n| --- | --- |\n"]
    for option in command.params:
        if option.name != "help" and not option.hidden:
            lines.append(f"| {_names(option)} | {_cell(option.help or '')} |\n")
    return "".join(lines)


def _names(option: Any) -> str:
    if option.param_type_name == "argument":
        return f"`{(option.metavar or option.name).upper()}`"
    return ", ".join(f"`{flag}`" for flag in option.opts)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page())
