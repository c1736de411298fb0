"""Read pickles of plain values and uint8 arrays without running any code that they name."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def unpickle(path: Path) -> dict[str, Any]:
    """Read a dictionary of lists, texts, numbers and uint8 arrays; ValueError for anything else."""
    try:
        with path.open("rb") as file:
            stored = _Plain(file, encoding="latin1").load()
        return {_text(key): _value(value) for key, value in stored.items()}
    except OSError:
        raise
    except Exception as error:  # a damaged pickle can fail anywhere
        what = "it is not a pickle of a dictionary of plain values and arrays"
        raise ValueError(f"{what} ({error})") from None


def _text(value: Any) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)


def _value(value: Any) -> Any:
    if isinstance(value, _Array):
        return value.pixels()
    if isinstance(value, list):
        return [_text(each) if isinstance(each, bytes) else each for each in value]
    return value


class _Type:
    """Replaces a NumPy type in a pickle."""

    def __init__(self, code: Any, *_: Any) -> None:
        self.code = code

    def __setstate__(self, state: Any) -> None:
        """Ignore byte order and the like, which do not apply to bytes."""


class _Array:
    """Replaces a NumPy array in a pickle, because NumPy's own constructor trusts the file."""

    state: Any = None

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def pixels(self) -> NDArray[np.uint8]:
        _, shape, kind, columns_first, content = self.state
        if kind.code not in ("u1", "uint8"):
            raise ValueError(f"its arrays must be of type uint8; found {kind.code}")
        content = content.encode("latin1") if isinstance(content, str) else content
        pixels: NDArray[np.uint8] = np.frombuffer(content, np.uint8)
        return pixels.reshape(shape[::-1]).T if columns_first else pixels.reshape(shape)


def _encode(text: str, encoding: str) -> bytes:
    """Restore bytes as protocol 2 stores them."""
    if encoding != "latin1":
        raise ValueError(f"bytes encoded as {encoding}")
    return text.encode("latin1")


_NAMES = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Type,
    ("_codecs", "encode"): _encode,
}


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _NAMES:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return _NAMES[module, name]
