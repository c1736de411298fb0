"""The common corruptions of Hendrycks and Dietterich (2019), with the numbers of their CIFAR-10-C.

Those numbers are for pictures of 32 x 32 pixels. For larger ones, lengths in pixels (the width of a
blur, the distance that pixels move) grow with the shorter side, so that pictures of every size look
equally damaged. Strengths and fractions do not change, and noise is added to single pixels.

Saturation (first less, then more) and elastic transforms (less pull, finer waves) do not damage
more at every severity, as in CIFAR-10-C.

Frost and spatter are missing: frost pastes photographs, and spatter has no short description.
"""

import hashlib
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage
from scipy.signal import fftconvolve

from dptune import validate
from dptune.errors import InvalidInput

SEVERITIES = (1, 2, 3, 4, 5)
_SIDE = 32  # of the pictures that the numbers are for

Values = NDArray[np.float64]  # from 0 to 1


@dataclass(frozen=True)
class _Draws:
    """Random numbers that are the same for the same picture, and the size of the picture."""

    rng: np.random.Generator
    scale: float  # the shorter side over 32 pixels, or 1

    def turned(self, low: float, high: float) -> float:
        """An angle, drawn in degrees, in radians."""
        return math.radians(self.rng.uniform(low, high))


def corrupted(
    pixels: NDArray[np.uint8], corruption: str, severity: int, number: int
) -> NDArray[np.uint8]:
    """Corrupt a picture (height, width, 3) with a severity of 1 to 5. The random numbers depend on
    the corruption, the severity and the picture's `number` alone."""
    validate.one_of(tuple(_CORRUPTIONS), corruption=corruption)
    severity = validate.whole(1, at_most=5, severity=severity)
    number = validate.whole(0, number=number)
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or 0 in pixels.shape:
        raise InvalidInput(
            "a picture to corrupt must be (height, width, 3) of uint8; got shape "
            f"{pixels.shape} of {pixels.dtype}."
        )
    damage, settings = _CORRUPTIONS[corruption]
    seed = hashlib.sha256(f"{corruption} {severity} {number}".encode()).digest()
    rng = np.random.default_rng(int.from_bytes(seed))
    draws = _Draws(rng, max(1.0, min(pixels.shape[:2]) / _SIDE))
    damaged = damage(pixels / 255.0, settings[severity - 1], draws)
    return np.rint(255 * np.clip(damaged, 0, 1)).astype(np.uint8)


def _gaussian_noise(x: Values, strength: float, draws: _Draws) -> Values:
    return x + strength * draws.rng.normal(size=x.shape)


def _shot_noise(x: Values, photons: float, draws: _Draws) -> Values:
    """Poisson noise, as if each value had been counted in at most `photons` photons."""
    return draws.rng.poisson(photons * x) / photons


def _impulse_noise(x: Values, share: float, draws: _Draws) -> Values:
    """A fraction of the values becomes 0 or 1."""
    hit = draws.rng.random(x.shape) < share
    return np.where(hit, draws.rng.integers(0, 2, x.shape), x)


def _speckle_noise(x: Values, strength: float, draws: _Draws) -> Values:
    return x * (1 + strength * draws.rng.normal(size=x.shape))


def _gaussian_blur(x: Values, width: float, draws: _Draws) -> Values:
    return _smoothed(x, width * draws.scale)


def _glass_blur(x: Values, setting: tuple[float, int, int], draws: _Draws) -> Values:
    """Every pixel takes the colour of a near one, once or twice, between two blurs."""
    width, far, times = setting
    far = max(1, round(far * draws.scale))
    x = _smoothed(x, width * draws.scale)
    height, wide = x.shape[:2]
    rows, columns = np.mgrid[:height, :wide]
    for _ in range(times):
        up, left = draws.rng.integers(-far, far, (2, height, wide))
        x = x[np.clip(rows + up, 0, height - 1), np.clip(columns + left, 0, wide - 1)]
    return _smoothed(x, width * draws.scale)


