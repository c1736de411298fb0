"""Watching the engine: what it really trained and evaluated, whatever is said about it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from dptune.engines.linear import LinearEngine
from dptune.plan import TrainPlan


@dataclass
class Spied:
    """What the engine really did with private rows."""

    runs: list[tuple[TrainPlan, Any]] = field(default_factory=list)  # with the rows
    evaluations: list[tuple[Any, Any]] = field(default_factory=list)  # rows, weights by class
    exact: list[Any] = field(default_factory=list)


def spy_on_engine(monkeypatch: pytest.MonkeyPatch) -> Spied:
    """Note from now on what the linear engine does."""
    spied = Spied()
    fit_many, evaluate_many = LinearEngine.fit_many, LinearEngine.evaluate_many

    def fit(
        self: LinearEngine, plans: Sequence[TrainPlan], rows: Any, *args: Any, **more: Any
    ) -> Any:
        if rows.count > 3:  # not the rehearsal
            spied.runs += [(plan, rows) for plan in plans]
        return fit_many(self, plans, rows, *args, **more)

    def evaluate(self: LinearEngine, models: Any, rows: Any, **more: Any) -> Any:
        found = evaluate_many(self, models, rows, **more)
        if rows.count > 3:
            spied.evaluations.append((rows, more.get("row_weights")))
            spied.exact += found
        return found

    monkeypatch.setattr(LinearEngine, "fit_many", fit)
    monkeypatch.setattr(LinearEngine, "evaluate_many", evaluate)
    return spied
