"""Stand-in: H4's."""
import importlib.util, sys
_KNOWN = {}
def reference(given, what):
    if callable(given):
        text = f"{given.__module__}:{given.__qualname__}"
        _KNOWN[text] = given
        return text
    return given
def resolve(text, what):
    if text in _KNOWN:
        return _KNOWN[text]
    home, _, name = text.rpartition(":")
    if home.endswith(".py"):
        spec = importlib.util.spec_from_file_location("own", home)
        module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)
    else:
        module = importlib.import_module(home)
    return getattr(module, name)
