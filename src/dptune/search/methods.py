"""All search methods, by the names that users give."""

from typing import Any

from dptune.search.linear_scaling import LinearScaling
from dptune.search.paper_line import PaperLine
from dptune.search.random_search import RandomSearch
from dptune.search.unit_noise import UnitNoise

METHODS: dict[str, Any] = {
    method.name: method for method in (LinearScaling, UnitNoise, PaperLine, RandomSearch)
}
