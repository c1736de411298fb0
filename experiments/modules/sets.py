"""Public sets as `Data`: pictures as numbers, scaled by constants that everybody knows, and the
bundled features."""

from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dptune.data import Data
from dptune.data.sources import load_data
from dptune.pictures.decode import decode
from dptune.pictures.find import find_pictures
from dptune.pictures.pictures import Content, Pictures
from dptune.pictures.shifts import some

FEATURES = "demo"  # the bundled set, which is a table
# Mean and deviation of each colour, as usually given; other sets: the middle of the range.
_COLOURS = {
    "mnist": ((0.1307,), (0.3081,)),
    "fashion_mnist": ((0.2860,), (0.3530,)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
}
_MIDDLE = ((0.5,), (0.5,))


@lru_cache(maxsize=1)  # cells of one set come one after another
def rows_of(name: str, root: str | None, limit: int | None) -> Data:
    """The set of this name, at most `limit` pictures of each part."""
    if name == FEATURES:
        return load_data(FEATURES)
    found = find_pictures(name, root)
    parts = {which: found.part(which) for which in ("train", "test")}
    if limit is not None:
        parts = {which: some(part, limit) for which, part in parts.items()}
    tables = {which: (_pixels(name, part), part.labels) for which, part in parts.items()}
    classes = range(len(parts["train"].classes))
    return Data(*tables["train"], name=name, test=tables["test"], classes=classes)


def _pixels(name: str, part: Pictures) -> NDArray[np.float32]:
    """(pictures, colours, height, width)."""
    contents = [part.content(number) for number in range(len(part))]
    with ThreadPoolExecutor() as pool:  # decoders let other threads run
        encoded = not isinstance(contents[0], np.ndarray)
        pixels = np.stack(list(pool.map(_decoded, contents)) if encoded else contents)
    if pixels.ndim == 3:
        pixels = pixels[..., None]
    mean, deviation = np.array(_COLOURS.get(name, _MIDDLE), dtype=np.float32)
    scaled = (pixels.astype(np.float32) / 255 - mean) / deviation
    return np.ascontiguousarray(scaled.transpose(0, 3, 1, 2))


def _decoded(content: Content) -> NDArray[np.uint8]:
    return decode(content)[0]
