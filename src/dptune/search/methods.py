"""Search methods by the names that users give: all that come with dptune, and one's own."""

from dataclasses import is_dataclass
from typing import Any, TypeVar

from dptune.errors import InvalidInput
from dptune.search.base import SearchMethod
from dptune.search.grid_search import GridSearch
from dptune.search.hypo import Hypo
from dptune.search.linear_scaling import LinearScaling
from dptune.search.one_step import OneStep
from dptune.search.paper_line import PaperLine
from dptune.search.private_selection import PrivateSelection, SubsetSelection
from dptune.search.random_search import RandomSearch
from dptune.search.unit_noise import UnitNoise
from dptune.search.wosm import Wosm

METHODS: dict[str, type[SearchMethod]] = {
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
Method = TypeVar("Method", bound=type[SearchMethod])


def register_method(method: Method) -> Method:
    """Make a method of one's own known by its name: to configurations, `resume` and comparisons in
    this program. A decorator, above that of the dataclass.

    A name that another method has is refused: a study must not be resumed by another search than
    began it. The same class may come again, as it does when its cell or module is run again.
    """
    if not _is_method(method):
        raise InvalidInput(
            f"a search method is a dataclass over SearchMethod, whose fields are its options; got "
            f"{method!r}. Put register_method above dataclass."
        )
    name: Any = getattr(method, "name", None)
    if not isinstance(name, str) or not name:
        raise InvalidInput(
            f"{method.__qualname__} has no name to be known by; give it a `name`, a text."
        )
    known = METHODS.get(name)
    if known is not None and _origin(known) != _origin(method):
        raise InvalidInput(
            f"{name!r} is the name of {'.'.join(_origin(known))} already; give "
            f"{method.__qualname__} a name of its own."
        )
    METHODS[name] = method
    return method


def method_named(name: object) -> type[SearchMethod]:
    """The class that is known by this name."""
    for known, method in METHODS.items():
        if known == name:
            return method
    raise InvalidInput(
        f"method must be one of {', '.join(METHODS)}; got {name!r}. One of your own is known once "
        "dptune.search.register_method has it: import its module first, in the same program."
    )


def _is_method(given: object) -> bool:
    return isinstance(given, type) and issubclass(given, SearchMethod) and is_dataclass(given)


def _origin(method: type) -> tuple[str, str]:
    return method.__module__, method.__qualname__
