"""What a study was asked, and what it will do and pay for; refuses what cannot be done.

Nothing here spends anything or reads a private row.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from dptune import accounting
from dptune.accounting import Budget, Guarantee
from dptune.accounting.guarantees import LARGEST_MEANINGFUL_EPSILON
from dptune.columns.kinds import Category
from dptune.columns.spec import Columns
from dptune.data import Data
from dptune.data.made_by import is_of_words
from dptune.data.rows import DataFacts, find_device, find_precision
from dptune.engines.executors import SerialExecutor
from dptune.errors import BudgetExceeded, FolderProblem, InvalidInput
from dptune.ledger import Ledger
from dptune.ledger.address import are_one
from dptune.own_code import must_be_absolute, must_be_given
from dptune.preparation.logarithms import sure_share
from dptune.preparation.options import AUTO, MOST_SHARE
from dptune.privacy import Event, Price, total
from dptune.rounding import allowance, cost
from dptune.search.base import Census
from dptune.search.space import Space
from dptune.search.trial import Trial
from dptune.study.config import (
    Config,
    build,
    default_delta,
    digest,
    engine_from,
    preparation_from,
    score_from,
    search_from,
    without_engine_options,
)
from dptune.study.outline import Outline, is_final
from dptune.study.payments import Payments
from dptune.study.recipe import case_of, settled
from dptune.study.rehearsal import rehearse
from dptune.study.run_folder import RunFolder
from dptune.study.run_settings import AS_IT_WAS, read_settings
from dptune.study.runner import read_census
from dptune.study.statement import Paid, Released, guarantee_for, noise_notes
from dptune.study.versions import must_be_reusable
from dptune.table_files import listed

# Shares of mu^2 that are dear or of no use at another budget.
_BY_BUDGET = ("range_share", "logarithm_share")


def read_asked(folder: RunFolder) -> dict[str, Any]:
    """What run.toml says, section by section, which must be as the study wrote it. No code that it
    names is needed."""
    plain = read_settings(folder)
    with suppress(TypeError):  # from dates, of which no digest is taken
        if str(plain.get("study")).endswith(f"-{digest(plain)}"):
            return plain
    raise FolderProblem(
        f"{folder.path / 'run.toml'} was changed after the study began. {AS_IT_WAS}"
    )


def read_config(folder: RunFolder, *, own_code: bool = False) -> Config:
    """What the run in `folder` was asked to do. Code that it names and that this process did
    not get is refused, unless `own_code` asks for it."""
    name = folder.path / "run.toml"
    as_it_was = False
    try:
        plain = read_settings(folder)
        if "study" not in plain or not plain["budget"]:
            raise InvalidInput("it lacks the study's name or budget, so it is damaged.")
        as_it_was = str(plain.get("study")).endswith(f"-{digest(plain)}")
        recipe, engine = without_engine_options(plain["recipe"], plain["engine"])
        config = Config(
            study=str(plain.get("study")),
            facts=tuple(plain.get("facts", ())),
            budget=build(Budget, plain["budget"], "[budget]"),
            search=search_from(plain["search"]),
            score=score_from(plain["score"]),
            space=build(Space, plain["space"], "[space]"),
            recipe=recipe,
            preparation=preparation_from(plain["preparation"]),
            engine=engine_from(engine),
            source=plain["data"],
            columns=Columns.of(plain["columns"]) if plain["columns"] else None,
            **{"check": False} | plain["run"],  # older versions did not pay for one
        )
    except (InvalidInput, TypeError) as error:
        if as_it_was and isinstance(error, InvalidInput):
            raise  # the file is as it was: this program lacks its engine or its method
        raise FolderProblem(f"{name} cannot be read: {error} {AS_IT_WAS}") from None
    if not as_it_was:
        raise FolderProblem(f"{name} was changed after the study began. {AS_IT_WAS}")
    must_be_absolute(engine, name)
    must_be_given(config.engine.traits.own_functions.values(), name, asked=own_code)
    return config


def decided(config: Config, facts: DataFacts) -> Config:
    """The same with all that was left to us decided: how rows are prepared by the study whose
    search is reused, where there is one, and else by public numbers."""
    if config.reuse:
        _must_have_a_search(config)
        must_be_given(config.engine.traits.own_functions.values(), "this study", asked=True)
        folder = RunFolder.open(config.reuse)
        must_be_reusable(folder)
        theirs = read_config(folder)
        asked, then = config.preparation, theirs.preparation
        if then.class_share:
            raise InvalidInput(
                f"the search in {config.reuse} was made for classes whose names it bought, and a "
                "search is reused where classes are declared from the beginning; leave reuse out."
            )
        names = [each.name for each in fields(asked) if getattr(asked, each.name) == AUTO]
        as_then = {name: getattr(then, name) for name in names}
        if "curves" in names:  # of which these are a part, though None where nobody asks
            for name in ("curves_up_to", "curves_room"):
                if getattr(asked, name) is None:
                    as_then[name] = getattr(then, name)
        if as_then.get("range_share"):  # how dear ranges of use are hangs on the budget
            as_then["range_share"] = AUTO
        if "range_share" not in names:  # with other ranges, rows may need no logarithm
            as_then.pop("logarithm_share", None)
        if as_then.get("logarithm_share"):
            sure = sure_share(case_of(config, facts))
            as_then["logarithm_share"] = min(max(as_then["logarithm_share"], sure), MOST_SHARE)
        as_then["shrink_mean"] = then.shrink_mean
        config = replace(config, preparation=replace(asked, **as_then))
    return settled(config, facts)


def outline(data: Data, config: Config) -> Outline:
    """What the study will do and pay for; refuses what cannot be done."""
    find_device(config.device)
    find_precision(config.precision)
    if config.facts and config.facts != data.public_facts:
        then, now = config.facts, data.public_facts
        raise InvalidInput(
            "the study began with other public facts than these rows come with: "
            f"{_missing_from(now, then)} then, and {_missing_from(then, now)} now. Put the "
            "file back as it was, or declare the same as then."
        )
    _must_be_declared_alike(data, config)
    if config.score.rows == "public":
        data.check_public_rows()
    if config.preparation.standardize:
        data.public_features()
    config.preparation.must_fit(data.columns)
    if not _leaves_rows_alone(data, config):
        _must_be_a_table(data, config)
    if not data.learns_classes and config.score.measure != "loss":
        raise InvalidInput(
            "values and words are not right or wrong, so trials are compared by their loss; use a "
            "score with measure='loss'."
        )
    if config.balance == "classes" and not (
        data.facts.has_classes and config.engine.traits.weighs_rows
    ):
        why = f"the engine {config.engine.name} does not weigh rows by class"
        if not data.facts.has_classes:
            why = (
                "not every row is of one class" if data.learns_classes else "values have no classes"
            )
        raise InvalidInput(f"balance='classes' was asked for, and {why}; leave balance out.")
    if config.reuse:
        _must_have_a_search(config)
    planned = Outline(
        config=config,
        data=data.facts,
        reused=bool(config.reuse),
        set_aside=_set_aside(config),
    )
    if planned.holds_out and planned.samples:
        raise InvalidInput(
            "held-out scores go with full-batch runs only, and this study samples rows; pay for "
            "noisy scores, or leave the sampling rate out."
        )
    if planned.rows_of_a_trial < 1:
        raise InvalidInput("rows can be held out of two or more; this data set has one.")
    planned.engine.check(planned.recipe)
    planned.engine.must_take(planned.recipe)
    if is_of_words(data.made_by):
        planned.engine.inspection.must_know_words(data.made_by["tokenizer"])
    if planned.recipe.augmentations > data.copies and not planned.engine.traits.makes_copies:
        raise InvalidInput(
            f"the recipe averages {planned.recipe.augmentations} copies of each row, but the data "
            f"hold {data.copies}; give augmented data, or fewer augmentations."
        )
    planned.payments  # noqa: B018  # an over-dear search is refused here
    return planned


def _must_have_a_search(config: Config) -> None:
    if config.search.sealing or config.search.finalists > 1:
        raise InvalidInput(
            f"{config.search.name} releases one of its own runs, so there is no search that "
            "another study could reuse; leave reuse out."
        )


def _missing_from(some: Sequence[str], facts: Sequence[str]) -> str:
    return "; ".join(fact for fact in facts if fact not in some) or "nothing else"


def _must_be_declared_alike(data: Data, config: Config) -> None:
    declared = (config.columns, data.declared)
    then, now = (columns and list(columns.declared.items()) for columns in declared)
    if then != now:
        raise InvalidInput(
            "the study began with other columns than these rows are declared with; declare the "
            "same as then: [columns] of its run.toml."
        )
    asked = config.preparation
    if data.declared is not None and (asked.ranges or asked.standardize):
        which = "ranges" if asked.ranges else "standardize"
        raise InvalidInput(
            f"columns are declared by name, each with its own range, and [preparation] asks for "
            f"{which}, which would scale them once more; leave it out, and give every number its "
            "range in [columns]."
        )


def _leaves_rows_alone(data: Data, config: Config) -> bool:
    asked = config.preparation
    public = asked.unit_rows or asked.standardize or asked.ranges
    return not (public or asked.center_share or asked.whiten_share)


def _must_be_a_table(data: Data, config: Config) -> None:
    if config.engine.traits.takes_ids or not data.facts.is_table:
        what = "numbers of words" if config.engine.traits.takes_ids else f"of shape {data.shape}"
        raise InvalidInput(
            f"only rows of a table are scaled or centred, and these are {what}; leave the "
            "preparation out."
        )


def foresee(data: Data, config: Config) -> tuple[Outline, Guarantee]:
    """What a study would pay for and promise, after its engine was tried on made-up rows as the
    study would try it. Spends nothing and writes nothing."""
    config = decided(config, data.facts)
    planned = outline(data, config)
    must_protect(config, data.count, stated_epsilon(planned, data))
    rehearse(planned, SerialExecutor())
    events = [event for _, event in planned.payments]
    searched = None
    others = must_fit(planned, data) if config.ledger else 0
    counted, scored = planned.schedule.census is not None, bool(planned.schedule.compared)
    if config.reuse:
        earlier = Earlier.read(config, data)
        events, searched = [*earlier.events, *events], earlier.price
        others -= len(earlier.events)
        counted, scored = earlier.census is not None, True
    caveats = ("a plan: true of a study that is run exactly like this", *noise_notes(planned))
    if planned.class_names:
        caveats += (f"planned as for {data.outputs} classes, until their names are estimated",)
    released = Released(
        preparation=None,
        classes=planned.class_names is not None,
        counts=counted,
        weighted=planned.weighs_rows,
        scores=scored,
        check=planned.schedule.check is not None,
    )
    paid = Paid(events=events, price=planned.price, others=others, searched=searched)
    return planned, guarantee_for(planned, data, paid, released, caveats)


def before_paying(data: Data, config: Config) -> tuple[str, ...]:
    """Notes for the user while nothing is spent yet; refuses what its ledger
    cannot pay for."""
    planned = outline(data, decided(config, data.facts))
    if config.ledger:
        must_fit(planned, data)
    slow = planned.engine.inspection.slowed_by(planned.data)
    notes = (*data.remarks(), *noise_notes(planned), *export_notes(config))
    return (*notes, *filter(None, (slow,)))


def export_notes(config: Config) -> tuple[str, ...]:
    """A note where the columns of a linear model cannot be exported."""
    declared = {} if config.columns is None else config.columns.declared
    hashed = [
        name
        for name, column in declared.items()
        if isinstance(column, Category) and column.buckets is not None
    ]
    if not hashed or not config.engine.traits.linear_in_rows:
        return ()
    return (
        "dptune export cannot write this model, because neither ONNX nor scikit-learn has the hash "
        f"that sorts {listed(hashed)} into buckets; declare values if you want to export it",
    )


def must_protect(config: Config, rows: int, epsilon: float | None = None) -> None:
    """Refuse a budget that protects no row, unless it was allowed. `epsilon` is what will be stated
    where that is more than the budget's."""
    epsilon, delta = epsilon or config.budget.epsilon, config.budget.delta
    if delta * rows > 1 and not config.allow_large_delta:
        raise InvalidInput(
            f"delta is {delta:g}, above one in {rows:,}, the number of rows: publishing a whole "
            "row now and then would keep such a promise. Nothing was spent; give a smaller delta, "
            f"such as {default_delta(rows):g}, or {_allow('delta')}."
        )
    if epsilon > LARGEST_MEANINGFUL_EPSILON and not config.allow_large_epsilon:
        of_both = " for this study and the search that it reuses" if config.reuse else ""
        raise InvalidInput(
            f"epsilon is {cost(epsilon)}{of_both}: above {LARGEST_MEANINGFUL_EPSILON:g} it "
            "protects nobody in any provable way. Nothing was spent; give a smaller epsilon, or "
            f"{_allow('epsilon')}."
        )


