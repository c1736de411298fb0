"""Screens of a ledger: what is spent and left, the last payments and changes."""

import math
from collections.abc import Sequence
from typing import TypeVar

from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from dptune.cli.screen import draw_bar, out, plain_table, promised, show_guarantee
from dptune.ledger import Payment, State
from dptune.printable import printable
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

_LATEST = 100  # rows that are drawn; drawing 100,000 takes minutes
_Row = TypeVar("_Row")


def show_budget(address: str, state: State) -> None:
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
        waits = f"part of it is held for runs that have not begun ({held_for}): "
        by_hand = sum(payment.study is None for payment in held)
        then = ["dptune resume continues a study"] * (by_hand < len(held))
        then += ["dptune ledger commit or void settles reservations by hand"] * bool(by_hand)
        summary.add_row("", Text(waits + "; ".join(then)))
    color = "red" if used > 0.9 else "yellow" if used > 0.5 else "green"
    summary.add_row("", draw_bar(used, color))
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
        out.print(_draw_payments(state))
    if len({payment.study for payment in state.counted}) > 1:
        out.print(_draw_payers(state))
    out.print(_draw_changes(state))
    if exchanged := sum(payment.state == "exchanged" for payment in state.payments):
        more = f"{exchanged} more {'were' if exchanged > 1 else 'was'} exchanged for one of these"
        out.print(Text(f"{more} before beginning: see --json", "dim"))
    show_guarantee(state.guarantee())


def show_note(done: str, state: State, then: str = "") -> None:
    """Print what was done to a ledger, what is left now, and what comes next."""
    spent = f"epsilon {cost(state.spent_epsilon)} of {state.budget.epsilon:g}"
    left = f"enough for one full-batch run of epsilon {allowance(state.remaining_epsilon)}"
    out.print(Text(f"{done[0].upper()}{done[1:]}."))
    out.print(Text(f"Spent: {spent} at delta {probability(state.budget.delta)}. Left: {left}."))
    if then:
        out.print(Text(then))


def _latest(title: str, rows: Sequence[_Row]) -> tuple[Table, Sequence[_Row]]:
    """A table whose title says how many of `rows` are left out of it, and the rows to draw."""
    if (others := len(rows) - _LATEST) > 0:
        title += f" (the last {_LATEST}; {others:,} earlier: see --json)"
    return plain_table(title), rows[-_LATEST:]


def _draw_payments(state: State) -> Table:
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
    everything, interrupted = _sum_shares(state), state.cut_off
    alone = len({payment.study for payment in state.payments}) == 1
    for payment in latest:
        counts = payment.counts
        shown = "interrupted" if payment.number in interrupted else payment.state
        table.add_row(
            str(payment.number),
            payment.time[:10],
            printable(_describe_purpose(payment, alone=alone)),
            _event(payment.event),
            cost(payment.price.mu, 5),
            f"{100 * payment.price.mu_squared / everything:.1f} %" if counts else "",
            Text(shown, colors[payment.state]),
        )
    return table


def _draw_payers(state: State) -> Table:
    """Draw what each study spent in all; a study has many payments."""
    everything = _sum_shares(state)
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


def _sum_shares(state: State) -> float:
    """What shares are of. Runs that were fixed beforehand may fit together though their prices in
    company would not."""
    prices = sum(payment.price.mu_squared for payment in state.counted)
    return max(state.budget.mu_squared(state.slack), prices)


def _short(study: str) -> str:
    """The first part of its name, which tells it from the others."""
    return study.split("-", maxsplit=1)[0]


def _describe_purpose(payment: Payment, *, alone: bool) -> str:
    """What was paid for; with its study, unless it is the only one."""
    if payment.study is None or payment.label is None:
        return payment.purpose
    if alone:
        return payment.label
    return f"{payment.label} ({_short(payment.study)})"


def _draw_changes(state: State) -> Table:
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
