"""Where the module of an engine comes from, and what is usual for such modules."""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import nn

from dptune.engines.modules.word_numbers import bound_words
from dptune.own_code import made
from dptune.prior import MODULE, Prior


class Source:
    """A function of the user's own, which makes the module."""

    own_code: ClassVar[bool] = True  # otherwise it is a pretrained language model
    takes_ids: ClassVar[bool] = False  # rows can only be token numbers
    trained: ClassVar[str] = "all"  # which parameters, by default
    prior: ClassVar[Prior] = MODULE
    batch: ClassVar[float] = 8.0  # rows expected in a sample, over the square root of all rows
    steps: ClassVar[int] = 300  # of a run by default
    recipe: ClassVar[Mapping[str, Any]] = {}  # further defaults of plans

    def __init__(self, factory: str) -> None:
        self.factory = factory

    @property
    def name(self) -> str:
        """What people call the module."""
        return self.factory.rpartition(":")[2]

    def pinned(self) -> str:
        """The factory, with the revision that a name on a hub stands for now."""
        return self.factory

    def must_know_words(self, tokenizer: str) -> None:
        """Refuse a tokenizer with tokens that the module has no numbers for."""

    def make(self, *, loss: str, outputs: int | None, ids: bool, untied: bool) -> nn.Module:
        """A new module for rows of such a loss, by torch's own generator; `untied`: no weight of a
        language model is used in two places."""
        module = made(self.factory)
        if ids:
            bound_words(module)
        return module
