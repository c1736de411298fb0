"""What a study asks an engine beside training it."""

from typing import TYPE_CHECKING, Generic

import torch
from torch import Tensor

from dptune.data.rows import DataFacts
from dptune.engines.model import M

if TYPE_CHECKING:
    from dptune.engines.base import Engine


class Inspection(Generic[M]):
    """Answers for an engine that runs neither code nor weights of others: there is nothing to
    refuse and nothing to report. `Engine.inspection` gives another where there is."""

    def __init__(self, engine: "Engine[M]") -> None:
        self.engine = engine

    def pin(self) -> "Engine[M]":
        """The engine with the revision that a name on a hub stands for now, so that a study that is
        resumed continues with it."""
        return self.engine

    def must_know_words(self, tokenizer: str) -> None:
        """Refuse rows of a tokenizer with tokens that the model has no numbers for."""

    def rehearse(self, facts: DataFacts, device: torch.device) -> None:
        """Refuse, by looking at made-up rows, what training on three of them does not show."""

    def describe(self, facts: DataFacts) -> tuple[str, ...]:
        """What a plan says about how the engine trains."""
        return ()

    def slowed_by(self, facts: DataFacts) -> str:
        """What makes training slow, in a sentence without a full stop; empty for nothing."""
        return ""

    def initial_model(self, shape: tuple[int, ...]) -> M | None:
        """The model that a run begins with, for rows of such a shape, where its results are worth
        showing beside those of the trained model."""
        return None

    def initial_outputs(self, shape: tuple[int, ...]) -> Tensor | None:
        """What the model that runs begin with gives for made-up rows of such a shape; None where no
        code of the user's makes it."""
        return None

    def must_give_as_before(self, shape: tuple[int, ...], before: Tensor) -> None:
        """Refuse code that gives for these rows something else than `before`, except for
        rounding."""
