"""One table or figure of the linear scaling paper (Panda, Tang, Mahloujifar, Sehwag, Mittal, ICML
2024, arXiv 2212.04486), and how it is measured here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dptune.bench.tables import Table
from reproduction.charts import Picture
from reproduction.lab import Lab

UNKNOWN = "not known to us"


@dataclass(frozen=True)
class Result:
    """What was measured: a table to read, every single figure in `details` where the table is a
    summary, and a picture where there is something to see."""

    table: Table
    picture: Picture | None = None
    details: Table | None = None
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Experiment:
    """`paper` is what the paper says, `setting` where ours differs; `everywhere` if it takes all
    sources, not only the first."""

    name: str
    title: str
    paper: str
    setting: str
    measure: Callable[[Lab], Result]
    everywhere: bool = False

    def data(self, lab: Lab) -> list[str]:
        """The names of the tasks it is measured on."""
        taken = lab.sources if self.everywhere else (lab.source,)
        return [lab.task(source).name for source in taken]
