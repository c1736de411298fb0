"""A cell of fine-tuning by the public API: a whole study with everything paid, or one run on rows
that are public anyway."""

from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

import dptune
from dptune.data import Data, Preprocessing
from dptune.engines.base import Engine
from dptune.engines.modules.module_model import ModuleModel
from dptune.search.base import SearchMethod
from dptune.study.result import StudyResult
from experiments.language.cells import (
    DEFAULT,
    LORA,
    PAPER,
    PROBE,
    RANK,
    RATES,
    SEARCHES,
    SGD_RATES,
    Cell,
    plan_of,
    recipe_of,
)
from experiments.language.features import features_of
from experiments.language.prepare import MODEL
from experiments.language.sets import part_of, private_rows
from experiments.lines import Figures
from experiments.networks import of_study, one_run
from experiments.vision.plain_probe import plain_probe

# Of a pass on a GPU. Samples that are larger pass in groups of about one length: that is slower
# alone, and quicker where several processes share the GPU.
TOKENS_AT_ONCE = 5 * 2**14
# Queries, values and both layers behind attention.
_ADAPTED = "*.query, *.value, *.intermediate.dense, *.layer.?.output.dense"


def measure(cell: Cell, root: str | None, device: str) -> Figures:
    """Whatever the cell asks for."""
    folder = root or "."
    began = perf_counter()
    if cell.way == PROBE:
        found = _probe(cell, folder, device)
    elif cell.method in SEARCHES:
        found = _study(cell, folder, device)
    else:
        found = _run(cell, folder, device)
    return found | {"seconds": perf_counter() - began}


def _study(cell: Cell, root: str, device: str) -> Figures:
    """A study as anybody would run it."""
    data = private_rows(cell.texts, root, cell.length, cell.limit)
    engine = engine_of(cell, Path(root) / MODEL, device)
    result = searched(cell, data, engine, device)
    assert isinstance(result.model.model, ModuleModel)
    return {
        **accuracies(cell, root, result.model.model, device),
        **of_study(result),
        "parameters": engine.for_data(data.facts).parameters(data.facts),
    }


def searched(
    cell: Cell, data: Data, engine: Engine[Any], device: str, **options: Any
) -> StudyResult:
    assert cell.epsilon is not None
    rates = SGD_RATES if cell.optimizer == "sgd" else RATES[cell.way]
    return dptune.tune(
        data,
        budget=dptune.Budget(cell.epsilon, cell.delta),
        engine=engine,
        search=search_of(cell),
        space=dptune.Space(learning_rate=rates, steps=(cell.steps, cell.steps)),
        recipe=recipe_of(cell, data.count, data.copies),
        seed=cell.seed,
        device=device,
        **options,
    )


def search_of(cell: Cell) -> SearchMethod:
    assert cell.epsilon is not None
    if cell.method == DEFAULT:
        return dptune.LinearScaling()
    if cell.method == PAPER:
        # The paper's sweeps for a total of 0.7 or more, and as large a part of less.
        first = min(0.1, cell.epsilon / 7)
        return dptune.PaperLine(
            epsilons=(first, 2 * first), ranges="full", decomposition="independent"
        )
    return dptune.RandomSearch()


def _run(cell: Cell, root: str, device: str) -> Figures:
    data = private_rows(cell.texts, root, cell.length, cell.limit)
    model, chosen = run_of(cell, data, engine_of(cell, Path(root) / MODEL, device), device)
    return {**accuracies(cell, root, model, device), **chosen}


def run_of(cell: Cell, data: Data, engine: Engine[Any], device: str) -> tuple[ModuleModel, Figures]:
    """One run of the whole budget."""
    plan = plan_of(cell, data.count, data.copies)
    fitted = engine.for_data(data.facts)
    return one_run(fitted, plan, data, cell.seed, device, precision="int64")


def engine_of(cell: Cell, model: Path, device: str) -> Engine[Any]:
    """Trains the model in this folder, all but its tables of words, or adapters beside it."""
    options: dict[str, Any] = {"compute": cell.compute}
    if device != "cpu":
        options["rows_at_once"] = max(1, TOKENS_AT_ONCE // cell.length)
    if cell.way == LORA:
        options |= {"lora": RANK, "layers": _ADAPTED}
    return dptune.HuggingFace(str(model), **options)


def accuracies(cell: Cell, root: str, model: ModuleModel, device: str) -> Figures:
    """In percent of the test rows, which are as long as they are, and cut as training rows were;
    of the rows between, where the set has some, by which settings may be chosen."""
    found: Figures = {}
    for name, part, length in (
        ("accuracy", "test", None),
        ("accuracy_cut", "test", cell.length),
        ("dev_accuracy", "dev", None),
    ):
        rows = part_of(cell.texts, root, part, *([] if length is None else [length]))
        if rows is None:
            continue
        some = rows.first(cell.limit)
        logits = model.logits(torch.from_numpy(some.words).to(device))
        found[name] = 100 * float((logits.argmax(1).cpu().numpy() == some.labels).mean())
    return found


def _probe(cell: Cell, root: str, device: str) -> Figures:
    """A linear model of frozen features, by the recipe of linear models."""
    features = features_of(cell.texts, root, device, cell.limit)
    (train, labels), (test, answers) = features["train"], features["test"]
    classes = range(int(labels.max()) + 1)
    if cell.epsilon is None:
        both = Data(train, labels, name=cell.texts, classes=classes)
        others = Data(test, answers, name=cell.texts, classes=classes)
        rows = [each.unprotected_rows(Preprocessing(), device=device) for each in (both, others)]
        ridge, (share,) = plain_probe(rows[0], rows[1:], len(classes))
        return {"accuracy": 100 * share, "ridge": ridge}
    data = Data(train, labels, name=cell.texts, classes=classes)
    result = dptune.tune(
        data, budget=dptune.Budget(cell.epsilon, cell.delta), seed=cell.seed, device=device
    )
    predicted = result.model.predict(test)
    return {"accuracy": 100 * float(np.mean(predicted == answers)), **of_study(result)}
