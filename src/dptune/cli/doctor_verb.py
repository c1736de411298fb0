"""The verb that examines a module before anything is paid."""

from typing import Annotated

import typer

from dptune.cli import screen
from dptune.cli.parameters import AsJson, flag, option
from dptune.errors import InvalidInput


def doctor(
    factory: Annotated[
        str,
        typer.Argument(
            metavar="FACTORY",
            help="FILE.py:NAME or package.module:NAME: a function without arguments that makes "
            "the module.",
            show_default=False,
        ),
    ],
    shape: Annotated[
        str | None,
        option(
            "The shape of one row, such as 3,32,32, to also run made-up rows.", metavar="NUMBERS"
        ),
    ] = None,
    ids: Annotated[bool, flag("Rows are token ids.", "--ids")] = False,
    fix: Annotated[bool, flag("Show what can be replaced, and how.", "--fix")] = False,
    as_json: AsJson = False,
) -> None:
    """Say whether a module can be trained privately, layer by layer, and what to change.

    Nothing private is read, nothing is paid; the exit code is 1 where something must change.
    Example: dptune doctor nets.py:make --shape 3,32,32
    """
    from dptune.cli import doctor_screen
    from dptune.engines.modules.doctor import examine
    from dptune.engines.modules.mending import fix as mend
    from dptune.own_code import made, reference

    numbers = None if shape is None else _numbers(shape)
    named = reference(factory, "factory")
    module = made(named)
    fixed = mend(module) if fix else None
    seen = examine(module if fixed is None else fixed.module, numbers, ids=ids)
    screen.show(
        as_json,
        doctor_screen.to_dict(named, seen, fixed),
        lambda: doctor_screen.show(factory, seen, fixed, on_rows=numbers is not None),
    )
    if seen.problems:
        raise typer.Exit(1)


def _numbers(shape: str) -> tuple[int, ...]:
    try:
        numbers = tuple(map(int, shape.split(",")))
        if min(numbers) > 0:
            return numbers
    except ValueError:
        pass
    raise InvalidInput(f"--shape takes whole numbers, such as 784 or 3,32,32; got {shape!r}.")
