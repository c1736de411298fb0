"""How the final model does on rows of other origins, as a whole and in its worst group."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dptune.data.rows import Rows
from dptune.study.trained_model import TrainedModel


@dataclass(frozen=True)
class GroupResult:
    """The share of a group's rows that are right."""

    name: str
    accuracy: float
    rows: int


@dataclass(frozen=True)
class ShiftResult:
    """The share of a shift's rows that are right, of all and by group."""

    name: str
    accuracy: float
    rows: int
    groups: tuple[GroupResult, ...] = ()  # none where the rows have none

    @property
    def worst(self) -> GroupResult | None:
        """The group with the lowest accuracy, the first of equals."""
        return min(self.groups, key=lambda group: group.accuracy, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        worst = self.worst
        groups = [asdict(group) for group in self.groups]
        return {**asdict(self), "worst_group": worst and asdict(worst), "groups": groups}


def on_shift(name: str, model: TrainedModel, by_group: Mapping[str, Rows]) -> ShiftResult:
    """From its rows by group, or all of them under ""."""
    right = {
        group: model.engine.evaluate_many([model.model], rows)[0].correct
        for group, rows in by_group.items()
    }
    count = sum(rows.count for rows in by_group.values())
    groups = tuple(
        GroupResult(group, right[group] / rows.count, rows.count)
        for group, rows in by_group.items()
        if group
    )
    return ShiftResult(name, sum(right.values()) / count, count, groups)
