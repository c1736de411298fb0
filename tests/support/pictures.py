"""Small pictures in every format, and what is true of all sources of pictures."""

import io
import pickle
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dptune.pictures.decode import decode
from dptune.pictures.pictures import Pictures


def pixels(height: int = 8, width: int = 6, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def encoded(picture: NDArray[Any] | Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    image = picture if isinstance(picture, Image.Image) else Image.fromarray(picture)
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def as_processes_see_them(pictures: Pictures) -> Pictures:
    """What comes of them on the way to another process; it must be the same pictures."""
    there: Pictures = pickle.loads(pickle.dumps(pictures))
    assert there.classes == pictures.classes and there.groups == pictures.groups
    assert there.labels.tolist() == pictures.labels.tolist()
    assert there.group_numbers.tolist() == pictures.group_numbers.tolist()
    assert len(there) == len(pictures) == len(pictures.group_numbers)
    for number in range(len(pictures)):
        assert there.name(number) == pictures.name(number)
        assert np.array_equal(decoded(there, number), decoded(pictures, number))
    return there


def decoded(pictures: Pictures, number: int) -> NDArray[np.uint8]:
    return decode(pictures.content(number))[0]
