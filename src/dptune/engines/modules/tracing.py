"""How a module is trained by gradients of single rows, found out on made-up rows; or that it cannot
be."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from dptune.data.rows import DataFacts
from dptune.engines.language.reader import Reader
from dptune.engines.modules import descent, own_functions
from dptune.engines.modules.by_length import widths
from dptune.engines.modules.flat_weights import FlatWeights
from dptune.engines.modules.gradients import RowGradients, Ways
from dptune.engines.modules.losses import NAMES, outputs_of, row_loss
from dptune.engines.modules.made_up import nothing_near_zero
from dptune.engines.modules.module_engine import ModuleEngine
from dptune.engines.modules.precision import computing
from dptune.engines.randomness import Randomness

MADE_UP = 4  # rows
LOOKED_AT: dict[object, Ways] = {}  # pretrained models, by engine and rows: once a study


def traced(
    engine: ModuleEngine,
    module: nn.Module,
    facts: DataFacts,
    device: torch.device,
    copies: int = 1,
) -> tuple[FlatWeights, RowGradients]:
    """A module ready to be trained, and what adds up the gradients of its rows."""
    flat = FlatWeights(module, engine.names(module), device)
    flat.module.train()
    rows, targets = engine.made_up(module, facts, device, MADE_UP, copies)
    functions_take_rows_apart(engine, module, rows[:, 0], targets)
    return flat, _gradients(engine, flat, rows, targets)


def traced_shorter(
    engine: ModuleEngine, flat: FlatWeights, facts: DataFacts, copies: int = 1
) -> dict[int, RowGradients]:
    """The same for texts that are cut, by their width."""
    if not isinstance(flat.module, Reader):
        return {}
    by_width = {}
    for width in widths(facts.shape[-1]):
        shorter = replace(facts, shape=(*facts.shape[:-1], width))
        made_up = engine.made_up(flat.module, shorter, flat.vector.device, MADE_UP, copies)
        by_width[width] = _gradients(engine, flat, *made_up)
    return by_width


def functions_take_rows_apart(
    engine: ModuleEngine, module: nn.Module, rows: Tensor, targets: Tensor
) -> None:
    """Refuse a loss or an augmentation of the user's own that mixes rows, by these made-up ones."""
    with descent.own_numbers(rows.device):
        if engine.own_augment is not None:
            own_functions.augment_takes_rows_apart(engine.own_augment, rows)
        if engine.loss not in NAMES:
            with torch.no_grad(), computing(engine.compute, rows.device):
                outputs = outputs_of(module(rows)).float()
            own_functions.loss_takes_rows_apart(row_loss(engine.loss), outputs, targets)


def _gradients(
    engine: ModuleEngine, flat: FlatWeights, rows: Tensor, targets: Tensor
) -> RowGradients:
    loss = row_loss(engine.loss)
    case = None
    # Code of the user's own may be another when it is called again; that of transformers is not.
    if not engine.traits.own_functions:
        case = (engine, repr(flat.module), rows.shape, rows.device)
    gradients = RowGradients(
        flat.module,
        flat.trained,
        lambda found, targets: loss(outputs_of(found), targets),
        compute=engine.compute,
    )
    with (
        descent.public_numbers(Randomness(), rows.device),
        nothing_near_zero(flat.module, flat.trained),
    ):
        gradients.trace(rows, targets, LOOKED_AT.get(case))
    if case is not None:
        LOOKED_AT[case] = gradients.ways
    return gradients
