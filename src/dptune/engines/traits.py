"""Plain facts about an engine, which a study plans with."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dptune.prior import Prior


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What an engine states about itself once. The defaults are those of a plain engine for rows of
    numbers.

    Attributes:
        trains: what it trains, in words, for model cards.
        prior: where its searches start from.
        usual_space: ranges of learning rates and steps by default; None for the search's own.
        rounding: how far logits of one row may differ between machines, relative to the largest.
        public_facts: what it takes as public beside what is public about the data.
        own_functions: names of a user's own functions that it calls, by what they are to it.
        takes_ids: whether rows are token numbers, and so neither scaled nor rounded.
        linear_in_rows: whether logits are linear in a row, so that centring and whitening help.
        wants_unit_rows: whether rows of a table are scaled to unit length by default.
        wants_constant: whether centred rows should have a constant column beside them.
        weighs_rows: whether it runs plans with `class_weights`.
        makes_copies: whether it makes the copies of a row that a plan averages, so that the data
            hold one.
        compares_losses: whether it runs plans with `directions`, and only those.
        takes_any_classes: whether it can be made for any number of classes, so that a study may
            estimate how many there are.
        checkpoints: whether its long runs are kept on disk while they go on: then `fit` takes one
            more argument by name, `keep`, a `Checkpoint` or None.
        pretrained: whether it fine-tunes a pretrained language model.

    """

    trains: str = "model"
    prior: Prior = field(default_factory=Prior)
    usual_space: Mapping[str, Any] | None = None
    rounding: float = 1e-3
    public_facts: tuple[str, ...] = ()
    own_functions: Mapping[str, str] = field(default_factory=dict)
    takes_ids: bool = False
    linear_in_rows: bool = False
    wants_unit_rows: bool = True
    wants_constant: bool = False
    weighs_rows: bool = False
    makes_copies: bool = False
    compares_losses: bool = False
    takes_any_classes: bool = False
    checkpoints: bool = False
    pretrained: bool = False
