"""Where hyperparameters are looked for, and how a total step size becomes a rate and steps."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dptune import validate
from dptune.errors import InvalidInput
from dptune.plan import TrainPlan

_USUAL_STEPS = 200  # more seldom help, unless the rate would be too large to be stable
# Gradient descent on logistic loss, whose curvature is at most half that of the rows, is stable up
# to a rate of 4 (1 + momentum) over the largest eigenvalue of their second moment.
_STABLE = 4.0
# On squared loss, whose curvature is that of the rows, up to half of that; and half of it again,
# because the eigenvalue is known with noise and a run that diverges is worth nothing.
_STABLE_SQUARED = 1.0


@dataclass(frozen=True)
class Setting:
    """What a search decides of one run; None leaves a choice to the recipe. `notes` say where the
    search had to bend."""

    learning_rate: float
    steps: int
    sampling_rate: float | None = None
    clip_norm: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def total_step_size(self) -> float:
        """The paper's r."""
        return self.learning_rate * self.steps


@dataclass(frozen=True)
class Space:
    """Ranges, ends included."""

    learning_rate: tuple[float, float] = (0.01, 1000.0)
    steps: tuple[int, int] = (5, 200)

    def __post_init__(self) -> None:
        low, high = _ends("learning_rate", self.learning_rate)
        rates = (_rate(low), _rate(high))
        low, high = _ends("steps", self.steps)
        steps = (validate.whole(1, steps=low), validate.whole(1, steps=high))
        for name, (least, most) in (("learning_rate", rates), ("steps", steps)):
            if least > most:
                raise InvalidInput(
                    f"the range of {name} goes from {least:g} to {most:g}; give the lower end "
                    "first."
                )
        validate.store(self, learning_rate=rates, steps=steps)

    @property
    def total_step_size(self) -> tuple[float, float]:
        """The range of the paper's r."""
        return (
            self.learning_rate[0] * self.steps[0],
            self.learning_rate[1] * self.steps[1],
        )

    @property
    def usual_steps(self) -> int:
        """How many are taken where nothing asks for more or fewer."""
        least, most = self.steps
        return min(max(_USUAL_STEPS, least), most)

    def draw(self, choices: np.random.Generator) -> Setting:
        """One setting at random: the rate log-uniformly, the steps uniformly."""
        (rate,) = log_uniform(self.learning_rate, choices, 1)
        least, most = self.steps
        return Setting(float(rate), int(choices.integers(least, most, endpoint=True)))

    def grid(self, rates: int, steps: int) -> list[Setting]:
        """Settings evenly over the logarithms of both ranges, ends included; one alone is in the
        middle."""
        counts = [round(count) for count in _even_values(self.steps, steps)]
        return [
            Setting(rate, n) for rate in _even_values(self.learning_rate, rates) for n in counts
        ]

    def spread(self, displacement: float, recipe: TrainPlan) -> Setting:
        """The rate and steps that move weights by `displacement`: as many steps as the least rate
        allows, since many small steps are the best conditioned. Clamped where the space ends."""
        low, high = self.learning_rate

        least, most = self.steps
        while least < most:  # the most steps that do not move too far at the least rate
            middle = (least + most + 1) // 2
            # Not one less by a rounding.
            if low * _reach(recipe, middle) <= displacement * (1 + 1e-12):
                least = middle
            else:
                most = middle - 1
        rate = displacement / _reach(recipe, least)
        clamped = min(max(rate, low), high)
        if math.isclose(clamped, rate, rel_tol=1e-12):  # a rounding is nothing to tell
            return Setting(clamped, least)
        note = (
            f"the space ends at learning rate {clamped:g} with {least} steps; {rate:.3g} was wanted"
        )
        return Setting(clamped, least, notes=(note,))

    def usual(self, displacement: float, recipe: TrainPlan) -> Setting:
        """The same in no more than the usual number of steps."""
        least, _ = self.steps
        return replace(self, steps=(least, self.usual_steps)).spread(displacement, recipe)

    def steady(
        self,
        displacement: float,
        recipe: TrainPlan,
        curvature: float,
        length: float = 1.0,
        *,
        squared: bool = False,
    ) -> Setting:
        """The same at a rate that is stable for rows of such a `curvature` and `length`: in the
        usual number of steps, in more where their rate would be too large, or not as far where the
        space ends. `squared`: on squared loss."""
        # Clipped, a gradient changes by no more than its norm in proportion; but near the optimum
        # of squared loss none is.
        clipped = not squared and recipe.clip_norm is not None
        norm = min(recipe.clip_norm or length, length) if clipped else length
        limit = _STABLE_SQUARED if squared else _STABLE
        stable = limit * (1 + recipe.momentum) / (curvature * length * norm)
        least, most = self.steps
        steps = self.usual_steps
        while steps < most and displacement / _reach(recipe, steps) > stable:
            steps = min(most, max(steps + 1, int(1.1 * steps)))
        setting = replace(self, steps=(least, steps)).spread(displacement, recipe)
        if setting.learning_rate <= stable:
            return setting
        low, _ = self.learning_rate
        if low > stable:  # nothing in the space is stable: as little as can be
            note = f"the space begins at learning rate {low:g}; above {stable:.3g} may be unstable"
            return replace(setting, notes=(*setting.notes, note))
        note = f"learning rate {stable:.3g} is the largest that is stable"
        return Setting(stable, steps, notes=(note,))

    def clamp(self, total_step_size: float) -> tuple[float, tuple[str, ...]]:
        """The nearest r inside the space, and a note where it is another."""
        low, high = self.total_step_size
        inside = min(max(total_step_size, low), high)
        if math.isclose(inside, total_step_size, rel_tol=1e-12):
            return inside, ()
        return inside, (f"r {total_step_size:.4g} is outside the space and became {inside:.4g}",)


def _reach(recipe: TrainPlan, steps: int) -> float:
    """How far so many steps at a rate of 1 move weights; for an adaptive optimizer by noise."""
    plan = replace(recipe, learning_rate=1.0, steps=steps)
    return plan.weight_noise if plan.is_adaptive else plan.displacement


def log_uniform(
    ends: tuple[float, float], choices: np.random.Generator, count: int
) -> NDArray[np.float64]:
    """`count` draws, ends included."""
    low, high = ends
    drawn = np.exp(choices.uniform(math.log(low), math.log(high), count))
    return np.clip(drawn, low, high)  # exp(log(x)) may miss x by a rounding


def _rate(end: object) -> float:
    """Far from 1, products of rates and steps would overflow or vanish."""
    return validate.strictly_between(0.99e-100, 1.01e100, learning_rate=end)


def _even_values(ends: tuple[float, float], count: int) -> list[float]:
    low, high = ends
    if count == 1:
        return [math.sqrt(low * high)]
    return [float(end) for end in np.clip(np.geomspace(low, high, count), low, high)]


def _ends(name: str, given: object) -> tuple[object, object]:
    if isinstance(given, tuple | list) and len(given) == 2:
        return given[0], given[1]
    raise InvalidInput(f"{name} is a range (least, most); got {given!r}.")


# For methods that know which rates are stable, and take more steps only where fewer are not.
MANY_STEPS = Space(learning_rate=(0.01, 10_000.0), steps=(5, 1000))
# Where nobody names any, for adaptive optimizers: theirs do not grow with the rows.
ADAPTIVE_RATES = (1e-5, 10.0)
