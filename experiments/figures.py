"""Pictures of benchmarks. Slow to load, since matplotlib is: import it where it is used."""

import io
import itertools
import math
import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from experiments.charts import Dots, Heat, Panel, Picture, Plot

# Okabe and Ito's colours, which the colour-blind can tell apart, and grey; marks differ as well.
COLORS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F"
)  # fmt: skip
_MARKS = "os^DvPX*"
_INK, _FAINT = "#222222", "#777777"
_DOTS_PER_INCH = 130
_LETTERS_AN_INCH = 10  # of a title
_DODGE = 1.025  # between series at the same x, so that their error bars do not hide each other
_LINES = ("--", ":", "-.")
_MOST_TICKS = 8
_TICK_WIDTH = 0.04  # of an axis
_MOST_STACKED = 3  # maps below each other; more stand in two columns
_MOST_IN_A_ROW = 4  # panels that are no maps; more stand in rows of three
_FEW_DECADES = 2.5  # below which 1, 2 and 5 are written


def png(picture: Picture) -> bytes:
    """The picture as a file's content."""
    drawn = io.BytesIO()
    draw(picture).savefig(drawn, format="png", dpi=_DOTS_PER_INCH)
    return drawn.getvalue()


def draw(picture: Picture) -> Figure:
    count = len(picture.panels)
    stacked = all(isinstance(panel, Heat) for panel in picture.panels)  # too wide for a row
    across = 2 if count > _MOST_STACKED else 1
    if not stacked:
        across = 3 if count > _MOST_IN_A_ROW else count
    down = math.ceil(count / across)
    widths = [_width(panel, stacked or count == 1) for panel in picture.panels]
    heights = [_height(panel) for panel in picture.panels]
    in_a_row = down == 1 and not stacked
    size = (sum(widths), max(heights)) if in_a_row else (across * max(widths), down * max(heights))
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08))
    ratios = widths if in_a_row else None
    row = figure.subplots(down, across, width_ratios=ratios, squeeze=False).ravel()
    for empty in row[count:]:
        empty.set_axis_off()
    row = row[:count]
    for axes, panel in zip(row, picture.panels, strict=True):
        _draw(axes, panel)
        axes.set_title(_plain(panel.title), loc="left", fontsize=11, color=_INK)
        axes.set_xlabel(panel.xlabel)
        axes.tick_params(colors=_INK)
        axes.spines[["top", "right"]].set_visible(False)
    _legend(figure, list(row))
    title = textwrap.fill(picture.title, int(_LETTERS_AN_INCH * size[0]))
    figure.suptitle(_plain(title), fontsize=12.5, color=_INK)
    return figure


def _width(panel: Panel, alone: bool) -> float:
    if isinstance(panel, Heat):
        return 3.2 + 0.55 * len(panel.columns)
    return 8.4 if alone else 6.0


def _height(panel: Panel) -> float:
    if isinstance(panel, Dots):
        return 2.3 + 0.36 * len(panel.categories) * max(1, 0.6 * len(panel.series))
    return 1.6 + 0.36 * len(panel.rows) if isinstance(panel, Heat) else 5.0


def _draw(axes: Axes, panel: Panel) -> None:
    if isinstance(panel, Plot):
        _plot(axes, panel)
    elif isinstance(panel, Dots):
        _dots(axes, panel)
    else:
        _heat(axes, panel)


def _plot(axes: Axes, panel: Plot) -> None:
    for number, series in enumerate(panel.series):
        look = number if series.color is None else series.color
        aside = _DODGE ** (number - (len(panel.series) - 1) / 2)
        line = "-" if look < len(COLORS) else "--"  # where a colour comes again
        dodged = panel.xlog and len(series.error) > 0
        axes.errorbar(
            [x * aside for x in series.x] if dodged else series.x,
            series.y,
            yerr=series.error if len(series.error) else None,
            color=COLORS[look % len(COLORS)],
            marker=_MARKS[look % len(_MARKS)],
            linestyle=line if series.line else "none",
            markersize=5 if series.line else 4,
            alpha=0.9 if series.line else 0.6,
            linewidth=1.6,
            capsize=3,
            label=series.label,
        )
    axes.set_ylabel(panel.ylabel)
    if panel.xlog:
        axes.set_xscale("log")
        _log_ticks(axes, "x", [x for series in panel.series for x in series.x])
    if panel.ylog:
        axes.set_yscale("log")
        _log_ticks(axes, "y", [y for series in panel.series for y in series.y])
    if panel.within:
        axes.set_ylim(panel.within)
    axes.grid(alpha=0.25)


