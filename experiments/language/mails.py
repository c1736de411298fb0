"""A cell of language modelling: a small GPT-2 tuned on mails. No mail is ever shown."""

import math
from functools import lru_cache
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import dptune
from dptune.data import Data
from dptune.engines.modules.module_model import ModuleModel
from experiments.language.cells import SEARCHES, Cell
from experiments.language.measure import engine_of, run_of, searched
from experiments.language.public_text import MAILS, NETWORK, rows_of_words
from experiments.language.sets import PADDING, padded
from experiments.lines import Figures
from experiments.networks import of_study

PIECES = 32  # of a mailbox, where that is the unit
LOSS_BOUND = 7.0  # of a mail's mean loss in a score; text by chance is at 9


def measure(cell: Cell, root: str | None, device: str) -> Figures:
    """Perplexity of mails that were held back, in the end and before anything was tuned."""
    folder, began = root or ".", perf_counter()
    data = private_mails(folder, cell.length, cell.limit, cell.unit)
    test = held_back(folder, cell.length, cell.limit)
    engine = engine_of(cell, Path(folder) / NETWORK, device)
    if cell.method in SEARCHES:
        score = dptune.NoisyScore(measure="loss", loss_bound=LOSS_BOUND)
        result = searched(cell, data, engine, device, score=score)
        assert isinstance(result.model.model, ModuleModel)
        model, found = result.model.model, of_study(result)
    else:
        model, found = run_of(cell, data, engine, device)
    return {
        "perplexity": perplexity(model, test, device),
        "perplexity_before": before(engine, data, test, device),
        **found,
        "seconds": perf_counter() - began,
    }


@lru_cache(maxsize=2)
def private_mails(root: str, length: int, limit: int | None, unit: str) -> Data:
    """A mail a row; or a mailbox a row, its mails end to end in pieces that are copies of it."""
    with np.load(Path(root) / f"{MAILS}.npz", allow_pickle=False) as arrays:
        words, lengths, owners = (
            arrays[f"train_{what}"] for what in ("words", "lengths", "owners")
        )
    if unit == "row":
        rows = rows_of_words(padded(words, lengths, length)[:limit])
        return Data.from_texts(rows, name=MAILS, task="words")
    of_words = np.repeat(owners, lengths)
    boxes = [words[of_words == box][: PIECES * length] for box in range(int(owners.max()) + 1)]
    table = np.full((len(boxes), PIECES * length), PADDING, dtype=np.int32)
    for row, box in zip(table, boxes, strict=True):
        row[: len(box)] = box
    pieces = rows_of_words(table.reshape(-1, length)).reshape(len(boxes), PIECES, 2, length)
    return Data.from_texts(pieces, name=MAILS, task="words", augmented=True)


def held_back(root: str, length: int, limit: int | None) -> NDArray[Any]:
    with np.load(Path(root) / f"{MAILS}.npz", allow_pickle=False) as arrays:
        table = padded(arrays["test_words"], arrays["test_lengths"], length)
    return rows_of_words(table[:limit])


def perplexity(model: ModuleModel, rows: NDArray[Any], device: str) -> float:
    """Of all words together."""
    found = model.logits(torch.from_numpy(rows).to(device)).double().cpu()
    losses, asked = found[:, 0], found[:, 1]
    mean = float((losses * asked).sum() / asked.sum())
    return math.exp(min(mean, 20.0))  # a run that diverged


def before(engine: Any, data: Data, rows: NDArray[Any], device: str) -> float:
    """Of the network as it was pretrained."""
    return perplexity(
        engine.for_data(data.facts).inspection.initial_model(data.shape), rows, device
    )
