"""What a picture shows, without how it is drawn: machines that measure need not draw."""

from collections.abc import Sequence
from dataclasses import dataclass

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
