"""The unit-noise law: a prediction of the best total step size that reads no row.

A run that costs mu and moves weights by `displacement` leaves on every weight, and for rows of unit
length on every logit, Gaussian noise of standard deviation

    c = displacement * clip_norm / (mu * rows).

Steps of an adaptive optimizer are measured in learning rates and each leave about one rate of
noise: c = rate * sqrt(steps), for every price and number of rows.

Training is best stopped when that noise is about one; docs/design/law.md says why. The refinement
below uses only public and paid facts; experiments/notes/law-measured.md has its measurements.
"""

import math

from dptune.plan import TrainPlan
from dptune.prior import signal
from dptune.search.base import Census, Facts, Situation
from dptune.search.space import Setting

_SELDOM_CLIPPED = 0.5  # share of a row's length, which few gradients of a classifier exceed


def displacement(noise: float, mu: float, recipe: TrainPlan) -> float:
    """How far a run of price `mu` moves the weights if it leaves this noise on them. With an
    adaptive optimizer the noise itself moves them, so both are equal."""
    if recipe.is_adaptive:
        return noise
    along_each = math.sqrt(recipe.directions or 1)  # a step follows the mean of its directions
    return noise * along_each * mu * recipe.rows / (recipe.clip_norm or 1.0)


def setting_at(noise: float, mu: float, situation: Situation, length: float = 1.0) -> Setting:
    """The run of price `mu` that leaves this noise on its weights, for rows of this `length`."""
    moved, recipe, space = (
        displacement(noise, mu, situation.recipe),
        situation.recipe,
        situation.space,
    )
    if situation.facts.linear_in_rows and not recipe.is_adaptive:
        squared = not situation.facts.has_classes
        return space.steady(moved, recipe, situation.curvature, length, squared=squared)
    return space.usual(moved, recipe)  # stable rates have no known bound


def best_noise(mu: float, recipe: TrainPlan, facts: Facts, census: Census | None) -> float:
    """The target c: smaller with more columns or weights, larger if the mean of iterates near an
    optimum is released, and limited by overfitting at large budgets."""
    prior = facts.prior
    near = prior.near(facts.columns, facts.weights, facts.outputs)
    far: float = prior.reach * (recipe.rows / facts.columns) ** prior.reach_power / mu
    times = 1.0
    if recipe.averaging == "swa":
        converged = near * signal(mu, recipe.rows, facts.columns, facts.outputs)
        if facts.columns <= prior.wide:
            more_than_two = max(1 - 2 / facts.outputs, 0.0)
            near *= math.sqrt(1 + more_than_two * converged / prior.averaged_from)
            far *= prior.averaged_reach
        times += (prior.averaged - 1) * converged / (converged + prior.averaged_half)
        if facts.outputs <= 2:
            times *= prior.averaged_of_two
    noise = times / math.hypot(1 / near, 1 / far)
    if facts.unit_rows and (recipe.clip_norm is None or recipe.clip_norm > _SELDOM_CLIPPED):
        noise *= prior.unclipped
    return noise if census is None else noise / census.row_norm
