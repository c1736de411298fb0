"""All search methods, by the names that users give."""

from typing import Any

from dptune.search.grid_search import GridSearch
from dptune.search.hypo import Hypo
from dptune.search.linear_scaling import LinearScaling
from dptune.search.paper_line import PaperLine
from dptune.search.parameter_free import OneStep, Wosm
from dptune.search.private_selection import PrivateSelection, SubsetSelection
from dptune.search.random_search import RandomSearch
from dptune.search.unit_noise import UnitNoise

METHODS: dict[str, Any] = {
    method.name: method
    for method in (
        LinearScaling,
        UnitNoise,
        PaperLine,
        RandomSearch,
        GridSearch,
        PrivateSelection,
        SubsetSelection,
        Hypo,
        Wosm,
        OneStep,
    )
}