def _defocus_blur(x: Values, setting: tuple[float, float], draws: _Draws) -> Values:
    """The mean over a disk with soft edges."""
    radius, softness = (each * draws.scale for each in setting)
    reach = math.ceil(radius)
    soft = max(1, math.ceil(draws.scale))  # how far the edge reaches
    places = np.arange(-reach - soft, reach + soft + 1)
    disk = np.add.outer(places**2, places**2) <= radius**2
    edge = np.exp(-(np.arange(-soft, soft + 1) ** 2) / (2 * softness**2))
    kernel = fftconvolve(disk.astype(float), np.outer(edge, edge), "same")
    kernel /= kernel.sum()
    around = [(len(places) // 2,) * 2] * 2 + [(0, 0)]
    padded = np.pad(x, around, mode="reflect" if min(x.shape[:2]) > 1 else "edge")
    blurred: Values = fftconvolve(padded, kernel[..., None], "valid", axes=(0, 1))
    return blurred


def _motion_blur(x: Values, setting: tuple[float, float], draws: _Draws) -> Values:
    radius, width = setting
    return _dragged(x, radius * draws.scale, width * draws.scale, draws.turned(-45, 45))


def _zoom_blur(x: Values, farthest: float, draws: _Draws) -> Values:
    """The mean of the picture and of ever larger ones, in steps of one per cent."""
    factors = 1 + np.arange(round(100 * farthest) - 99) / 100
    return (x + sum(_zoomed(x, factor) for factor in factors)) / (len(factors) + 1)


def _fog(x: Values, setting: tuple[float, float], draws: _Draws) -> Values:
    """Brightened by clouds, then as dark again as before."""
    thick, decay = setting
    clouds = _clouds(max(x.shape[:2]), decay, draws.rng)[: x.shape[0], : x.shape[1], None]
    brightest = float(x.max())
    return (x + thick * clouds) * brightest / (brightest + thick)


def _snow(x: Values, setting: tuple[float, ...], draws: _Draws) -> Values:
    """Flakes that fall, twice, before a picture that turned paler."""
    mean, spread, size, least, radius, width, keep = setting
    flakes = _zoomed(draws.rng.normal(mean, spread, x.shape[:2]), size * draws.scale)
    flakes = np.clip(np.where(flakes < least, 0, flakes), 0, 1)
    angle = draws.turned(-135, -45)
    flakes = _dragged(flakes, radius * draws.scale, width * draws.scale, angle)[..., None]
    grey: Values = (x @ (0.299, 0.587, 0.114))[..., None]
    pale = keep * x + (1 - keep) * np.maximum(x, 1.5 * grey + 0.5)
    return pale + flakes + flakes[::-1, ::-1]


def _brightness(x: Values, more: float, draws: _Draws) -> Values:
    """More value at the same hue and saturation."""
    value: Values = x.max(-1, keepdims=True)
    brighter = np.minimum(value + more, 1)
    return np.where(value > 0, x * brighter / np.where(value > 0, value, 1), brighter)


def _saturate(x: Values, setting: tuple[float, float], draws: _Draws) -> Values:
    """Another saturation at the same hue and value; what has no hue counts as red."""
    times, more = setting
    value: Values = x.max(-1, keepdims=True)
    below = value - x
    saturation = below.max(-1, keepdims=True) / np.where(value > 0, value, 1)
    wanted = np.clip(times * saturation + more, 0, 1)
    coloured = saturation > 0
    below = np.where(coloured, below / np.where(coloured, saturation, 1), value * (0, 1, 1))
    recoloured: Values = value - below * wanted
    return recoloured


def _contrast(x: Values, share: float, draws: _Draws) -> Values:
    mean: Values = x.mean((0, 1))
    return mean + share * (x - mean)


def _elastic_transform(x: Values, setting: tuple[float, float, float], draws: _Draws) -> Values:
    """Pulled at three of its points, then every pixel moved a little like its neighbours. All
    lengths are shares of the shorter side."""
    side = min(x.shape[:2])
    far, width, pull = (side * share for share in setting)
    far *= draws.scale  # because the wider chance is smoothed, the less of it is left
    middle, arm = np.array(x.shape[:2]) // 2, side // 3
    points = middle + arm * np.array([(1, 1), (1, -1), (-1, -1)])
    pulled = points + draws.rng.uniform(-pull, pull, points.shape)
    to_points, *_ = np.linalg.lstsq(np.c_[pulled, np.ones(3)], points.astype(float), rcond=None)
    grid = np.moveaxis(np.mgrid[: x.shape[0], : x.shape[1]], 0, -1)
    x = _sampled(x, grid @ to_points[:2] + to_points[2], "mirror")
    moves = draws.rng.uniform(-1, 1, (2, *x.shape[:2]))
    moves = np.stack([far * ndimage.gaussian_filter(move, width, truncate=3) for move in moves], -1)
    return _sampled(x, grid + moves, "reflect")


def _pixelate(x: Values, share: float, draws: _Draws) -> Values:
    picture = _as_picture(x)
    width, height = (max(1, int(share * side)) for side in picture.size)
    small = picture.resize((width, height), Image.Resampling.BOX)
    return np.asarray(small.resize(picture.size, Image.Resampling.BOX)) / 255.0


def _jpeg_compression(x: Values, quality: int, draws: _Draws) -> Values:
    with io.BytesIO() as file:
        _as_picture(x).save(file, "JPEG", quality=quality)
        return np.asarray(Image.open(file)) / 255.0


def _as_picture(x: Values) -> Image.Image:
    return Image.fromarray(np.rint(255 * x).astype(np.uint8))


def _smoothed(x: Values, width: float) -> Values:
    smooth: Values = ndimage.gaussian_filter(x, (width, width, 0), mode="nearest")
    return smooth


def _zoomed(x: Values, factor: float) -> Values:
    """Larger by the factor, cut to its middle."""
    shrink = np.ones(x.ndim)
    shrink[:2] = 1 / factor
    middle = (np.array(x.shape) - 1) / 2
    larger: Values = ndimage.affine_transform(x, shrink, middle * (1 - shrink), order=1)
    return larger


def _dragged(x: Values, radius: float, width: float, angle: float) -> Values:
    """Every pixel is the mean of those along a line from it, by one half of a bell curve."""
    steps = np.arange(min(2 * round(radius), math.ceil(4 * width)) + 1)
    weights = np.exp(-(steps**2) / (2 * width**2))
    weights /= weights.sum()
    rows, columns = (np.arange(side) for side in x.shape[:2])
    mean = np.zeros_like(x)
    for step, weight in zip(steps, weights, strict=True):
        down, right = round(step * math.sin(angle)), round(step * math.cos(angle))
        mean += weight * x[np.ix_(_inside(rows + down), _inside(columns + right))]
    return mean


def _inside(places: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.clip(places, 0, len(places) - 1)


def _sampled(x: Values, places: Values, beyond: str) -> Values:
    """The colours at places (height, width, 2) between the pixels."""
    at = np.moveaxis(places, -1, 0)
    channels = [
        ndimage.map_coordinates(x[..., channel], at, order=1, mode=beyond)
        for channel in range(x.shape[2])
    ]
    return np.stack(channels, -1)


def _clouds(side: int, decay: float, rng: np.random.Generator) -> Values:
    """Heights from 0 to 1 on a square whose edges meet: midpoints are set to the mean around them
    and moved by chance, ever less by the square of `decay`, on ever finer grids."""
    side = 1 << (side - 1).bit_length()
    heights, step, most = np.zeros((side, side)), side, 1.0

    def moved(around: Values) -> Values:
        return around / 4 + most * rng.uniform(-1, 1, around.shape)

    while step > 1:
        half = step // 2
        corners = heights[::step, ::step]
        beside, below = np.roll(corners, -1, 1), np.roll(corners, -1, 0)
        centers = moved(corners + beside + below + np.roll(below, -1, 1))
        heights[half::step, half::step] = centers
        heights[::step, half::step] = moved(corners + beside + centers + np.roll(centers, 1, 0))
        heights[half::step, ::step] = moved(corners + below + centers + np.roll(centers, 1, 1))
        step, most = half, most / decay**2
    heights -= heights.min()
    return heights / max(float(heights.max()), 1e-300)


# What each does, and its numbers at severities 1 to 5.
_CORRUPTIONS: dict[str, tuple[Callable[[Values, Any, _Draws], Values], Sequence[Any]]] = {
    "gaussian_noise": (_gaussian_noise, (0.04, 0.06, 0.08, 0.09, 0.10)),
    "shot_noise": (_shot_noise, (500, 250, 100, 75, 50)),
    "impulse_noise": (_impulse_noise, (0.01, 0.02, 0.03, 0.05, 0.07)),
    "speckle_noise": (_speckle_noise, (0.06, 0.10, 0.12, 0.16, 0.20)),
    "gaussian_blur": (_gaussian_blur, (0.4, 0.6, 0.7, 0.8, 1.0)),
    "defocus_blur": (_defocus_blur, ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))),
    "glass_blur": (
        _glass_blur,
        ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    ),
    "motion_blur": (_motion_blur, ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))),
    "zoom_blur": (_zoom_blur, (1.05, 1.10, 1.15, 1.20, 1.25)),
    "fog": (_fog, ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75))),
    "snow": (
        _snow,
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
    ),
    "brightness": (_brightness, (0.05, 0.10, 0.15, 0.20, 0.30)),
    "contrast": (_contrast, (0.75, 0.5, 0.4, 0.3, 0.15)),
    "saturate": (_saturate, ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2))),
    "elastic_transform": (
        _elastic_transform,
        ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
    ),
    "pixelate": (_pixelate, (0.95, 0.9, 0.85, 0.75, 0.65)),
    "jpeg_compression": (_jpeg_compression, (80, 65, 58, 50, 40)),
}
CORRUPTIONS = tuple(_CORRUPTIONS)
