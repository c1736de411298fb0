"""What a study will do and pay for, worked out before a row is read."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Context
from functools import cached_property
from typing import Any

import numpy as np

from dptune import accounting, validate
from dptune.data.rows import IDS, DataFacts
from dptune.engines.base import Engine
from dptune.errors import InvalidInput
from dptune.plan import TrainPlan
from dptune.preparation.centring import MEAN
from dptune.preparation.class_names import CLASSES, class_event
from dptune.preparation.pipeline import Plan, plan
from dptune.preparation.step import State
from dptune.privacy import (
    Composition,
    Event,
    NoisyCount,
    Parallel,
    Price,
    SubsetSearch,
    ThresholdedCount,
    total,
)
from dptune.search.base import (
    Census,
    Facts,
    Schedule,
    Situation,
    Stage,
    calibrated,
    draft,
    schedule,
)
from dptune.search.sealing import Sealing, seal
from dptune.search.space import Setting, Space
from dptune.search.trial import Trial
from dptune.study.config import Config
from dptune.study.measure import COUNTS_OF_ERRORS
from dptune.study.recipe import (
    case_of,
    class_share_of,
    is_sampled,
    recipe_of,
    seen,
    segments_of,
)

CHECK = "check of the final model"
_ROOM, _ROOM_IF_SAMPLED = 1e-14, 3e-4  # of mu^2: more than calibrations miss their target by


@dataclass(frozen=True)
class Outline:
    """The prices, plans and labels of one study.

    `data` is what is public about the rows, as a model sees them. With `reused`, an earlier study
    has paid for the search. `set_aside` is how much of delta the ledger, if one was named, keeps
    for failures.
    `curvature` is the largest eigenvalue of the second moment of the prepared rows, as far as it is
    known by now; for rows of unit length it is at most 1. `features` are how many a model sees of a
    row, once that is known: fewer than planned where columns turned out to have two values, over
    which no curves are drawn. `classes`: how many there are, once their names are estimated. No
    payment depends on any of them.
    """

    config: Config
    data: DataFacts
    reused: bool
    set_aside: float = 0.0
    curvature: float = 1.0
    features: int | None = None
    classes: int | None = None

    def __post_init__(self) -> None:
        validate.store(self, data=seen(self.data, self.preparation))

    @cached_property
    def preparation(self) -> Plan:
        """What is done to rows, step by step."""
        return plan(case_of(self.config, self.data, self.set_aside))

    def prepared(self, state: State) -> "Outline":
        """The same with what a search may use of how rows were prepared."""
        features = None if state.encoding is None else state.encoding.width
        if (state.curvature, features) == (self.curvature, self.features):
            return self  # which may know dear facts by now
        return replace(self, curvature=state.curvature, features=features)

    @property
    def data_by_now(self) -> DataFacts:
        """What is known of the rows once classes are named and columns told apart."""
        outputs = self.data.outputs if self.classes is None else self.classes
        shape = self.data.shape if self.features is None else (self.features,)
        return replace(self.data, outputs=outputs, shape=shape)

    @cached_property
    def engine(self) -> Engine[Any]:
        """What trains, made for these data."""
        return self.config.engine.for_data(replace(self.data_by_now, shape=self.data.shape))

    @cached_property
    def recipe(self) -> TrainPlan:
        return recipe_of(self.config, self.data)

    @cached_property
    def parameters(self) -> int:
        """How many numbers are trained; asked once: an engine may have to make a model to know."""
        return self.engine.parameters(self.data_by_now)

    @cached_property
    def facts(self) -> Facts:
        """What the search may know, and prices go by."""
        asked, prior = self.config.preparation, self.engine.traits.prior
        rescaled = asked.rescale or not self.preparation[MEAN].share
        unit_rows = asked.unit_rows and rescaled
        return Facts(
            self.data.columns,
            self.data.outputs,
            unit_rows or not prior.by_row_length,
            self.data.has_classes,
            prior,
            self.data.count,
            self.parameters,
            self.engine.traits.linear_in_rows,
        )

    @property
    def facts_by_now(self) -> Facts:
        """The same once it is known how many features and classes there are."""
        seen = self.data_by_now
        columns = self.features or self.facts.columns
        return replace(self.facts, columns=columns, outputs=seen.outputs)

    @property
    def weighs_rows(self) -> bool:
        """Whether every class is to count alike, and not every row."""
        return self.config.balance == "classes"

    @property
    def objective(self) -> str:
        """What is optimised, in words."""
        weighted = self.weighs_rows or self.recipe.class_weights is not None
        return objective(weighs=self.weighs_rows, weighted=weighted)

    def weighing(self, census: Census | None) -> Census | None:
        """The counts by which rows are weighted; None where all rows count alike, because nobody
        asked, the counts are lost, or they cannot tell the classes apart."""
        known = census is not None and census.weights is not None
        return census if self.weighs_rows and known else None

    def _weighted(self, plan: TrainPlan, census: Census | None) -> TrainPlan:
        """The plan with its rows weighted by class, and their number with them, as far as it is
        known."""
        counts, weights = self.weighing(census), plan.class_weights
        if counts is not None:
            weights = counts.weights
        if census is None or weights is None:
            return plan
        rows = max(1, round(plan.rows * census.share(weights)))
        return replace(plan, rows=rows, class_weights=weights)

    @property
    def rows_of_a_trial(self) -> int:
        """How many rows train a trial, publicly; those that are held out score it."""
        every = self.held_out_every
        return self.data.count if every is None else self.data.not_held_out(every)

    @property
    def precision(self) -> str:
        """In which rows are kept; numbers of words are not rounded."""
        return IDS if self.engine.traits.takes_ids else self.config.precision

    @cached_property
    def class_names(self) -> ThresholdedCount | None:
        """What names of classes are found by."""
        return class_event(self.preparation.case, class_share_of(self.config, self.data))

    @property
    def preparing(self) -> dict[str, Event]:
        """All that is paid for before the search, by label, in the order it happens."""
        classes: dict[str, Event] = {} if self.class_names is None else {CLASSES: self.class_names}
        return classes | self.preparation.events

    @cached_property
    def slack(self) -> float:
        """Of each run and of each sweep's scores, where they are sampled, or of a sealed search."""
        if not (self.samples or self.samples_scores or self.config.search.sealing):
            return 0.0
        return self.preparation.case.slack

    @property
    def slack_of_a_run(self) -> float:
        return self.slack if self.samples else 0.0

    @property
    def samples(self) -> bool:
        """Whether runs see a sample of the rows in every step."""
        return is_sampled(self.recipe, self.config.search)

    @property
    def samples_scores(self) -> bool:
        """Whether trials are compared on a sample of the rows."""
        return self.config.score.sampling_rate is not None

    @cached_property
    def fixed(self) -> bool:
        """Whether steps, rates and noise of every run are known now, so that sampled runs can be
        composed directly. A ledger that others pay from cannot know that of all it pays for."""
        search = self.config.search
        return (
            self.recipe.sampling_rate is not None
            and search.sampling_rates is None
            and search.sealing is None
            and search.fixed_steps(self.config.space) is not None
            and not self.config.ledger
        )

    @cached_property
    def space(self) -> Space:
        """Where the search looks. Sealed trials must cost the same whatever they draw, so where
        they sample rows they all take the most steps."""
        space = self.config.space
        steps: int | None = None
        if self.fixed:
            steps = self.config.search.fixed_steps(space)
        elif self.config.search.sealing and self.recipe.sampling_rate is not None:
            steps = space.steps[1]
        return space if steps is None else replace(space, steps=(steps, steps))

    @cached_property
    def schedule(self) -> Schedule:
        if self.config.search.sealing is not None:
            return self._sealed_schedule(self.config.search.sealing)
        return schedule(
            self.config.search,
            self.config.budget,
            self.facts,
            self.config.score,
            aside=total(map(accounting.price, self.preparing.values())),
            slack=self.slack_of_a_run,
            score_slack=self.slack if self.samples_scores else 0.0,
            set_aside=self.set_aside,
            searched=self.reused,
            weighs_rows=self.weighs_rows,
            checks=self._checks,
        )

    @property
    def _checks(self) -> int:
        """How many counts check the final model: of correct rows, where counts by class say what to
        compare them with; or of values, what `measure_errors` counts."""
        if not self.config.check:
            return 0
        if self.data.has_classes:
            return int(self.config.search.wants_census or self.weighs_rows)
        known = self.data.loss == "squared" and self.config.preparation.shorten is not None
        return COUNTS_OF_ERRORS if known else 0

    def _sealed_schedule(self, sealing: Sealing) -> Schedule:
        if self.weighs_rows:
            raise InvalidInput(
                "a sealed search is priced well only where it is alone, and balance='classes' "
                "needs noisy counts of rows beside it; leave balance out, or use another method."
            )
        if self.preparing:
            raise InvalidInput(
                "a sealed search is priced well only where it is alone, and a private mean, second "
                "moment or range (center_share, whiten_share, range_share) was asked for beside "
                "it; leave that out, or use declared ranges."
            )
        config = self.config
        sealed = seal(sealing, config.budget, config.score, self.recipe, self.space.steps[1])
        last = sealed.event.final if isinstance(sealed.event, SubsetSearch) else sealed.run
        stage = Stage(sealed.name, 1, self.price_of(last).mu_squared)
        return Schedule(None, (), stage, sealed)

    @cached_property
    def segments(self) -> int:
        """In how many parts the final run is paid."""
        return segments_of(self.config, self.data)

    @property
    def continues(self) -> bool:
        """Whether the final run is run in several segments."""
        return self.segments > 1 and self.schedule.final.trials == 1 and not self.schedule.sealed

    @property
    def held_out_every(self) -> int | None:
        """One in how many rows only scores trials; None where all rows train them."""
        return self.config.score.held_out_every

    @property
    def holds_out(self) -> bool:
        return self.held_out_every is not None

    def sweeps(self) -> list[tuple[Stage, range]]:
        """Every stage of several trials with their numbers, from 1."""
        numbered, first = [], 1
        for sweep in self.schedule.compared:
            numbered.append((sweep, range(first, first + sweep.trials)))
            first += sweep.trials
        return numbered

    @cached_property
    def payments(self) -> tuple[tuple[str, Event], ...]:
        """Everything with a label, in the order it will happen."""
        if self.schedule.sealed:
            # What cannot be run is refused now: later the refusal itself would tell of a trial.
            for steps in self.space.steps:
                self.sealed_plan(Setting(self.space.learning_rate[0], steps))
                self.plan(Setting(self.space.learning_rate[1], steps), self.schedule.final)
            return ((self.schedule.sealed.name, self.schedule.sealed.event),)
        listed: list[tuple[str, Event]] = list(self.preparing.items())
        if self.schedule.census:
            listed.append(("census", self.schedule.census))
        for sweep, numbers in self.sweeps():
            runs = self._runs(sweep)
            if self.holds_out and sweep.score:
                listed.append((sweep.name, side_by_side(runs, sweep.score)))
                continue
            listed += zip(map(trial_label, numbers), runs, strict=True)
            if sweep.score:
                listed.append((scores_label(sweep), sweep.score))
        if self.schedule.final.trials == 1:
            segment = self._longest(self._segment)
            listed += [(segment_label(number), segment) for number in range(1, self.segments + 1)]
        if self.schedule.check:
            listed.append((CHECK, self.schedule.check))
        return tuple(listed)

    def _runs(self, sweep: Stage) -> list[Event]:
        """Those of the first trials are known now if nothing is learned before them. All others are
        reserved at the most steps and exchanged for what is run, which costs a hair less."""
        first = sweep == self.schedule.compared[0] and self.schedule.census is None
        if first and not self.preparing and not self.fixed:
            return [self.plan(setting, sweep).event for setting in self.suggest(sweep, (), None)]
        return [self._longest(sweep)] * sweep.trials

    def _longest(self, stage: Stage) -> Event:
        """A run of `stage` at the most steps and the highest rate."""
        _, highest = self.config.search.sampling_rates or (None, None)
        rate, steps = self.space.learning_rate[0], self.space.steps[1]
        setting = Setting(rate, steps, sampling_rate=highest)
        if self.fixed:
            return self.plan(setting, stage).event
        return self._calibrated(setting, stage.mu_squared).event

    @cached_property
    def _segment(self) -> Stage:
        final = self.schedule.final
        return replace(final, mu_squared=final.mu_squared / self.segments)

    @cached_property
    def _final_noise(self) -> float:
        """Of the final runs where all is fixed: what the whole budget allows beside the rest."""
        planned, recipe, final = self.schedule, self.recipe, self.schedule.final
        assert recipe.sampling_rate is not None
        beside: list[Event] = list(self.preparing.values())
        beside += [event for event in (planned.census, planned.check) if event]
        beside += [stage.score for stage in planned.compared if stage.score]
        for sweep in planned.sweeps:
            beside += [self._longest(sweep)] * sweep.trials
        return accounting.calibrate_direct(
            epsilon=self.config.budget.epsilon,
            delta=self.config.budget.delta,
            steps=self.space.steps[1],
            sampling_rate=recipe.sampling_rate,
            beside=beside,
            runs=final.trials,
        ).noise_multiplier

    @cached_property
    def price(self) -> Price:
        """Of all payments."""
        return total(self.price_of(event) for _, event in self.payments)

    @property
    def epsilon(self) -> float:
        """Of all payments, at the budget's delta."""
        events, delta = [event for _, event in self.payments], self.config.budget.delta
        if self.fixed:
            return accounting.direct_epsilon(events, delta)
        return accounting.epsilon_of(events, self.price, delta)

    def price_of(self, event: Event) -> Price:
        """Of one event, outside the study's failure probability where it needs one."""
        return accounting.price(event, slack=self.slack)

    def plan(
        self,
        setting: Setting,
        stage: Stage,
        rows: int | None = None,
        census: Census | None = None,
    ) -> TrainPlan:
        """A run of `stage` with this setting; `rows` where it sees only a part of them, and the
        `census` once it is taken. No price depends on either."""
        if self.fixed:
            plan = replace(draft(self.recipe, setting), noise_multiplier=self._fixed_noise(stage))
        else:
            # Calibration comes below its target by more or less, depending on the steps, and a
            # payment is never exchanged for a dearer one.
            room = _ROOM_IF_SAMPLED if self.samples else _ROOM
            plan = self._calibrated(setting, stage.mu_squared * (1 - room))
        return self._weighted(plan if rows is None else replace(plan, rows=rows), census)

    def _fixed_noise(self, stage: Stage) -> float:
        """Of every run of `stage`. Rounded up to seven digits, because another machine that
        resumes the study may calibrate to other last bits, and nothing is exchanged here."""
        if stage.name == self.schedule.final.name:
            noise = self._final_noise
        else:
            setting = Setting(self.space.learning_rate[0], self.space.steps[1])
            noise = self._calibrated(setting, stage.mu_squared).noise_multiplier
        return float(Context(prec=7, rounding=ROUND_CEILING).create_decimal(noise))

    def sealed_plan(self, setting: Setting) -> TrainPlan:
        """One trial of a sealed search: of the same price whatever the setting."""
        sealed = self.schedule.sealed
        assert sealed is not None
        if accounting.needs_slack(sealed.run):
            return replace(
                draft(self.recipe, setting), noise_multiplier=sealed.run.noise_multiplier
            )
        return self._calibrated(setting, accounting.price(sealed.run).mu_squared * (1 - _ROOM))

    def _calibrated(self, setting: Setting, mu_squared: float) -> TrainPlan:
        return calibrated(draft(self.recipe, setting), mu_squared, self.slack)

    def segment_plans(self, setting: Setting, census: Census | None = None) -> list[TrainPlan]:
        """The final run cut into segments of equal price; only the last takes free steps. Where the
        mean of its second half is released, segments take of that what lies in them."""
        plans, segments = [], self.segments
        for segment in range(segments):
            start, end = (setting.steps * part // segments for part in (segment, segment + 1))
            plan = self.plan(replace(setting, steps=end - start), self._segment, census=census)
            if plan.averaging == "swa":
                plan = replace(plan, tail=max(0, end - max(start, setting.steps // 2)))
            plans.append(plan if segment == segments - 1 else replace(plan, free_steps=0))
        return plans

    def situation(self, stage: Stage, history: Sequence[Trial], census: Census | None) -> Situation:
        """What the search may know now; its public choices depend on the seed and the stage, so
        that they are the same after a resume. The choices of a sealed search are secret."""
        words = f"{self.config.seed}/{stage.name}".encode()
        key = int.from_bytes(hashlib.sha256(words).digest(), "big")
        weighing = self.weighing(census)
        return Situation(
            facts=self.facts_by_now,
            recipe=self._weighted(self.recipe, census),
            space=self.space,
            history=history,
            census=census if weighing is None else weighing.balanced,
            choices=np.random.default_rng(None if self.schedule.sealed else key),
            delta=self.config.budget.delta,
            curvature=self.curvature,
        )

    def suggest(
        self, stage: Stage, history: Sequence[Trial], census: Census | None
    ) -> list[Setting]:
        """The next settings, one a trial."""
        search = self.config.search
        settings = search.suggest(stage, self.situation(stage, history, census))
        if [type(each) for each in settings] != [Setting] * stage.trials:
            raise InvalidInput(
                f"{search.name} must suggest a list of {stage.trials} settings "
                f"(dptune.search.Setting) for {stage.name}, and suggested {settings!r:.200}. "
                "Mend its suggest(); a study that has begun goes on with dptune.resume."
            )
        return settings


def objective(*, weighs: bool, weighted: bool) -> str:
    """What is optimised, in words: `weighs` asks that classes count alike, and `weighted` are the
    rows of the final run."""
    if weighs and weighted:
        return "every class counts alike: rows are weighted by noisy class counts"
    if weighs:
        return "every row counts alike, for want of counts that tell the classes apart"
    return (
        "rows are weighted by their classes, as declared" if weighted else "every row counts alike"
    )


def trial_label(number: int) -> str:
    return f"trial {number}"


def segment_label(segment: int) -> str:
    return f"final run, leg {segment}"


def scores_label(sweep: Stage) -> str:
    return f"scores of {sweep.name}"


def is_final(label: str) -> bool:
    """Whether a payment can only be for a segment of the final run, or for its check."""
    return label.startswith("final run, leg ") or label == CHECK


def side_by_side(runs: Sequence[Event], scores: NoisyCount) -> Parallel:
    """A sweep whose trials and scores never meet in one row."""
    return Parallel(parts=(Composition(parts=tuple(runs)), scores))
