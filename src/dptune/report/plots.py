"""Draw the pictures of a finished run: the search and its choice, the split of the budget, and the
accuracy on rows of other origins. Only this module uses matplotlib, which loads slowly: import it
where it is used."""

import io
import math
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, NullLocator

from dptune import gdp
from dptune.printable import printable
from dptune.report.record import Record
from dptune.report.words import readable, verdict
from dptune.rounding import cost, probability
from dptune.search.linear_scaling import law_range, r_at, r_of
from dptune.search.picture import CurvePicture, LinePicture
from dptune.search.trial import scored_trials
from dptune.study.figures import figures_in_words
from dptune.study.run_folder import PICTURES
from dptune.study.split import slots

FILE, SHIFTS_FILE = PICTURES
# Okabe and Ito's colours, which the colour-blind can tell apart.
_BLUE, _ORANGE, _GREEN, _RED, _SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9"
_INK, _FAINT = "#222222", "#777777"
_SIZE, _DOTS_PER_INCH = (11.0, 4.8), 150
_ROOM = 0.09  # of the axis, for one label
_ABOVE_AXIS = 33.5  # points from the plot to a title above an axis with a label
_EDGE = 0.2  # inches between what stands beside bars and the edge
_BOX, _LINE = 0.12, 0.075  # of the axis, for a box of text and for each of its lines
_R = "total step size r (learning rate × steps)"


def search_picture(folder: str | Path, *, own_code: bool = False) -> Path:
    """Draw search.png into the folder of a finished run; for `own_code` see `dptune.load`."""
    return save(Record.read(folder, own_code=own_code))


def save(record: Record) -> Path:
    """Draw the picture into the folder of the run, and one of its shifts, if there are any."""
    figures = {FILE: draw(record)}
    if record.result.get("shifts"):
        figures[SHIFTS_FILE] = draw_shifts(record)
    for name, figure in figures.items():
        drawn = io.BytesIO()
        figure.savefig(drawn, format="png", dpi=_DOTS_PER_INCH)
        record.folder.write(name, drawn.getvalue())
    if record.outline.schedule.sealed:
        record.folder.give_one_date()
    return record.folder.path / FILE


def draw(record: Record) -> Figure:
    """Draw the picture as a matplotlib Figure."""
    figure = Figure(figsize=_SIZE, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.7, 1))
    picture = record.picture
    match picture:
        case CurvePicture():
            _draw_curve(left, record, picture)
        case LinePicture():
            _draw_line(left, record, picture)
        case None if scored_trials(record.model.trials):
            _draw_scores(left, record)
        case None:
            _draw_choice(left, record)
    if words := verdict(picture, record.situation.history):
        _write_remark(left, words, above=isinstance(picture, LinePicture))
    _draw_split(right, record)
    # At the height of the other title, which stands above an axis.
    pad = _ABOVE_AXIS if left.child_axes else None
    right.set_title("how the budget was split", loc="left", fontsize=12, color=_INK, pad=pad)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=10, colors=_INK)
    tested = _on_test_rows(record)
    total = f"{_promised(record)} for everything shown"
    name, method = record.result["data"]["name"], record.outline.config.search.name
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=3, fontsize=10, frameon=False)
    figure.suptitle(
        f"{_without_formulas(name)}: {method}{tested}\n{total}", fontsize=12, color=_INK
    )
    return figure


def _on_test_rows(record: Record) -> str:
    """The test result in words: the accuracy, or the error of predicted values."""
    figures = figures_in_words(record.result)
    if record.result["test_accuracy"] is not None:
        return f", test accuracy {dict(figures)['accuracy']}"
    return ", {} {} on the test rows".format(*figures[0]) if figures else ""


