"""One table or figure of the linear scaling paper (Panda, Tang, Mahloujifar, Sehwag, Mittal, ICML
2024, arXiv 2212.04486), and how it is measured here."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dptune.bench.tables import Table
from experiments.charts import Picture
from experiments.paper.lab import Lab

NOT_PRINTED = "not printed"
WITHOUT_PRIVACY = "infinity"  # as an epsilon: JSON has no number for it


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
    """`paper` is what the paper says, `setting` where ours differs. `measure` is handed the sources
    it is about: all of them if `everywhere`, else the first of the data set that it `prefers`, or
    the first."""

    name: str
    title: str
    paper: str
    setting: str
    measure: Callable[[Lab], Result]
    everywhere: bool = False
    prefers: str = ""

    def lab(self, lab: Lab) -> Lab:
        """The same lab with the sources of this experiment."""
        if self.everywhere:
            return lab
        preferred = [source for source in lab.sources if data_set(source) == self.prefers]
        return lab.only((*preferred, *lab.sources)[0])

    def data(self, lab: Lab) -> list[str]:
        """The names of the tasks it is measured on."""
        return [lab.task(source).name for source in self.lab(lab).sources]


def declared(measures: Mapping[str, Callable[[Lab], Result]]) -> dict[str, Experiment]:
    """How each is measured, with what experiments.toml says of it."""
    plain = tomllib.loads((Path(__file__).parent / "experiments.toml").read_text())
    ablation = plain.pop("ablation")
    for facts in plain.values():
        facts["setting"] = facts["setting"].replace("{ablation}", ablation)
    return {name: Experiment(name, measure=measures[name], **plain[name]) for name in measures}


def data_set(source: str) -> str:
    """The data set that a source's name says it is."""
    name = source.lower().rpartition("/")[2]
    if source.partition("?")[0] == "demo" or "cifar10_" in name:
        return "CIFAR-10"
    return "CIFAR-100" if "cifar100" in name else name
