"""Plain facts about an engine, which a study plans with."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dptune.prior import Prior


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What an engine states about itself once. The defaults are those of a plain engine for rows of
    numbers."""

    trains: str = "model"  # in words, for model cards
    prior: Prior = field(default_factory=Prior)  # where its searches start from
    usual_space: Mapping[str, Any] | None = None  # default ranges; None for the search's own
    rounding: float = 1e-3  # how far logits may differ between machines, relative to the largest
    public_facts: tuple[str, ...] = ()  # beside what is public about the data
    own_functions: Mapping[str, str] = field(default_factory=dict)  # of the user's, by their role
    takes_ids: bool = False  # rows are token numbers, neither scaled nor rounded
    linear_in_rows: bool = False  # logits are, so that centring and whitening help
    wants_unit_rows: bool = True  # rows of a table are scaled to unit length by default
    wants_constant: bool = False  # centred rows get a constant column beside them
    weighs_rows: bool = False  # it runs plans with class_weights
    makes_copies: bool = False  # it makes the copies of a row that a plan averages
    compares_losses: bool = False  # it runs plans with directions, and only those
    takes_any_classes: bool = False  # a study may estimate how many classes there are
    pretrained: bool = False  # it fine-tunes a pretrained language model
    # Its long runs are kept on disk while they go on: then `fit` takes one more argument by name,
    # `keep`, a `Checkpoint` or None.
    checkpoints: bool = False
