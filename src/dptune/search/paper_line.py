"""The linear scaling paper's own search: a line through the best r of two cheap sweeps.

r is the total step size, learning rate times steps. Each sweep draws a few r and keeps the best.
The line through these points predicts the r of the final run at its larger epsilon. This method
reproduces the paper and serves as a baseline; the default search needs fewer and cheaper trials.

Where the published algorithm is undefined (a falling line, an r outside the space, a sweep without
scores), the notes of the setting say what was done instead.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import NDArray

from dptune import gdp, validate
from dptune.accounting import Budget
from dptune.errors import InvalidInput
from dptune.plan import TrainPlan
from dptune.search.base import Facts, SearchMethod, Situation, Stage
from dptune.search.law import displacement
from dptune.search.picture import LinePicture
from dptune.search.space import Setting, log_uniform
from dptune.search.trial import Trial, scored_trials

ATTEMPTS = 1000  # draws of a decomposition by rejection, as in the authors' code
TOLERANCE = 0.05  # largest relative distance from r of the product of such a pair
_LEAST_RATIO = 1.001  # of two epsilons, since the inverse of their distance amplifies noise on r

Range = tuple[float, float]


@dataclass(frozen=True)
class PaperLine(SearchMethod):
    """Algorithms 2 and 3 of the paper, as in its authors' code or as in its text.

    The defaults are those of the code; `PaperLine(epsilons=(0.1, 0.2), ranges="full")` is the text.
    Learning rates are for mean gradients. In that convention the authors' code draws rates from
    10^(-5 + 0.15 k), k = 0 to 33, and steps from 5, 10, ..., 145, which is the space
    `Space(learning_rate=(1e-5, 0.8913), steps=(5, 145))`. The paper's text has 1e-7 to 1e-4 for
    sums, 0.005 to 5 for means of 50,000 rows, and 1 to 100 steps.

    Attributes:
        epsilons: epsilon of one trial in each sweep, at the budget's delta, rising.
        trials: number of trials in each sweep.
        degree: degree of the polynomial through the sweeps, by least squares if there are more
            sweeps than it needs.
        axis: the variable of that polynomial: epsilon, as in the paper's text and code, or mu, as
            in its pseudo-code.
        decomposition: how r becomes a rate and steps. "rejection" draws pairs until a product is
            near r; "steps-first" draws steps and divides; "independent" draws pairs until r is
            inside the range of the sweep (a final run then takes the most steps).
        ranges: "authors" searches in sweep i from the last best r up to i tenths of the largest r,
            so r cannot fall from sweep to sweep. "full" always searches the whole range, as in the
            text.
        sampling_rate, clip_norm: ranges from which every trial draws its own, log-uniformly. Each
            one becomes a factor of r. The final run uses those of the best trial in the last sweep
            with scores, since scores of different sweeps cannot be compared.

    """

    name: ClassVar[str] = "paper-line"
    epsilons: tuple[float, ...] = (0.05, 0.1)
    trials: int = 3
    degree: int = 1
    axis: str = "epsilon"
    decomposition: str = "rejection"
    ranges: str = "authors"
    sampling_rate: Range | None = None
    clip_norm: Range | None = None

    def __post_init__(self) -> None:
        validate.one_of(("epsilon", "mu"), axis=self.axis)
        validate.one_of(
            ("rejection", "steps-first", "independent"), decomposition=self.decomposition
        )
        validate.one_of(("authors", "full"), ranges=self.ranges)
        degree = validate.whole(1, degree=self.degree)
        epsilons = tuple(
            validate.positive(epsilons=epsilon, at_most=gdp.LARGEST_EPSILON)
            for epsilon in self.epsilons
        )
        if any(b < _LEAST_RATIO * a for a, b in itertools.pairwise(epsilons)):
            raise InvalidInput(
                f"epsilons must rise from sweep to sweep, by 0.1 % or more; got {epsilons}."
            )
        if len(epsilons) <= degree:
            raise InvalidInput(
                f"a polynomial of degree {degree} needs {degree + 1} sweeps or more; got epsilons "
                f"for {len(epsilons)}."
            )
        validate.store(
            self,
            epsilons=epsilons,
            degree=degree,
            trials=validate.whole(2, trials=self.trials),  # a single trial has no comparison
            sampling_rate=_range("sampling_rate", self.sampling_rate, 0.99e-9, 1),
            clip_norm=_range("clip_norm", self.clip_norm, 0.99e-6, 1.01e6),
        )

    @property
    def sampling_rates(self) -> Range | None:
        return self.sampling_rate

    def sweeps(self, budget: Budget, facts: Facts) -> tuple[Stage, ...]:
        if self.epsilons[-1] >= budget.epsilon:
            raise InvalidInput(
                f"a trial at epsilon {self.epsilons[-1]:g} does not fit in a budget of "
                f"{budget.epsilon:g}; use smaller epsilons for the sweeps."
            )
        mus = [gdp.mu_from_epsilon(epsilon, budget.delta) for epsilon in self.epsilons]
        return tuple(Stage(_sweep_name(i), self.trials, mu * mu) for i, mu in enumerate(mus))

    def suggest(self, stage: Stage, situation: Situation) -> list[Setting]:
        names = [_sweep_name(i) for i in range(len(self.epsilons))]
        if stage.name in names:
            before = names.index(stage.name)
            return [self._trial(before, situation) for _ in range(stage.trials)]
        return [self._final(stage.mu, situation)]

    def predict(self, epsilons: Sequence[float], situation: Situation) -> list[float]:
        """The r of a final run at each of several epsilons, all from one paid search: the value of
        the line, or the nearest one in the space."""
        best, _ = self._best(situation, len(self.epsilons))
        if not best:
            raise InvalidInput("no sweep has a score to predict from; finish a sweep first.")
        factor = self._factor(best[-1].plan)
        mus = [gdp.mu_from_epsilon(epsilon, situation.delta) for epsilon in epsilons]
        products = [self._extrapolate(best, mu, situation)[0] / factor for mu in mus]
        return [factor * situation.space.clamp(product)[0] for product in products]

    def picture(self, situation: Situation, mu: float) -> LinePicture:
        """The paper's plot: the line, up to slightly beyond the final run."""
        last = gdp.epsilon_from_mu(mu, situation.delta)
        epsilons = np.linspace(min(self.epsilons), last * 1.05, 60).tolist()
        try:
            predicted = self.predict(epsilons, situation)
        except InvalidInput:  # no sweep has scores
            return LinePicture(())
        return LinePicture(tuple(zip(epsilons, predicted, strict=True)))

    def _trial(self, before: int, situation: Situation) -> Setting:
        """Draw a trial of the sweep with index `before`."""
        low, high, notes = self._range_of(before, situation)
        sampling_rate = _draw_from(self.sampling_rate, situation.choices)
        clip_norm = _draw_from(self.clip_norm, situation.choices)
        factor = (sampling_rate or 1.0) * (clip_norm or 1.0)
        bottom, top = situation.space.total_step_size
        if high < bottom * factor or low > top * factor:
            notes += (
                f"r from {low:.4g} to {high:.4g} is outside the space for the drawn sampling rate "
                "and clipping norm; the nearest end of the space was used",
            )
        low, high = (min(max(end / factor, bottom), top) for end in (low, high))
        setting = self._draw(low, high, situation)
        return replace(
            setting,
            sampling_rate=sampling_rate,
            clip_norm=clip_norm,
            notes=notes + setting.notes,
        )

    def _final(self, mu: float, situation: Situation) -> Setting:
        best, notes = self._best(situation, len(self.epsilons))
        if not best:
            moved = displacement(1.0, mu, situation.recipe)
            setting = situation.space.spread(moved, situation.recipe)
            notes += ("the line has no point, so the unit-noise law was used",)
            return replace(setting, notes=notes + setting.notes)
        r, line_notes = self._extrapolate(best, mu, situation)
        kept = best[-1].plan
        product, clamped = situation.space.clamp(r / self._factor(kept))
        setting = self._split(product, situation)
        return replace(
            setting,
            sampling_rate=kept.sampling_rate if self.sampling_rate else None,
            clip_norm=kept.clip_norm if self.clip_norm else None,
            notes=notes + line_notes + clamped + setting.notes,
        )

    def _range_of(self, before: int, situation: Situation) -> tuple[float, float, tuple[str, ...]]:
        """The range of r of a sweep."""
        least, most = situation.space.total_step_size
        for factors in (self.sampling_rate, self.clip_norm):
            if factors:
                least, most = least * factors[0], most * factors[1]
        if self.ranges == "full":
            return least, most, ()
        best, notes = self._best(situation, before)
        low = min(max(best[-1].r, least), most) if best else least
        high = most * min(before + 1, 10) / 10
        if low < high:
            return low, high, notes
        return (
            low,
            most,
            (*notes, f"r is drawn up to {most:.4g}: {high:.4g} is not above its start"),
        )

    def _best(self, situation: Situation, sweeps: int) -> tuple[list["_Point"], tuple[str, ...]]:
        """The best trial of each of the first `sweeps` sweeps; the earlier one of equals."""
        points, notes, scored = [], [], scored_trials(situation.history)
        for index, epsilon in enumerate(self.epsilons[:sweeps]):
            sweep = [trial for trial in scored if trial.stage == _sweep_name(index)]
            if sweep:
                plan = max(sweep, key=_score).plan
                mu = gdp.mu_from_epsilon(epsilon, situation.delta)
                r = plan.total_step_size * self._factor(plan)
                points.append(_Point(epsilon, mu, r, plan))
            else:
                notes.append(f"{_sweep_name(index)} has no scores and was skipped")
        return points, tuple(notes)

    def _factor(self, plan: TrainPlan) -> float:
        """The factor of r beside learning rate and steps."""
        sampling_rate = plan.sampling_rate if self.sampling_rate else None
        clip_norm = plan.clip_norm if self.clip_norm else None
        return (sampling_rate or 1.0) * (clip_norm or 1.0)

    def _extrapolate(
        self, best: list["_Point"], mu: float, situation: Situation
    ) -> tuple[float, tuple[str, ...]]:
        """The r of a run that costs `mu`, also outside the space."""
        if len(best) == 1:
            return _scale_with_mu(best, mu), (
                "only one sweep has scores, so its r was scaled with mu",
            )
        in_mu = self.axis == "mu"
        x = [point.mu if in_mu else point.epsilon for point in best]
        r = [point.r for point in best]
        if Polynomial.fit(x, r, 1).coef[1] < -1e-9 * max(r):  # flat up to rounding does not fall
            return _scale_with_mu(best, mu), (
                "the best r falls as epsilon rises; it was scaled with mu instead",
            )
        curve, notes = _fit_polynomial(x, r, self.degree)
        return float(curve(mu if in_mu else gdp.epsilon_from_mu(mu, situation.delta))), notes

    def _draw(self, low: float, high: float, situation: Situation) -> Setting:
        """Draw a rate and steps with a product from `low` to `high`, both inside the space."""
        if self.decomposition != "independent":
            return self._split(float(situation.choices.uniform(low, high)), situation)
        rates, steps = _pairs(situation)
        inside = np.flatnonzero((rates * steps >= low) & (rates * steps <= high))
        if len(inside):
            return Setting(float(rates[inside[0]]), int(steps[inside[0]]))
        return _fall_back(float(situation.choices.uniform(low, high)), situation)

    def _split(self, product: float, situation: Situation) -> Setting:
        """A rate and steps with this product, or the nearest possible one."""
        if self.decomposition == "rejection":
            rates, steps = _pairs(situation)
            near = np.flatnonzero(np.abs(rates * steps - product) <= TOLERANCE * product)
            if len(near):
                return Setting(float(rates[near[0]]), int(steps[near[0]]))
            return _fall_back(product, situation)
        if self.decomposition == "steps-first":
            return _steps_first(product, situation)
        return _most_steps(product, situation)


