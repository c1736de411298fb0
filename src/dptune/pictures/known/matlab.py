"""Read MATLAB's files of version 5: arrays of numbers, texts and structures.

scipy has a reader too, but a damaged file can crash it, and the whole process with it.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dptune.unpacked import unpack_zlib

_BEGIN = b"\0\1IM"  # version 5, least significant byte first; it ends a header of 128 bytes
_NUMBERS = {
    **{1: "i1", 2: "u1", 3: "<i2", 4: "<u2", 5: "<i4"},
    **{6: "<u4", 7: "<f4", 9: "<f8", 12: "<i8", 13: "<u8"},
}
_TEXTS = {1: "latin1", 2: "latin1", 4: "utf-16-le", 16: "utf-8", 17: "utf-16-le"}
_ARRAY, _PACKED = 14, 15
_STRUCTURE, _TEXT, _OF_NUMBERS, _COMPLEX = 2, 4, range(6, 16), 0x800


def read_matlab(path: Path, *names: str) -> dict[str, Any]:
    """The arrays of these names; a text is a str, and a structure is a list of its records."""
    content = memoryview(path.read_bytes())
    if content[124:128] != _BEGIN:
        raise ValueError("it does not begin like a MATLAB file of version 5")
    arrays = {}
    for kind, data in _unpacked(content[128:]):
        parts = _elements(data) if kind == _ARRAY else iter(())
        head = [next(parts, (0, b""))[1] for _ in range(3)]
        name = bytes(head[2]).decode("latin1")
        if name in names:
            arrays[name] = _array(data)
    return arrays


def _unpacked(content: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The elements, with those inside each compressed one in its place."""
    for kind, data in _elements(content):
        if kind == _PACKED:
            yield from _elements(memoryview(unpack_zlib(data)))
        else:
            yield kind, data


def _elements(content: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The type and the data of each element."""
    while len(content) >= 8:
        kind, size = struct.unpack_from("<II", content)
        start = 8
        if kind >> 16:  # a short element has its data in place of its size
            kind, size, start = kind & 0xFFFF, kind >> 16, 4
        end = start + size
        if end > (len(content) if start == 8 else 8):
            raise ValueError(f"an element of {size} bytes does not fit into the file")
        yield kind, content[start:end]
        content = content[end if kind == _PACKED else (end + 7) // 8 * 8 :]


def _array(content: memoryview) -> Any:
    """The value of an array; None if it is empty or of a kind that is not read."""
    elements = list(_elements(content))
    if len(elements) < 4:
        return None
    (_, flags), (_, shape), _, (kind, data), *rest = elements
    which = int.from_bytes(flags[:4], "little")
    match which & 0xFF:
        case code if code == _STRUCTURE and rest:
            return _records(int.from_bytes(data, "little"), bytes(rest[0][1]), rest[1:])
        case code if code == _TEXT and kind in _TEXTS:
            return bytes(data).decode(_TEXTS[kind], errors="replace")
        case code if code in _OF_NUMBERS and kind in _NUMBERS and not which & _COMPLEX:
            sizes = np.frombuffer(shape, "<i4").tolist()
            return np.frombuffer(data, _NUMBERS[kind]).reshape(sizes, order="F")
    return None


def _records(
    width: int, names: bytes, values: list[tuple[int, memoryview]]
) -> list[dict[str, Any]]:
    """The records of a structure; each name of a field takes `width` bytes."""
    starts = range(0, len(names), max(width, 1))
    fields = [names[at : at + width].split(b"\0")[0].decode("latin1") for at in starts]
    contents = [_array(data) for _, data in values]
    count = max(len(fields), 1)
    return [
        dict(zip(fields, contents[at : at + count], strict=True))
        for at in range(0, len(contents), count)
    ]
