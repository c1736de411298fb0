"""The registry of search methods by name: those of dptune, and users' own."""

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
    """Register your own method under its name, for configurations, `resume` and comparisons in this
    program. Use it as a decorator above that of the dataclass.

    A name that another method has is refused, since a study must be resumed by the search that
    began it. The same class may be registered again, as when its cell or module runs again.
    """
    if not _is_method(method):
        raise InvalidInput(
            f"a search method must be a dataclass that derives from SearchMethod, with its options "
            f"as fields; got {method!r}. Put register_method above dataclass."
        )
    name: Any = getattr(method, "name", None)
    if not isinstance(name, str) or not name:
        raise InvalidInput(
            f"{method.__qualname__} has no name to register; give it a `name`, a text."
        )
    registered = METHODS.get(name)
    if registered is not None and _origin(registered) != _origin(method):
        raise InvalidInput(
            f"{name!r} is already the name of {'.'.join(_origin(registered))}; give "
            f"{method.__qualname__} another name."
        )
    METHODS[name] = method
    return method


def method_named(name: object) -> type[SearchMethod]:
    """The class that is registered under this name."""
    for registered, method in METHODS.items():
        if registered == name:
            return method
    raise InvalidInput(
        f"method must be one of {', '.join(METHODS)}; got {name!r}. For your own method, first "
        "import the module that calls dptune.search.register_method, in the same program."
    )


def _is_method(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, SearchMethod) and is_dataclass(value)


def _origin(method: type) -> tuple[str, str]:
    return method.__module__, method.__qualname__
