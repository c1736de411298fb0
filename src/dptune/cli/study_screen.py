"""What people see of a study: its plan, how it goes, what came of it."""

import math
import re
import shlex
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.progress import Progress as Bar
from rich.progress import ProgressColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from dptune import accounting, gdp
from dptune.accounting import Guarantee
from dptune.cli.screen import (
    bar,
    duration,
    facts_table,
    out,
    plain_table,
    remark,
    slots_table,
    standard_error,
    statement,
)
from dptune.cli.text_plot import points_of, text_plot
from dptune.data.made_by import is_of_texts
from dptune.engines.base import Engine
from dptune.engines.linear import LinearEngine
from dptune.printable import printable
from dptune.report.record import Record
from dptune.report.words import readable, verdict
from dptune.rounding import cost, probability
from dptune.search.base import SearchMethod
from dptune.search.picture import CurvePicture
from dptune.search.trial import Trial, scored_trials
from dptune.study.check import UNKNOWN
from dptune.study.figures import figures_in_words, rows_in_words
from dptune.study.outline import Outline
from dptune.study.recipe import in_words
from dptune.study.run_folder import EXPORTED
from dptune.study.runner import Progress
from dptune.study.split import foreseen, slots

_WIDTH = 79  # of a remark in the live view
_SECONDS_BETWEEN_LINES = 60.0  # of those that only tell how far a run is


class _Clock:
    """How long a study has been going, and how long a run still takes that tells how far it is: all
    legs of a final run are alike, and all steps. Silent for a sealed search, whose running time is
    to be kept secret."""

    def __init__(self, search: SearchMethod, now: Callable[[], float]) -> None:
        self._sealed, self._now, self._began = search.sealing is not None, now, now()
        self._first = ("", 0, self._began)  # of a run: how far it was when it was first told of
        self._line = self._began

    def elapsed(self) -> str:
        return "" if self._sealed else f"after {duration(self._now() - self._began)}"

    def waits(self, steps: str) -> bool:
        """Whether it is too early for another line about steps; all else gets one."""
        if not steps:
            return False
        now = self._now()
        if now - self._line < _SECONDS_BETWEEN_LINES:
            return True
        self._line = now
        return False

    def left(self, progress: Progress) -> str:
        """About how long, where it is known: from the second leg or step on."""
        if self._sealed:
            return ""
        if step := re.search(r"^(.*)step (\d+) of (\d+)$", progress.steps):
            done, steps = int(step[2]), int(step[3])
            rest = self._rest(f"{progress.doing} {step[1]}", done, steps - done)
            stages = (*progress.schedule.sweeps, progress.schedule.final)
            runs = sum(stage.trials for stage in stages)
            return rest and f"about {rest} of this run left, one of {runs}"
        if leg := re.search(r"leg (\d+) of (\d+)$", progress.doing):
            number, legs = int(leg[1]), int(leg[2])
            rest = self._rest("legs", number, legs - number + 1)
            return rest and f"about {rest} left"
        return ""

    def _rest(self, run: str, done: int, rest: int) -> str:
        time = self._now()
        if run != self._first[0]:
            self._first = (run, done, time)
        _, first, began = self._first
        if done == first or not rest:
            return ""
        return duration(math.ceil((time - began) / (done - first) * rest))


@contextmanager
def live_view(
    search: SearchMethod, now: Callable[[], float] = monotonic
) -> Iterator[Callable[[Progress], None]]:
    """A live view on a terminal, plain lines elsewhere, on standard error."""
    console = standard_error()
    clock = _Clock(search, now)
    if not console.is_terminal:

        def write(progress: Progress) -> None:
            left = clock.left(progress)
            if not clock.waits(progress.steps):
                console.print(_line(progress, clock, left), soft_wrap=True)

        yield write
        return
    columns: list[ProgressColumn] = [
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
    ]
    if search.sealing is None:  # its running time is to be kept secret
        columns.append(TimeElapsedColumn())
    doing = Bar(*columns, console=console)
    task = doing.add_task("starting")
    with Live(doing, console=console, refresh_per_second=8) as live:

        def show(progress: Progress) -> None:
            ended = progress.doing == "done"
            words = ", ".join(filter(None, (_doing(progress), clock.left(progress))))
            doing.update(task, description=words, total=1, completed=int(ended))
            live.update(Group(doing, *_view(progress, search)))

        yield show
    console.print()


def say_trying(engine: Engine[Any]) -> None:
    """Before made-up rows pass through a model, which takes a minute or more of a large one."""
    if not isinstance(engine, LinearEngine):
        remark("Trying the model on made-up rows.")


def mention_unused_test(rows: str, source: str) -> None:
    """Test rows or test pictures. On standard error: nothing of it is stored."""
    remark(
        f"{source} holds test {rows}, which stay unused: if they are nobody's secret, ask for "
        f"the accuracy on them with --test {shlex.quote(source)}."
    )


