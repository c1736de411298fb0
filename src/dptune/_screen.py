"""What people see in a terminal: tables, bars and statements. Costs round up, allowances down."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from dptune.privacy import (
    Composition,
    Event,
    FullBatchRun,
    Guarantee,
    NoisyCount,
    Parallel,
    PrivateMean,
    RandomStopping,
    SampledRun,
)
from dptune.rounding import allowance, cost
from dptune.split import BudgetSplit

if TYPE_CHECKING:
    from dptune.ledger import State

_out = Console(highlight=False)
_out.width = max(_out.width, 80)  # better a wrapped line than a number cut short
_BAR_WIDTH = 20


def error(problem: str) -> None:
    """One paragraph on standard error, wrapped at words on a terminal."""
    console = Console(stderr=True, highlight=False)
    text = Text.assemble(("error: ", "bold red"), problem)
    console.print(text, soft_wrap=not console.is_terminal)


def account(plain: dict[str, Any], guarantee: Guarantee) -> None:
    rate = plain["sampling_rate"]
    sampler = "full batch" if rate is None else f"Poisson sampling at rate {rate:g}"
    table = _facts(f"{plain['steps']} steps, {sampler}, delta {plain['delta']:g}")
    table.add_row(
        "noise multiplier", cost(plain["noise_multiplier"]), "on the sum, in clipping norms"
    )
    table.add_row("epsilon", f"[bold]{cost(plain['epsilon'])}[/]", "what this run alone costs")
    if plain["slack"]:
        adaptive = "charged there, so that later runs may depend on it"
        table.add_row("epsilon in a ledger", cost(plain["ledger_epsilon"]), adaptive)
    slack = f", with slack {cost(plain['slack'])}" if plain["slack"] else ""
    table.add_row("mu", cost(plain["mu"], 5), f"its square is the price in a ledger{slack}")
    table.add_row("epsilon by RDP", cost(plain["rdp_epsilon"]), "looser; for comparison only")
    _out.print(table)
    _statement(guarantee)


def plan(split: BudgetSplit) -> None:
    budget = split.budget
    table = _table(f"epsilon {budget.epsilon:g} at delta {budget.delta:g}")
    table.add_column("slot")
    for name in ("runs", "epsilon each", "mu each", "of budget"):
        table.add_column(name, justify="right")
    table.add_column("", width=_BAR_WIDTH)
    for slot in split.slots:
        final = slot is split.final
        shown = allowance if final else cost
        share = slot.share_of(budget)
        table.add_row(
            slot.purpose,
            str(slot.count),
            shown(slot.epsilon),
            shown(slot.mu, 5),
            f"{100 * share:.1f} %",
            _bar(share, "green" if final else "yellow"),
            style="bold" if final else "",
        )
    _out.print(table)
    if split.scores:
        noise = f"Gaussian noise of {cost(split.scores[0].noise, 1)} rows"
        _out.print(Text(f"Scores: counts of correct rows, centred within a sweep, with {noise}."))
    _statement(split.guarantee())


def budget(address: str, state: "State") -> None:
    total = state.budget
    # A sealed search that is alone may fit though its price in company would not.
    used = min(1.0, state.spent.mu_squared / total.mu_squared(state.spent.slack))
    summary = Table.grid(padding=(0, 2))
    summary.add_row("budget", Text(f"epsilon {total.epsilon:g} at delta {total.delta:g}"))
    spent = f"epsilon {cost(state.spent_epsilon)}, {100 * used:.1f} % of mu squared"
    summary.add_row("spent", Text(spent))
    summary.add_row("", _bar(used, "red" if used > 0.9 else "yellow" if used > 0.5 else "green"))
    left = f"enough for one full-batch run of epsilon {allowance(state.remaining_epsilon)}"
    summary.add_row("left", Text(left))
    summary.add_row("chain", Text(f"{state.entries} entries, all verified; the last is"))
    summary.add_row("", Text(state.head))
    _out.print(
        Panel(summary, title=Text(f"{state.dataset} ({address})"), title_align="left", expand=False)
    )
    if state.payments:
        _out.print(_payments(state))
    _out.print(_changes(state))
    _statement(state.guarantee())


def note(done: str, state: "State", then: str = "") -> None:
    """What was done to a ledger, what is left now, and what comes next."""
    spent = f"epsilon {cost(state.spent_epsilon)} of {state.budget.epsilon:g}"
    left = f"enough for one full-batch run of epsilon {allowance(state.remaining_epsilon)}"
    _out.print(Text(f"{done[0].upper()}{done[1:]}."))
    _out.print(Text(f"Spent: {spent} at delta {state.budget.delta:g}. Left: {left}."))
    if then:
        _out.print(Text(then))


def bench_accounting(results: dict[str, Any]) -> None:
    calibration = results["full_batch_calibration"]
    table = _table("noise for epsilon 1, delta 1e-05, 100 full-batch steps")
    table.add_column("route")
    table.add_column("noise", justify="right")
    table.add_column("time", justify="right")
    table.add_column("times slower", justify="right")
    for row in calibration["routes"]:
        table.add_row(
            row["route"],
            f"{row['noise_multiplier']:.4f}",
            _seconds(row["seconds"]),
            f"{row['ratio']:,.0f}",
        )
    _out.print(table)
    table = _table("price of sampled runs, and dp-accounting's PLD beside it")
    for name in ("rate", "noise", "steps", "mu", "epsilon", "time"):
        table.add_column(name, justify="right")
    for name in ("PLD epsilon", "PLD time", "times slower"):
        table.add_column(name, justify="right")
    for row in results["sampled_prices"]:
        table.add_row(
            f"{row['sampling_rate']:g}",
            f"{row['noise_multiplier']:g}",
            f"{row['steps']:,}",
            cost(row["mu"], 5),
            cost(row["epsilon"]),
            _seconds(row["seconds"]),
            cost(row["pld_epsilon"]),
            _seconds(row["pld_seconds"]),
            f"{row['ratio']:.1f}",
        )
    _out.print(table)


def bench_speed(results: dict[str, Any]) -> None:
    if results["device"] == "cpu":
        _bench_speed_cpu(results)
    else:
        _bench_speed_gpu(results)


def _bench_speed_cpu(results: dict[str, Any]) -> None:
    at_once = results["trials"]
    table = _table(f"one step of one trial: {_shape(results['shape'])}")
    table.add_column("route")
    table.add_column("time", justify="right")
    table.add_column(f"times slower than {at_once} at once", justify="right")
    routes = [
        (f"dptune, {trials} at once", ms) for trials, ms in results["per_trial_step_ms"].items()
    ]
    routes += [(f"Opacus, {mode}", ms) for mode, ms in results["opacus_step_ms"].items()]
    unit = results["per_trial_step_ms"][str(at_once)]
    for route, ms in routes:
        table.add_row(route, _seconds(ms / 1e3), f"{ms / unit:.1f}")
    _out.print(table)
    table = _facts(f"all {at_once} trials together")
    for layout, ms in results["bare_products_ms"].items():
        table.add_row(f"bare products, {layout}", _seconds(ms / 1e3))
    table.add_row("dptune's step, in bare products", f"{results['vs_bare_products']:.2f}")
    table.add_row(
        "cores used by other programs",
        f"{results['cores_used_by_others']:.2f}",
        "ratios need a quiet machine",
    )
    if results["peak_extra_gib"] is not None:
        peak = f"{results['peak_extra_gib']:.2f} GiB"
        table.add_row("peak memory beside features", peak, _shape(results["memory_shape"]))
    _out.print(table)


def _bench_speed_gpu(results: dict[str, Any]) -> None:
    table = _facts(f"{results['gpu']}: {_shape(results['shape'])}, full batch")
    for trials, ms in results["step_ms"].items():
        share = 100 * results["bandwidth_fraction"][trials]
        step = f"one step, trials at once: {trials}"
        table.add_row(step, _seconds(ms / 1e3), f"{share:.0f} % of the bandwidth")
    table.add_row("the latter by the former", f"{results['twelve_vs_one']:.2f}")
    table.add_row("a whole study", _seconds(results["study_seconds"]))
    share = 100 * results["imagenet_matrix_fraction"]
    imagenet = _shape(results["imagenet_shape"])
    seconds = _seconds(results["imagenet_seconds"])
    table.add_row(imagenet, seconds, f"{share:.0f} % of the matrix rate")
    streamed = _seconds(results["imagenet_streamed_seconds"])
    table.add_row("the same, streamed from disk", streamed)
    table.add_row("memory bandwidth, measured", f"{results['bandwidth_gb_per_s']:,.0f} GB/s")
    table.add_row("matrix rate, measured", f"{results['matrix_tflop_per_s']:,.0f} TFLOP/s")
    peak = f"{results['peak_extra_gib']:.2f} GiB"
    table.add_row("peak memory beside the features, float32", peak)
    _out.print(table)


def _shape(shape: dict[str, int]) -> str:
    return f"{shape['rows']:,} x {shape['columns']:,}, {shape['classes']:,} classes"


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A spinner on a terminal, plain lines elsewhere, on standard error."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: console.print(text, highlight=False)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as shown:
        task = shown.add_task("starting")
        yield lambda text: shown.update(task, description=text)


def _payments(state: "State") -> Table:
    table = _table("payments")
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
        "exchanged": "dim",
    }
    everything = state.budget.mu_squared(state.spent.slack)
    for payment in state.payments:
        counts = payment.counts
        table.add_row(
            str(payment.number),
            payment.time[:10],
            Text(payment.purpose),
            Text(_event(payment.event)),
            cost(payment.price.mu, 5),
            f"{min(100.0, 100 * payment.price.mu_squared / everything):.1f} %" if counts else "",
            Text(payment.state, colors[payment.state]),
        )
    return table


def _changes(state: "State") -> Table:
    table = _table("changes")
    table.add_column("when (UTC)", no_wrap=True)
    table.add_column("what")
    table.add_column("why", overflow="fold")
    rows = [
        (
            change.time,
            f"budget: epsilon {change.budget.epsilon:g} at delta {change.budget.delta:g}",
            change.reason,
        )
        for change in state.changes
    ]
    rows += [(v.time, "version of the data set declared", v.reason) for v in state.versions]
    rows += [
        (p.settled, f"payment {p.number} {p.state}", p.reason)
        for p in state.payments
        if not p.counts
    ]
    for time, what, why in sorted(rows, key=lambda row: row[0]):
        table.add_row(time[:16].replace("T", " "), what, Text(why))
    return table


def _event(event: Event) -> str:
    match event:
        case FullBatchRun(steps=steps, noise_multiplier=noise):
            return f"{steps} full-batch steps, noise {noise:g}"
        case SampledRun(steps=steps, noise_multiplier=noise, sampling_rate=rate):
            return f"{steps} steps sampled at {rate:g}, noise {noise:g}"
        case NoisyCount(counts=counts, noise=noise):
            return f"{counts} noisy counts, noise {noise:g}"
        case PrivateMean(noise_multiplier=noise):
            return f"private mean, noise {noise:g}"
        case Composition(parts=parts):
            return " + ".join(map(_event, parts))
        case Parallel(parts=parts):
            return " beside ".join(f"({_event(part)})" for part in parts)
        case RandomStopping(trial=trial, expected_trials=trials, distribution=distribution):
            return f"best of {trials:g} trials ({distribution}): {_event(trial)}"


def _statement(guarantee: Guarantee) -> None:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for heading, sentence in guarantee.sections():
        grid.add_row(heading, Text(sentence, "bold" if heading == "Promise" else ""))
    width = min(_out.width, 100)
    panel = Panel(grid, title="guarantee", title_align="left", width=width)
    _out.print(Padding(panel, (1, 0, 0, 0)))


def _table(title: str) -> Table:
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        show_edge=False,
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )


def _facts(title: str) -> Table:
    """Names and numbers, with a remark where one helps."""
    table = _table(title)
    table.show_header = False
    table.add_column()
    table.add_column(justify="right")
    table.add_column(style="dim")
    return table


def _bar(share: float, color: str) -> Text:
    filled = min(_BAR_WIDTH, round(share * _BAR_WIDTH))
    return Text("█" * filled, color) + Text("·" * (_BAR_WIDTH - filled), "dim")


def _seconds(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{1e6 * seconds:.0f} µs"
    return f"{1e3 * seconds:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"
