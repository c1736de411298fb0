"""The search space, and how a total step size becomes a learning rate and steps."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dptune import validate
from dptune.errors import InvalidInput
from dptune.plan import TrainPlan

_USUAL_STEPS = 200  # more steps rarely help, unless the rate would be too large to be stable
# Gradient descent on logistic loss, whose curvature is at most half that of the rows, is stable up
# to a rate of 4 (1 + momentum) over the largest eigenvalue of their second moment.
_STABLE = 4.0
# On squared loss, whose curvature is that of the rows, the limit is half as large. We halve it
# again, because the eigenvalue is noisy and a run that diverges is useless.
_STABLE_SQUARED = 1.0


@dataclass(frozen=True)
class Setting:
    """The searched settings of one run; None leaves a choice to the recipe. `notes` say where the
    search had to deviate."""

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
    """Ranges of learning rates and steps, including their ends."""

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
        """The default number of steps."""
        least, most = self.steps
        return min(max(_USUAL_STEPS, least), most)

    def draw(self, choices: np.random.Generator) -> Setting:
        """Draw a setting: the rate log-uniformly, the steps uniformly."""
        (rate,) = log_uniform(self.learning_rate, choices, 1)
        least, most = self.steps
        return Setting(float(rate), int(choices.integers(least, most, endpoint=True)))

    def grid(self, rates: int, steps: int) -> list[Setting]:
        """A grid with logarithmic spacing over both ranges, including their ends; a single value is
        the geometric middle."""
        counts = [round(count) for count in _even_values(self.steps, steps)]
        return [
            Setting(rate, n) for rate in _even_values(self.learning_rate, rates) for n in counts
        ]

    def spread(self, displacement: float, recipe: TrainPlan) -> Setting:
        """The rate and steps that move weights by `displacement`, clamped to the space. It takes as
        many steps as the least rate allows, since small steps are the best conditioned."""
        low, high = self.learning_rate

        least, most = self.steps
        while least < most:  # the most steps that do not move too far at the least rate
            middle = (least + most + 1) // 2
            # Rounding must not cost a step.
            if low * _reach(recipe, middle) <= displacement * (1 + 1e-12):
                least = middle
            else:
                most = middle - 1
        rate = displacement / _reach(recipe, least)
        clamped = min(max(rate, low), high)
        if math.isclose(clamped, rate, rel_tol=1e-12):  # rounding needs no note
            return Setting(clamped, least)
        note = (
            f"the space ends at learning rate {clamped:g} with {least} steps; the target was "
            f"{rate:.3g}"
        )
        return Setting(clamped, least, notes=(note,))

    def usual(self, displacement: float, recipe: TrainPlan) -> Setting:
        """The same with at most the default number of steps."""
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
        """The same at a rate that is stable for rows of this `curvature` and `length`.

        It takes the default number of steps, or more if their rate would be too large. Where the
        space ends, it moves less far. `squared`: for squared loss.
        """
        # Clipping bounds how fast a gradient changes, in proportion to its norm. Near the optimum
        # of squared loss gradients are not clipped.
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
        if low > stable:  # no rate in the space is stable, so use the least one
            note = f"the space begins at learning rate {low:g}; above {stable:.3g} may be unstable"
            return replace(setting, notes=(*setting.notes, note))
        note = f"learning rate {stable:.3g} is the largest that is stable"
        return Setting(stable, steps, notes=(note,))

    def clamp(self, total_step_size: float) -> tuple[float, tuple[str, ...]]:
        """The nearest r inside the space, and a note if it differs."""
        low, high = self.total_step_size
        inside = min(max(total_step_size, low), high)
        if math.isclose(inside, total_step_size, rel_tol=1e-12):
            return inside, ()
        return inside, (f"r {total_step_size:.4g} is outside the space and became {inside:.4g}",)


def _reach(recipe: TrainPlan, steps: int) -> float:
    """How far this many steps at rate 1 move weights; with an adaptive optimizer, by noise."""
    plan = replace(recipe, learning_rate=1.0, steps=steps)
    return plan.weight_noise if plan.is_adaptive else plan.displacement


def log_uniform(
    ends: tuple[float, float], choices: np.random.Generator, count: int
) -> NDArray[np.float64]:
    """`count` log-uniform draws from a range including its ends."""
    low, high = ends
    draws = np.exp(choices.uniform(math.log(low), math.log(high), count))
    return np.clip(draws, low, high)  # exp(log(x)) may differ from x by rounding


def _rate(end: object) -> float:
    """Refuse rates so far from 1 that products with steps would overflow or underflow."""
    return validate.strictly_between(0.99e-100, 1.01e100, learning_rate=end)


def _even_values(ends: tuple[float, float], count: int) -> list[float]:
    low, high = ends
    if count == 1:
        return [math.sqrt(low * high)]
    return [float(end) for end in np.clip(np.geomspace(low, high, count), low, high)]


def _ends(name: str, value: object) -> tuple[object, object]:
    if isinstance(value, tuple | list) and len(value) == 2:
        return value[0], value[1]
    raise InvalidInput(f"{name} must be a range (least, most); got {value!r}.")


# For methods that bound the rate, and take more steps only if fewer would be unstable.
MANY_STEPS = Space(learning_rate=(0.01, 10_000.0), steps=(5, 1000))
# The default for adaptive optimizers, whose rates do not grow with the rows.
ADAPTIVE_RATES = (1e-5, 10.0)
