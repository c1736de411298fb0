"""What a study decides by itself: how rows are prepared, and with what recipe models are trained.

All of it follows from public numbers, before anything is paid. Measurements:
experiments/notes/law-measured.md.
"""

from dataclasses import replace
from typing import Any

from dptune import accounting
from dptune.data.rows import DataFacts
from dptune.engines.base import Engine
from dptune.plan import ADAPTIVE, TrainPlan
from dptune.preparation.class_names import class_line, class_share
from dptune.preparation.pipeline import Plan, plan
from dptune.preparation.sentences import plan_lines, result_lines
from dptune.preparation.step import Case, EngineFacts, State
from dptune.preparation.words import FREE
from dptune.search.base import SearchMethod
from dptune.search.space import ADAPTIVE_RATES
from dptune.study.config import Config, usual_space

SEGMENTS = 5


def case_of(config: Config, facts: DataFacts, set_aside: float = 0.0) -> Case:
    """All that preparation may decide by. `set_aside` is how much of delta the ledger, if one was
    named, keeps for failures."""
    straight, budget = facts.straight_columns, config.budget
    if facts.named is not None:
        facts = replace(facts, shape=(straight,))
    return Case(
        facts=facts,
        columns=straight,
        budget=budget,
        slack=accounting.slack_of_one(set_aside) or accounting.default_slack(budget.delta),
        options=config.preparation,
        alone=config.search.sealing is not None,
        engine=_engine_facts(config.engine, facts, budget.mu),
    )


def _engine_facts(engine: Engine[Any], facts: DataFacts, mu: float) -> EngineFacts:
    def averages(columns: int) -> bool:
        wide = replace(facts, shape=(columns,))
        return engine.usual_recipe(wide, unit_rows=True, mu=mu).get("averaging") == "swa"

    return EngineFacts(
        engine.traits.trains, engine.traits.linear_in_rows, engine.traits.wants_constant, averages
    )


def class_share_of(config: Config, facts: DataFacts) -> float:
    """Of mu^2, for names of classes that nobody declared."""
    against = ""
    if config.reuse:
        against = "a search is reused for the same classes"
    elif not (config.engine.traits.takes_any_classes or config.engine.traits.pretrained):
        against = f"the engine {config.engine.name} must know how many classes there are"
    elif "class_weights" in config.recipe:
        against = "the recipe weighs classes by their place among all of them"
    return class_share(case_of(config, facts), against)


def recipe_of(config: Config, facts: DataFacts) -> TrainPlan:
    """What all runs have in common."""
    return replace(config.plan(facts.count), **config.search.fixes)


def is_sampled(recipe: TrainPlan, search: SearchMethod) -> bool:
    """Whether runs see a sample of the rows in every step."""
    rate = recipe.sampling_rate or search.sampling_rates
    return rate is not None


def segments_of(config: Config, facts: DataFacts) -> int:
    """In how many parts the final run is paid, so that a crash loses one of them."""
    recipe, search = recipe_of(config, facts), config.search
    whole = is_sampled(recipe, search) or search.sealing  # each segment would fail by itself
    continuable = config.engine.for_data(facts).can_continue(recipe) and not whole
    return min(SEGMENTS, config.space.steps[0]) if continuable else 1


def settled(config: Config, facts: DataFacts) -> Config:
    """The same with all that was left to us decided, so that a later version decides no other."""
    prepared = plan(case_of(config, facts))
    prepared.must_be_of_use()
    preparation = replace(prepared.options, class_share=class_share_of(config, facts))
    facts = seen(facts, prepared)
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
    return replace(config, preparation=preparation, recipe=recipe, space=space)


def seen(facts: DataFacts, prepared: Plan) -> DataFacts:
    """The facts with as many features as a model sees of the rows, at most."""
    return facts if facts.named is None else replace(facts, shape=(prepared.case.columns,))


def in_words(
    config: Config, facts: DataFacts, prepared: Plan | None = None, state: State | None = None
) -> tuple[str, ...]:
    """What is done to rows, and to their gradients: as planned, or with a `state` as it came out;
    nothing where rows are no table of numbers."""
    lines = class_line(case_of(config, facts), class_share_of(config, facts))
    if not facts.is_table or config.engine.traits.takes_ids:
        return tuple(lines)
    prepared = prepared or plan(case_of(config, facts))
    lines += plan_lines(prepared) if state is None else result_lines(prepared, state)
    recipe = config.plan(facts.count)
    if recipe.clip_norm is not None and recipe.clip_norm < 1:
        lines.append(f"gradients clipped well below their norm, at {recipe.clip_norm:g} {FREE}")
    if recipe.averaging == "swa":
        lines.append(f"final weights: average of the last half of the iterates {FREE}")
    return tuple(lines)
