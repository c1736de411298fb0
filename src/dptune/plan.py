"""One training run, described completely by public numbers.

Nothing in a plan may be computed from private rows. `rows` is the public row count, by which sums
of gradients are divided. It is a constant of the plan, never the length of loaded data.

>>> plan = TrainPlan(rows=50_000, steps=100, learning_rate=10.0, noise_multiplier=37.4)
>>> plan.event
FullBatchRun(steps=100, noise_multiplier=37.4)
>>> plan.total_step_size
1000.0
"""

import math
from dataclasses import dataclass

from dptune import validate
from dptune.errors import InvalidInput, UnpricedEvent
from dptune.privacy import FullBatchRun, SampledRun, ZerothOrderRun

Run = FullBatchRun | SampledRun | ZerothOrderRun

OPTIMIZERS = ("sgd", "adam", "adamw", "lamb", "wosm")
# The length of their steps is about the learning rate, for gradients of any size.
ADAPTIVE = OPTIMIZERS[1:]
SCHEDULES = ("constant", "linear", "cosine")
AVERAGES = ("none", "ema", "swa")
_LEAST = 1e-9


@dataclass(frozen=True, kw_only=True)
class TrainPlan:
    """The settings of a training run that all engines share; each engine may have more of its own.

    The defaults are those of the linear scaling paper: full batch, unit clipping, momentum 0.9, no
    weight decay.

    Attributes:
        rows: public row count; sums are divided by `rows * sampling_rate`.
        noise_multiplier: noise on the sum of clipped gradients, in clipping norms.
        clip_norm: bound on one row's gradient; None is training without privacy.
        sampling_rate: probability of each row in each step (Poisson); None, or 1, is every row.
        optimizer: sgd (with momentum), adam, adamw (with decoupled weight decay), lamb, or wosm
            (Adam whose second moment is the known variance of the noise; Mohapatra et al. 2022).
        averaging: release the last iterate, its moving average (ema), or the mean of the last
            iterates (swa).
        tail: how many of the last iterates swa averages, including those of a run that this one
            continues; None is the second half.
        free_steps: steps along the momentum buffer after the last gradient; they read no rows.
        augmentations: copies of each row whose gradients are averaged before clipping.
        class_weights: factors of a row's clipped gradient, one for each class, above 0 and at most
            1; None is 1 for every row. `rows` is then the weighted number of rows.
        directions: the number of public random directions along which a step compares losses, for
            an engine without gradients; None uses gradients.

    """

    rows: int
    steps: int
    learning_rate: float
    noise_multiplier: float
    clip_norm: float | None = 1.0
    sampling_rate: float | None = None
    optimizer: str = "sgd"
    momentum: float = 0.9
    weight_decay: float = 0.0
    schedule: str = "constant"
    averaging: str = "none"
    tail: int | None = None
    ema_decay: float = 0.9999
    free_steps: int = 0
    augmentations: int = 1
    class_weights: tuple[float, ...] | None = None
    directions: int | None = None

    def __post_init__(self) -> None:
        validate.one_of(OPTIMIZERS, optimizer=self.optimizer)
        validate.one_of(SCHEDULES, schedule=self.schedule)
        validate.one_of(AVERAGES, averaging=self.averaging)
        validate.store(
            self,
            rows=validate.whole(1, rows=self.rows),
            steps=validate.whole(1, steps=self.steps),
            augmentations=validate.whole(1, augmentations=self.augmentations),
            free_steps=validate.whole(0, free_steps=self.free_steps),
            learning_rate=validate.positive(learning_rate=self.learning_rate),
            weight_decay=validate.non_negative(weight_decay=self.weight_decay),
            momentum=validate.non_negative(momentum=self.momentum, at_most=1 - 1e-9),
            ema_decay=validate.strictly_between(0, 1, ema_decay=self.ema_decay),
            noise_multiplier=validate.non_negative(
                noise_multiplier=self.noise_multiplier, at_most=1e9
            ),
        )
        if 0 < self.noise_multiplier < _LEAST:
            raise InvalidInput(
                f"noise_multiplier must be 0 or at least {_LEAST:g}; got {self.noise_multiplier:g}."
            )
        if self.clip_norm is not None:
            # Far from 1, sums overflow or noise underflows in float32; rescale features instead.
            clip_norm = validate.strictly_between(0.99e-6, 1.01e6, clip_norm=self.clip_norm)
            validate.store(self, clip_norm=clip_norm)
        elif self.noise_multiplier > 0:
            raise InvalidInput(
                "noise is measured in clipping norms, so noise_multiplier "
                f"{self.noise_multiplier:g} needs a clip_norm; give one, or set the noise to 0 for "
                "training without privacy."
            )
        if self.sampling_rate == 1:  # TOML has no None
            validate.store(self, sampling_rate=None)
        if self.sampling_rate is not None:
            # Uniform numbers have 53 bits, which cannot represent a far smaller rate exactly.
            rate = validate.strictly_between(0.99e-9, 1, sampling_rate=self.sampling_rate)
            validate.store(self, sampling_rate=rate)
        if self.free_steps > 10 or (self.free_steps and self.optimizer != "sgd"):
            raise InvalidInput(
                f"free_steps needs sgd, whose momentum buffer it follows, and may be at most 10; "
                f"got {self.free_steps} with {self.optimizer}. Lower it, or use sgd."
            )
        if self.free_steps and self.averaging != "none":
            raise InvalidInput(
                f"free_steps move the last weights, which averaging {self.averaging} does not "
                "release; use only one of both."
            )
        if self.tail is not None:
            validate.store(self, tail=validate.whole(0, tail=self.tail))
            if self.averaging != "swa":
                raise InvalidInput(
                    f"only swa averages a tail; got tail {self.tail} with averaging "
                    f"{self.averaging}. Leave tail out."
                )
        if self.class_weights is not None:
            weights = tuple(
                validate.positive(class_weights=weight, at_most=1.0)
                for weight in self.class_weights
            )
            validate.store(self, class_weights=weights)
        if self.directions is not None:
            validate.store(self, directions=validate.whole(1, directions=self.directions))
        if self.optimizer == "wosm" and not self.is_private:
            raise InvalidInput(
                "wosm scales its steps by the noise, so it needs a noise_multiplier above 0."
            )

    @property
    def is_private(self) -> bool:
        """Whether any privacy can be claimed for this run."""
        return self.clip_norm is not None and self.noise_multiplier > 0

    @property
    def event(self) -> Run:
        """The event of this run, always derived from the plan."""
        if not self.is_private:
            raise UnpricedEvent(
                "a run without noise or without clipping has no finite price; use it only on "
                "public data."
            )
        return self.event_of(self.steps, self.noise_multiplier)

    def event_of(self, steps: int, noise_multiplier: float) -> Run:
        """The event of such a run with other steps and noise."""
        noise, rate = noise_multiplier, self.sampling_rate
        if self.directions is not None:
            return ZerothOrderRun(
                steps=steps,
                noise_multiplier=noise,
                sampling_rate=rate,
                directions=self.directions,
            )
        if rate is None:
            return FullBatchRun(steps=steps, noise_multiplier=noise)
        return SampledRun(steps=steps, noise_multiplier=noise, sampling_rate=rate)

    @property
    def divisor(self) -> float:
        """The public number that turns a sum into a mean."""
        return self.rows * (1.0 if self.sampling_rate is None else self.sampling_rate)

    @property
    def noise(self) -> float:
        """Standard deviation of the noise on each coordinate of the sum."""
        return 0.0 if self.clip_norm is None else self.noise_multiplier * self.clip_norm

    @property
    def total_step_size(self) -> float:
        """The paper's r."""
        return self.learning_rate * self.steps

    @property
    def displacement(self) -> float:
        """How far a constant unit gradient moves the weights: r, including momentum."""
        rho, steps = (self.momentum if self.optimizer == "sgd" else 0.0), self.steps
        lag = rho * (1 - rho**steps) / (1 - rho)
        return self.learning_rate * (steps - lag) / (1 - rho)

    @property
    def is_adaptive(self) -> bool:
        """Whether the length of a step depends on the learning rate and not on the gradient."""
        return self.optimizer in ADAPTIVE

    @property
    def weight_noise(self) -> float:
        """The approximate standard deviation of the whole run's noise on every weight, and on the
        logits of a row of unit length."""
        if self.is_adaptive:
            # If noise dominates the gradient, it also dominates the second moment, so every step
            # adds noise of one learning rate, for noise of any size.
            return math.sqrt(math.fsum(self.rate_at(step) ** 2 for step in range(self.steps)))
        # A step with several random directions follows their mean.
        spread = self.divisor * math.sqrt(self.steps * (self.directions or 1))
        return self.displacement * self.noise / spread

    @property
    def averaged_steps(self) -> int:
        """How many of its own iterates swa averages."""
        return self.steps - self.steps // 2 if self.tail is None else min(self.tail, self.steps)

    def fresh_share(self, step: int, before: int = 0) -> float:
        """The weight of the iterate after `step` in the average, which already contains `before`
        iterates of a run that this one continues."""
        if self.averaging == "ema":  # with warm-up, so that the start is forgotten
            return 1 - min(self.ema_decay, (1 + step) / (10 + step))
        if self.averaging == "swa":
            of_tail = step + 1 - (self.steps - self.averaged_steps)
            return 1 / max(1, before + of_tail)
        return 1.0

    def rate_at(self, step: int) -> float:
        """The learning rate of step 0, 1, ..., steps - 1."""
        done = step / self.steps
        if self.schedule == "linear":
            return self.learning_rate * (1 - done)
        if self.schedule == "cosine":
            return self.learning_rate * (1 + math.cos(math.pi * done)) / 2
        return self.learning_rate
