"""What every backbone offers, wherever its weights come from."""

from dataclasses import dataclass

from torch import nn

from dptune.features.transform import Transform


@dataclass(frozen=True, eq=False)
class Backbone:
    """A frozen public network: pictures (batch, 3, size, size), as `transform` makes them, to
    features (batch, columns)."""

    name: str  # what finds it again
    module: nn.Module  # in evaluation mode; its output are the features
    transform: Transform
    columns: int
    digest: str  # of weights and everything else that features depend on
    trained_on: str = ""  # which data its weights saw, as far as that is known