def stated_epsilon(planned: Outline, data: Data) -> float:
    """The epsilon of the promise: the budget's, or with a search that is reused that of both
    studies, refused where it cannot be stated."""
    config = planned.config
    if not config.reuse:
        return config.budget.epsilon
    together = total([Earlier.read(config, data).price, planned.price])
    return max(config.budget.epsilon, accounting.epsilon(together, config.budget.delta))


def _allow(name: str) -> str:
    return (
        f"allow it with --allow-large-{name} (allow_large_{name}=True in Python, "
        f"allow_large_{name} = true under [run] of a --config file)"
    )


def must_fit(planned: Outline, data: Data) -> int:
    """Refuse a study that its ledger cannot pay for; the number of payments it holds."""
    budget, spent = planned.config.budget, planned.price
    ledger = Ledger.open(planned.config.ledger)
    ledger.must_know(data.fingerprint)
    now = ledger.state()
    if spent.slack > now.remaining.slack:
        raise BudgetExceeded(
            "the study's sampled runs, sealed search or secret categories need a failure "
            f"probability of {cost(spent.slack)}, and {ledger.address} has "
            f"{allowance(now.remaining.slack)} left of the {cost(now.slack)} that was set aside "
            "when it was opened; nothing was spent. Leave the sampling rate out, declare the "
            "categories, or pay from a ledger that was opened with more (--slack)."
        )
    if not now.admits([event for _, event in planned.payments], spent):
        raise BudgetExceeded(
            f"the study asks for epsilon {budget.epsilon:g} at delta "
            f"{budget.delta:g}; {ledger.address} has enough left for one full-batch run of epsilon "
            f"{allowance(now.remaining_epsilon)} at delta {now.budget.delta:g}, and nothing was "
            "spent. Ask for less."
        )
    return len(now.counted)


