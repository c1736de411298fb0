"""Screens of pictures: progress of their features, what was odd, which backbone is best."""

import math
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from time import monotonic
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bars
from rich.text import Text

from dptune.cli.screen import (
    duration,
    error,
    out,
    paragraph,
    plain_table,
    remark,
    standard_error,
)
from dptune.features.extraction import REMARKS, Extraction, Progress
from dptune.features.network import short_name
from dptune.pictures.folders import NO_PICTURES
from dptune.pictures.pictures import Remark
from dptune.printable import printable

if TYPE_CHECKING:
    from dptune.features.ranking import Ranked

_SHOWN = 3  # pictures of a kind on the screen; all are in the file
_OFTEN = 10.0  # seconds between lines where there is no terminal
_SOON = 3.0  # seconds until the time left can be estimated


def say_loading(backbones: Sequence[str]) -> None:
    remark(f"Loading {' and '.join(map(short_name, backbones))}.")


class _TimeLeft:
    """By the pictures of a part that are made now: those kept from before take no time."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now, self._part = now, ""
        self._began, self._first = 0.0, 0

    def __call__(self, progress: Progress) -> str:
        """Nothing until it can be estimated."""
        now, made = self._now(), progress.done - progress.kept
        if progress.part != self._part or not made:
            self._part, self._began, self._first = progress.part, now, made
        ended = progress.done == progress.total
        seconds, since = now - self._began, made - self._first
        if ended or not since or seconds < _SOON:
            return ""
        return (
            f"about {duration(math.ceil(seconds / since * (progress.total - progress.done)))} left"
        )


@contextmanager
def live_view(now: Callable[[], float] = monotonic) -> Iterator[Callable[[Progress], None]]:
    """Bars with the time left on a terminal, plain lines elsewhere, on standard error."""
    console = standard_error()
    try:
        with (
            _bars(console, now)
            if console.is_terminal
            else nullcontext(_Lines(console, now)) as watch
        ):
            yield watch
    except KeyboardInterrupt:
        error("interrupted; repeat the command to continue")
        raise


@contextmanager
def _bars(console: Console, now: Callable[[], float]) -> Iterator[Callable[[Progress], None]]:
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}", markup=False),
    )
    left = _TimeLeft(now)
    with Bars(*columns, console=console) as bars:
        tasks: dict[str, Any] = {}

        def show(progress: Progress) -> None:
            if progress.part not in tasks:
                tasks[progress.part] = bars.add_task(progress.part, total=progress.total, left="")
            bars.update(tasks[progress.part], completed=progress.done, left=left(progress))

        yield show


class _Lines:
    def __init__(self, console: Console, now: Callable[[], float]) -> None:
        self._console, self._now, self._left = console, now, _TimeLeft(now)
        self._part, self._printed = "", 0.0

    def __call__(self, progress: Progress) -> None:
        now, left = self._now(), self._left(progress)
        ended = progress.done == progress.total
        if progress.part == self._part and not ended and now - self._printed < _OFTEN:
            return
        self._part, self._printed = progress.part, now
        far = f"{progress.part}: {progress.done:,} of {progress.total:,} {progress.things}"
        if progress.kept:
            far += f" ({progress.kept:,} were there)"
        paragraph(Text(", ".join(filter(None, (far, left)))), self._console)


def to_dict(extraction: Extraction) -> dict[str, Any]:
    return {
        "out": str(extraction.folder),
        "made": extraction.made,
        "parts": {
            name: {"rows": part.rows, "groups": list(part.groups)}
            for name, part in extraction.parts.items()
        },
        "remarks": [
            {"part": part, "picture": each.picture, "what": each.what, "left_out": each.left_out}
            for part, each in extraction.remarks
        ],
    }


def show_extraction(extraction: Extraction, *, to_tune: bool) -> None:
    """Print what is in the folder now; on standard error where a study follows."""
    console = out if to_tune else standard_error()
    parts = ", ".join(f"{part.rows:,} {name}" for name, part in extraction.parts.items())
    folder, things = str(extraction.folder), extraction.things
    _line(console, f"Features in {folder}: {parts}. Keep them as private as the {things}.")
    _show_remarks(console, extraction.remarks, "left out")
    _show_empty_classes(console, extraction.remarks)
    if extraction.remarks:
        _line(console, f"The whole list: {extraction.folder / REMARKS}")
    if to_tune:
        quoted = shlex.quote(folder)
        test = f" --test {quoted}" if "test" in extraction.parts else ""
        _line(console, f"Train on them: dptune tune --data {quoted}{test}")


def show_not_predicted(remarks: Sequence[Remark]) -> None:
    """Print which pictures have no prediction."""
    of_all = [("", remark) for remark in remarks]
    _show_remarks(standard_error(), of_all, "left out, without a line in the predictions")


def _show_remarks(console: Console, remarks: Sequence[tuple[str, Remark]], left_out: str) -> None:
    """Print a line for every kind, with the first few pictures of it."""
    for out_of_it, words in ((True, left_out), (False, "taken, though odd")):
        kinds: dict[str, list[str]] = {}
        for _, each in remarks:
            if each.left_out == out_of_it and each.what != NO_PICTURES:
                kinds.setdefault(each.what, []).append(each.picture)
        if kinds:
            _line(console, f"{sum(map(len, kinds.values())):,} {words}:")
        for what, names in kinds.items():
            more = ", ..." if len(names) > _SHOWN else ""
            _line(console, f"  {len(names):,}  {what}: {', '.join(names[:_SHOWN])}{more}")


def _show_empty_classes(console: Console, remarks: Sequence[tuple[str, Remark]]) -> None:
    """Print each empty class once, with the parts in which it has no pictures."""
    classes: dict[str, list[str]] = {}
    for part, each in remarks:
        if each.what == NO_PICTURES:
            classes.setdefault(each.picture.rsplit("/", 1)[-1], []).append(part)
    for name, parts in classes.items():
        _line(console, f"The class {name} has no pictures in {' and '.join(parts)}.")


def _line(console: Console, text: str) -> None:
    paragraph(Text(printable(text)), console)


def show_ranking(ranked: Sequence["Ranked"]) -> None:
    table = plain_table("Backbones by the accuracy of a plain linear probe on public pictures")
    table.add_column("backbone")
    for name in ("accuracy", "+/-", "columns", "pictures/s"):
        table.add_column(name, justify="right")
    for each in ranked:
        table.add_row(
            each.name,
            f"{100 * each.accuracy:.1f} %",
            f"{100 * each.error:.1f}",
            f"{each.columns:,}",
            f"{each.pictures_per_second:,.0f}",
        )
    out.print(table)
    out.print(Text("No private picture was read, so nothing was paid."))
