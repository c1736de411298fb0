"""From a decoded picture to what a backbone takes, as the backbone's own configuration says."""

from dataclasses import dataclass

from PIL import Image

_FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


@dataclass(frozen=True)
class Transform:
    """The picture's shorter side becomes `size / crop` pixels, its middle square of `size` pixels
    is taken (with `squash`, the whole picture is pressed into it), and colours become
    (value / 255 - mean) / deviation."""

    size: int
    mean: tuple[float, float, float]
    deviation: tuple[float, float, float]
    crop: float = 1.0
    resampling: str = "bicubic"
    squash: bool = False
