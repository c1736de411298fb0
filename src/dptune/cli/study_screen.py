"""What a study says of its plan and its result: at most 25 lines, of 80 columns each."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from dptune import accounting
from dptune.accounting import Budget, Guarantee
from dptune.accounting.split import Slot
from dptune.cli.screen import draw_slots, draw_split_bar, facts_table, out, remark, show_guarantee
from dptune.cli.study_details import show_plan_details, show_result_details
from dptune.data.made_by import is_of_texts
from dptune.engines.base import Engine
from dptune.engines.linear import LinearEngine
from dptune.preparation.ranges import RANGES
from dptune.printable import printable
from dptune.report.record import Record
from dptune.report.words import promise, sentence
from dptune.rounding import cost, probability
from dptune.study.check import BETTER
from dptune.study.figures import figures_in_words, rows_in_words
from dptune.study.outline import Outline
from dptune.study.recipe import in_words
from dptune.study.run_folder import EXPORTED
from dptune.study.split import slots

_PARTS = 3  # of a budget that are named


def say_trying(engine: Engine[Any]) -> None:
    """Before made-up rows pass through a model, which takes a minute or more of a large one."""
    if not isinstance(engine, LinearEngine):
        remark("Trying the model on made-up rows.")


def mention_unused_test(things: str, source: str) -> None:
    """Point out test data that stay unused; on standard error, because nothing of it is stored."""
    remark(
        f"{source} holds test {things}, which stay unused: if they are public, ask for the "
        f"accuracy on them with --test {shlex.quote(source)}."
    )


def plan_as_dict(planned: Outline, guarantee: Guarantee) -> dict[str, Any]:
    """What a study would pay for and promise, for JSON."""
    budget = planned.config.budget
    return {
        "budget": {"epsilon": budget.epsilon, "delta": budget.delta, "mu": budget.mu},
        "slots": [slot.to_dict(budget) for slot in slots(planned)],
        "preparation": list(in_words(planned.config, planned.data)),
        "training": list(planned.engine.inspection.describe(planned.data)),
        "objective": planned.objective,
        "guarantee": guarantee.to_dict(),
    }


def show_plan(
    planned: Outline,
    guarantee: Guarantee,
    delta_chosen: bool,
    names: Sequence[str],
    *,
    verbose: bool,
) -> None:
    """Print what a study of columns with these names would pay for and promise."""
    out.print(draw_slots(planned.config.budget, slots(planned)))
    out.print(Text(sentence(planned.objective)))
    _show_trials(planned)
    _show_columns(planned, names)
    if verbose:
        show_plan_details(planned)
    out.print()
    _show_promise(planned, guarantee, delta_chosen)
    if verbose:
        show_guarantee(guarantee)
    more = "" if verbose else " All steps and conditions: --verbose."
    out.print(Text(f"Nothing was spent and nothing was written.{more}"))


def show_result(
    record: Record, picture: Path | None, delta_chosen: bool, *, verbose: bool = False
) -> None:
    """Print what a study achieved, what it cost, and what to do next."""
    _show_figures(record)
    _show_notes(record.result["notes"], verbose)
    out.print()
    _show_promise(record.outline, record.model.guarantee, delta_chosen)
    _show_budget(slots(record.outline), record.outline.config.budget)
    if verbose:
        show_result_details(record)
    _show_files_and_commands(record, picture)


def _show_figures(record: Record) -> None:
    """Print how good the model is, against the majority class and chance."""
    result, model = record.result, record.model
    search = record.outline.config.search.name
    table = facts_table(printable(f"{result['data']['name']}: {search}"))
    figures = figures_in_words(result)
    where = rows_in_words(result, model.target_range)
    for number, (name, figure) in enumerate(figures):
        table.add_row(f"test {name}", Text(figure, "bold"), "" if number else where)
    if not figures:
        why = "test rows have no classes" if result["test_rows"] else "no test data (--test)"
        figure = "error" if model.loss == "squared" else "accuracy"
        table.add_row(f"test {figure}", "not known", why)
    check = result.get("check") or {}  # older versions had none
    for baseline in _baselines(check, len(model.classes)):
        table.add_row(*baseline)
    if shifts := result.get("shifts"):  # older versions had none
        lowest = min(shifts, key=lambda shift: float(shift["accuracy"]))
        of_all = f" (lowest of {len(shifts)})" * (len(shifts) > 1)
        share = f"{100 * lowest['accuracy']:.2f} %"
        table.add_row("shifted accuracy", share, printable(f"on {lowest['name']}{of_all}"))
    out.print(table)
    if check and (check["verdict"] != BETTER or not figures):
        out.print(printable(f"By {check.get('by', 'a noisy count')}: {check['words']}."))


def _baselines(check: Mapping[str, Any], classes: int) -> Iterator[tuple[str, str, str]]:
    """What a model would get that has learned nothing."""
    majority = check.get("most_frequent") or check.get("majority")
    if majority is not None:
        share = f"{100 * min(max(majority, 0.0), 1.0):.1f} %"
        yield "majority class", share, "of the training rows, by a noisy count"
    if classes:
        yield "chance", f"{100 / classes:.1f} %", f"one of {classes:,} classes"


def _show_notes(notes: Sequence[str], verbose: bool) -> None:
    """Print all notes, or the first one on one line."""
    for note in notes if verbose else notes[:1]:
        how: Any = {} if verbose else {"no_wrap": True, "overflow": "ellipsis"}
        out.print(Text(printable(f"Note: {note}."), "yellow", **how))
    if len(notes) > 1 and not verbose:
        out.print(Text(f"More notes in the card: {len(notes) - 1}.", "yellow"))


def _show_promise(planned: Outline, guarantee: Guarantee, delta_chosen: bool) -> None:
    out.print(Text(promise(guarantee)))
    if delta_chosen:
        delta, count = planned.config.budget.delta, planned.data.count
        unit = guarantee.unit.removeprefix("one ")
        units = "people" if unit == "person" else f"{unit}s"
        why = "that of the ledger" if planned.config.ledger else f"1 / (10 x {count:,} {units})"
        out.print(Text(f"No --delta was given, so delta is {why} = {probability(delta)}.", "dim"))


def _show_budget(paid: Sequence[Slot], budget: Budget) -> None:
    """Print one bar of the whole budget, and name its largest parts."""
    parts = sorted(((slot.share_of(budget), slot.purpose) for slot in paid), reverse=True)
    shares = [share for share, _ in parts]
    named = [f"{purpose} {100 * share:.1f} %" for share, purpose in parts[:_PARTS]]
    if rest := shares[_PARTS:]:
        named.append(f"others {100 * sum(rest):.1f} %")
    out.print()
    grid = Table.grid(padding=(0, 2))
    grid.add_row("budget", draw_split_bar(shares))
    grid.add_row("", Text(", ".join(named)))
    out.print(grid)


def _show_files_and_commands(record: Record, picture: Path | None) -> None:
    """Print where everything is, and what to do next."""
    path, exported = record.folder.path, record.folder.path / EXPORTED
    folder = shlex.quote(str(path))
    own = "" if record.outline.config.ledger else " (of this run only; --ledger shares one)"
    # Another process runs code of the user only when asked to.
    runs_code = bool(record.model.own_functions)
    flag, argument = " --run-code" * runs_code, ", own_code=True" * runs_code
    shifts = " and shifts.png" * bool(record.result.get("shifts"))
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in (
        ("run", folder),
        ("picture", f"{picture}{shifts}" if picture else ""),
        ("Hugging Face", f"{exported} (README.md there says how)" if exported.exists() else ""),
        ("ledger", f"{record.summary.ledger}{own}"),
        ("predict", f"dptune predict {folder} {_new_data(record)} -o predictions.csv{flag}"),
        ("all details", f"dptune card {folder}"),
        ("publish", f"dptune publish {folder} FOLDER"),
        ("in Python", f"dptune.load({str(path)!r}{argument})"),
    ):
        if text:
            grid.add_row(name, Text(text))
    out.print()
    out.print(grid)


def _new_data(record: Record) -> str:
    """The option of predict that names what such a model takes."""
    if is_of_texts(record.model.made_by):
        return "--text FILE"
    return "--images FOLDER" if record.model.made_by else "--data FILE"


def _show_columns(planned: Outline, names: Sequence[str]) -> None:
    """Say what costs beginners most: columns of very different scale."""
    asked, declared = planned.config.preparation, planned.config.columns
    scaled = (
        declared is not None
        or asked.ranges
        or asked.standardize
        or RANGES in planned.preparation.events
    )
    if names and asked.unit_rows and not scaled:
        out.print(
            Text(
                "If columns have very different scales (age, income), declare their ranges: dptune "
                "columns FILE begins a file for --columns.",
                "dim",
            )
        )


def _show_trials(planned: Outline) -> None:
    """Say what a sealed search, which shows no trial, consists of."""
    sealed = planned.schedule.sealed
    if sealed is None:
        return
    sealing, price = sealed.sealing, planned.price_of(sealed.run)
    each = cost(accounting.epsilon(price, planned.config.budget.delta))
    out.print(
        Text(
            f"Sealed: each trial trains with epsilon {each} by itself; their number is drawn "
            f"({sealing.distribution}, {sealing.expected_trials:g} on average) and stays secret."
        )
    )
