"""How a study is going: a live view on a terminal, elsewhere one line a stage."""

import math
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic

from rich.console import Console, Group
from rich.live import Live
from rich.progress import Progress as Bar
from rich.progress import ProgressColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from dptune import gdp
from dptune.cli.screen import draw_bar, duration, plain_table, standard_error
from dptune.cli.text_plot import points_of, text_plot
from dptune.report.words import readable, verdict
from dptune.rounding import cost
from dptune.search.base import SearchMethod
from dptune.search.picture import CurvePicture
from dptune.search.trial import Trial, scored_trials
from dptune.study.runner import Progress

_WIDTH = 79
_SECONDS_BETWEEN_LINES = 60.0  # of the same stage
_PREPARING = "preparing"


class _Clock:
    """How long a study has been running and how long its current run still takes: all segments of a
    final run are alike, and all steps. Silent for a sealed search, whose running time stays
    secret."""

    def __init__(self, search: SearchMethod, now: Callable[[], float]) -> None:
        self._sealed, self._now, self._began = search.sealing is not None, now, now()
        self._first = ("", 0, self._began)  # of a run: how far it was at the first update

    def elapsed(self) -> str:
        return "" if self._sealed else f"after {duration(self._now() - self._began)}"

    def left(self, progress: Progress) -> str:
        """The time left, from the second segment or step on; else nothing."""
        if self._sealed:
            return ""
        if step := re.search(r"^(.*)step (\d+) of (\d+)$", progress.steps):
            done, steps = int(step[2]), int(step[3])
            rest = self._rest(f"{progress.doing} {step[1]}", done, steps - done)
            stages = (*progress.schedule.sweeps, progress.schedule.final)
            runs = sum(stage.trials for stage in stages)
            return rest and f"about {rest} of this run left, one of {runs}"
        if segment := re.search(r"(\d+) of (\d+)$", progress.doing):
            number, segments = int(segment[1]), int(segment[2])
            rest = self._rest("segments", number, segments - number + 1)
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


class _Stages:
    """The stage of a study. What prepares rows is one stage, which is announced with its prices."""

    def __init__(self) -> None:
        self.preparation = ""

    def update(self, progress: Progress) -> str:
        """Return the stage that the study is in now."""
        stage, colon, _ = progress.doing.partition(":")
        if stage == _PREPARING:
            self.preparation = progress.doing
        elif colon or progress.steps or progress.trials or stage == "done":
            self.preparation = ""
        return _PREPARING if self.preparation else stage


@contextmanager
def live_view(
    search: SearchMethod, now: Callable[[], float] = monotonic, *, verbose: bool = False
) -> Iterator[Callable[[Progress], None]]:
    """Show updates on standard error: in place on a terminal, where they stay at the end if asked
    with `verbose`; elsewhere line by line."""
    console, clock = standard_error(), _Clock(search, now)
    if console.is_terminal:
        shown = _in_place(console, clock, search, keep=verbose)
    else:
        shown = _line_by_line(console, clock, now)
    with shown as watch:
        yield watch


@contextmanager
def _line_by_line(
    console: Console, clock: _Clock, now: Callable[[], float]
) -> Iterator[Callable[[Progress], None]]:
    """One line a stage, and one a minute of a long stage."""
    stages, last, printed = _Stages(), "", now()

    def line(words: str, *facts: str) -> None:
        told = ", ".join(filter(None, facts))
        words = f"{words} ({told})" if told else words
        console.print(textwrap.fill(words, _WIDTH, subsequent_indent="  "))

    def update(progress: Progress) -> None:
        nonlocal last, printed
        left, stage, time = clock.left(progress), stages.update(progress), now()
        if stage == last and time - printed < _SECONDS_BETWEEN_LINES:
            return
        last, printed = stage, time
        if stage == _PREPARING:
            line(stages.preparation, clock.elapsed() if progress.spent else "")
            return
        used = f"{100 * progress.spent:.1f} % of the budget is used"
        line(_describe(progress), used, clock.elapsed(), left)

    yield update


@contextmanager
def _in_place(
    console: Console, clock: _Clock, search: SearchMethod, *, keep: bool
) -> Iterator[Callable[[Progress], None]]:
    """A spinner with what is being done, the budget, the trials and their scores; they leave the
    screen at the end, unless asked to `keep` them."""
    columns: list[ProgressColumn] = [
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
    ]
    if search.sealing is None:  # its running time stays secret
        columns.append(TimeElapsedColumn())
    spinner, stages = Bar(*columns, console=console), _Stages()
    task = spinner.add_task("starting")
    with Live(spinner, console=console, refresh_per_second=8, transient=not keep) as live:

        def update(progress: Progress) -> None:
            ended, stage = progress.doing == "done", stages.update(progress)
            words = stages.preparation if stage == _PREPARING else _describe(progress)
            words = ", ".join(filter(None, (words, clock.left(progress))))
            spinner.update(task, description=words, total=1, completed=int(ended))
            live.update(Group(spinner, *draw_progress(progress, search)))

        yield update
    if keep:
        console.print()


def _describe(progress: Progress) -> str:
    return f"{progress.doing}, {progress.steps}" if progress.steps else progress.doing


def draw_progress(progress: Progress, search: SearchMethod) -> list[Text | Table]:
    """Draw the budget that is used, the trials, and their scores over r."""
    used = Text.assemble(
        "budget  ",
        draw_bar(progress.spent, "green"),
        f"  {100 * progress.spent:.1f} % of mu squared",
    )
    if not progress.trials:
        return [used]
    view: list[Text | Table] = [
        used,
        Text(),
        _draw_trials(progress.trials, progress.situation.delta),
    ]
    if scored_trials(progress.trials):
        view += [Text(), _draw_scores(progress, search)]
    return view


def _draw_trials(trials: Sequence[Trial], delta: float) -> Table:
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


def _draw_scores(progress: Progress, search: SearchMethod) -> Text:
    """Draw scores over r, with the curve through them where the search has one."""
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
