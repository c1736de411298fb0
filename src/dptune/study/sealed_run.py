"""A sealed search, in one go. Nothing of it is written, shown or kept but its winner.

The number of trials, the losers, their settings and, where one was drawn, the sample of the rows
live in this function's memory only. A search that is interrupted cannot go on: what it did is lost.
"""

import random
from dataclasses import dataclass, replace

import torch

from dptune import accounting
from dptune.data.rows import Rows
from dptune.engines.base import Model
from dptune.engines.executors import Executor
from dptune.engines.randomness import Randomness
from dptune.errors import FolderProblem, InvalidInput
from dptune.plan import TrainPlan
from dptune.privacy import Event, SubsetSearch
from dptune.search.sealing import SealedSearch, Subset
from dptune.search.space import Setting
from dptune.search.trial import Trial
from dptune.study.measure import score_alone
from dptune.study.outline import Outline

_AT_ONCE = 16  # trials that are trained together


@dataclass(frozen=True)
class SealedRun:
    """All that a sealed search needs; `public` are rows that score trials, else they are scored on
    those they were trained on."""

    outline: Outline
    sealed: SealedSearch
    executor: Executor
    public: Rows | None = None

    def on(self, rows: Rows) -> tuple[Model, Trial]:
        """The winner's model, or the final one, and how it was made."""
        subset = self.sealed.sealing.subset
        if subset is None:
            return self._best_of_many(rows, self.outline.data.count, 1.0)
        sample, rest = _sampled(rows, subset)
        seen = max(1, round(subset.share * self.outline.data.count))
        growth = subset.growth if self.outline.recipe.optimizer == "sgd" else 1.0
        _, winner = self._best_of_many(sample, seen, growth)
        return self._final(rest if subset.rest else rows, winner, subset, growth)

    def _best_of_many(self, rows: Rows, count: int, growth: float) -> tuple[Model, Trial]:
        """The best of a random number of trials on rows that are `count`, publicly. Settings are
        meant for a run on `growth` times as many."""
        sealing = self.sealed.sealing
        left = sealing.count.draw(random.SystemRandom().random)
        at_once = _AT_ONCE if sealing.density_ratio is None else 1
        best: tuple[Model, Trial] | None = None
        history: list[Trial] = []
        while left:
            some = min(left, at_once)
            left -= some
            plans = [self._plan(history, count, growth) for _ in range(some)]
            models = self._trained(plans, rows)
            scores, noise = score_alone(
                self.outline.engine,
                models,
                self.public or rows,
                self.outline.config.score,
                self.sealed.score,
                count,
            )
            for plan, model, score in zip(plans, models, scores, strict=True):
                trial = self._trial(plan).with_score(score, noise)
                history.append(trial)
                if best is None or score > (best[1].score or 0.0):
                    best = model, trial
        return best or self._nothing_but_noise(rows, count, growth)

    def _plan(self, history: list[Trial], count: int, growth: float) -> TrainPlan:
        """One trial. Unless it is paid to learn from them, it knows nothing of the others."""
        known = history if self.sealed.sealing.density_ratio is not None else []
        (setting,) = self.outline.suggest(self.outline.schedule.final, known, None)
        plan = self.outline.sealed_plan(setting)
        self._must_be_paid(plan, self.sealed.run)
        return replace(plan, rows=count, learning_rate=plan.learning_rate / growth)

    def _must_be_paid(self, plan: TrainPlan, paid: Event) -> None:
        """Refuse a run that is not of the kind and price that the whole search was paid as."""
        if accounting.needs_slack(paid):
            fits = plan.event == paid
        else:
            alike = type(plan.event) is type(paid) and not accounting.needs_slack(plan.event)
            price = accounting.price(paid).mu_squared
            fits = alike and accounting.price(plan.event).mu_squared <= price
        if not fits:
            raise InvalidInput(
                f"{self.outline.config.search.name} suggests runs that are not those it was priced "
                f"for: {plan.event} instead of {paid}. Nothing of the search is kept."
            )

    def _nothing_but_noise(self, rows: Rows, count: int, growth: float) -> tuple[Model, Trial]:
        """What stands for the winner of no trials at all: a run that sees no rows."""
        plan = self._plan([], count, growth)
        nobody = rows.taken(torch.zeros(rows.count, dtype=torch.bool, device=rows.device))
        (model,) = self._trained([plan], nobody)
        return model, self._trial(plan)

    def _trial(self, plan: TrainPlan) -> Trial:
        """Its number tells nothing of how many there were."""
        stage = self.outline.schedule.final
        return Trial(number=1, stage=stage.name, plan=plan, mu=stage.mu)

    def _trained(self, plans: list[TrainPlan], rows: Rows) -> list[Model]:
        # All begin alike: initial weights of its own would tell a trial's number.
        alike = Randomness(seed=self.outline.config.seed, trial=1)
        models = self.executor.fit(self.outline.engine, plans, rows, [alike] * len(plans))
        if any(model is None for model in models):
            raise FolderProblem(
                "a process of a sealed search died, and without its trial the winner would not be "
                "the winner; what was paid is spent. Start a new study if the budget allows one."
            )
        return [model for model in models if model is not None]

    def _final(
        self, rows: Rows, winner: Trial, subset: Subset, growth: float
    ) -> tuple[Model, Trial]:
        """The winner's steps and scaled rate on the rows of the final run."""
        stage, found = self.outline.schedule.final, winner.plan
        setting = Setting(found.learning_rate * growth, found.steps)
        count = self.outline.data.count
        kept = max(1, round((1 - subset.share) * count)) if subset.rest else count
        plan = self.outline.plan(setting, stage, kept)
        assert isinstance(self.sealed.event, SubsetSearch)
        self._must_be_paid(plan, self.sealed.event.final)
        (model,) = self._trained([plan], rows)
        return model, self._trial(plan)


def _sampled(rows: Rows, subset: Subset) -> tuple[Rows, Rows]:
    """A sample that nobody can repeat, and the rest."""
    drawn = Randomness().sampling(rows.device).uniform(rows.count) < subset.share
    return rows.taken(drawn), rows.taken(~drawn)
