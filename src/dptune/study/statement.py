"""What a study may promise: its events, what it takes as public, and what it must admit."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dptune import accounting, rounding
from dptune.accounting import Guarantee
from dptune.data import Data
from dptune.data.made_by import has_units, is_of_texts
from dptune.data.shift import shifted
from dptune.engines.base import Engine
from dptune.engines.scatter import is_own
from dptune.preparation.sentences import releases as statistics
from dptune.preparation.step import State
from dptune.privacy import Event, Price, total
from dptune.study.figures import figures_of
from dptune.study.outline import Outline

_FLOATING_POINT = (
    "noise comes from generators that are good but not cryptographic, keyed by the operating "
    "system; every noisy number is rounded to a public grid, so that the last bits of all of them "
    "together add less than 0.001 to epsilon"
)
_RUNNING_TIME = (
    "how long the study ran, and so when it ended, depends on the secret number of trials: keep it "
    "from anyone who gets the model; the files in its folder are all dated when it began"
)
_OWN_ENGINE = (
    "the engine {} is not dptune's own: that it clips every row and adds the noise that was paid "
    "for is its word, which runs on made-up rows can refute and not prove"
)
_ALONE = (
    "this is about one study: whatever else is released about the same rows adds to it, and only "
    "studies that share a ledger are counted together"
)


def _named(engine: Engine[Any]) -> str:
    return f"{engine.name} ({type(engine).__module__}.{type(engine).__qualname__})"


def noise_notes(planned: Outline) -> tuple[str, ...]:
    """A note where the noise of the final run drowns whatever all rows could add up to."""
    # What a pretrained model has to learn lies in few directions, however many weights it has;
    # at 4 a small GPT-2 learned nothing from mailboxes by any rate
    # (experiments/notes/language-measured.md).
    pretrained = planned.engine.traits.pretrained
    least = 10.0 if pretrained else max(3.0, 0.5 * math.sqrt(planned.parameters))
    if planned.schedule.final.mu * planned.data.count >= least:
        return ()
    return (
        f"with {planned.data.count:,} rows and epsilon {planned.config.budget.epsilon:g} the noise "
        "outweighs everything the rows could say: nothing can be learned, and the model is "
        f"{'no better than it was before' if pretrained else 'as good as random'}",
    )


@dataclass(frozen=True, kw_only=True)
class Paid:
    """The payments that a guarantee covers.

    Attributes:
        events: what was paid for, an earlier study's search included.
        price: of this study's own payments in the end, or as planned.
        others: how many payments of the ledger are not covered.
        searched: price of an earlier study's search that is covered.

    """

    events: Sequence[Event]
    price: Price
    others: int
    searched: Price | None = None


@dataclass(frozen=True, kw_only=True)
class Released:
    """What a study releases beside its models, as planned or in the end.

    Attributes:
        preparation: what came of it; None for a plan.
        classes: whether names of classes were found.
        counts: whether there are noisy counts of rows.
        weighted: whether rows are weighted by these.
        scores: whether trials have scores.
        check: whether the final model is checked.

    """

    preparation: State | None
    classes: bool
    counts: bool
    weighted: bool
    scores: bool
    check: bool


def guarantee_for(
    planned: Outline, data: Data, paid: Paid, released: Released, notes: tuple[str, ...]
) -> Guarantee:
    """What a study may promise: what was fixed before it began, never the sum that was paid in the
    end, which depends on outputs."""
    config = planned.config
    # More than planned was paid only where another version of dptune began the study.
    price = Price(
        max(planned.price.mu_squared, paid.price.mu_squared),
        max(planned.price.slack, paid.price.slack),
    )
    caveats = [_FLOATING_POINT]
    if paid.searched:
        caveats.append(
            f"of mu, {rounding.cost(paid.searched.mu)} is for the search of "
            f"{Path(config.reuse).resolve().name}, with all that was held to prepare "
            f"rows for it; this study's own payments are {rounding.cost(price.mu)}, and the "
            "squares add up"
        )
        price = total([paid.searched, price])
    releases = _releases(planned, released)
    if released.check:
        of_check = "a noisy count of rows the final model gets right"
        if data.target_range is not None:
            of_check = (
                "a noisy mean of the target, and noisy squared errors of it and the final model"
            )
        releases.append(of_check)
    if config.budget.delta * planned.data.count > 1:
        caveats.append(
            f"delta is above one in {planned.data.count:,}, the number of rows, as was allowed: "
            "publishing a whole row now and then would keep this promise; take a smaller one"
        )
    if not config.ledger:
        caveats.append(_ALONE)
    if paid.others:
        caveats.append(
            f"{paid.others} other payments were made for the same data set; the ledger states what "
            "all of them promise together"
        )
    if planned.set_aside > planned.price.slack:
        caveats.append(
            f"of delta, {rounding.cost(planned.set_aside)} is kept by the ledger for failures of "
            "sampled runs and thresholds, which mu above does not count"
        )
    if planned.schedule.sealed:
        caveats.append(_RUNNING_TIME)
    if not is_own(planned.engine):
        caveats.append(_OWN_ENGINE.format(_named(planned.engine)))
    if not config.score.covers_selection:
        releases = []
    caveats += config.score.caveats
    both = ", for it and for the search it reuses" if paid.searched else ""
    caveats.append(
        f"epsilon is what was set before the study began{both}: how much of it was used may "
        "depend on outputs, so all of it is promised"
    )
    promise = accounting.guarantee(
        paid.events,
        config.budget.delta,
        spent=price,
        adaptive=not planned.fixed,
        covers_search=True,
        covers_selection=config.score.covers_selection,
        releases=tuple(releases),
        unit=_unit(data),
        public_facts=_public_facts(planned, data),
        caveats=tuple(caveats) + notes,
    )
    epsilon = config.budget.epsilon
    if paid.searched or price != planned.price:
        epsilon = max(epsilon, promise.epsilon)
    return replace(promise, epsilon=epsilon)


def _unit(data: Data) -> str:
    if is_of_texts(data.made_by):
        return accounting.ONE_PERSON if has_units(data.made_by) else accounting.ONE_TEXT
    return accounting.ONE_ROW if data.made_by is None else accounting.ONE_PICTURE


def _releases(planned: Outline, released: Released) -> list[str]:
    config, sealed = planned.config, planned.schedule.sealed
    releases = ["the final model"]
    if sealed:
        releases = ["the final model and its settings"]
        releases += ["its noisy score"] * bool(sealed.score and not sealed.sealing.subset)
    if planned.schedule.compared or config.reuse:
        releases.append("the models and settings of all trials")
        if released.scores and config.score.paid:
            sample = " on a secret sample of the rows, which is not released"
            releases.append(f"their noisy scores{sample * planned.samples_scores}")
    if released.counts:
        by = ["class"] * planned.data.has_classes + ["length"] * (not planned.facts.unit_rows)
        alike = ", by which rows are weighted so that every class counts alike"
        releases.append(f"noisy counts of rows by {' and by '.join(by)}{alike * released.weighted}")
    releases += ["names of classes that many rows have"] * released.classes
    return releases + statistics(planned.preparation, released.preparation)


def _public_facts(planned: Outline, data: Data) -> tuple[str, ...]:
    config, public = planned.config, [*data.public_facts, *planned.engine.traits.public_facts]
    if planned.held_out_every is not None:
        public.append(f"which rows are held out (one in {planned.held_out_every})")
    if data.has_test_rows:
        shown = figures_of(data)
        verb = "are" if shown[1:] else "is"
        listed = " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1]))) if shown else ""
        exactly = f", whose {listed} {verb} shown exactly"
        public.append("the test rows" + exactly * bool(shown))
    public += [f"the {shifted(name)} rows, whose accuracy is shown exactly" for name in data.shifts]
    if config.score.rows == "public":
        public.append("the rows that score the trials")
    if config.preparation.standardize:
        public.append("the rows that standardise the columns")
    public += ["the random directions of every step"] * (planned.recipe.directions is not None)
    public += ["the weights of the classes, as declared"] * ("class_weights" in config.recipe)
    public += ["the ranges of the columns, as declared"] * bool(config.preparation.ranges)
    return tuple(public)
