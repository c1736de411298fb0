"""A convolution whose weights are standardised: from each output channel's weights their mean is
taken away, and they are divided by their length.

The map from raw to standardised weights depends on the weights alone, and gradients go back through
it by a linear map that is the same for every row. So gradients of single rows with respect to the
standardised weights are enough: each is measured, and their clipped sum moved, through `pull_back`.
"""

import torch
from torch import Tensor, nn

_LEAST = 1e-4  # keeps weights that are all equal from being divided by zero


class StandardizedConv2d(nn.Conv2d):
    """nn.Conv2d on standardised weights (Qiao et al. 2019, Brock et al. 2021), begun at about
    length 1 an output channel, so that they are what they stand for."""

    def reset_parameters(self) -> None:
        fan_in = self.weight[0].numel()
        nn.init.normal_(self.weight, std=fan_in**-0.5)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, standardized(self.weight), self.bias)


def standardized(weight: Tensor) -> Tensor:
    """Each output channel: u / sqrt(|u|^2 + least), where u is the weights without their mean."""
    centred, length = _parts(weight)
    return (centred / length).view_as(weight)


def pull_back(weight: Tensor, gradients: Tensor) -> Tensor:
    """Gradients with respect to standardised weights, (..., *shape of weight), as gradients with
    respect to `weight`: linear in each.

    With u and its length l as above, the derivative of u / l is (centring - u u' / l^2) / l, which
    is symmetric: so it is applied as it is.
    """
    centred, length = _parts(weight)
    flat = gradients.reshape(*gradients.shape[: -weight.ndim], len(weight), -1)
    flat = flat - flat.mean(-1, keepdim=True)
    along = (flat * centred).sum(-1, keepdim=True)
    return ((flat - along * centred / length.square()) / length).view(gradients.shape)


def most_stretched(weight: Tensor) -> Tensor:
    """(output channels,): no gradient gets longer than by this factor."""
    return 1 / _parts(weight)[1].flatten()


def _parts(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Of every output channel the centred weights (channels, fan in) and their length."""
    flat = weight.flatten(1)
    centred = flat - flat.mean(1, keepdim=True)
    return centred, torch.sqrt(centred.square().sum(1, keepdim=True) + _LEAST)
