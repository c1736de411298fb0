"""A convolution whose weights are standardised: from each output channel's weights their mean is
taken away, and they are divided by their length.

The map from raw to standardised weights depends on the weights alone, and gradients go back through
it by a linear map that is the same for every row, two projections of each output channel: next to
nothing beside the gradients of single rows that it is applied to.
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
        found: Tensor = self._conv_forward(input, standardized(self.weight), self.bias)
        return found


def standardized(weight: Tensor) -> Tensor:
    """Each output channel: u / sqrt(|u|^2 + least), where u is the weights without their mean."""
    centred, length = _parts(weight)
    return (centred / length).view_as(weight)


def pull_back(weight: Tensor, gradients: Tensor) -> Tensor:
    """Gradients with respect to standardised weights, as many numbers each as `weight` has, as
    gradients with respect to `weight`: (rows, output channels, fan in).

    With u and its length l as above, the derivative of u / l is (centring - u u' / l^2) / l, which
    is symmetric: so it is applied as it is.
    """
    centred, length = _parts(weight)
    flat = gradients.reshape(len(gradients), *centred.shape)
    flat = flat - flat.mean(-1, keepdim=True)
    along = (flat * (centred / length)).sum(-1, keepdim=True)
    return (flat - along * (centred / length)) / length


def _parts(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Of every output channel the centred weights (channels, fan in) and their length."""
    flat = weight.flatten(1)
    centred = flat - flat.mean(1, keepdim=True)
    return centred, torch.sqrt(centred.square().sum(1, keepdim=True) + _LEAST)