def _draw_curve(axes: Axes, record: Record, picture: CurvePicture) -> None:
    """Scores over r, the curve through them, and the choice."""
    axes.axvspan(
        *picture.prior, color=_FAINT, alpha=0.12, lw=0, label="top expected by the law (±1 sd)"
    )
    if picture.points:
        axes.axvspan(
            *picture.posterior, color=_SKY, alpha=0.35, lw=0, label="top after the scores (±1 sd)"
        )
        axes.plot(
            *zip(*picture.curve, strict=True),
            color=_BLUE,
            lw=2,
            label="fitted curve (scores and law)",
        )
        axes.errorbar(
            [point.r for point in picture.points],
            [point.score for point in picture.points],
            yerr=[point.error for point in picture.points],
            fmt="o",
            ms=8,
            capsize=4,
            color=_ORANGE,
            ecolor=_ORANGE,
            mec=_INK,
            label="score of a trial (±1 sd: paid noise and chance)",
        )
        for point in picture.points:
            axes.annotate(
                str(point.number),
                (point.r, point.score),
                (8, 5),
                textcoords="offset points",
                color=_INK,
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.5},
            )
        axes.set_ylabel(_score_label(record))
    else:
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
    axes.set_title("where the search looked", loc="left", fontsize=12, color=_INK)
    _mark_choice(axes, record)
    ends = [r for r, _ in picture.curve] if picture.points else picture.prior
    _set_r_axis(axes, record, [*ends, record.final.plan.total_step_size])


def _draw_line(axes: Axes, record: Record, picture: LinePicture) -> None:
    """The best r of each sweep over epsilon, and the line through them."""
    delta = record.situation.delta
    epsilon = gdp.epsilon_from_mu(record.outline.schedule.final.mu, delta)
    trials = scored_trials(record.model.trials)
    if not trials:
        _write_remark(axes, "no trial was scored", above=True)
    for kind, best in (("trial", False), ("best of its sweep", True)):
        chosen = [trial for trial in trials if _is_best(trial.number, record) is best]
        if not chosen:
            continue
        axes.plot(
            [gdp.epsilon_from_mu(trial.mu, delta) for trial in chosen],
            [trial.plan.total_step_size for trial in chosen],
            "o",
            ms=9 if best else 6,
            color=_ORANGE if best else _FAINT,
            mec=_INK if best else _FAINT,
            label=kind,
        )
    if picture.line:
        axes.plot(
            *zip(*picture.line, strict=True), color=_BLUE, lw=2, label="line through the best"
        )
    r = record.final.plan.total_step_size
    axes.plot(
        [epsilon], [r], "*", ms=17, color=_GREEN, mec=_INK, label=f"final run: r = {readable(r)}"
    )
    axes.set_xlabel("epsilon of one run, at the budget's delta")
    axes.set_ylabel(_R)
    axes.set_title("the line through the sweeps", loc="left", fontsize=12, color=_INK)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: readable(value)))


def _draw_scores(axes: Axes, record: Record) -> None:
    """All trials; the best is the model."""
    trials = scored_trials(record.model.trials)
    places = [trial.plan.total_step_size for trial in trials]
    axes.errorbar(
        places,
        [100 * (trial.score or 0.0) for trial in trials],
        yerr=[100 * (trial.score_noise or 0.0) for trial in trials],
        fmt="o",
        ms=8,
        capsize=4,
        color=_ORANGE,
        mec=_INK,
        label="score of a trial (±1 sd of the paid noise)",
    )
    for trial, place in zip(trials, places, strict=True):
        words, at = f"{trial.plan.steps} steps", (place, 100 * (trial.score or 0.0))
        axes.annotate(
            words, at, (0, 9), textcoords="offset points", ha="center", fontsize=8, color=_FAINT
        )
    axes.margins(y=0.12)
    axes.set_ylabel(_score_label(record))
    axes.set_title("all trials, and the best", loc="left", fontsize=12, color=_INK)
    _mark_choice(axes, record)
    _set_r_axis(axes, record, [min(places) / 2, 2 * max(places)], with_noise=False)


