"""What people would use instead, beside dptune's default, on four real tables.

What was measured is kept in `compare/against.json`, so that dptune can be measured again without
the others. These need opacus, diffprivlib and "scikit-learn<1.6" (diffprivlib 0.6.6 cannot be
imported with later ones) in an environment of their own. dptune's noise is fresh in every run, so
its figures move within their spread.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dptune.bench.harness import Report
from experiments.default import rivals
from experiments.default.rivals import DELTA
from experiments.pages import COMPARED, markdown, with_spread, write_below
from experiments.sets import files

TABLES = {"diamonds": "fit", "earnings": "fit", "votes": "seen", "rodents": "seen"}
EPSILONS = (0.3, 1.0, 3.0)
RUNS = 5
GUESS, HINDSIGHT = 1.0, 10.0  # learning rates of Opacus
FIGURES = COMPARED / "against.json"

Split = tuple[Any, Any, Any, Any]
Method = Callable[[Split, float, int], float]


def load(path: Path) -> Split:
    read = files.load(path)
    rows, new = read["X_train"] * read["scale"], read["X_test"] * read["scale"]
    return rows, read["y_train"].astype(np.int64), new, read["y_test"].astype(np.int64)


def share(found: Any, labels: Any) -> float:
    return 100 * float(np.mean(np.asarray(found) == labels))


def opacus(split: Split, epsilon: float, run: int, rate: float) -> float:
    rows, labels, new, answers = split
    return share(rivals.dp_sgd(rows, labels, new, epsilon, run, rate).argmax(1), answers)


def diffprivlib(split: Split, epsilon: float, run: int) -> float:
    rows, labels, new, answers = split
    model = rivals.diffprivlib(rivals.unit(rows), labels, epsilon, run)
    return share(model.predict(rivals.unit(new)), answers)


def no_privacy(split: Split) -> float:
    from sklearn.linear_model import LogisticRegression

    rows, labels, new, answers = split
    return share(LogisticRegression(C=100, max_iter=1000).fit(rows, labels).predict(new), answers)


def dptune(split: Split, epsilon: float, run: int) -> float:
    """The default: whatever `tune` does with a table and a budget."""
    from dptune import Budget, Data, tune

    rows, labels, new, answers = split
    data = Data(rows, labels, classes=range(int(labels.max()) + 1), rows=len(rows))
    return share(tune(data, budget=Budget(epsilon, DELTA), seed=run).model.predict(new), answers)


RIVALS: dict[str, Method] = {
    "diffprivlib": diffprivlib,
    "Opacus": partial(opacus, rate=GUESS),
    "Opacus, hindsight": partial(opacus, rate=HINDSIGHT),
}


def measure(sets: Path, which: str, report: Report) -> None:
    """Dptune is measured anew, of the others what is not there yet."""
    methods = {"dptune": dptune} if which == "dptune" else RIVALS
    known = read_figures()
    for name, method in methods.items():
        for table, role in TABLES.items():
            data, of_table = load(sets / role / f"{table}.npz"), known.setdefault(table, {})
            if "size" not in of_table:
                of_table["size"] = [*data[0].shape, int(data[1].max()) + 1]
                of_table["majority"] = 100 * float(np.bincount(data[3]).max() / len(data[3]))
            if name in RIVALS and "no privacy" not in of_table:
                of_table["no privacy"] = no_privacy(data)
            of_method = of_table.setdefault(name, {})
            for epsilon in EPSILONS:
                if name == "dptune" or str(epsilon) not in of_method:
                    found = [method(data, epsilon, run) for run in range(RUNS)]
                    of_method[str(epsilon)] = found
                    report(f"{table} {name} {epsilon:g}: {np.round(found, 2)}")
                    write_figures(known)


def read_figures() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FIGURES.read_text())
    return found


def write_figures(known: dict[str, Any]) -> None:
    FIGURES.write_text(json.dumps(known, indent=1) + "\n")
    write_below(FIGURES.with_suffix(".md"), text(known))


def text(known: dict[str, Any]) -> str:
    columns = (*RIVALS, "dptune")
    heads = ("table (rows x columns, classes)", "epsilon", "majority", *columns, "no privacy")
    rows = []
    for table, of_table in known.items():
        count, width, classes = of_table["size"]
        what = f"{table}, {TABLES[table]} ({count:,} x {width}, {classes})"
        for epsilon in EPSILONS:
            measured = [of_table.get(name, {}).get(str(epsilon)) for name in columns]
            shown = [with_spread(each, 1) if each else "not measured" for each in measured]
            ends = f"{of_table['majority']:.1f}", f"{of_table['no privacy']:.1f}"
            rows.append([what, f"{epsilon:g}", ends[0], *shown, ends[1]])
    return markdown(heads, rows)
