"""The cells of whole networks, and where their lines lie."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dptune.bench.harness import Report
from reproduction import lines
from reproduction.lines import Figures as Figures


@dataclass(frozen=True)
class Cell:
    """One run or study. `noise` or `learning_rate` is set where no search chooses; `copies` are
    those of a row, `directions` those of a zeroth-order step."""

    verb: str
    pictures: str
    network: str
    method: str
    epsilon: float
    delta: float
    seed: int
    batch: int
    steps: int
    clip_norm: float
    momentum: float
    copies: int = 1
    averaging: str = "none"
    compute: str = "float32"
    directions: int | None = None
    noise: float | None = None
    learning_rate: float | None = None
    limit: int | None = None

    @property
    def by_search(self) -> bool:
        """Whether it is a study, which finds its rate itself."""
        return self.noise is None and self.learning_rate is None


Measure = lines.Measure[Cell]


def read_lines(folder: Path, verb: str) -> dict[Cell, Figures]:
    """All that was measured, whenever that was."""
    return lines.read(_file(folder, verb), Cell)


def measure_missing(
    cells: Sequence[Cell],
    measure: Measure,
    folder: Path,
    *,
    root: str | None,
    device: str,
    workers: int,
    report: Report,
) -> int:
    """Every cell of one verb that is not in the folder yet."""
    if not cells:
        return 0
    return lines.measure_missing(
        cells,
        measure,
        _file(folder, cells[0].verb),
        _words,
        root=root,
        device=device,
        workers=workers,
        report=report,
    )


def _words(cell: Cell, figures: Figures) -> str:
    chosen: Mapping[str, float | None] = {"c": cell.noise, "rate": cell.learning_rate}
    said = [f"{name} {value:.3g}" for name, value in chosen.items() if value is not None]
    words = [cell.pictures, cell.network, cell.method, f"epsilon {cell.epsilon:g}", *said]
    return f"{', '.join([*words, f'seed {cell.seed}'])}: {figures['accuracy']:.2f} %"


def _file(folder: Path, verb: str) -> Path:
    return folder / f"{verb}.jsonl"
