"""Names of the search methods that come with dptune, whatever examples have registered."""

from dptune.search.methods import METHODS

METHOD_NAMES = [name for name, kind in METHODS.items() if kind.__module__.startswith("dptune.")]
OPEN_METHOD_NAMES = [name for name in METHOD_NAMES if METHODS[name]().sealing is None]
