"""Update rules over many trials at once: weights (trials, outputs, columns), one rate per trial.

Everything here is post-processing of noisy gradients, so it costs no privacy.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from dptune.plan import TrainPlan

_BETA_1, _BETA_2, _TINY = 0.9, 0.999, 1e-8


class Optimizer:
    """The state of a group of trials that share an update rule. `step` counts from 0."""

    def __init__(self, plans: Sequence[TrainPlan], weights: Tensor) -> None:
        self.plans = list(plans)
        longest = max(plan.steps for plan in plans)
        table = [[plan.rate_at(min(t, plan.steps)) for plan in plans] for t in range(longest)]
        rates = torch.tensor(table, dtype=weights.dtype, device=weights.device)
        self.rates = rates[:, :, None, None]
        self.decays = any(plan.weight_decay for plan in plans)
        self.momentum = per_trial([plan.momentum for plan in plans], weights)
        self.decay = per_trial([plan.weight_decay for plan in plans], weights)
        self.first = torch.zeros_like(weights)

    def update_(self, weights: Tensor, gradients: Tensor, step: int) -> None:
        """Move the weights along the mean noisy gradients, in place."""
        if self.decays:
            gradients = gradients + self.decay * weights
        weights.addcmul_(self.rates[step], self.direction(weights, gradients, step), value=-1)

    def direction(self, weights: Tensor, gradients: Tensor, step: int) -> Tensor:
        raise NotImplementedError

    def keep(self, trials: Tensor) -> None:
        """Forget the trials that have ended."""
        self.plans = [self.plans[trial] for trial in trials.tolist()]
        self.rates = self.rates[:, trials]
        self.momentum, self.decay = self.momentum[trials], self.decay[trials]
        self.first = self.first[trials]


class Sgd(Optimizer):
    """Gradient descent with momentum: v <- rho v + g, w <- w - rate v."""

    def direction(self, weights: Tensor, gradients: Tensor, step: int) -> Tensor:
        self.first.mul_(self.momentum).add_(gradients)
        return self.first

    def free_step_(self, weights: Tensor, trial: int, step: int) -> None:
        """Once more along the buffer, which then decays; no gradient is taken."""
        weights -= self.plans[trial].rate_at(step) * self.first[trial]
        self.first[trial] *= self.momentum[trial]


class Adam(Optimizer):
    """Kingma & Ba 2015."""

    def __init__(self, plans: Sequence[TrainPlan], weights: Tensor) -> None:
        super().__init__(plans, weights)
        self.second = torch.zeros_like(weights)

    def direction(self, weights: Tensor, gradients: Tensor, step: int) -> Tensor:
        self.first.lerp_(gradients, 1 - _BETA_1)
        self.second.lerp_(gradients.square(), 1 - _BETA_2)
        first = self.first / (1 - _BETA_1 ** (step + 1))
        second = self.second / (1 - _BETA_2 ** (step + 1))
        return first / (second.sqrt_() + _TINY)

    def keep(self, trials: Tensor) -> None:
        super().keep(trials)
        self.second = self.second[trials]


class AdamW(Adam):
    """Adam whose weights decay by themselves (Loshchilov & Hutter 2019): the decay is no part of
    the gradient, so it is not divided by the root of the second moment."""

    def update_(self, weights: Tensor, gradients: Tensor, step: int) -> None:
        if self.decays:
            weights.mul_(1 - self.rates[step] * self.decay)
        weights.addcmul_(self.rates[step], self.direction(weights, gradients, step), value=-1)


class Lamb(Adam):
    """Adam's direction, rescaled to the norm of the layer's weights (You et al. 2020); at zero
    weights the direction is taken as it is."""

    def direction(self, weights: Tensor, gradients: Tensor, step: int) -> Tensor:
        direction = super().direction(weights, gradients, step)
        size, length = _norms(weights), _norms(direction)
        ratio = torch.where((size > 0) & (length > 0), size / length, 1.0)
        return ratio * direction


class AdamWosm(Optimizer):
    """Adam without second moments (Mohapatra et al. 2022): under noise they converge to the
    noise's variance, which is known."""

    def __init__(self, plans: Sequence[TrainPlan], weights: Tensor) -> None:
        super().__init__(plans, weights)
        self.noise = per_trial([plan.noise / plan.divisor + _TINY for plan in plans], weights)

    def direction(self, weights: Tensor, gradients: Tensor, step: int) -> Tensor:
        self.first.lerp_(gradients, 1 - _BETA_1)
        return self.first / (1 - _BETA_1 ** (step + 1)) / self.noise

    def keep(self, trials: Tensor) -> None:
        super().keep(trials)
        self.noise = self.noise[trials]


KINDS: dict[str, type[Optimizer]] = {
    "sgd": Sgd,
    "adam": Adam,
    "adamw": AdamW,
    "lamb": Lamb,
    "wosm": AdamWosm,
}


def per_trial(values: list[float], like: Tensor) -> Tensor:
    """One number for each trial, shaped to multiply weights."""
    return torch.tensor(values, dtype=like.dtype, device=like.device)[:, None, None]


def _norms(weights: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(weights, dim=(1, 2), keepdim=True)
    return norms
