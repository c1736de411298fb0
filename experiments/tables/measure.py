"""A cell by what anybody can call: `tune` with columns, or on numbers that were made by hand."""

import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import dptune
from dptune.bench.harness import run_oracle
from dptune.bench.tasks import load_task
from dptune.errors import InvalidInput
from experiments.tables import by_hand, no_privacy
from experiments.tables.cells import (
    BY_HAND,
    CATEGORIES_PAID,
    ORACLE,
    PLAIN,
    RANGES_PAID,
    Cell,
    Figures,
)
from experiments.tables.sets import Table, table_of

_ORACLE_RUNS = 10


def measure(cell: Cell, root: str | None, device: str) -> Figures:
    """The accuracy on test rows, in percent, and what else there is to say."""
    table = table_of(cell.table)
    if root is None or not table.train(root).exists():
        raise InvalidInput(
            f"{root or 'the folder'} holds no {cell.table}: make it with python -m experiments "
            "tables prepare --out FOLDER, and name that folder by --root."
        )
    if cell.epsilon is None or cell.verb == PLAIN:
        accuracy, majority = no_privacy.accuracies(table, root)
        return {"accuracy": accuracy, "majority": majority}
    budget = dptune.Budget(cell.epsilon, cell.delta)
    if cell.verb not in (BY_HAND, ORACLE):
        data = dptune.load_data(
            str(table.train(root)),
            label=table.label,
            test=str(table.test(root)),
            columns=_columns(table, cell.verb),
        )
        return _studied(data, budget, cell.seed, device)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{table.name}.npz"
        by_hand.write_features(table, root, file)
        if cell.verb == ORACLE:
            return _oracle(str(file), budget, device)
        return _studied(dptune.load_data(str(file), test=str(file)), budget, cell.seed, device)


def _studied(data: dptune.Data, budget: dptune.Budget, seed: int, device: str) -> Figures:
    began = perf_counter()
    result = dptune.tune(data, budget=budget, seed=seed, device=device)
    assert result.test_accuracy is not None
    return {
        "accuracy": 100 * result.test_accuracy,
        "spent_epsilon": result.guarantee.epsilon,
        "columns": data.columns,
        "notes": list(result.notes),
        "seconds": perf_counter() - began,
    }


def _oracle(file: str, budget: dptune.Budget, device: str) -> Figures:
    """The best setting of a grid by its test accuracy, for which nobody paid, run again."""
    best = run_oracle(load_task(file, device=device), budget, _ORACLE_RUNS, lambda _: None)
    return {
        "accuracy": best.mean,
        "accuracies": list(best.accuracies),
        "setting": best.note,
        "seconds": best.seconds,
    }


def _columns(table: Table, way: str) -> dict[str, Any]:
    """As declared, or with facts that are bought instead. Labels stay declared."""
    return {
        name: column if name == table.label else _changed(column, way)
        for name, column in table.columns().items()
    }


def _changed(column: dict[str, Any], way: str) -> dict[str, Any]:
    if way == RANGES_PAID and column["kind"] == "number":
        return column | {"range": "paid"}
    if way == CATEGORIES_PAID and column["kind"] == "category":
        return {"kind": "category", "values": "paid"}
    return column
