"""What people would use instead, beside dptune's default, on four real tables.

    python benchmarks/against.py rivals SETS     # Opacus, diffprivlib, scikit-learn
    python benchmarks/against.py dptune SETS     # dptune.tune with nothing but a budget

`SETS` is a folder that `make_sets.py build` wrote. Each command measures its columns, keeps them in
`compare/against.json` and writes `compare/against.md`, so that dptune can be measured again without
the others: the first measures only what that file does not hold yet. It needs opacus, diffprivlib
and "scikit-learn<1.6" (diffprivlib 0.6.6 cannot be imported with later ones) in an environment of
their own, the second dptune alone. dptune's noise is fresh in every run, so its figures move within
their spread.
"""

import argparse
import json
import math
import sys
import warnings
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

TABLES = {"diamonds": "fit", "earnings": "fit", "votes": "seen", "rodents": "seen"}
EPSILONS = (0.3, 1.0, 3.0)
DELTA = 1e-5
RUNS = 5
CLIP, BATCH, EPOCHS = 1.0, 512, 20
GUESS, HINDSIGHT = 1.0, 10.0  # learning rates of Opacus
FOLDER = Path(__file__).parent / "compare"

Split = tuple[Any, Any, Any, Any]
Method = Callable[[Split, float, int], float]


def load(path: Path) -> Split:
    with np.load(path) as arrays:
        read = {name: arrays[name] for name in arrays}
    rows, new = read["X_train"] * read["scale"], read["X_test"] * read["scale"]
    return rows, read["y_train"].astype(np.int64), new, read["y_test"].astype(np.int64)


def share(found: Any, labels: Any) -> float:
    return 100 * float(np.mean(np.asarray(found) == labels))


def opacus(split: Split, epsilon: float, run: int, rate: float) -> float:
    """DP-SGD of a logistic regression on the table as it is."""
    import torch
    from opacus import PrivacyEngine
    from torch.nn.functional import cross_entropy

    rows, labels, new, answers = split
    torch.manual_seed(run)
    model = torch.nn.Linear(rows.shape[1], int(labels.max()) + 1)
    model, optimizer, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=rate),
        data_loader=torch.utils.data.DataLoader(
            _together(torch.from_numpy(rows), torch.from_numpy(labels)),
            batch_size=BATCH,
            collate_fn=tuple,
        ),
        noise_multiplier=_noise(len(rows), epsilon),
        max_grad_norm=CLIP,
    )
    for _ in range(EPOCHS):
        for some, theirs in loader:
            optimizer.zero_grad()
            cross_entropy(model(some), theirs).backward()
            optimizer.step()
    with torch.no_grad():
        found = (torch.from_numpy(new) @ model._module.weight.T + model._module.bias).argmax(1)
    return share(found, answers)


@cache
def _noise(rows: int, epsilon: float) -> float:
    """As `make_private_with_epsilon` finds it, once for all runs."""
    from opacus.accountants.utils import get_noise_multiplier

    batches = math.ceil(rows / BATCH)
    return get_noise_multiplier(
        target_epsilon=epsilon, target_delta=DELTA, sample_rate=1 / batches, epochs=EPOCHS
    )


def _together(rows: Any, labels: Any) -> Any:
    """A data set that hands out a batch at once; row by row, loading takes most of the time."""
    import torch

    class Rows(torch.utils.data.TensorDataset):
        def __getitems__(self, numbers: list[int]) -> tuple[Any, ...]:
            return self[torch.tensor(numbers)]

    return Rows(rows, labels)


def diffprivlib(split: Split, epsilon: float, run: int) -> float:
    """Its logistic regression as it comes. It must know the longest row: rows of unit length."""
    from diffprivlib.models import LogisticRegression

    rows, labels, new, answers = split
    unit, new = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (rows, new))
    model = LogisticRegression(epsilon=epsilon, data_norm=1.0, random_state=run, max_iter=1000)
    # A row of unit length can be longer than 1 by a rounding error, and is then clipped.
    return share(model.fit(unit, labels).predict(new), answers)


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