@dataclass(frozen=True)
class _Point:
    """The best trial of a sweep."""

    epsilon: float
    mu: float
    r: float
    plan: TrainPlan


def _scale_with_mu(best: list[_Point], mu: float) -> float:
    """The r at `mu` if r is proportional to mu, as it is for constant noise on the weights."""
    logs = [math.log(point.r / point.mu) for point in best]
    return mu * math.exp(math.fsum(logs) / len(logs))


def _fit_polynomial(
    x: list[float], r: list[float], degree: int
) -> tuple[Polynomial, tuple[str, ...]]:
    """Fit a polynomial of `degree`, or of the highest degree that these points determine."""
    possible = min(degree, len(x) - 1)
    curve, (_, rank, _, _) = Polynomial.fit(x, r, possible, full=True)
    while rank <= possible:
        possible -= 1
        curve, (_, rank, _, _) = Polynomial.fit(x, r, possible, full=True)
    if possible == degree:
        return curve, ()
    return curve, (f"the sweeps determine a polynomial of degree {possible}, not {degree}",)


def _pairs(situation: Situation) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Rates drawn log-uniformly and steps drawn uniformly, independently."""
    least, most = situation.space.steps
    rates = log_uniform(situation.space.learning_rate, situation.choices, ATTEMPTS)
    return rates, situation.choices.integers(least, most, size=ATTEMPTS, endpoint=True)


def _fall_back(product: float, situation: Situation) -> Setting:
    setting = _most_steps(product, situation)
    note = f"{ATTEMPTS} draws of a rate and steps did not fit; the most steps were used"
    return replace(setting, notes=(note, *setting.notes))


def _steps_first(product: float, situation: Situation) -> Setting:
    """Draw steps until the rate is inside its range, without the loop."""
    low, high = situation.space.learning_rate
    fewest, most = situation.space.steps
    first = max(fewest, math.ceil(product / high))
    last = min(most, math.floor(product / low))
    if first > last:
        return _most_steps(product, situation)
    steps = int(situation.choices.integers(first, last, endpoint=True))
    note = f"{first} steps or more keep the learning rate below {high:g}"
    rate = min(max(product / steps, low), high)
    return Setting(rate, steps, notes=(note,) if first > fewest else ())


def _most_steps(product: float, situation: Situation) -> Setting:
    """The most steps that the least rate allows. The product is the movement without momentum."""
    return situation.space.spread(product, replace(situation.recipe, momentum=0.0))


def _draw_from(ends: Range | None, choices: np.random.Generator) -> float | None:
    return None if ends is None else float(log_uniform(ends, choices, 1)[0])


def _range(name: str, value: object, above: float, below: float) -> Range | None:
    if value is None:
        return None
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise InvalidInput(f"{name} must be a range (least, most); got {value!r}.")
    low, high = (validate.strictly_between(above, below, **{name: end}) for end in value)
    if low > high:
        raise InvalidInput(
            f"the range of {name} goes from {low:g} to {high:g}; give the lower end first."
        )
    return low, high


def _sweep_name(index: int) -> str:
    return f"sweep {index + 1}"


def _score(trial: Trial) -> float:
    return -math.inf if trial.score is None else trial.score
