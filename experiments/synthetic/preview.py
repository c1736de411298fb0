"""Random pictures as files, for eyes and for other programs."""

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Generator

from experiments.synthetic import bank


def save_pixels(count: int, file: Path, *, seed: int, device: str) -> None:
    np.savez_compressed(file, x_train=_pixels(count, seed, device))


def save_sheet(count: int, file: Path, *, seed: int, device: str) -> None:
    """All pictures side by side, in rows about three times as long as the sheet is high."""
    from PIL import Image

    pixels = _pixels(count, seed, device)
    across = math.ceil(math.sqrt(3 * count))
    down = math.ceil(count / across)
    side = pixels.shape[1]
    sheet = np.zeros((down * across, side, side, 3), dtype=np.uint8)
    sheet[:count] = pixels
    rows = sheet.reshape(down, across, side, side, 3).swapaxes(1, 2)
    Image.fromarray(rows.reshape(down * side, across * side, 3)).save(file)


def _pixels(count: int, seed: int, device: str) -> NDArray[np.uint8]:
    """(count, side, side, 3)."""
    made = bank.pictures(count, Generator(device).manual_seed(seed))
    pixels: NDArray[np.uint8] = made.permute(0, 2, 3, 1).cpu().numpy()
    return pixels
