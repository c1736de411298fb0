"""Recurrent layers computed step by step give what torch's own kernels give."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dptune.engines.modules.doctor import examine
from dptune.engines.modules.recurrent import step_by_step

LAYERS: list[tuple[Any, dict[str, Any]]] = [
    (kind, options)
    for kind in (nn.LSTM, nn.GRU, nn.RNN)
    for options in (
        {},
        {"batch_first": True, "bias": False},
        {"num_layers": 2, "bidirectional": True, "batch_first": True},
    )
] + [(nn.RNN, {"nonlinearity": "relu"}), (nn.LSTM, {"proj_size": 2, "bidirectional": True})]


def leaves(found: Any) -> list[Tensor]:
    output, state = found
    return [output, *([state] if isinstance(state, Tensor) else state)]


@pytest.mark.parametrize(("kind", "options"), LAYERS)
@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("begun", [False, True])
def test_recurrent_layer_gives_the_same_step_by_step(
    kind: Any, options: dict[str, Any], begun: bool
) -> None:
    torch.manual_seed(0)
    layer, rows = kind(3, 5, **options), torch.randn(4, 6, 3)
    expected = layer(rows)
    given = (torch.randn_like(torch.as_tensor(leaves(expected)[1])),)
    given += tuple(torch.randn_like(state) for state in leaves(expected)[2:])
    start = [] if not begun else [given if kind is nn.LSTM else given[0]]
    wanted = leaves(layer(rows, *start))
    with step_by_step(nn.Sequential(layer)):
        found = leaves(layer(rows, *start))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    assert "forward" not in vars(layer)


class Recurrent(nn.Module):
    def __init__(self, cell: nn.Module, *, last_state: bool) -> None:
        super().__init__()
        self.cell, self.head, self.last_state = cell, nn.Linear(6, 2), last_state

    def forward(self, rows: Tensor) -> Tensor:
        output, state = self.cell(rows)
        last = state[0] if isinstance(state, tuple) else state
        out: Tensor = self.head(last[-1] if self.last_state else output.mean(1))
        return out


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("last_state", [True, False])
def test_recurrent_layers_take_many_rows_at_once(kind: Any, last_state: bool) -> None:
    module = Recurrent(kind(4, 6, batch_first=True), last_state=last_state)
    seen = examine(module, (5, 4))
    assert not seen.problems
    assert {layer.name: layer.way for layer in seen.layers}["cell"] == "torch.func"
