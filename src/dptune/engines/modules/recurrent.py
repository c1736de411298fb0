"""Recurrent layers step by step, in plain products that torch.func can take for many rows at once:
torch's own kernels of LSTM, GRU and RNN it can only call row by row."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

_State = tuple[Tensor, ...]  # hidden, and the cell's for an LSTM


@contextmanager
def step_by_step(module: nn.Module) -> Iterator[None]:
    """`module` with every recurrent layer in it computed like this."""
    layers = [part for part in module.modules() if isinstance(part, nn.RNNBase)]
    for layer in layers:
        layer.forward = partial(_forward, layer)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _forward(layer: nn.RNNBase, input: Tensor, hx: Any = None) -> tuple[Tensor, Any]:
    """What the layer's own forward gives, up to rounding."""
    if not isinstance(input, Tensor) or input.ndim != 3 or (layer.dropout and layer.training):
        raise NotImplementedError("packed or single sequences, and dropout, are left to torch")
    rows = input.transpose(0, 1) if layer.batch_first else input
    given = (hx,) if isinstance(hx, Tensor) else hx
    directions = 2 if layer.bidirectional else 1
    ends: list[_State] = []
    for number in range(layer.num_layers):
        outputs = []
        for direction in range(directions):
            suffix = f"_l{number}" + "_reverse" * direction
            if given is None:
                start = _zeros(layer, rows)
            else:
                start = tuple(state[len(ends)] for state in given)
            one, end = _one_way(layer, suffix, rows, start)
            outputs.append(one)
            ends.append(end)
        rows = torch.cat(outputs, -1)
    states = tuple(torch.stack(each) for each in zip(*ends, strict=True))
    output = rows.transpose(0, 1) if layer.batch_first else rows
    return output, states if isinstance(layer, nn.LSTM) else states[0]


def _zeros(layer: nn.RNNBase, rows: Tensor) -> _State:
    sizes = [layer.proj_size or layer.hidden_size]
    sizes += [layer.hidden_size] * isinstance(layer, nn.LSTM)
    return tuple(rows.new_zeros(rows.shape[1], size) for size in sizes)


def _one_way(layer: nn.RNNBase, suffix: str, rows: Tensor, state: _State) -> tuple[Tensor, _State]:
    """All outputs of one layer in one direction, in the order of its inputs, and its last state."""
    weights = [getattr(layer, f"{name}{suffix}") for name in ("weight_ih", "weight_hh")]
    biases = [None, None]
    if layer.bias:
        biases = [getattr(layer, f"{name}{suffix}") for name in ("bias_ih", "bias_hh")]
    project = getattr(layer, f"weight_hr{suffix}", None)
    inputs = nn.functional.linear(rows, weights[0], biases[0])
    backwards = suffix.endswith("_reverse")
    cell, outputs = _cell_of(layer), []
    for place in reversed(range(len(rows))) if backwards else range(len(rows)):
        hidden = nn.functional.linear(state[0], weights[1], biases[1])
        state = cell(inputs[place], hidden, state)
        if project is not None:
            state = nn.functional.linear(state[0], project), *state[1:]
        outputs.append(state[0])
    return torch.stack(outputs[::-1] if backwards else outputs), state


def _cell_of(layer: nn.RNNBase) -> Callable[[Tensor, Tensor, _State], _State]:
    """The next state, from what comes of the input, of the hidden state, and the state itself."""
    if isinstance(layer, nn.LSTM):
        return _lstm
    if isinstance(layer, nn.GRU):
        return _gru
    activate = torch.relu if layer.mode == "RNN_RELU" else torch.tanh
    return lambda given, hidden, _: (activate(given + hidden),)


def _lstm(given: Tensor, hidden: Tensor, state: _State) -> _State:
    enter, forget, new, leave = (given + hidden).chunk(4, -1)
    cell = forget.sigmoid() * state[1] + enter.sigmoid() * new.tanh()
    return leave.sigmoid() * cell.tanh(), cell


def _gru(given: Tensor, hidden: Tensor, state: _State) -> _State:
    reset, update, new = given.chunk(3, -1)
    reset_too, update_too, new_too = hidden.chunk(3, -1)
    fresh = (new + (reset + reset_too).sigmoid() * new_too).tanh()
    kept = (update + update_too).sigmoid()
    return ((1 - kept) * fresh + kept * state[0],)
