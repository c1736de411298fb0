"""The page that lists all sets, with what scikit-learn reaches on them without privacy."""

from pathlib import Path

import numpy as np

from dptune.bench.harness import Report
from experiments.pages import BENCHMARKS, markdown, write_below
from experiments.sets.files import load
from experiments.sets.public import ROLES, public_sets


def write_page(out: Path, report: Report) -> None:
    heads = ("set", "source", "task", "rows", "columns", "classes", "majority", "C = 1", "C = 100")
    text = ""
    for role in ROLES:
        rows = []
        for name, each in public_sets().items():
            if each.role == role:
                report(name)
                rows.append([name, each.source, each.task, *_figures(out / each.file)])
        text += f"## {role}\n\n{markdown(heads, rows)}\n"
    declared = [(name, each.declared()) for name, each in public_sets().items()]
    text += "## What was declared\n\n" + markdown(("set", "ranges and categories"), declared)
    write_below(BENCHMARKS / "SETS.md", text)


def _figures(path: Path) -> list[str]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    read = load(path)
    rows, test = (read[part] * read["scale"] for part in ("X_train", "X_test"))
    labels = read["y_train"]
    if (read["scale"] == 1).all():  # as they come
        standard = StandardScaler().fit(rows)
        rows, test = standard.transform(rows), standard.transform(test)
    counts = np.bincount(read["y_test"])
    models = [LogisticRegression(C=each, max_iter=1000).fit(rows, labels) for each in (1, 100)]
    right = [model.score(test, read["y_test"]) for model in models]
    size = [f"{len(rows):,} + {len(test):,}", f"{rows.shape[1]}", f"{labels.max() + 1}"]
    return [*size, *(f"{100 * each:.1f}" for each in (counts.max() / counts.sum(), *right))]
