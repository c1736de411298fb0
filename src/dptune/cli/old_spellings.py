"""Spellings of earlier versions, which still work and say the new one."""

from typing import Any

from typer.core import TyperGroup

from dptune.cli import screen
from dptune.errors import InvalidInput

# The options of `tune` that belong to a verb of its own now; the first one is its --data.
_MOVED = {
    "tune-pictures": ("--images", "--backbone", "--size", "--root"),
    "tune-texts": (
        *("--text", "--column", "--model", "--lora"),
        *("--task", "--length", "--unit", "--texts-per-unit"),
    ),
}


class Verbs(TyperGroup):
    """Verbs that are also found by their old spellings."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if ctx.resilient_parsing:  # the shell completes a line
            return super().resolve_command(ctx, args)
        return super().resolve_command(ctx, _respell(args))


def _respell(words: list[str]) -> list[str]:
    """`tune --images ...` as `tune-pictures --data ...`, and `tune --text ...` likewise."""
    if words[:1] != ["tune"]:
        return words
    options = [word.partition("=")[0] for word in words]
    for verb, moved in _MOVED.items():
        used = next((option for option in moved if option in options), None)
        if used is None:
            continue
        first = moved[0]
        if first in options and "--data" in options:
            raise InvalidInput(f"{first} and --data do not go together; leave one out.")
        now = "--data" if used == first else used
        screen.remark(f"dptune tune {used} is now spelled dptune {verb} {now}.")
        pairs = zip(words[1:], options[1:], strict=True)
        return [verb, *(w.replace(o, "--data", 1) if o == first else w for w, o in pairs)]
    return words
