"""Dead leaves: shapes that fall on one another, each with a colour and a texture of its own."""

import math

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from experiments.synthetic.spectra import normal, spectra, uniform, wavelets

LEAVES = 150
SMALLEST = (0.03, 0.2)  # radius in a picture, as a share of its side
LARGEST = 0.8  # in every picture; the density falls as radius^-3
TEXTURE = 0.3  # deviation of the contrast of textures


def dead_leaves(count: int, size: int, random: Generator) -> Tensor:
    """Pictures (count, 3, size, size), most values between 0 and 1. They are drawn at twice the
    size, so that rims are smooth."""
    drawn = 2 * size
    place = (torch.arange(drawn, device=random.device) + 0.5) / drawn
    low, high = SMALLEST
    smallest = low * (high / low) ** uniform((count, 1, 1), random)
    owner = torch.zeros((count, drawn, drawn), dtype=torch.long, device=random.device)
    for leaf in range(1, LEAVES):
        owner = torch.where(_covered(place, smallest, random), leaf, owner)
    owner = owner.flatten(1)[:, None]
    colours = _of_owner(uniform((count, 3, LEAVES), random), owner)
    contrast = _of_owner(TEXTURE * normal((count, 1, LEAVES), random), owner)
    fine = _of_owner(uniform((count, 1, LEAVES), random), owner) < 0.5
    smooth, sparse = (
        (texture / texture.std((1, 2, 3), keepdim=True)).flatten(2)
        for texture in (spectra(count, drawn, random), wavelets(count, drawn, random))
    )
    painted = colours + contrast * torch.where(fine, sparse, smooth)
    return F.avg_pool2d(painted.view(count, 3, drawn, drawn), 2)


def _covered(place: Tensor, smallest: Tensor, random: Generator) -> Tensor:
    """Where one leaf lies in each picture: a polygon of 3 to 8 corners or round, stretched and
    turned, its rim straight or in waves."""

    def draw() -> Tensor:
        return uniform(tuple(smallest.shape), random)

    most, least = smallest**-2, LARGEST**-2
    radius = (most - draw() * (most - least)).rsqrt()
    stretch = torch.exp(draw() - 0.5)
    turn = 2 * math.pi * draw()
    x, y = place - draw(), place[:, None] - draw()
    u = (torch.cos(turn) * x + torch.sin(turn) * y) * stretch
    v = (torch.cos(turn) * y - torch.sin(turn) * x) / stretch
    angle = torch.atan2(v, u)
    corners = (3 + 6 * draw()).floor()
    corners = torch.where(draw() < 0.25, 60.0, corners)
    sector = 2 * math.pi / corners
    rim = torch.cos(sector / 2) / torch.cos(torch.remainder(angle, sector) - sector / 2)
    waves = torch.where(draw() < 0.3, 0.3 * draw(), 0.0)
    rim = rim * (1 + waves * torch.sin((2 + 5 * draw()).floor() * angle))
    return u.square() + v.square() < (radius * rim).square()


def _of_owner(values: Tensor, owner: Tensor) -> Tensor:
    """For each pixel what its leaf has, of values (count, channels, leaves)."""
    return values.gather(2, owner.expand(-1, values.shape[1], -1))
