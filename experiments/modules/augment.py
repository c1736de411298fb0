"""Copies of pictures, made on the device that trains: each cropped and mirrored for itself."""

import torch
import torch.nn.functional as F
from torch import Tensor

MARGIN = 4  # pixels that the picture goes on beyond its border, mirrored


def crop_and_flip(pictures: Tensor) -> Tensor:
    """(n, channels, height, width), each moved by up to the margin and mirrored half of the time,
    by one gather for all."""
    count, _, height, width = pictures.shape
    device = pictures.device
    wider = F.pad(pictures.float(), (MARGIN,) * 4, mode="reflect").to(pictures.dtype)
    down, right = torch.randint(2 * MARGIN + 1, (2, count, 1), device=device)
    mirrored = torch.rand(count, 1, device=device) < 0.5
    columns = torch.arange(width, device=device).expand(count, width)
    columns = right + torch.where(mirrored, width - 1 - columns, columns)
    lines = down + torch.arange(height, device=device)
    which = torch.arange(count, device=device)[:, None, None]
    # Channels last while gathering: a pixel's colours lie side by side.
    moved = wider.permute(0, 2, 3, 1)[which, lines[:, :, None], columns[:, None, :]]
    return moved.permute(0, 3, 1, 2)