def _set_aside(config: Config) -> float:
    """As large a part of the study's delta as the ledger it names keeps of its own, so that a study
    with all of a ledger's budget fits in; a ledger of the study's own keeps what it needs."""
    if not config.ledger:
        return 0.0
    now = Ledger.open(config.ledger).state()
    kept = now.opened_slack or 0.0
    return min(kept, config.budget.delta * kept / now.changes[0].budget.delta)


@dataclass(frozen=True)
class Earlier:
    """The search of an earlier study, whose price this one's guarantee includes."""

    trials: tuple[Trial, ...]
    census: Census | None
    events: tuple[Event, ...]
    price: Price  # as it was planned: what was spent in the end depends on outputs

    @staticmethod
    def read(config: Config, data: Data) -> "Earlier":
        folder = RunFolder.open(config.reuse)
        theirs = read_config(folder)
        if theirs.reuse:
            raise InvalidInput(
                f"the study in {config.reuse} has no search of its own: it reused the one in "
                f"{theirs.reuse}; reuse that."
            )
        if not config.ledger or not are_one(theirs.ledger, config.ledger):
            raise InvalidInput(
                f"the search in {config.reuse} was paid from another ledger; a search can be "
                "reused where both studies pay from one ledger, which is to be named."
            )
        # The promise for this study is also one for that search.
        for name in ("search", "score", "preparation", "columns", "engine", "balance"):
            asked, found = getattr(config, name), getattr(theirs, name)
            if name == "preparation":
                both = (
                    each for each in _BY_BUDGET if getattr(asked, each) and getattr(found, each)
                )
                asked = replace(asked, **{each: getattr(found, each) for each in both})
            if asked != found:
                raise InvalidInput(
                    f"the {name} in {config.reuse} is {_other(found, asked)}, this study asks for "
                    f"{_other(asked, found)}; reuse it with the same options, named where a rule "
                    "chooses others at this budget."
                )
        planned = outline(data, replace(theirs, ledger=config.ledger))
        search = [planned.price_of(e) for label, e in planned.payments if not is_final(label)]
        paid = Payments(Ledger.open(config.ledger), theirs.study, data.fingerprint)
        return Earlier(
            trials=tuple(folder.read_trials()),
            census=read_census(folder),
            events=tuple(paid.events(but=is_final)),
            price=total(search),
        )


def _other(value: Any, than: Any) -> str:
    """What of a value is other than in one of its kind; all of it where kinds differ."""
    if not is_dataclass(value) or type(value) is not type(than):
        return str(value)
    options = ((each.name, getattr(value, each.name)) for each in fields(value))
    return ", ".join(f"{name} = {own}" for name, own in options if own != getattr(than, name))
