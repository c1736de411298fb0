"""The screen of `dptune doctor`: layers of a module, problems, and what to do."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dptune.cli.screen import out, plain_table
from dptune.engines.modules.doctor import Examination, Layer
from dptune.engines.modules.mending import Fixed
from dptune.engines.modules.problem import together
from dptune.report.words import sentence

_WORDS = ("weight", "bias")  # of parameters that problems are about


def to_dict(factory: str, seen: Examination, fixed: Fixed | None) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "factory": factory,
        "parameters": sum(layer.parameters for layer in seen.layers),
        "layers": [asdict(layer) for layer in seen.layers],
        "problems": [asdict(problem) for problem in seen.problems],
    }
    if fixed is not None:
        plain["replaced"] = list(fixed.replaced)
    return plain


def show(factory: str, seen: Examination, fixed: Fixed | None, *, on_rows: bool) -> None:
    """Print layers first, and last what to do."""
    if fixed is not None and fixed.replaced:
        _show_replaced(fixed.replaced)
    total = sum(layer.parameters for layer in seen.layers)
    frozen = sum(layer.parameters for layer in seen.layers if layer.way == "frozen")
    trained = "all trained" if not frozen else f"{total - frozen:,} of them trained"
    out.print(Text.assemble((factory, "bold"), f"  {total:,} parameters, {trained}"))
    out.print(_draw_layers(seen))
    _show_verdict(seen, on_rows=on_rows)
    if fixed is None:
        return
    if not fixed.replaced:
        out.print(Text("There was nothing to replace."))
        return
    home, _, name = factory.rpartition(":")
    out.print(Text(f"\nTo train it like this, put these lines into {home} and use {home}:fixed:"))
    code = f"from dptune.engines import fix_module\ndef fixed(): return fix_module({name}())"
    out.print(Padding(Text(code, "cyan"), (0, 0, 0, 4), expand=False))


def _draw_layers(seen: Examination) -> Table:
    table = plain_table("")
    table.title = None
    table.add_column("layer", overflow="fold")
    table.add_column("kind", overflow="fold", max_width=24)
    table.add_column("parameters", justify="right", no_wrap=True)
    have_ways = any(layer.way not in ("", "frozen") for layer in seen.layers)
    table.add_column("gradients" if have_ways else "", no_wrap=True)
    wrong = {
        problem.layer.removesuffix(f".{word}"): problem.kind
        for problem in seen.problems
        for word in ("", *_WORDS)
    }
    for name, layers in _group_alike(seen.layers, wrong):
        first = layers[0]
        way = Text(first.way, "dim" if first.way == "frozen" else "")
        times = f"{len(layers)} × " if len(layers) > 1 else ""
        table.add_row(
            Text(name),
            Text(first.kind),
            f"{times}{first.parameters:,}",
            Text(wrong[first.name], "bold red") if first.name in wrong else way,
        )
    return table


def _group_alike(
    layers: Iterable[Layer], wrong: Mapping[str, str]
) -> Iterator[tuple[str, list[Layer]]]:
    """Layers that differ in the number of their block only, the blocks side by side, under one
    name: blocks.0-11.norm."""
    groups: list[list[Layer]] = []
    newest: dict[tuple[Any, ...], list[Layer]] = {}
    for layer in layers:
        before, number, after = _split_at_number(layer.name)
        looks = (layer.kind, layer.parameters, layer.way, wrong.get(layer.name))
        group = newest.get((before, after, *looks))
        if group is None or number is None or _split_at_number(group[-1].name)[1] != number - 1:
            group = newest[before, after, *looks] = []
            groups.append(group)
        group.append(layer)
    for group in groups:
        before, first, after = _split_at_number(group[0].name)
        last = _split_at_number(group[-1].name)[1]
        yield group[0].name if len(group) == 1 else f"{before}{first}-{last}{after}", group


def _split_at_number(name: str) -> tuple[str, int | None, str]:
    """What is before and after the first number that is a word of the name."""
    number = re.search(r"(?<![^.])\d+(?![^.])", name)
    if number is None:
        return name, None, ""
    return name[: number.start()], int(number.group()), name[number.end() :]


def _show_verdict(seen: Examination, *, on_rows: bool) -> None:
    if seen.problems:
        problems = together(seen.problems)
        several = "problems" if len(problems) > 1 else "problem"
        head = Text(f"\n{len(problems)} {several} to solve before it can be trained", "bold red")
        out.print(head)
        for problem in problems:
            out.print(Text(problem.layer, "bold"))
            advice = " ".join(sentence(words) for words in (problem.what, problem.advice) if words)
            out.print(Padding(Text(advice), (0, 0, 0, 4), expand=False))
        return
    if on_rows:
        out.print(Text("\nIt can be trained: made-up rows keep to themselves.", "bold green"))
        return
    out.print(Text("\nIts layers show no problem.", "bold green"))
    out.print(Text("Give the shape of a row (--shape 3,32,32) to try it on made-up rows."))


def _show_replaced(lines: Iterable[str]) -> None:
    out.print(Text("Replaced", "bold"))
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(overflow="fold")
    table.add_column()
    for line in lines:
        table.add_row(*map(Text, line.split(": ", 1)))
    out.print(table)
    out.print()
