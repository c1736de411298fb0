"""Pictures by untrained generators in the manner of StyleGAN, each by a network of its own: the
strongest process of Baradad et al. 2021 ("StyleGAN-oriented").

There every channel of a layer sees the same sum of oriented 3 x 3 kernels up to its sign, a bias
and one map of noise, which all layers share. So a layer is one field of numbers: its channels are
computed from it, and never stored between layers. That makes a network per picture affordable.
"""

import math

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from experiments.synthetic.spectra import normal, power_law, uniform

CHANNELS = 128
BIAS = 0.2  # biases are uniform in -BIAS..BIAS
NOISE = 0.3  # the most that the map of noise weighs in a layer
STYLE = 0.72  # deviation of the weights of channels around 1
FEWEST_KERNELS = 5  # of a layer


def random_networks(count: int, size: int, random: Generator) -> Tensor:
    """Pictures (count, 3, size, size) of any range; the size is a power of two, at least 4. They
    are drawn at twice the size, so that edges are sharp."""
    drawn = 2 * size
    noise = _enveloped_noise(count, drawn, random)
    field = normal((count, 1, 4, 4), random)
    colours = torch.zeros((count, 3, 4, 4), device=random.device)
    side = 4
    while True:
        field = _layer(field, noise, random)
        channels = _channels(field, noise, random)
        to_colours = normal((count, 3, CHANNELS), random) * _styles(count, random)
        colours += torch.bmm(to_colours, channels).view_as(colours) / math.sqrt(CHANNELS)
        if side == drawn:
            return F.avg_pool2d(colours, 2)
        side *= 2
        field = _layer(field, noise, random, enlarge=2)
        colours = _enlarged(colours)


def oriented_kernels(device: torch.device) -> Tensor:
    """Edges and lines in eight directions, a point, a point on its opposite, and crosses, each with
    both signs: (40, 9)."""
    across = torch.arange(-1.0, 2.0, device=device)
    angles = (torch.arange(8, device=device) * (math.pi / 8))[:, None, None]
    distance = torch.cos(angles) * across + torch.sin(angles) * across[:, None]
    edges = distance.clamp(-1, 1)
    lines = 1 - 2 * (1 - distance.abs()).clamp(min=0)
    straight = torch.cat([edges, lines]).flatten(1)
    straight -= straight.mean(1, keepdim=True)
    point = torch.zeros(9, device=device)
    point[4] = 1
    cross = torch.zeros(9, device=device)
    cross[1::2] = 1
    cross[4] = 1
    kernels = torch.cat([straight, torch.stack([point, 2 * point - 1, cross, 2 * cross - 1])])
    return torch.cat([kernels, -kernels])


def _layer(field: Tensor, noise: Tensor, random: Generator, enlarge: int = 1) -> Tensor:
    """Channels of a field, summed through one kernel each; weights have length one together."""
    count, _, side, _ = field.shape
    weights = _kernels(count, random) * _styles(count, random).transpose(1, 2)
    weights = weights / weights.square().sum((1, 2), keepdim=True).sqrt()
    channels = _channels(field, noise, random)
    taps = torch.bmm(weights.transpose(1, 2), channels).view(count, 9, side, side)
    if enlarge > 1:
        taps = _enlarged(taps)
    # Beyond the border the picture goes on as it ends: zeros there would draw a frame.
    taps = F.pad(taps, (1, 1, 1, 1), mode="replicate")
    wider = side * enlarge + 2
    return F.fold(taps.flatten(2), (wider, wider), 3, padding=1)[..., 1:-1, 1:-1]


def _channels(field: Tensor, noise: Tensor, random: Generator) -> Tensor:
    """What the layer above sees, (count, channels, pixels): each channel the positive part of the
    field with its sign, the noise and its bias. As one product, since memory is what it costs."""
    count, _, side, _ = field.shape
    sign = torch.where(uniform((count, CHANNELS, 1), random) < 0.5, -1.0, 1.0)
    bias = (2 * uniform((count, CHANNELS, 1), random) - 1) * BIAS
    strength = (uniform((count, 1, 1), random) * NOISE).expand_as(sign)
    shared = F.adaptive_avg_pool2d(noise, side)
    maps = torch.cat([field, shared, torch.ones_like(field)], dim=1).flatten(2)
    return torch.bmm(math.sqrt(2) * torch.cat([sign, strength, bias], dim=2), maps).relu_()


def _kernels(count: int, random: Generator) -> Tensor:
    """A kernel for each channel, out of few that a layer draws for itself: (count, channels, 9)."""
    kernels = oriented_kernels(random.device)
    order = uniform((count, len(kernels)), random).argsort(1)
    drawn = FEWEST_KERNELS + uniform((count, 1), random) * (len(kernels) - FEWEST_KERNELS + 1)
    place = (uniform((count, CHANNELS), random) * drawn.floor()).long()
    return kernels[order.gather(1, place)]


def _styles(count: int, random: Generator) -> Tensor:
    return 1 + STYLE * normal((count, 1, CHANNELS), random)


def _enveloped_noise(count: int, size: int, random: Generator) -> Tensor:
    """Noise with a 1/f spectrum, strong in some places and weak in others."""
    noise = power_law(count, 1, size, 0.5 + uniform((count, 1, 1, 1), random), random)
    rate = uniform((count, 1, 4, 4), random).clamp(min=1e-6).log()
    envelope = torch.where(uniform((count, 1, 4, 4), random) < 0.5, -rate, rate)
    noise = noise * F.interpolate(envelope, size=size, mode="bicubic", align_corners=False)
    return noise / noise.std((2, 3), keepdim=True)


def _enlarged(maps: Tensor) -> Tensor:
    return F.interpolate(maps, scale_factor=2, mode="bilinear", align_corners=False)