def _doing(progress: Progress) -> str:
    return f"{progress.doing}, {progress.steps}" if progress.steps else progress.doing


def _line(progress: Progress, clock: _Clock, left: str) -> Text:
    used = f"{100 * progress.spent:.1f} % of the budget is used"
    facts = filter(None, (used, clock.elapsed(), left))
    return Text(f"{_doing(progress)} ({', '.join(facts)})")


def _view(progress: Progress, search: SearchMethod) -> list[Text | Table]:
    used = Text.assemble(
        "budget  ", bar(progress.spent, "green"), f"  {100 * progress.spent:.1f} % of mu squared"
    )
    if not progress.trials:
        return [used]
    view: list[Text | Table] = [
        used,
        Text(),
        _trials(progress.trials, progress.situation.delta),
    ]
    if scored_trials(progress.trials):
        view += [Text(), _scores(progress, search)]
    return view


def _trials(trials: Sequence[Trial], delta: float) -> Table:
    table = plain_table("")
    table.add_column("trial")
    for name in ("learning rate", "steps", "r", "noise c", "epsilon", "noisy score"):
        table.add_column(name, justify="right", no_wrap=True)
    for trial in trials:
        final = trial.stage == "final run"
        plan = trial.plan
        table.add_row(
            trial.stage if final else str(trial.number),
            f"{plan.learning_rate:.4g}",
            str(plan.steps),
            readable(plan.total_step_size),
            f"{trial.noise:.2g}",
            cost(gdp.epsilon_from_mu(trial.mu, delta)),
            "lost" if trial.lost else "" if trial.score is None else points_of(100 * trial.score),
            style="bold" if final else "",
        )
    return table


def _scores(progress: Progress, search: SearchMethod) -> Text:
    """Scores over r, with the curve through them where the search has one."""
    picture = search.picture(progress.situation, progress.schedule.final.mu)
    if isinstance(picture, CurvePicture):
        points = [(point.r, point.score, str(point.number)) for point in picture.points]
        drawn = text_plot(picture.curve, points)
        top = f"the top is at {readable(picture.top)}"
        title = f"scores in points over r, at the price of the final run; {top}"
    else:
        trials = scored_trials(progress.trials)
        drawn = text_plot(
            [], [(t.plan.total_step_size, 100 * (t.score or 0.0), str(t.number)) for t in trials]
        )
        title = "scores in points over r, by the number of the trial"
    words = verdict(picture, progress.situation.history)
    remark = "\n" + textwrap.fill(words, _WIDTH) if words else ""
    return Text(f"{title}\n{drawn}{remark}", no_wrap=True)


def plan_as_dict(planned: Outline, guarantee: Guarantee) -> dict[str, Any]:
    """What a study would pay for and promise, for JSON."""
    budget = planned.config.budget
    return {
        "budget": {"epsilon": budget.epsilon, "delta": budget.delta, "mu": budget.mu},
        "slots": [slot.to_dict(budget) for slot in foreseen(planned)],
        "preparation": list(in_words(planned.config, planned.data)),
        "training": list(planned.engine.inspection.describe(planned.data)),
        "objective": planned.objective,
        "guarantee": guarantee.to_dict(),
    }


def show_plan(
    planned: Outline, guarantee: Guarantee, delta_chosen: bool, names: Sequence[str]
) -> None:
    """What a study of columns with these names would pay for and promise."""
    out.print(slots_table(planned.config.budget, foreseen(planned)))
    out.print(Text(_sentence(planned.objective)))
    _about_trials(planned)
    if delta_chosen:
        out.print(_about_delta(planned))
    _about_columns(planned, names)
    _about_preparation(in_words(planned.config, planned.data))
    _about_training(planned.engine.inspection.describe(planned.data))
    statement(guarantee)
    out.print(Text("Nothing was spent and nothing was written."))


