"""Which steps of preparation are worth their price, and why, in one sentence each.

A noisy mean that is subtracted, and a noisy second moment that whitens, help a linear model unless
their noise outweighs them. That is decided before anything is paid, by public numbers alone: how
many rows and columns there are, and the budget. Measurements: experiments/notes/law-measured.md.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dptune.data.rows import DataFacts
from dptune.errors import InvalidInput
from dptune.plan import ADAPTIVE, TrainPlan
from dptune.prior import signal
from dptune.search.base import SearchMethod
from dptune.search.space import ADAPTIVE_RATES
from dptune.study import logarithms, paid_columns
from dptune.study.config import AUTO, Config, usual_space
from dptune.study.curves import Curves, against, planned
from dptune.study.gates import WHITEN_SHARE, center_share, fine_mean, noisy_moment

# What prepares rows and is paid for, as payments are labelled and as people are told.
LOGARITHMS, LENGTHS, MEAN = "rows of unlike numbers", "row lengths", "private mean"
SECOND_MOMENT, FINER_MEAN = "second moment", "finer mean"
STRETCHED, CURVES = "numbers far out", "curves"  # which are free
LOST = "cut off"  # what is found of a figure that is
_PRIVATE = {MEAN: MEAN, SECOND_MOMENT: f"private {SECOND_MOMENT}"}
LENGTH_SHARE = 0.001  # of mu^2
LEGS = 5
# How long a column is, at most, that centred rows of unit length get beside them, and how many
# times as long as their own; from how much signal on (mu times rows, for every weight) it is worth
# its noise.
_LONGEST_CONSTANT, _CONSTANT, _SIGNAL_FOR_CONSTANT = 0.25, 2.0, 0.1


@dataclass(frozen=True)
class Shares:
    """Of mu^2: what is paid for a private mean and for a private second moment, for ranges and
    categories of columns, for a count of rows of unlike numbers, and for names of classes."""

    center: float
    whiten: float
    ranges: float = 0.0
    categories: float = 0.0
    logarithms: float = 0.0
    classes: float = 0.0


def shares(config: Config, facts: DataFacts) -> Shares:
    """What is bought. Where it was left to us, from public numbers alone."""
    asked = config.preparation
    center, whiten = asked.center_share, asked.whiten_share
    if center == AUTO:
        center = 0.0 if _against_centring(config, facts) else center_share(config, facts)
    if whiten == AUTO:
        whiten = 0.0 if _against_whitening(config, facts) else WHITEN_SHARE
    return Shares(
        float(center),
        float(whiten),
        paid_columns.ranges_bought(config, facts).share,
        paid_columns.categories_bought(config, facts).share,
        logarithms.share(config, facts),
        paid_columns.classes_bought(config, facts),
    )


def curves(config: Config, facts: DataFacts) -> Curves:
    """That a linear model draws over all columns that have a range or get one."""
    bought = paid_columns.ranges_bought(config, facts)
    columns = _bendable(config, facts, bought.columns)
    degree = config.preparation.curves if isinstance(config.preparation.curves, int) else 1
    if degree > 1 and not config.engine.traits.linear_in_rows:
        raise InvalidInput(
            f"curves of degree {degree} are asked for, and they are for linear models, not for a "
            f"{config.engine.traits.trains}; leave curves out."
        )
    if degree > 1 and not columns:
        why = f" ({bought.against})" if bought.against else ""
        raise InvalidInput(
            f"curves of degree {degree} are asked for, and no number or date has a range over "
            f"which to draw them, declared or bought{why}; "
            f"{_ways_to_a_range(config, facts, bought.left)}, or leave curves out."
        )
    if bought.rough:
        return Curves(columns)
    return planned(config, facts, columns, bought=bool(bought.columns))


def _ways_to_a_range(config: Config, facts: DataFacts, left: Sequence[str]) -> str:
    """Of rows without any; `left` are numbers of a table that could have one."""
    wanted = len(left)
    if facts.named is None or facts.as_given:
        ways = "declare them as ranges under [preparation]"
        wanted = 0 if facts.named is None else facts.columns
    elif left:
        ways = "declare ranges under [columns]"
    else:
        ways = 'declare ranges under [columns], ask for them with range = "paid"'
    enough = paid_columns.enough_for_ranges(config, facts, wanted, for_sizes=False)
    return f"{ways}, buy them with range_share = {enough:g}" if wanted and enough else ways


def _bendable(config: Config, facts: DataFacts, bought: Sequence[str]) -> tuple[str, ...]:
    """The columns that have a range or get one, because it is `bought`."""
    named = facts.named
    if named is None:
        return ()
    if config.preparation.ranges:  # of all columns, by position
        return named.kept
    ranged = {*bought, *paid_columns.declared_with_a_range(facts)}
    return tuple(name for name in named.kept if name in ranged)


def shortens(config: Config, facts: DataFacts) -> bool:
    """Whether rows are cut to their usual length, and not scaled to it."""
    asked = config.preparation.shorten
    if asked == AUTO:
        values = config.preparation.rescale and facts.loss == "squared"
        return values and not _impossible(config)
    return asked is True


def constant(config: Config, facts: DataFacts) -> float:
    """What a column beside centred rows holds: their mean, which could tell classes of unlike size
    apart, is gone. None where rows keep their length, or where its noise would outweigh it. Values
    always need one: few are around the middle of their range."""
    if shortens(config, facts):
        return _LONGEST_CONSTANT if config.engine.traits.wants_constant else 0.0
    asked = config.preparation
    told = signal(config.budget.mu, facts.count, facts.columns, facts.outputs)
    scaled = asked.unit_rows and asked.rescale and config.engine.traits.wants_constant
    if not scaled or not shares(config, facts).center or told < _SIGNAL_FOR_CONSTANT:
        return 0.0
    return min(_LONGEST_CONSTANT, _CONSTANT / math.sqrt(facts.columns))


def recipe_of(config: Config, facts: DataFacts) -> TrainPlan:
    """What all runs have in common."""
    return replace(config.plan(facts.count), **config.search.fixes)


def is_sampled(recipe: TrainPlan, search: SearchMethod) -> bool:
    """Whether runs see a sample of the rows in every step."""
    rate = recipe.sampling_rate or search.sampling_rates
    return rate is not None


def legs_of(config: Config, facts: DataFacts) -> int:
    """In how many parts the final run is paid, so that a crash loses one of them."""
    recipe, search = recipe_of(config, facts), config.search
    whole = is_sampled(recipe, search) or search.sealing  # each leg would fail by itself
    continuable = config.engine.for_data(facts).can_continue(recipe) and not whole
    return min(LEGS, config.space.steps[0]) if continuable else 1


def _centred_finely(config: Config, facts: DataFacts) -> bool:
    """Whether rows that turn out to be unlike are centred once more, which a leg of the final run
    pays for: what they do not share is short, so that a mean has to be fine."""
    bought = shares(config, facts)
    wanted = config.preparation.finer_mean and bought.logarithms and bought.center
    if not wanted or fine_mean(config, facts, bought.center):
        return False
    # One of fewer legs would be more of the budget than was measured.
    return 1 < legs_of(config, facts) == LEGS and config.search.finalists == 1


def settled(config: Config, facts: DataFacts) -> Config:
    """The same with all that was left to us decided, so that a later version decides no other."""
    bent = curves(config, facts)
    facts = bent.seen(facts)
    logarithms.must_be_of_use(config, facts)
    bought = shares(config, facts)
    preparation = replace(
        config.preparation,
        curves=bent.degree,
        curves_up_to=bent.up_to if bent.up_to > bent.degree else None,
        curves_room=bent.room if bent.room > (bent.degree - 1) * len(bent.columns) else None,
        center_share=bought.center,
        whiten_share=bought.whiten,
        range_share=bought.ranges,
        category_share=bought.categories,
        class_share=bought.classes,
        logarithm_share=bought.logarithms,
        shorten=shortens(config, facts),
    )
    usual = config.engine.usual_recipe(facts, unit_rows=preparation.unit_rows, mu=config.budget.mu)
    if facts.asks_inside and facts.copies > 1:  # copies are all that one person wrote
        usual = {**usual, "augmentations": facts.copies}
    named = {**config.recipe, **config.search.fixes}
    free = {name: value for name, value in usual.items() if name not in named}
    if set(named) & {"optimizer", "schedule", "free_steps"}:  # averages are measured without
        free.pop("averaging", None)
    if "optimizer" in named:
        free.pop("schedule", None)
    if config.score.held_out_every is not None:  # which goes with full batches only
        free.pop("sampling_rate", None)
    recipe, space = {**free, **config.recipe}, config.space
    unasked = usual_space(config.search, config.engine)
    if recipe.get("optimizer") in ADAPTIVE and space.learning_rate == unasked.learning_rate:
        space = replace(space, learning_rate=ADAPTIVE_RATES)
    config = replace(config, preparation=preparation, recipe=recipe, space=space)
    finely = _centred_finely(config, facts)
    return replace(config, preparation=replace(preparation, finer_mean=finely))


def in_words(
    config: Config, facts: DataFacts, found: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """What is bought, and why not the rest, and what was `found` then, or lost; nothing where rows
    are no table of numbers."""
    classes = _classes_in_words(config, facts)
    if not facts.is_table or config.engine.traits.takes_ids:
        return tuple(classes)
    bought, plan = shares(config, facts), config.plan(facts.count)
    parts = (
        ("centred", MEAN, bought.center, _against_centring(config, facts)),
        ("whitened", SECOND_MOMENT, bought.whiten, _against_whitening(config, facts)),
    )
    sizes = _sizes_in_words(config, facts, known=found is not None)
    far = _far_in_words(config, facts) if found is None else found.get(STRETCHED)
    finer = _finer_in_words(config, facts) if found is None else found.get(FINER_MEAN)
    found = found or {}
    said = classes + paid_columns.bought_in_words(config, facts, found, sizes)
    said += [far] if far else []
    said += _curves_in_words(config, facts, found.get(CURVES, ""))
    said += logarithms.in_words(config, facts, found.get(LOGARITHMS))
    if shortens(config, facts):
        done = "cut to their usual length, by noisy counts of lengths"
        if LENGTHS in found:
            done = f"scaled to one length, not cut to their usual one, as {found[LENGTHS]}"
        said.append(f"{done}: {100 * LENGTH_SHARE:g} % of the budget")
    centred, whitened = (_said(*part, found.get(part[1], "")) for part in parts)
    said += [centred, finer, whitened] if finer else [centred, whitened]
    if plan.clip_norm is not None and plan.clip_norm < 1:
        said.append(f"clipped at norm {plan.clip_norm:g}, so that rows push more alike: free")
    if plan.averaging == "swa":
        said.append("trained on to the mean of the last half of all steps: free")
    said += _straight_in_words(config, facts)
    return (*said, *paid_columns.left_in_words(config, facts))


def _classes_in_words(config: Config, facts: DataFacts) -> list[str]:
    """Nothing where classes are declared or public."""
    if not facts.secret_classes:
        return []
    rows = paid_columns.rows_of_a_class(config, facts)
    share = paid_columns.classes_bought(config, facts)
    return [
        f"of classes whose names about {rows:,} rows or more have, by noisy counts; others count "
        f"as empty: {100 * share:g} % of the budget"
    ]


def _sizes_in_words(config: Config, facts: DataFacts, *, known: bool) -> str:
    """What ranges are bought for that tell sizes alone, or what was found; nothing of others."""
    if not facts.as_given or curves(config, facts).room:
        return ""
    if known:
        return ", which differ much in size"
    dear = shares(config, facts).ranges > paid_columns.MOST_SHARE_UNASKED
    unless = " (range_share = 0 under [preparation] buys none)" if dear else ""
    return f" if their sizes differ much, paid for either way{unless}"


def _far_in_words(config: Config, facts: DataFacts) -> str:
    """Nothing where no ranges are bought; without room for curves they may be rough ones."""
    fine = paid_columns.ranges_bought(config, facts).columns and curves(config, facts).room
    return "numbers far out by their logarithm: free" if fine else ""


def _finer_in_words(config: Config, facts: DataFacts) -> str:
    """Nothing where that is not planned whatever is found."""
    if not _centred_finely(config, facts):
        return ""
    return (
        "centred once more if taken by their logarithm: for the first of the "
        f"{legs_of(config, facts)} legs of the final run, a fifth of its price"
    )


def _curves_in_words(config: Config, facts: DataFacts, found: str) -> list[str]:
    """Nothing where none are drawn."""
    if found:
        return [found]
    drawn = curves(config, facts)
    if not drawn.room:
        return []
    where, fewer = paid_columns.columns_in_words(drawn.columns), ""
    if drawn.degree == 1:
        where = f"those of {where} that have more than two values"
        room = "as 1 feature more allows"
        if drawn.room > 1:
            room = f"as {drawn.room} features more allow"
        return [f"bent to curves of degree {drawn.up_to} or less in {where}, {room}: free"]
    if drawn.up_to > drawn.degree:
        fewer = f", up to {drawn.up_to} where some of them turn out to have two values"
    elif paid_columns.ranges_bought(config, facts).columns:
        fewer = ", those of two values left out"
    return [f"bent to curves of degree {drawn.degree} in {where}{fewer}: free"]


def _straight_in_words(config: Config, facts: DataFacts) -> list[str]:
    """The columns that could be bent or scaled and are not; nothing where there are none."""
    drawn, bought = curves(config, facts), paid_columns.ranges_bought(config, facts)
    columns = drawn.columns
    preparation = replace(
        config.preparation, curves=AUTO, curves_up_to=None, curves_room=None, range_share=AUTO
    )
    usual = replace(config, preparation=preparation)
    scaled = bool(preparation.ranges or preparation.standardize)
    without_ranges = facts.as_given and not scaled
    if (without_ranges or facts.named is None) and facts.rather_features:
        known = scaled or bought.columns or against(config)
        return [] if known else [_taken_for_features(config, facts)]
    if without_ranges and facts.named is not None:
        columns = facts.named.kept
    if drawn.room or not columns:
        return []
    straight, why = f"not bent to curves in {paid_columns.columns_in_words(columns)}", ""
    if not planned(usual, facts, columns, bought=without_ranges).room:
        too_many = f"curves are too many features for {facts.count:,} rows at this budget"
        why = f": {against(config) or too_many}"
    elif (usually := paid_columns.ranges_bought(usual, facts)).against and (
        without_ranges or usually.rough
    ):
        roughly = "only roughly" if bought.columns else "not"
        why = f", whose ranges are {roughly} bought: {usually.against}"
    if not why:
        return [f"{straight}, as asked"]
    if without_ranges and not bought.columns:
        enough = paid_columns.what_would_buy(config, facts, columns)
        or_buy = f", or buy them with {enough}," if enough else ""
        why += f" (declare ranges{or_buy} if they differ much in size)"
    return [f"{straight}{why}"]


def _taken_for_features(config: Config, facts: DataFacts) -> str:
    """That rows are, why that is not looked at, and what to do if they are not."""
    width, why, or_buy = facts.straight_columns, "", ""
    rough, sure = (
        paid_columns.enough_for_ranges(config, facts, width, for_sizes=for_sizes)
        for for_sizes in (True, False)
    )
    if facts.as_given:
        price = "more than half" if sure is None else f"{100 * sure:.3g} %"
        why = f", and to be sure would cost {price} of the budget"
        or_buy = f", or buy rough ones with range_share = {rough}," if rough else ""
    one_scale = f"not scaled column by column: {paid_columns.TAKEN_FOR_FEATURES}{why}"
    return f"{one_scale} (declare ranges{or_buy} if they are not)"


def _said(done: str, by: str, share: float, against: str, found: str) -> str:
    if share and found == LOST:
        return f"not {done}, as the {_PRIVATE[by]} was {LOST}: {100 * share:g} % of the budget"
    if share:
        effect = f" ({found})" if found else ""
        return f"{done} by a {_PRIVATE[by]}{effect}: {100 * share:g} % of the budget"
    return f"not {done}: {against}" if against else f"not {done}, as asked"


def _against_centring(config: Config, facts: DataFacts) -> str:
    """Why not; empty where it is worth its price."""
    return _never(config, facts) or _too_many(facts, not center_share(config, facts))


def _against_whitening(config: Config, facts: DataFacts) -> str:
    unscaled = "" if config.preparation.rescale else "rows are not scaled to unit length again"
    return _never(config, facts) or unscaled or _too_many(facts, noisy_moment(config, facts))


def _never(config: Config, facts: DataFacts) -> str:
    if why := _impossible(config):
        return why
    if not facts.has_classes and config.preparation.shorten in (None, False):
        return "it is for classes, and these rows have values"
    return "there is one column" if facts.columns == 1 else ""


def _impossible(config: Config) -> str:
    if config.search.sealing is not None:
        return paid_columns.ALONE
    if not config.preparation.unit_rows:
        return "rows are not scaled to unit length"
    if not config.engine.traits.linear_in_rows:
        return f"nothing is known of what it does for a {config.engine.traits.trains}"
    return ""


def _too_many(facts: DataFacts, is_so: bool) -> str:
    unbent = facts.columns == facts.straight_columns
    what = "columns" if facts.named is None or (facts.as_given and unbent) else "features"
    columns, rows = f"{facts.columns:,} {what}", f"{facts.count:,} rows"
    return f"{columns} are too many for {rows} at this budget" if is_so else ""