def _draw_choice(axes: Axes, record: Record) -> None:
    """The chosen r and the prior of the law, if no trials may be shown."""
    mu, situation = record.outline.schedule.final.mu, record.situation
    r = record.final.plan.total_step_size
    reached = [r / 18, r * 18]
    if _is_descent(record):
        law = r_at(0.0, mu, situation)
        reached += [law / 18, law * 18]
        axes.axvspan(
            *law_range(mu, situation),
            color=_FAINT,
            alpha=0.15,
            lw=0,
            label="best expected by the law (±1 sd)",
        )
    _mark_choice(axes, record)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    title = "no trials: what was chosen"
    if record.outline.schedule.sealed:
        title = "sealed: only the winner is released"
    axes.set_title(title, loc="left", fontsize=12, color=_INK)
    _set_r_axis(axes, record, reached)


def _mark_choice(axes: Axes, record: Record) -> None:
    r, noise = record.final.plan.total_step_size, f", c = {record.final.noise:.2g}"
    what = "winner" if record.outline.schedule.sealed else "final run"
    shown = f"{what}: r = {readable(r)}{noise * _is_descent(record)}"
    axes.axvline(r, color=_GREEN, lw=2, ls="--", label=shown)


def _write_remark(axes: Axes, words: str, *, above: bool) -> None:
    """Write a remark in the left corner, and extend the axis to make room for it."""
    lines = textwrap.wrap(words, 56)
    if len(axes.get_yticks()):
        low, high = axes.get_ylim()
        room = (high - low) / (1 - _BOX - _LINE * len(lines)) - (high - low)
        axes.set_ylim(low - room * (not above), high + room * above)
    axes.text(
        0.02,
        0.96 if above else 0.04,
        "\n".join(lines),
        transform=axes.transAxes,
        va="top" if above else "bottom",
        fontsize=10,
        color=_INK,
        bbox={"facecolor": "white", "edgecolor": _FAINT, "boxstyle": "round", "alpha": 0.9},
    )


def _set_r_axis(
    axes: Axes, record: Record, reached: Sequence[float], *, with_noise: bool = True
) -> None:
    """Set up the logarithmic axis of r, wide enough for `reached`; above it, the noise on the
    weights, if steps follow the law."""
    axes.set_xscale("log")
    middle = math.sqrt(min(reached) * max(reached))
    reach = max(1.1 * max(reached) / middle, 4.0)  # where all is one value, it still has ticks
    ends = middle / reach, middle * reach
    axes.set_xlim(ends)
    places = _round_values(lambda r: r, ends)
    axes.set_xticks(list(places.values()), [readable(r) for r in places])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(f"{_R}, at the price of the final run")
    if not with_noise or not _is_descent(record):
        return
    mu = record.outline.schedule.final.mu
    # Where the space or what is stable ends, r stays there, and the noise above it would be any.
    least, most = (r_of(noise, mu, record.situation) for noise in (1e-99, 1e99))
    inside = max(ends[0], least * 1.001), min(ends[1], most / 1.001)
    places = _round_values(lambda noise: r_of(noise, mu, record.situation), ends, inside)
    if not places:  # one r is all of the space
        return
    above = axes.secondary_xaxis("top")
    above.set_xticks(list(places.values()), [f"{noise:g}" for noise in places])
    above.xaxis.set_minor_locator(NullLocator())
    above.set_xlabel("noise c on every weight", color=_INK)
    above.tick_params(labelsize=9, colors=_FAINT)


def _round_values(
    place: Callable[[float], float],
    ends: tuple[float, float],
    inside: tuple[float, float] | None = None,
) -> dict[float, float]:
    """Round values and their places, as many as there is room for labels between `ends`."""
    low, high = inside or ends
    placed: dict[float, float] = {}
    for mantissas in ((1, 2, 5), (1,)):
        values = [float(f"{m}e{power}") for power in range(-9, 10) for m in mantissas]
        placed = {value: at for value in values if low <= (at := place(value)) <= high}
        gaps = np.abs(np.diff(np.log(list(placed.values())))) / math.log(ends[1] / ends[0])
        if (gaps > _ROOM).all():
            break
    return placed