def show_result(record: Record, picture: Path | None, delta_chosen: bool) -> None:
    """What came of a study, what it cost, what to do next."""
    result, plan = record.result, record.final.plan
    table = facts_table(f"{printable(result['data']['name'])}: {record.outline.config.search.name}")
    accuracy, figures = result["test_accuracy"], figures_in_words(result)
    where = rows_in_words(result, record.model.target_range)
    for name, figure in figures:
        table.add_row(f"test {name}", Text(figure, "bold"), where)
    if not figures:
        why = "test rows have no classes" if result["test_rows"] else "none were asked for (--test)"
        figure = "error" if record.model.loss == "squared" else "accuracy"
        table.add_row(f"test {figure}", "not known", why)
    how = f"learning rate {plan.learning_rate:.4g} × {plan.steps} steps"
    table.add_row("total step size r", readable(plan.total_step_size), how)
    if plan.optimizer == "sgd":  # what other optimizers leave on weights is not that simple
        table.add_row("noise on weights c", f"{plan.weight_noise:.2g}", "one standard deviation")
    out.print(table)
    if shifts := result.get("shifts"):  # older versions had none
        out.print()
        out.print(_shifts(shifts, accuracy, result["test_rows"]))
    if words := verdict(record.picture, record.situation.history):
        out.print(Text(_sentence(words), "yellow"))
    if check := result.get("check"):  # older versions had none
        better = " The test rows tell more." * (check["verdict"] == UNKNOWN and bool(figures))
        words = printable(f"By {check.get('by', 'a noisy count')}, {check['words']}.")
        out.print(f"{words}{better}")
    out.print()
    out.print(slots_table(record.outline.config.budget, slots(record.outline), paid=True))
    out.print(Text(_sentence(record.summary.objective)))
    _about_trials(record.outline)
    if delta_chosen:
        out.print(_about_delta(record.outline))
    _about_columns(record.outline, record.model.column_names)
    _about_preparation(result.get("preparation", ()))  # older runs have none
    for note in result["notes"]:
        out.print(Text(printable(f"Note: {note}."), "yellow"))
    statement(record.model.guarantee)
    _files(record, picture)


def _shifts(shifts: Sequence[dict[str, Any]], accuracy: float | None, rows: int) -> Table:
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


def _files(record: Record, picture: Path | None) -> None:
    folder = shlex.quote(str(record.folder.path))
    ledger = record.summary.ledger
    own = (
        "" if record.outline.config.ledger else " (its own; studies that share rows share --ledger)"
    )
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    path = record.folder.path
    exported = path / EXPORTED
    # Another process must be asked to run code that it was not given.
    runs_code = bool(record.model.own_functions)
    flag, argument = " --run-code" * runs_code, ", own_code=True" * runs_code
    for name, text in (
        ("model and records", folder),
        *([("picture", str(picture))] if picture else []),
        *(
            [("shifts", str(picture.with_name("shifts.png")))]
            if picture and record.result.get("shifts")
            else []
        ),
        ("ledger", f"{ledger}{own}"),
        ("predict", f"dptune predict {folder} {_new(record)} -o predictions.csv{flag}"),
        ("model card", f"dptune card {folder}"),
        ("publish", f"dptune publish {folder} FOLDER"),
        ("from Python", f"dptune.load({str(path)!r}{argument})"),
        *([("Hugging Face", f"{exported} (README.md there says how)")] * exported.exists()),
    ):
        grid.add_row(Text(name, "dim"), Text(text))
    out.print(grid)


def _new(record: Record) -> str:
    """The option of predict that names what such a model takes."""
    if is_of_texts(record.model.made_by):
        return "--text FILE"
    return "--images FOLDER" if record.model.made_by else "--data FILE"


def _about_preparation(sentences: Sequence[str]) -> None:
    """What is bought to prepare rows, and why not more."""
    if not sentences:
        return
    listed = Table.grid(padding=(0, 1))
    for sentence in sentences:
        listed.add_row("-", printable(sentence))
    out.print(Text("Rows are"))
    out.print(listed)


def _about_training(sentences: Sequence[str]) -> None:
    """What an engine has to say."""
    for words in sentences:
        out.print(Text(_sentence(words)))


def _about_columns(planned: Outline, names: Sequence[str]) -> None:
    """What costs beginners most."""
    asked, declared = planned.config.preparation, planned.config.columns
    scaled = declared is not None or asked.ranges or asked.standardize or planned.ranged
    done = "cut to the usual length" if planned.shortens else "scaled to length 1"
    if names and asked.unit_rows and not scaled:
        begun = "" if planned.unlike else f"Columns are taken as they are and every row is {done}. "
        out.print(
            Text(
                f"{begun}If columns differ much in size (age, income), declare their ranges: "
                "dptune columns FILE begins a file for --columns.",
                "dim",
            )
        )


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


def _about_trials(planned: Outline) -> None:
    """What a sealed search, which shows no trial, is made of."""
    sealed = planned.schedule.sealed
    if sealed is None:
        return
    sealing, price = sealed.sealing, planned.price_of(sealed.run)
    each = cost(accounting.epsilon(price, planned.config.budget.delta))
    out.print(
        Text(
            f"Sealed: each trial trains with epsilon {each} by itself; how many there are is drawn "
            f"({sealing.distribution}, {sealing.expected_trials:g} on average) and stays secret."
        )
    )


def _about_delta(planned: Outline) -> Text:
    delta, rows = planned.config.budget.delta, planned.data.count
    why = (
        "the ledger's"
        if planned.config.ledger
        else f"one in ten times {rows:,}, how many are protected"
    )
    return Text(f"No delta was given: {probability(delta)} is {why} (--delta).")
