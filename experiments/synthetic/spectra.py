"""Noise with the statistics of natural pictures and nothing else of them: spectra that fall with
a power of the frequency, and sparse coefficients of oriented wavelets."""

import math

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

SLOPES = (0.5, 3.5)  # of spectra, as in Baradad et al. 2021
SHARPNESS = (0.4, 0.8)  # of wavelet coefficients: the density falls as exp(-|x|^sharpness)
STEPS = 6  # of a tone curve


def uniform(shape: tuple[int, ...], random: Generator) -> Tensor:
    return torch.rand(shape, generator=random, device=random.device)


def normal(shape: tuple[int, ...], random: Generator) -> Tensor:
    return torch.randn(shape, generator=random, device=random.device)


def power_law(count: int, channels: int, size: int, slope: Tensor, random: Generator) -> Tensor:
    """Gaussian noise whose amplitude at frequency f is f^-slope."""
    rows = torch.fft.fftfreq(size, device=random.device)[:, None]
    columns = torch.fft.rfftfreq(size, device=random.device)
    frequency = (rows.square() + columns.square()).sqrt()
    frequency[0, 0] = 1
    amplitude = frequency.pow(-slope)
    amplitude[..., 0, 0] = 0
    return _shaped(count, channels, size, amplitude, random)


def spectra(count: int, size: int, random: Generator) -> Tensor:
    """Coloured 1/f noise, a little steeper along one axis, its tones in a few soft steps."""
    low, high = SLOPES
    slope = low + uniform((count, 1, 1, 1), random) * (high - low)
    tilt = normal((count, 1, 1, 1), random) * (high - low) / 60
    rows = torch.fft.fftfreq(size, device=random.device).abs()[:, None]
    columns = torch.fft.rfftfreq(size, device=random.device)
    amplitude = 1 / (1e-9 + columns.pow(slope + tilt) + rows.pow(slope - tilt))
    amplitude[..., 0, 0] = 0
    return mixed(stepped(_shaped(count, 3, size, amplitude, random), random), random)


def wavelets(count: int, size: int, random: Generator) -> Tensor:
    """Sums of oriented wavelets of all scales, few of them strong: heavy-tailed marginals."""
    kernels = _gabor(random.device)
    low, high = SHARPNESS
    slope = 1.5 * uniform((count, 1, 1, 1), random)
    total = torch.zeros((count, 3, size, size), device=random.device)
    side = 8
    while side <= size:
        shape = (count, 3 * len(kernels), side, side)
        power = 1 / (low + uniform((count, 3 * len(kernels), 1, 1), random) * (high - low))
        chance = uniform(shape, random).clamp(min=1e-6)
        heavy = (-chance.log()).pow(power) * torch.sign(normal(shape, random))
        heavy = heavy / heavy.std((2, 3), keepdim=True)
        band = F.conv2d(heavy, kernels.repeat(3, 1, 1, 1), padding=3, groups=3 * len(kernels))
        band = band.view(count, 3, len(kernels), side, side).sum(2)
        total += (side / size) ** -slope * F.interpolate(
            band, size=size, mode="bilinear", align_corners=False
        )
        side *= 2
    return mixed(total, random)


def mixed(pictures: Tensor, random: Generator) -> Tensor:
    """Three independent channels become three mixtures of them."""
    turn = normal((len(pictures), 3, 3), random)
    return torch.bmm(turn, pictures.flatten(2)).view_as(pictures)


def stepped(pictures: Tensor, random: Generator) -> Tensor:
    """Every channel through its own rising curve of a few steps, soft or hard."""
    shape = (STEPS, *pictures.shape[:2], 1, 1)
    places = normal(shape, random)
    heights = uniform(shape, random)
    hardness = torch.exp(3 * uniform((len(pictures), 1, 1, 1), random))
    curve = torch.zeros_like(pictures)
    for place, height in zip(places, heights, strict=True):
        curve += height * torch.sigmoid((pictures - place) * hardness)
    return curve


def _shaped(count: int, channels: int, size: int, amplitude: Tensor, random: Generator) -> Tensor:
    waves = torch.fft.rfft2(normal((count, channels, size, size), random)) * amplitude
    noise: Tensor = torch.fft.irfft2(waves, s=(size, size))
    return noise / noise.std((2, 3), keepdim=True)


def _gabor(device: torch.device) -> Tensor:
    """A wave under a bell in four directions: (4, 1, 7, 7), each of mean zero and length one."""
    across = torch.arange(-3.0, 4.0, device=device)
    angles = (torch.arange(4, device=device) * (math.pi / 4))[:, None, None]
    along = torch.cos(angles) * across + torch.sin(angles) * across[:, None]
    bell = torch.exp(-(across.square() + across[:, None].square()) / 4)
    waves = torch.cos(along * 2 + math.pi / 4) * bell
    waves = waves - waves.mean((1, 2), keepdim=True)
    return (waves / waves.square().sum((1, 2), keepdim=True).sqrt())[:, None]
