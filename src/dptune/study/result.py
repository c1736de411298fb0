"""What a study gives."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dptune.accounting import Guarantee
from dptune.accounting.split import Slot
from dptune.rounding import cost, probability
from dptune.search.base import Census
from dptune.search.trial import Trial
from dptune.study.check import ErrorCheck, FinalCheck
from dptune.study.figures import R2
from dptune.study.shifted import ShiftResult
from dptune.study.trained_model import TrainedModel


@dataclass(frozen=True, kw_only=True, repr=False)
class StudyResult:
    """A model, its guarantee, and every trial that may be shown."""

    model: TrainedModel
    trials: tuple[Trial, ...]
    final: Trial
    census: Census | None
    dataset: str
    rows: int
    test_accuracy: float | None
    test_rows: int
    check: FinalCheck | ErrorCheck | None
    notes: tuple[str, ...]
    folder: Path | None
    set_aside: float = 0.0  # how much of delta its ledger keeps for failures
    test_figures: Mapping[str, float] = field(default_factory=dict)  # of texts and values
    shifts: tuple[ShiftResult, ...] = ()  # how it does on rows of other origins
    slots: tuple[Slot, ...] = ()  # how the budget was split
    preparation: tuple[str, ...] = ()  # which steps were worth their price, a sentence each

    def __repr__(self) -> str:
        epsilon, delta = cost(self.guarantee.epsilon), probability(self.guarantee.delta)
        promise = f"epsilon {epsilon} at delta {delta}"
        right = "" if self.test_accuracy is None else f", test accuracy {self.test_accuracy:.4f}"
        if R2 in self.test_figures:
            right = f", test R^2 {self.test_figures[R2]:.4f}"
        return f"StudyResult({self.dataset!r}, {promise}{right})"

    @property
    def guarantee(self) -> Guarantee:
        return self.model.guarantee

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        plan = self.final.plan
        return {
            "test_accuracy": self.test_accuracy,
            "test_rows": self.test_rows,
            "test_figures": {
                name: value
                for name, value in self.test_figures.items()
                if math.isfinite(value)  # JSON has no infinity
            },
            "shifts": [shift.to_dict() for shift in self.shifts],
            "check": self.check and self.check.to_dict(),
            "total_step_size": plan.total_step_size,
            "learning_rate": plan.learning_rate,
            "steps": plan.steps,
            "noise_multiplier": plan.noise_multiplier,
            "weight_noise": plan.weight_noise,
            "out": None if self.folder is None else str(self.folder),
            "data": {
                "name": self.dataset,
                "rows": self.rows,
                "columns": self.model.columns,
                "classes": len(self.model.classes),
                "made_by": self.model.made_by and self.model.made_by["name"],
            },
            "trials": [trial.to_dict() for trial in self.trials],
            "final": self.final.to_dict(),
            "notes": list(self.notes),
            "set_aside": self.set_aside,
            "preparation": list(self.preparation),
            "trains": self.model.trains,
            "paid_for": [asdict(slot) for slot in self.slots],
            "guarantee": self.guarantee.to_dict(),
        }
