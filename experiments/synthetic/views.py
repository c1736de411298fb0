"""Two looks at one picture: random crops, flips and colours, of a whole batch at once.

Crops and colours are as strong as in Wang and Isola 2020, which both papers follow.
"""

import math
from functools import cache

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from experiments.synthetic.spectra import uniform

SIZE = 32
AREA = (0.08, 1.0)  # of a crop, as a share of the picture
SHAPE = math.log(4 / 3)  # of a crop: the logarithm of width over height is at most this
JITTER = 0.4  # most change of brightness, contrast and saturation as a share, of hue in turns
GREY = 0.2  # chance that a picture loses its colours

# What the network takes is (value / 255 - MEAN) / DEVIATION: round numbers, of no real picture.
MEAN, DEVIATION = 0.5, 0.25

_LUMA_AND_CHROMA = ((0.299, 0.587, 0.114), (0.5959, -0.2746, -0.3213), (0.2115, -0.5227, 0.3112))


def plain(pictures: Tensor, size: int = SIZE) -> Tensor:
    """Whole pictures as the network takes them."""
    return _normalised(F.adaptive_avg_pool2d(pictures.float() / 255, size))


def random_views(pictures: Tensor, random: Generator, size: int = SIZE) -> Tensor:
    """A look at each of the pictures (count, 3, any, any), bytes, as the network takes them."""
    return _normalised(_recoloured(_cropped(pictures.float() / 255, random, size), random))


def _normalised(values: Tensor) -> Tensor:
    return (values - MEAN) / DEVIATION


def _cropped(values: Tensor, random: Generator, size: int) -> Tensor:
    count = len(values)

    def draw(low: float, high: float) -> Tensor:
        return low + uniform((count,), random) * (high - low)

    area, shape = draw(*AREA), torch.exp(draw(-SHAPE, SHAPE))
    width, height = (area * shape).sqrt().clamp(max=1), (area / shape).sqrt().clamp(max=1)
    flip = torch.where(draw(0, 1) < 0.5, -1.0, 1.0)
    to_picture = torch.zeros((count, 2, 3), device=values.device)
    to_picture[:, 0, 0], to_picture[:, 0, 2] = flip * width, draw(-1, 1) * (1 - width)
    to_picture[:, 1, 1], to_picture[:, 1, 2] = height, draw(-1, 1) * (1 - height)
    # Four samples a pixel: a large crop shrinks to the view without jagged edges.
    places = F.affine_grid(to_picture, [count, 3, 2 * size, 2 * size], align_corners=False)
    finer = F.grid_sample(values, places, padding_mode="border", align_corners=False)
    return F.avg_pool2d(finer, 2)


def _recoloured(values: Tensor, random: Generator) -> Tensor:
    count = len(values)

    def factor() -> Tensor:
        return 1 - JITTER + 2 * JITTER * uniform((count, 1, 1, 1), random)

    to_luma, from_luma = _luma(values.device)
    values = (values * factor()).clamp(0, 1)
    middle = (values * to_luma[0].view(1, 3, 1, 1)).sum(1).mean((1, 2)).view(-1, 1, 1, 1)
    values = ((values - middle) * factor() + middle).clamp(0, 1)
    chroma = factor().flatten() * (uniform((count,), random) >= GREY)
    turn = 2 * math.pi * JITTER * (2 * uniform((count,), random) - 1)
    change = torch.zeros((count, 3, 3), device=values.device)
    change[:, 0, 0] = 1
    change[:, 1, 1] = change[:, 2, 2] = chroma * torch.cos(turn)
    change[:, 2, 1] = chroma * torch.sin(turn)
    change[:, 1, 2] = -change[:, 2, 1]
    change = from_luma @ change @ to_luma
    return torch.bmm(change, values.flatten(2)).view_as(values).clamp(0, 1)


@cache
def _luma(device: torch.device) -> tuple[Tensor, Tensor]:
    """To brightness and two chromas, and back. Kept, since bringing them to a GPU waits for it."""
    there = torch.tensor(_LUMA_AND_CHROMA)
    return there.to(device), torch.linalg.inv(there).to(device)
