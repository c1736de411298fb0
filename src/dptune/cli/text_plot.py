"""A few lines of characters, for a glance at scores over r in a terminal."""

import math
from collections.abc import Sequence

from dptune.report.words import readable

_WIDTH, _HEIGHT = 60, 8


def text_plot(
    curve: Sequence[tuple[float, float]], points: Sequence[tuple[float, float, str]]
) -> str:
    """Points as (r, score, mark) and a curve as (r, score), r on a logarithmic axis.

    >>> text_plot([], [(1.0, 0.0, "1"), (100.0, 2.0, "2")]).splitlines()[-1].split()
    ['r', '1', 'r', '100']
    """
    everything = [*curve, *((r, score) for r, score, _ in points)]
    logs, scores = [math.log(r) for r, _ in everything], [score for _, score in everything]
    grid = [[" "] * _WIDTH for _ in range(_HEIGHT)]
    marks = [*["·"] * len(curve), *(mark for _, _, mark in points)]
    for log_r, score, mark in zip(logs, scores, marks, strict=True):
        across = round(_share(log_r, min(logs), max(logs)) * (_WIDTH - 1))
        down = round(_share(score, max(scores), min(scores)) * (_HEIGHT - 1))
        grid[down][across] = mark
    sides = [points_of(max(scores)), *[""] * (_HEIGHT - 2), points_of(min(scores))]
    margin = max(map(len, sides))
    lines = [f"{side:>{margin}} │{''.join(row)}" for side, row in zip(sides, grid, strict=True)]
    first, last = (f"r {readable(math.exp(end))}" for end in (min(logs), max(logs)))
    lines.append(f"{'':>{margin}} └{'─' * _WIDTH}")
    lines.append(f"{'':>{margin}}  {first}{last:>{_WIDTH - len(first)}}")
    return "\n".join(lines)


def points_of(score: float) -> str:
    """A score in points, which is about differences."""
    return f"{score:+.2f}"


def _share(value: float, start: float, end: float) -> float:
    return 0.5 if start == end else (value - start) / (end - start)
