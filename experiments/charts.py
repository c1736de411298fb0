"""What a picture shows, without how it is drawn: machines that measure need not draw."""

from collections.abc import Sequence
from dataclasses import dataclass

from dptune.bench.outcome import Runs

Numbers = Sequence[float]


@dataclass(frozen=True)
class Series:
    """Points (x, y) with standard deviations; joined by a line if `line`. Series with the same
    `color` number share it."""

    label: str
    x: Numbers
    y: Numbers
    error: Numbers = ()
    line: bool = True
    color: int | None = None

    @staticmethod
    def of_runs(label: str, x: Numbers, runs: Sequence[Runs], color: int | None = None) -> "Series":
        """Means and standard deviations over repeats."""
        means, spreads = [one.mean for one in runs], [one.spread for one in runs]
        return Series(label, x, means, spreads, color=color)


@dataclass(frozen=True)
class Plot:
    """Series over a common axis; `within` are the ends of the other one, where panels share it."""

    title: str
    xlabel: str
    ylabel: str
    series: Sequence[Series]
    xlog: bool = False
    ylog: bool = False
    within: tuple[float, float] | None = None


@dataclass(frozen=True)
class Dots:
    """A value for every category and series, on a horizontal axis; NaN leaves a place empty.
    `levels` are vertical lines to compare with."""

    title: str
    xlabel: str
    categories: Sequence[str]
    series: Sequence[tuple[str, Numbers, Numbers]]  # label, values, standard deviations
    levels: Sequence[tuple[float, str]] = ()
    xlog: bool = False


@dataclass(frozen=True)
class Heat:
    """A value for every row and column, written into its field; the best one is framed."""

    title: str
    xlabel: str
    ylabel: str
    columns: Sequence[str]
    rows: Sequence[str]
    values: Sequence[Numbers]
    unit: str


Panel = Plot | Dots | Heat


@dataclass(frozen=True)
class Picture:
    """Panels under a title."""

    title: str
    panels: Sequence[Panel]


def dots_of(label: str, runs: Sequence[Runs]) -> tuple[str, Numbers, Numbers]:
    """A series of `Dots`: means and standard deviations over repeats."""
    return label, [one.mean for one in runs], [one.spread for one in runs]
