"""Pictures and backbones to cells: features are made once, then every budget is studied.

features/SET-BACKBONE   features; those that are there are not made again
vision.jsonl            what was measured; what is there is not measured again
rerr/SET-BACKBONE       random search, the rule and the oracle, as `dptune bench compare` has them
vision.md, vision.png   all of it, beside the paper's figures
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dptune import validate
from dptune.accounting import Budget
from dptune.bench.compare import compare
from dptune.bench.harness import Report
from dptune.bench.outcome import ORACLE
from dptune.data.extracted import Extracted, holds_features
from dptune.data.rows import find_device
from dptune.errors import InvalidInput
from dptune.features.extraction import Watch, write_features
from dptune.features.from_pictures import find_networks, gather, place_of
from dptune.features.network import Networks, short_name
from dptune.pictures.find import find_pictures
from dptune.pictures.shifts import some
from dptune.search.linear_scaling import LinearScaling
from dptune.search.random_search import RandomSearch
from experiments import lines
from experiments.vision.cells import DELTA, VERB, Cell, folder_of, measure, said

USUAL_SHIFTS = {"cifar10": ("cifar10-c",), "cifar100": ("cifar100-c",)}
SIDE_BY_SIDE = "+"
COMPARED = (RandomSearch.name, LinearScaling.name, ORACLE)
_RERR_EPSILON = 1.0


@dataclass(frozen=True)
class Wanted:
    """What to measure: every set with every backbone at every budget and without privacy."""

    sets: Sequence[str]
    backbones: Sequence[str]  # each may be several, side by side
    out: Path
    kind: str = "pooled"
    size: int | None = None
    root: str | None = None
    epsilons: Sequence[float] = (0.1, 0.5, 1.0)
    repeats: int = 5
    shifts: Mapping[str, Sequence[str]] = field(default_factory=lambda: USUAL_SHIFTS)
    limit: int | None = None
    device: str = "cpu"
    workers: int = 1  # processes that study at the same time
    rerr: bool = False

    def __post_init__(self) -> None:
        find_device(self.device)
        validate.whole(1, repeats=self.repeats)
        validate.whole(1, workers=self.workers)
        if self.limit is not None:
            validate.whole(1, limit=self.limit)
        for epsilon in self.epsilons:
            Budget(epsilon, DELTA)
        for name in self.sets:  # what is not there is refused before anything is measured
            if "test" not in find_pictures(name, self.root).parts:
                raise InvalidInput(f"{name} has no test pictures, so no accuracy can be reported.")
        unknown = sorted(set(self.shifts) - set(self.sets) - set(USUAL_SHIFTS))
        if unknown:
            raise InvalidInput(
                f"--shift is about {', '.join(unknown)}, which --sets does not name; it names "
                f"{', '.join(self.sets)}."
            )

    def shifts_of(self, name: str) -> tuple[str, ...]:
        return tuple(self.shifts.get(name, ()))


def called(backbone: str) -> str:
    names = (short_name(each) for each in backbone.split(SIDE_BY_SIDE))
    return SIDE_BY_SIDE.join(name.removesuffix(".safetensors") for name in names)


def measure_rows(wanted: Wanted, report: Report, watch: Watch | None = None) -> int:
    """Measure what is not in the folder yet; how many cells that were."""
    measured = 0
    for backbone in wanted.backbones:
        networks = find_networks(
            backbone.split(SIDE_BY_SIDE),
            features=wanted.kind,
            size=wanted.size,
            device=wanted.device,
        )
        cells = {name: _cells(wanted, name, backbone, networks) for name in wanted.sets}
        there = lines.read(wanted.out, VERB, Cell)
        for name, several in cells.items():
            if wanted.rerr or not there.keys() >= {*several}:
                report(f"{Path(name).stem}, {called(backbone)}: features")
                _extract(wanted, name, folder_of(several[0], wanted.out), networks, watch)
        # The longest first: a cell with a shift or many rows would else be waited for alone.
        every = [cell for several in cells.values() for cell in several]
        measured += lines.measure_missing(
            sorted(every, key=lambda cell: (not cell.shifts, cell.epsilon is None)),
            measure,
            wanted.out,
            said,
            root=str(wanted.out),
            device=wanted.device,
            workers=wanted.workers,
            report=report,
        )
        for several in cells.values() if wanted.rerr else ():
            _compare(wanted, folder_of(several[0], wanted.out), report)
    return measured


def _cells(wanted: Wanted, name: str, backbone: str, networks: Networks) -> list[Cell]:
    # Where the files lie is no part of what they are.
    facts = {**networks.made_by, "backbones": [
        {**each, "name": short_name(each["name"])} for each in networks.made_by["backbones"]
    ]}  # fmt: skip
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return [
        Cell(
            pictures=Path(name).stem,
            backbone=called(backbone),
            kind=wanted.kind,
            size=wanted.size,
            limit=wanted.limit,
            made_by=digest,
            shifts=wanted.shifts_of(name),
            epsilon=epsilon,
            repeats=1 if epsilon is None else wanted.repeats,
        )
        for epsilon in (*wanted.epsilons, None)
    ]


def _extract(
    wanted: Wanted, name: str, folder: Path, networks: Networks, watch: Watch | None
) -> None:
    """What `dptune extract` does, on some of the pictures where there is a limit. A folder that has
    all parts is not compared with the pictures again: sets with names do not change."""
    parts = gather(name, test=name, shifts=wanted.shifts_of(name), root=wanted.root)
    if holds_features(folder):
        inside = Extracted.read(folder)
        if set(parts) <= set(inside.parts) and inside.made_by == networks.made_by:
            return
    if wanted.limit is not None:
        parts = {part: some(pictures, wanted.limit) for part, pictures in parts.items()}
    write_features(parts, networks, folder, source=place_of(name), watch=watch)


def _compare(wanted: Wanted, folder: Path, report: Report) -> None:
    compare(
        [str(folder)],
        COMPARED,
        [_RERR_EPSILON],
        delta=DELTA,
        repeats=max(2, wanted.repeats),
        out=wanted.out / "rerr" / folder.name,
        device=wanted.device,
        report=report,
        workers=min(wanted.workers, len(COMPARED)),
    )