def _draw_split(axes: Axes, record: Record) -> None:
    """One bar per kind of payment, in shares of mu squared."""
    budget = record.outline.config.budget
    paid = slots(record.outline)
    names = [f"{slot.count} × {slot.purpose}" if slot.count > 1 else slot.purpose for slot in paid]
    shares = [100 * slot.share_of(budget) for slot in paid]
    final = record.outline.schedule.final.name
    colors = [_GREEN if slot.purpose.startswith(final) else _ORANGE for slot in paid]
    places = range(len(paid))
    axes.barh(places, shares, color=colors, height=0.75)
    for place, share, slot in zip(places, shares, paid, strict=True):
        each = " each" if slot.count > 1 else ""
        text = f"{share:.1f} %, epsilon {cost(slot.epsilon)}{each}"
        inside = share > 55
        axes.text(
            share - 4 if inside else share + 2,
            place,
            text,
            va="center_baseline",
            ha="right" if inside else "left",
            color="white" if inside else _INK,
            fontsize=9,
        )
    axes.set_yticks(list(places), names)
    around = max(len(paid), 5) / 2  # so that few bars are not fat
    axes.set_ylim((len(paid) - 1) / 2 + around, (len(paid) - 1) / 2 - around)
    axes.set_xlim(0, 100)
    axes.set_xlabel("share of the budget (% of mu squared)")


def draw_shifts(record: Record) -> Figure:
    """One bar for the test rows and one per shift, with a mark for each of its groups."""
    bars = [
        (shift["name"], shift["accuracy"], shift["groups"]) for shift in record.result["shifts"]
    ]
    if record.result["test_accuracy"] is not None:
        bars.insert(0, ("test", record.result["test_accuracy"], []))
    layout = ConstrainedLayoutEngine(w_pad=_EDGE)
    figure = Figure(figsize=(_SIZE[0], 1.6 + 0.55 * max(len(bars), 3)), layout=layout)
    axes = figure.subplots()
    places = range(len(bars))
    colors = [
        _BLUE if name == "test" and place == 0 else _SKY for place, (name, *_) in enumerate(bars)
    ]
    axes.barh(places, [100 * share for _, share, _ in bars], color=colors, height=0.55)
    for place, (_, share, groups) in enumerate(bars):
        others = [100 * group["accuracy"] for group in groups]
        axes.plot(others, [place] * len(others), "|", ms=20, mew=1.5, color=_INK)
        words = f"{100 * share:.1f} %"
        if groups:
            worst = min(groups, key=lambda group: group["accuracy"])
            named = textwrap.shorten(worst["name"], 40, placeholder="...")
            words += f"; worst group {100 * worst['accuracy']:.1f} %: {_without_formulas(named)}"
        axes.text(102, place, words, va="center", fontsize=10, color=_INK)
    names = [_without_formulas(textwrap.shorten(name, 40, placeholder="...")) for name, *_ in bars]
    axes.set_yticks(list(places), names)
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.set_xlim(0, 100)
    axes.set_xlabel("accuracy (%); each mark is a group")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=10, colors=_INK)
    name = _without_formulas(record.result["data"]["name"])
    figure.suptitle(
        f"{name} on rows of other origins: {_promised(record)}",
        fontsize=12,
        color=_INK,
    )
    return figure


def _promised(record: Record) -> str:
    promise = record.model.guarantee
    return f"epsilon {cost(promise.epsilon)} at delta {probability(promise.delta)}"


def _score_label(record: Record) -> str:
    """The label of scores; for losses with the formula of the score."""
    score = record.outline.config.score
    if score.measure != "loss":
        return score.label
    return score.label.replace("score", f"score 1 - loss / {score.loss_bound:g}", 1)


def _is_best(number: int, record: Record) -> bool:
    """Whether a trial has the highest score of its sweep; the earlier of equals."""
    trials = {trial.number: trial for trial in scored_trials(record.model.trials)}
    rivals = [trial for trial in trials.values() if trial.stage == trials[number].stage]
    return max(rivals, key=lambda trial: trial.score or -math.inf).number == number


def _is_descent(record: Record) -> bool:
    """Whether r is the step size of gradient descent; other optimizers scale their steps."""
    return record.final.plan.optimizer == "sgd"


def _without_formulas(name: str) -> str:
    """Escape dollar signs, which would begin a formula."""
    return printable(name).replace("$", r"\$")
