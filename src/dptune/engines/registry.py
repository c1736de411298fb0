"""Engines by the names that configurations give them."""

from dataclasses import is_dataclass
from typing import Any, TypeVar

from dptune.engines.base import Engine
from dptune.errors import InvalidInput

Kind = TypeVar("Kind", bound=type[Engine[Any]])
_ENGINES: dict[str, type[Engine[Any]]] = {}


def register_engine(kind: Kind) -> Kind:
    """Make an engine known under its name, so that studies that use it can be resumed and their
    models loaded. A name that another engine has is refused. Works as a decorator."""
    if not _is_engine(kind):
        raise InvalidInput(
            f"register_engine takes a frozen dataclass over dptune.engines.Engine; got {kind!r}."
        )
    known = _ENGINES.setdefault(kind.name, kind)
    if (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
        raise InvalidInput(
            f"an engine called {kind.name!r} is there already ({known.__module__}."
            f"{known.__qualname__}); give yours another name."
        )
    _ENGINES[kind.name] = kind  # the same class again, as when a notebook's cell is run twice
    return kind


def engine_named(name: object) -> type[Engine[Any]]:
    """The engine that is registered under `name`."""
    if not isinstance(name, str) or name not in _ENGINES:  # a file may say anything
        raise InvalidInput(
            f"no engine is called {name!r}; there are: {', '.join(sorted(_ENGINES))}. One of your "
            "own must be registered first: dptune.engines.register_engine(YourEngine)."
        )
    return _ENGINES[name]


def must_be_registered(engine: object) -> None:
    """Refuse an engine that a resume could not build again."""
    if not isinstance(engine, Engine):
        raise InvalidInput(
            "engine must be an engine, such as LinearEngine(bias=True), or TorchModule(factory) "
            f"for a PyTorch module; got a {type(engine).__name__}."
        )
    if _ENGINES.get(engine.name) is not type(engine):
        raise InvalidInput(
            f"the engine {type(engine).__name__} is not registered, so what it trains could not be "
            "resumed or loaded; call dptune.engines.register_engine on its class first."
        )


def _is_engine(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Engine) and is_dataclass(kind)
