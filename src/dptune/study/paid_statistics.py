"""Statistics that prepare rows: where a run folder keeps them, and how they are read again."""

from typing import Any

import numpy as np
import torch

from dptune.preparation.pipeline import Plan
from dptune.preparation.step import State, Step
from dptune.study.run_folder import RunFolder

_COLUMNS = "columns"  # in files of JSON


def write_statistic(folder: RunFolder, step: Step, statistic: Any) -> None:
    """Put what was measured into its file."""
    if isinstance(statistic, np.ndarray):
        folder.write_tensors(step.file, {step.stem: torch.from_numpy(statistic)})
    else:
        folder.write_json(step.file, {_COLUMNS: dict(statistic)})


def read_statistic(folder: RunFolder, plan: Plan, step: Step, state: State) -> Any:
    """What is in its file; None where there is none yet. A file that cannot hold the statistic of
    this step is refused as damaged."""
    is_json = step.file.endswith(".json")
    stored: Any = folder.read_json(step.file) if is_json else folder.read_tensors(step.file)
    if stored is None:
        return None
    decision = plan[step.name]
    with folder.undamaged(step.file):
        if is_json:
            columns = stored.get(_COLUMNS)
            # Versions before 0.2 wrote names of columns, each with a list.
            stored = columns if isinstance(columns, dict) else stored
        else:
            stored = stored[0][step.stem].numpy()
        statistic = step.read(plan.case, decision, state, stored)
        step.apply(plan.case, decision, statistic, state)  # refuses what cannot be
    return statistic
