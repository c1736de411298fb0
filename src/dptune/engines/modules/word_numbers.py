"""Numbers of words that no table of a module has: a row with one must not end a paid run."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from dptune.engines.language.reader import Reader
from dptune.engines.modules.problem import Problem
from dptune.engines.modules.row_check import as_it_was, fails

TABLES = (nn.Embedding, nn.EmbeddingBag)


def bound_words(module: nn.Module) -> list[RemovableHandle]:
    """From here on, torch's own tables read a number that they do not have as their first or last
    line: it would end a run that is paid for, and tell by that that its row is there."""
    tables = (layer for layer in module.modules() if isinstance(layer, TABLES))
    return [table.register_forward_pre_hook(_within_table) for table in tables]


def _within_table(layer: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
    words, *more = given
    return words.clamp(0, layer.num_embeddings - 1), *more


def problems_of_words(module: nn.Module, rows: Tensor) -> list[Problem]:
    """Whether a module on a CPU fails on made-up `rows` of numbers that it has no line for, in
    tables of its own or where it counts words."""
    if isinstance(module, Reader):  # whose tokenizer gives no other numbers than it has
        return []
    handles = bound_words(module)
    try:
        with as_it_was(module), torch.no_grad():
            for mode in (True, False):
                module.train(mode)
                module(torch.zeros_like(rows))  # on which code that is wrong fails by itself
                for number in (-1, largest_size(module)):
                    try:
                        module(torch.full_like(rows, number))
                    except Exception as error:
                        return [fails("it holds a number that is in no table", error)]
    finally:
        for handle in handles:
            handle.remove()
    return []


def largest_size(module: nn.Module) -> int:
    """In any dimension of any tensor of it: none has more lines."""
    tensors = [*module.parameters(), *module.buffers()]
    return max((size for tensor in tensors for size in tensor.shape), default=1)
