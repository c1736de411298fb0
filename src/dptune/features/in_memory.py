"""Compute features of a few pictures or texts in memory, for predictions and comparisons."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dptune.errors import InvalidInput
from dptune.features.extraction import Progress, Watch
from dptune.features.network import Networks
from dptune.pictures.pictures import Pictures, Remark


@dataclass(frozen=True, eq=False, repr=False)  # no repr: it would print rows
class Features:
    """The rows of the pictures that could be read, whose numbers are `kept`."""

    rows: NDArray[np.float32]
    kept: list[int]
    remarks: list[Remark]


def features_of(
    pictures: Pictures,
    networks: Networks,
    numbers: Sequence[int] | None = None,
    *,
    part: str | None = None,
    watch: Watch | None = None,
) -> Features:
    """Compute features of all pictures, or of those with the `numbers`."""
    part = part or networks.things
    chosen = range(len(pictures)) if numbers is None else numbers
    spans = [chosen[at : at + networks.batch] for at in range(0, len(chosen), networks.batch)]
    blocks: list[NDArray[np.float32]] = []
    kept: list[int] = []
    remarks = list(pictures.remarks)
    done = 0
    for batch in networks.batches(pictures, spans):
        if batch.kept:
            blocks.append(networks.features(batch).cpu().numpy())
        kept += batch.kept
        remarks += batch.remarks
        done += len(batch.digests)
        if watch is not None:
            watch(Progress(part, done, 0, len(chosen), networks.things))
    if not blocks:
        first = f" The first, {remarks[0].picture}: {remarks[0].what}." if remarks else ""
        raise InvalidInput(f"none of the {part} can be read.{first}")
    return Features(np.concatenate(blocks), kept, remarks)
