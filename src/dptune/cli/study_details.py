"""All that is known of a study's plan or result, for --verbose."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from dptune.cli.screen import draw_slots, facts_table, out, plain_table, show_guarantee
from dptune.printable import printable
from dptune.report.record import Record
from dptune.report.words import readable, sentence, verdict
from dptune.study.outline import Outline
from dptune.study.recipe import in_words
from dptune.study.split import slots


def show_plan_details(planned: Outline) -> None:
    """Print how rows would be prepared and the model be trained."""
    _show_preparation(in_words(planned.config, planned.data))
    for words in planned.engine.inspection.describe(planned.data):
        out.print(Text(sentence(words)))


def show_result_details(record: Record) -> None:
    """Print settings, prices, preparation and the whole guarantee."""
    result, plan = record.result, record.final.plan
    table = facts_table("\nfinal run")
    how = f"learning rate {plan.learning_rate:.4g} × {plan.steps} steps"
    table.add_row("total step size r", readable(plan.total_step_size), how)
    if plan.optimizer == "sgd":  # what other optimizers leave on weights is not that simple
        table.add_row("noise on weights c", f"{plan.weight_noise:.2g}", "one standard deviation")
    out.print(table)
    if words := verdict(record.picture, record.situation.history):
        out.print(Text(sentence(words), "yellow"))
    if shifts := result.get("shifts"):  # older versions had none
        out.print()
        out.print(_draw_shifts(shifts, result["test_accuracy"], result["test_rows"]))
    out.print()
    out.print(draw_slots(record.outline.config.budget, slots(record.outline), paid=True))
    out.print(Text(sentence(record.summary.objective)))
    _show_preparation(result.get("preparation", ()))  # older runs have none
    show_guarantee(record.model.guarantee)


def _show_preparation(sentences: Sequence[str]) -> None:
    if not sentences:
        return
    out.print(Text("\npreparation of rows", "bold"))
    listed = Table.grid(padding=(0, 1))
    for words in sentences:
        listed.add_row("-", printable(words))
    out.print(listed)


def _draw_shifts(shifts: Sequence[Mapping[str, Any]], accuracy: float | None, rows: int) -> Table:
    """Rows like those it was trained on first, then those of other origins."""
    table = plain_table("")
    table.add_column("rows of", overflow="fold")
    table.add_column("accuracy", justify="right")
    table.add_column("rows", justify="right")
    table.add_column("worst group", overflow="fold")
    if accuracy is not None:
        table.add_row("test", f"{100 * accuracy:.2f} %", f"{rows:,}", "")
    for shift in shifts:
        worst = shift["worst_group"]
        of_all = worst and f"{100 * worst['accuracy']:.2f} % of {worst['rows']:,}: {worst['name']}"
        table.add_row(
            printable(shift["name"]),
            f"{100 * shift['accuracy']:.2f} %",
            f"{shift['rows']:,}",
            printable(of_all or ""),
        )
    return table
