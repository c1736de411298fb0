"""Pages of figures, and how figures are written in them."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Protocol, TypeVar

from dptune.bench.harness import Report
from dptune.bench.store import write
from experiments.charts import Picture

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
COMPARED = BENCHMARKS / "compare"
_BEGIN = "<!-- What follows is written by the command; the words above are not. -->\n\n"


def write_below(page: Path, text: str) -> None:
    """The words at the top of a page stay, and these figures take the place of those below."""
    words, mark, _ = page.read_text().partition(_BEGIN)
    write(page, words + (mark or _BEGIN) + text)


def draw(picture: Picture | None, file: Path, report: Report) -> bool:
    """Whether there is a picture now; an older one may show what was measured otherwise."""
    file.unlink(missing_ok=True)
    if picture is None:
        return False
    try:
        from experiments import figures
    except ImportError:
        report(f"{file.name} was not drawn: matplotlib is missing; run this again where it is")
        return False
    write(file, figures.png(picture))
    return True


def markdown(heads: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of texts; two of its columns may be called the same."""
    lines = [tuple(heads)]
    lines += [("---",) * len(lines[0]), *map(tuple, rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


class AtBudget(Protocol):
    """Whatever was measured at one budget."""

    @property
    def epsilon(self) -> float: ...


Measured = TypeVar("Measured", bound=AtBudget)


def by_budget(every: Iterable[Measured]) -> dict[float, list[Measured]]:
    """In order of budgets."""
    found: dict[float, list[Measured]] = {}
    for one in every:
        found.setdefault(one.epsilon, []).append(one)
    return dict(sorted(found.items()))


def json_list(rows: Iterable[str]) -> str:
    """A list with one row a line, so that a change is a line of a diff."""
    return "[\n" + ",\n".join(rows) + "\n]\n"


def with_spread(values: Sequence[float], digits: int = 2) -> str:
    """The mean and the standard deviation, where there are several."""
    spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{fmean(values):.{digits}f}{spread}"


def ends(values: Sequence[float], digits: int) -> str:
    """From the least to the greatest, or the one value that both are written as."""
    return " to ".join(dict.fromkeys(f"{end:.{digits}g}" for end in (min(values), max(values))))