def measure(sets: Path, methods: dict[str, Method], again: bool) -> None:
    known = read_figures()
    for name, method in methods.items():
        for table, role in TABLES.items():
            split, of_table = load(sets / role / f"{table}.npz"), known.setdefault(table, {})
            if "size" not in of_table:
                of_table["size"] = [*split[0].shape, int(split[1].max()) + 1]
                of_table["majority"] = 100 * float(np.bincount(split[3]).max() / len(split[3]))
            if name in RIVALS and "no privacy" not in of_table:
                of_table["no privacy"] = no_privacy(split)
            figures = of_table.setdefault(name, {})
            for epsilon in EPSILONS:
                if again or str(epsilon) not in figures:
                    found = [method(split, epsilon, run) for run in range(RUNS)]
                    figures[str(epsilon)] = found
                    print(table, name, epsilon, np.round(found, 2), file=sys.stderr, flush=True)
                    write_figures(known)
    write_figures(known)  # the page's words may be newer than its figures


def write_figures(known: dict[str, Any]) -> None:
    FOLDER.joinpath("against.json").write_text(json.dumps(known, indent=1) + "\n")
    FOLDER.joinpath("against.md").write_text(page(known))


def read_figures() -> dict[str, Any]:
    path = FOLDER / "against.json"
    return json.loads(path.read_text()) if path.exists() else {}


INTRODUCTION = f"""# Against what people would use instead

Test accuracy in percent, mean ± standard deviation of {RUNS} runs, delta {DELTA:g}; written by
`benchmarks/against.py` from `against.json`. The tables are those of [SETS.md](../SETS.md), columns
mapped to [-1, 1] by declared ranges. **fit**: constants of dptune's recipe were chosen on it, among
others; **seen**: out of every choice until it was measured.

- **majority**: always the most frequent class.
- **diffprivlib**: `LogisticRegression(epsilon, data_norm=1)` on rows of unit length. Its promise is
  pure epsilon (delta 0), which is stronger and costs more noise; with more than two classes it
  trains one model a class and splits epsilon among them.
- **Opacus**: DP-SGD of a logistic regression, one guess and nothing tuned: learning rate
  {GUESS:g}, clipping norm {CLIP:g}, batches of {BATCH}, {EPOCHS} epochs.
- **Opacus, hindsight**: the same with learning rate {HINDSIGHT:g}, the best and largest of 0.3, 1,
  3 and 10, one run each on diamonds at epsilon 1; nobody paid for finding it.
- **dptune**: `tune(data, budget=Budget(epsilon, {DELTA:g}))`, everything paid, the search too.
- **no privacy**: scikit-learn's `LogisticRegression(C=100)`.

"""
COLUMNS = (*RIVALS, "dptune")


def page(known: dict[str, Any]) -> str:
    heads = ("table (rows x columns, classes)", "epsilon", "majority", *COLUMNS, "no privacy")
    lines = [_line(heads), _line(["---"] * len(heads))]
    for table, of_table in known.items():
        rows, columns, classes = of_table["size"]
        for epsilon in EPSILONS:
            figures = [_figure(of_table.get(name, {}).get(str(epsilon))) for name in COLUMNS]
            what = f"{table}, {TABLES[table]} ({rows:,} x {columns}, {classes})"
            majority, best = f"{of_table['majority']:.1f}", f"{of_table['no privacy']:.1f}"
            lines.append(_line([what, f"{epsilon:g}", majority, *figures, best]))
    return INTRODUCTION + "".join(lines)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _figure(found: list[float] | None) -> str:
    return f"{np.mean(found):.1f} ± {np.std(found, ddof=1):.1f}" if found else "not measured"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("columns", choices=("rivals", "dptune"))
    parser.add_argument("sets", type=Path, help="folder that make_sets.py wrote")
    asked = parser.parse_args()
    if asked.columns == "dptune":
        measure(asked.sets, {"dptune": dptune}, again=True)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the rivals: hooks, versions, secure noise
        measure(asked.sets, RIVALS, again=False)


if __name__ == "__main__":
    main()
