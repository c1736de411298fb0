"""The paper's own setting, as values of dptune: what its text says, and what its code does.

Both keep rows at their natural length, clip at norm 1 and take one free step along the momentum
buffer. The text draws r from the whole space and spends epsilon 0.1, 0.2 and 0.88; the authors'
code has a smaller space, narrows it from sweep to sweep by hand and spends 0.05, 0.1 and 0.96.
"""

from typing import Any

from dptune.search.paper_line import PaperLine
from dptune.search.space import Space

SAID = "as the paper says"
CODED = "as the authors' code does"

RECIPE: dict[str, Any] = {"clip_norm": 1.0, "momentum": 0.9, "averaging": "none", "free_steps": 1}
LINES = {
    SAID: PaperLine(epsilons=(0.1, 0.2), ranges="full"),
    CODED: PaperLine(epsilons=(0.05, 0.1), ranges="authors"),
}


def space_as_said(rows: int) -> Space:
    """Learning rates 1e-7 to 1e-4 for sums of gradients, so times the rows for means."""
    return Space(learning_rate=(1e-7 * rows, 1e-4 * rows), steps=(1, 100))


def space_as_coded(rows: int) -> Space:
    """Learning rates for means of 50,000 rows, and in proportion for other numbers."""
    return Space(learning_rate=(1e-5 * rows / 50_000, 10**-0.05 * rows / 50_000), steps=(5, 145))


SPACES = {SAID: space_as_said, CODED: space_as_coded}


def natural(source: str) -> str:
    """The source with rows of their natural length."""
    if "unscaled" in source.partition("?")[2]:
        return source
    return f"{source}{'&' if '?' in source else '?'}unscaled"
