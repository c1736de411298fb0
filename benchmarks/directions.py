"""Whole studies of features in their principal directions: the default, and the same with
`range_share = 0`, which looks for no sizes.

    PYTHONPATH=. python benchmarks/directions.py DEVICE REPEATS OUT FILE ...

`FILE` is a set that `make_sets.py build` wrote. OUT gets one JSON line a cell; what is there is not
measured again. The table is printed at the end.
"""

import json
import math
import sys
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

EPSILONS, PROCESSES = (0.1, 0.3, 1.0), 12


def measured(cell: tuple[str, str, int, float]) -> dict[str, Any]:
    import torch

    from dptune.accounting import Budget
    from dptune.bench.harness import run_method
    from dptune.bench.tasks import load_task
    from dptune.search import LinearScaling

    file, device, repeats, epsilon = cell
    torch.set_num_threads(1)
    task, budget = load_task(file, device=device), Budget(epsilon, 1e-5)
    plain = replace(task, preparation=replace(task.preparation, range_share=0.0))
    found = {
        name: run_method(each, LinearScaling(), budget, repeats, lambda _: None).accuracies
        for name, each in (("default", task), ("without", plain))
    }
    return {"set": Path(file).stem, "epsilon": epsilon, **found}


def line(cell: dict[str, Any]) -> str:
    ways = [cell[name] for name in ("default", "without")]
    shown = [f"{fmean(each):.2f}" for each in ways]
    error = math.sqrt(sum(stdev(each) ** 2 / len(each) for each in ways))
    gain = f"{fmean(ways[0]) - fmean(ways[1]):+.2f} ± {error:.2f}"
    return f"| {cell['set']} | {cell['epsilon']:g} | {' | '.join(shown)} | {gain} |"


def main() -> None:
    device, repeats, out, *files = sys.argv[1:]
    path = Path(out)
    lines = path.read_text().splitlines() if path.exists() else []
    cells = [json.loads(each) for each in lines]
    known = {(cell["set"], cell["epsilon"]) for cell in cells}
    asked = [
        (file, device, int(repeats), epsilon)
        for file in files
        for epsilon in EPSILONS
        if (Path(file).stem, epsilon) not in known
    ]
    with get_context("spawn").Pool(PROCESSES) as pool, path.open("a") as kept:
        for cell in pool.imap_unordered(measured, asked):
            print(json.dumps(cell), file=kept, flush=True)
            cells.append(cell)
    print("| set | epsilon | default | range_share = 0 | difference |\n| --- " + "| --- " * 4 + "|")
    for cell in sorted(cells, key=lambda cell: (cell["set"], cell["epsilon"])):
        print(line(cell))


if __name__ == "__main__":
    main()
