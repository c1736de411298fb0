"""The unit-noise law: where the best total step size lies, before any row is looked at.

A run that costs mu and moves weights by `displacement` leaves on every weight, and for rows of unit
length on every logit, Gaussian noise of standard deviation

    c = displacement * clip_norm / (mu * rows).

Training is best stopped where that noise is about one: see docs/law.md for why, and for the
measurements behind the refinement below, which knows only public and paid facts.
"""

from dptune.plan import TrainPlan
from dptune.search.base import Census, Facts


def displacement(noise: float, mu: float, recipe: TrainPlan) -> float:
    """How far a run of price `mu` may move the weights to leave this noise on them."""
    return noise * mu * recipe.rows / (recipe.clip_norm or 1.0)


def best_noise(mu: float, recipe: TrainPlan, facts: Facts, census: Census | None) -> float:
    """The c to aim at: one half, raised a little where there is more signal (rows and budget per
    column) or more classes, and more where some classes are rare."""
    signal = mu * recipe.rows / facts.columns
    prior = facts.prior
    by_outputs = (facts.outputs / 10) ** prior.outputs_power
    noise: float = prior.noise * signal**prior.signal_power * by_outputs
    if census is not None:
        noise *= census.imbalance / census.row_norm
    return noise