def _dots(axes: Axes, panel: Dots) -> None:
    count = len(panel.series)
    for number, (label, values, errors) in enumerate(panel.series):
        shift = 0.0 if count == 1 else 0.5 * (number / (count - 1) - 0.5)
        places = np.arange(len(panel.categories)) + shift
        axes.errorbar(
            values,
            places,
            xerr=errors if len(errors) else None,
            color=COLORS[number % len(COLORS)],
            marker=_MARKS[number % len(_MARKS)],
            linestyle="none",
            markersize=7,
            capsize=3,
            label=label,
        )
    for (level, label), dashes in zip(panel.levels, itertools.cycle(_LINES), strict=False):
        axes.axvline(level, color=_FAINT, linestyle=dashes, linewidth=1.4, label=label)
    axes.set_yticks(range(len(panel.categories)), [_plain(name) for name in panel.categories])
    axes.set_ylim(len(panel.categories) - 0.4, -0.6)
    if panel.xlog:
        axes.set_xscale("log")
        values = [value for _, row, _ in panel.series for value in row if value > 0]
        _log_ticks(axes, "x", values)
    axes.grid(axis="x", alpha=0.25)


def _heat(axes: Axes, panel: Heat) -> None:
    values = np.asarray(panel.values, dtype=float)
    image = axes.imshow(values, aspect="auto", origin="lower", cmap="viridis")
    axes.set_xticks(range(len(panel.columns)), panel.columns, rotation=45, ha="right")
    axes.set_yticks(range(len(panel.rows)), panel.rows)
    axes.set_ylabel(panel.ylabel)
    middle = (values.min() + values.max()) / 2
    for (row, column), value in np.ndenumerate(values):
        color = "white" if value < middle else "black"
        axes.text(column, row, f"{value:.1f}", ha="center", va="center", color=color, fontsize=8)
    best = np.unravel_index(int(values.argmax()), values.shape)
    corner = float(best[1]) - 0.5, float(best[0]) - 0.5
    axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=COLORS[1], linewidth=2.5))
    figure = axes.figure
    figure.colorbar(image, ax=axes, label=panel.unit, shrink=0.9)


def _legend(figure: Figure, row: list[Axes]) -> None:
    """One for all panels, below them, each label once."""
    found: dict[str, Artist] = {}
    for axes in row:
        handles, labels = axes.get_legend_handles_labels()
        for handle, label in zip(handles, labels, strict=True):
            found.setdefault(_plain(label), handle)
    if len(found) > 1:
        room = figure.get_size_inches()[0]
        across = max(1, int(room / (0.6 + 0.085 * max(map(len, found)))))
        figure.legend(
            list(found.values()),
            list(found),
            loc="outside lower center",
            ncols=min(across, len(found)),
            frameon=False,
            fontsize=9.5,
        )


def _log_ticks(axes: Axes, which: str, values: Sequence[float]) -> None:
    """The values themselves where they are few and can be told apart, else round numbers; never as
    powers."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_minor_locator(NullLocator())
    distinct = sorted(set(values))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    room = (distinct[-1] / distinct[0]) ** _TICK_WIDTH
    apart = all(right / left >= room for left, right in itertools.pairwise(distinct))
    if len(distinct) <= _MOST_TICKS and apart and which == "x":
        axis.set_major_locator(FixedLocator(distinct))
        return
    decades = math.log10(distinct[-1] / distinct[0])
    subs = (1.0, 2.0, 5.0) if decades < _FEW_DECADES else (1.0,)
    axis.set_major_locator(LogLocator(subs=subs))


def _plain(text: str) -> str:
    """A dollar sign would begin a formula."""
    return text.replace("$", r"\$")
