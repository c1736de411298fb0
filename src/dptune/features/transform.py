"""Prepare a decoded picture for a backbone, as the backbone's configuration says."""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from dptune.errors import InvalidInput
from dptune.validate import flag, one_of, positive, store, whole

_FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
_LARGEST_SIZE = 4096  # pixels of a side; no network takes larger pictures


@dataclass(frozen=True)
class Transform:
    """Resize the shorter side to `size / crop` pixels, take the middle square of `size` pixels, and
    normalise colours to (value / 255 - mean) / deviation. With `squash`, the whole picture is first
    resized to a square of `size / crop`.

    There are two steps. `shrunk` runs where pictures are decoded: it gives the middle square at its
    final size, or unresized if the picture is smaller. `normalised` runs on the device and enlarges
    small pictures.
    """

    size: int
    mean: tuple[float, float, float]
    deviation: tuple[float, float, float]
    crop: float = 1.0
    resampling: str = "bicubic"
    squash: bool = False
    things: ClassVar[str] = "pictures"

    def __post_init__(self) -> None:
        one_of(tuple(_FILTERS), resampling=self.resampling)
        store(
            self,
            size=whole(1, at_most=_LARGEST_SIZE, size=self.size),
            crop=positive(at_most=1, crop=self.crop),
            squash=flag(squash=self.squash),
            mean=_three("mean", self.mean),
            deviation=_three("deviation", self.deviation),
        )
        for value in self.deviation:
            positive(deviation=value)

    @property
    def takes(self) -> str:
        return f"pictures of {self.size} pixels"

    def samples(self) -> Tensor:
        picture = torch.linspace(-1, 1, 3 * self.size**2).reshape(1, 3, self.size, self.size)
        return torch.cat([picture, -picture])

    def blank(self, count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Black pictures."""
        black = torch.zeros((count, 3, self.size, self.size), dtype=dtype, device=device)
        return black.contiguous(memory_format=torch.channels_last)

    @property
    def side(self) -> int:
        """The length of the shorter side before the middle is taken. A picture may be decoded at
        less than its full size if both its sides stay at least this long."""
        return int(self.size / self.crop + 1e-6)  # rounded down, as usual; 232.0 is 232

    def shrunk(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Shrink a picture (height, width, 3) to (size, size, 3), or less if it is smaller."""
        height, width = pixels.shape[:2]
        if self.squash:
            if height * width < self.size**2:
                return pixels
            return self._resized(pixels, self.side, self.side)
        shorter = min(height, width)
        if shorter < self.size:
            top, left = (height - shorter) // 2, (width - shorter) // 2
            return np.ascontiguousarray(pixels[top : top + shorter, left : left + shorter])
        # The longer side is rounded down, as in other libraries.
        return self._resized(pixels, self.side * height // shorter, self.side * width // shorter)

    def normalised(self, batch: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Turn pictures (batch, height, width, 3) of one shape, from `shrunk`, into
        (batch, 3, size, size) on their device."""
        pictures = batch.permute(0, 3, 1, 2).to(torch.float32)  # channels last, nothing copied
        if pictures.shape[2:] != (self.size, self.size):
            # Horizontally, then vertically, rounded to whole levels after each, as in Pillow.
            across = _weights(self, pictures.shape[3], batch.device)
            down = _weights(self, pictures.shape[2], batch.device)
            with torch.autocast(batch.device.type, enabled=False):  # half would lose grey levels
                pictures = (pictures.contiguous() @ across.T).round_().clamp_(0, 255)
                pictures = torch.einsum("sh,nchw->ncsw", down, pictures).round_().clamp_(0, 255)
        shift, factor = _colours(self, batch.device)
        pictures = torch.addcmul(shift, pictures, factor)
        return pictures.to(dtype, memory_format=torch.channels_last)

    def _resized(self, pixels: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
        """The middle square of the picture resized to this height and width. Only the middle is
        computed: the box is its place in the picture, and the filter may use pixels outside it."""
        across, down = pixels.shape[1] / width, pixels.shape[0] / height
        left, top = _middle(width, self.size), _middle(height, self.size)
        box = (
            left * across,
            top * down,
            min((left + self.size) * across, pixels.shape[1]),
            min((top + self.size) * down, pixels.shape[0]),
        )
        square = (self.size, self.size)
        picture = Image.fromarray(pixels).resize(square, _FILTERS[self.resampling], box=box)
        return np.array(picture)


# Constants of all batches stay on the device: sending them again would wait for its queue.
@lru_cache(maxsize=32)
def _weights(transform: Transform, length: int, device: torch.device) -> Tensor:
    """The weights of each pixel of the middle square over a row of `length` pixels."""
    rows = F.interpolate(
        torch.eye(length)[None, None],
        size=(transform.side, length),
        mode=transform.resampling,
        antialias=True,  # with it, these are Pillow's filters
        align_corners=False,
    )[0, 0]
    first = _middle(transform.side, transform.size)
    return rows[first : first + transform.size].to(device)


@lru_cache(maxsize=32)
def _colours(transform: Transform, device: torch.device) -> tuple[Tensor, Tensor]:
    """The shift of colours, and the factor applied before it."""
    mean = torch.tensor(transform.mean).view(1, 3, 1, 1)
    deviation = torch.tensor(transform.deviation).view(1, 3, 1, 1)
    return (-mean / deviation).to(device), (1 / (255 * deviation)).to(device)


def _middle(whole_side: int, part: int) -> int:
    return round((whole_side - part) / 2)


def _three(name: str, values: object) -> tuple[float, float, float]:
    try:
        red, green, blue = (float(value) for value in values)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise InvalidInput(
            f"{name} must be three numbers, one for each of red, green and blue; got {values!r}."
        ) from None
    if not np.isfinite([red, green, blue]).all():
        raise InvalidInput(f"{name} must be finite; got {values!r}.")
    return red, green, blue
