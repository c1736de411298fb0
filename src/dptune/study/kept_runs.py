"""The runs of one study that are kept on disk while they go on: where, and whose they are."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from dptune.engines.checkpoint import Checkpoint
from dptune.errors import FolderProblem
from dptune.plan import TrainPlan


@dataclass(frozen=True)
class KeptRuns:
    """Checkpoints in `folder`, each for one run of one plan of `study` and for no other."""

    folder: Path
    study: str

    def trial(self, number: int, plan: TrainPlan) -> Checkpoint:
        return self._of(self.trial_file(number), f"trial {number}", plan, ())

    def segment(self, number: int, plan: TrainPlan, done: Sequence[int]) -> Checkpoint:
        """Of the final run, going on from the model of the segments that are `done`."""
        return self._of(self.segment_file(number), f"segment {number} of the final run", plan, done)

    def trial_file(self, number: int) -> Path:
        return self.folder / "models" / f"trial-{number}.checkpoint"

    def segment_file(self, number: int) -> Path:
        return self.folder / "models" / f"final-{number}.checkpoint"

    def died(self, keep: Checkpoint, plan: TrainPlan) -> FolderProblem:
        """What to say where the process of a run is gone and its checkpoint is not."""
        return FolderProblem(
            f"the process that was at {keep.tag} died; {keep.steps() or 0} of {plan.steps} steps "
            f"are kept. Go on with: dptune resume {self.folder}. If it dies there every time, "
            f"remove {keep.path}: the run is then lost, though paid for."
        )

    def _of(self, path: Path, run: str, plan: TrainPlan, done: Sequence[int]) -> Checkpoint:
        fields = {name: value for name, value in asdict(plan).items() if value is not None}
        whole = json.dumps([self.study, run, fields, list(done)], sort_keys=True)
        mark = hashlib.sha256(whole.encode()).hexdigest()[:32]
        return Checkpoint(path, f"{run} of study {self.study} (plan {mark})")
