"""Names of a package that load on first use: importing the package itself stays light."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

Getter = Callable[[str], object]


def lazy_names(package: str, homes: Mapping[str, Sequence[str]]) -> tuple[Getter, list[str]]:
    """A `__getattr__` and an `__all__` for a package; `homes` maps its modules to their names.

    >>> get, names = lazy_names("dptune", {"rounding": ["cost"], "gdp": ["delta_from_mu"]})
    >>> names, get("cost")(0.12341)
    (['cost', 'delta_from_mu'], '0.1235')
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def get(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{home_of[name]}"), name)

    return get, sorted(home_of)
