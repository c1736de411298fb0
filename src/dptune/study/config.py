"""What a study was asked to do, as one value and as TOML.

A run folder holds the resolved configuration; the same file, or a part of it, can be handed to
`dptune tune --config`. A key nobody knows is an error: a misspelt option must not be ignored.
"""

import hashlib
import json
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from decimal import ROUND_DOWN, Context, Decimal
from pathlib import Path
from typing import Any, TypeVar

import tomli_w

from dptune import validate
from dptune.accounting import Budget
from dptune.columns.spec import Columns
from dptune.data.rows import DataFacts
from dptune.engines.base import Engine
from dptune.engines.linear import LinearEngine
from dptune.engines.registry import engine_named, must_be_registered
from dptune.errors import InvalidInput
from dptune.ledger.address import is_file, without_secrets
from dptune.plain_data import read_toml
from dptune.plan import TrainPlan
from dptune.preparation.options import Preparation as Preparation
from dptune.search.base import SearchMethod
from dptune.search.methods import method_named
from dptune.search.score import HeldOutScore, NoisyScore, PublicScore, Score, UnpaidScore
from dptune.search.space import Space
from dptune.table_files import listed

SCORES: dict[str, Any] = {
    kind.kind: kind for kind in (NoisyScore, HeldOutScore, PublicScore, UnpaidScore)
}
# What version 0.1 had in plans and is the linear engine's own now.
_ONCE_IN_RECIPES = ("bias", "initialization")
BALANCES = ("none", "classes")
# What a recipe may fix; the rest of a plan is searched, or follows from the data and the budget.
_NOT_OF_A_RECIPE = (
    *("rows", "steps", "learning_rate", "noise_multiplier"),
    "tail",  # of a segment
)
RECIPE = tuple(field.name for field in fields(TrainPlan) if field.name not in _NOT_OF_A_RECIPE)
_SECTIONS = (
    "budget",
    "data",
    "columns",
    "search",
    "score",
    "space",
    "recipe",
    "preparation",
    "engine",
    "run",
)
_RUN = (
    *("seed", "device", "precision", "balance", "check", "allow_large_epsilon"),
    *("allow_large_delta", "ledger", "reuse"),
)
# What `load_data` takes.
DATA = (
    "source",
    "label",
    "test",
    "public",
    "classes",
    "rows",
    "task",
    "target_range",
    "name",
    "shifts",
    "text",
    "tokenizer",
    "length",
    "unit",
    "texts_per_unit",
)
Built = TypeVar("Built")


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything that decides a study, apart from the rows.

    `source` says how to load the data again; empty where a program passed its data. `columns` are
    those that were declared by name. `ledger` is an
    address; empty for a ledger of the study's own, inside its folder. `reuse` is the folder of an
    earlier study whose paid search serves this one too. `facts` are what is taken as public. With
    `balance` "classes" every class counts alike in training and in scores, else every row. `check`:
    whether a noisy count, or noisy errors of values, say in the end how the final model does.
    `allow_large_epsilon`, `allow_large_delta`: whether an epsilon above 20 and a delta above one in
    the number of rows are accepted.
    """

    study: str
    budget: Budget
    search: SearchMethod
    score: Score
    space: Space
    recipe: Mapping[str, Any]
    preparation: Preparation
    engine: Engine[Any] = field(default_factory=LinearEngine)
    seed: int = 0
    device: str = "cpu"
    precision: str = "float32"
    balance: str = "none"
    check: bool = True
    allow_large_epsilon: bool = False
    allow_large_delta: bool = False
    ledger: str = field(default="", repr=False)  # it may hold a password
    reuse: str = ""
    source: Mapping[str, Any]
    columns: Columns | None = None
    facts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _must_be_built_again(self.engine)
        _must_hold_no_rows(self.source)
        validate.one_of(BALANCES, balance=self.balance)
        _must_be_shared(self.recipe)
        _must_know(self.recipe, RECIPE, "the recipe")
        plan = self.plan(1)  # a senseless recipe is refused here
        if plan.class_weights is not None and self.balance == "classes":
            raise InvalidInput(
                "rows are weighted by class_weights of the recipe or by what makes classes count "
                "alike (balance), and both were asked for; leave one out."
            )
        self.search.must_fit(self.space)
        for name in set(self.search.fixes) & set(self.recipe):
            raise InvalidInput(
                f"{self.search.name} comes with an {name} of its own ({self.search.fixes[name]}), "
                f"and the recipe asks for {self.recipe[name]}; leave {name} out of the recipe."
            )
        validate.store(
            self,
            seed=validate.whole(0, at_most=2**63, seed=self.seed),
            check=validate.flag(check=self.check),
            allow_large_epsilon=validate.flag(allow_large_epsilon=self.allow_large_epsilon),
            allow_large_delta=validate.flag(allow_large_delta=self.allow_large_delta),
            recipe={name: getattr(plan, name) for name in self.recipe},  # as plain numbers
            ledger=_absolute(ledger=self.ledger),
            reuse=_absolute(reuse=self.reuse),
        )

    def plan(self, rows: int) -> TrainPlan:
        """The recipe as a plan; what is searched holds a place."""
        return TrainPlan(
            rows=rows, steps=1, learning_rate=1.0, noise_multiplier=1.0, **dict(self.recipe)
        )

    @property
    def ledger_without_password(self) -> str:
        """What may be written down; a resume finds the password where PostgreSQL's own tools do."""
        return without_secrets(self.ledger)

    def to_toml(self) -> str:
        plain = {
            "study": self.study,
            "facts": list(self.facts),
            "budget": {"epsilon": self.budget.epsilon, "delta": self.budget.delta},
            "data": dict(self.source),
            "columns": None if self.columns is None else _in_order(self.columns),
            "search": {"method": self.search.name, **_options(self.search)},
            "score": {"kind": self.score.kind, **_options(self.score)},
            "space": _options(self.space),
            "recipe": dict(self.recipe),
            "preparation": _options(self.preparation),
            "engine": {"name": self.engine.name, **self.engine.options()},
            "run": {
                "seed": self.seed,
                "device": self.device,
                "precision": self.precision,
                "balance": self.balance,
                "check": self.check,
                "allow_large_epsilon": self.allow_large_epsilon or None,
                "allow_large_delta": self.allow_large_delta or None,
                "ledger": self.ledger_without_password,
                "reuse": self.reuse,
            },
        }
        try:
            return tomli_w.dumps(_without_none(plain))
        except TypeError as error:
            raise InvalidInput(
                f"this study cannot be written down to be resumed ({error}); give plain numbers, "
                "texts and lists."
            ) from None

    def named(self) -> "Config":
        """The same under a new name that tells whether what was asked is changed afterwards."""
        mark = digest(parse(self.to_toml(), "this study"))
        return replace(self, study=f"{secrets.token_hex(4)}-{mark}")


def parse(text: str, name: str) -> dict[str, Any]:
    """TOML as plain sections, each key checked."""
    plain = read_toml(text, name)
    _must_know(plain, ("study", "facts", *_SECTIONS), name)
    for section in _SECTIONS:
        if not isinstance(plain.setdefault(section, {}), dict):
            raise InvalidInput(f"[{section}] in {name} must be a section of settings.")
    _must_know(plain["budget"], ("epsilon", "delta"), f"[budget] in {name}")
    _must_know(plain["data"], DATA, f"[data] in {name}")
    _must_know(plain["recipe"], (*RECIPE, *_ONCE_IN_RECIPES), f"[recipe] in {name}")
    _must_know(plain["run"], _RUN, f"[run] in {name}")
    return plain


def digest(plain: Mapping[str, Any]) -> str:
    """Of everything that decides what is paid and promised. Where rows and ledger lie, and
    where training happens, may change."""
    free = {"study": None, "data": None, "run": None}
    decides = {
        **plain,
        **free,
        "seed": plain["run"].get("seed"),
        "reuse": plain["run"].get("reuse"),
    }
    for name in ("balance", "check"):  # which older versions did not know
        if name in plain["run"]:
            decides[name] = plain["run"][name]
    if not plain["engine"]:  # as in studies of version 0.1, which knew one engine
        del decides["engine"]
    del decides["columns"]  # which older versions did not know
    if plain["columns"]:
        decides["columns"] = list(plain["columns"].items())  # features are in their order
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:16]


def search_from(options: Mapping[str, Any]) -> SearchMethod:
    """A search method from its name and options."""
    given = dict(options)
    method = method_named(given.pop("method", "linear-scaling"))
    return build(method, given, method.name)


def engine_from(options: Mapping[str, Any]) -> Engine[Any]:
    """An engine from its name and options."""
    given = dict(options)
    kind = engine_named(given.pop("name", LinearEngine.name))
    engine: Engine[Any] = build(kind, given, f"the engine {kind.name}")
    return engine


def without_engine_options(
    recipe: Mapping[str, Any], engine: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The recipe and the engine of a run that version 0.1 began."""
    own = {name: recipe[name] for name in _ONCE_IN_RECIPES if name in recipe}
    return {name: recipe[name] for name in recipe if name not in own}, {**own, **engine}


def usual_preparation(facts: DataFacts, engine: Engine[Any]) -> Preparation:
    """Where nobody asks for one: rows of a table scaled to unit length, if the engine wants that,
    all others as they are."""
    scaled = facts.is_table and engine.traits.wants_unit_rows and not engine.traits.takes_ids
    return Preparation(unit_rows=scaled)


def usual_measure(facts: DataFacts) -> dict[str, Any]:
    """How trials are compared where nobody says: by what is right, or else by their losses. Words
    may cost more than values: one that is guessed blindly among 22,000 costs 10."""
    if facts.has_classes or facts.loss == "inside":
        return {"measure": "correct"}
    # Half a squared error: one of half the range, which few errors exceed.
    return {"measure": "loss", "loss_bound": 10.0 if facts.asks_inside else 0.5}


def usual_space(search: SearchMethod, engine: Engine[Any]) -> Space:
    """Where a search looks unless told."""
    own = engine.traits.usual_space
    return search.usual_space if own is None else Space(**own)


def preparation_from(options: Mapping[str, Any]) -> Preparation:
    """That of a run, which may be older: what its version did not know, it did not do."""
    if "whiten_share" not in options:
        as_then = {"center_share": 0.0, "whiten_share": 0.0}
        options = {**as_then, "rescale": not options.get("center_share"), **options}
    if "range_share" not in options:
        options = {"range_share": 0.0, "category_share": 0.0, **options}
    before = {"shorten": None, "curves": 1, "logarithm_share": 0.0}
    before |= {"shrink_mean": False, "class_share": 0.0}
    options = {**before, **options}
    options.pop("finer_mean", None)  # which this version does not do: see `versions`
    return build(Preparation, options, "[preparation]")


def score_from(options: Mapping[str, Any]) -> Score:
    """A score from its kind and options."""
    given = dict(options)
    kind = given.pop("kind", "noisy")
    validate.one_of(tuple(SCORES), kind=kind)
    score: Score = build(SCORES[kind], given, kind)
    return score


def build(kind: Callable[..., Built], options: Mapping[str, Any], name: str) -> Built:
    """An object from plain options; lists become tuples."""
    plain = {key: tuple(v) if isinstance(v, list) else v for key, v in options.items()}
    allowed = tuple(field.name for field in fields(kind) if field.init)  # type: ignore[arg-type]
    _must_know(plain, allowed, name)
    try:
        return kind(**plain)
    except TypeError as error:
        raise InvalidInput(f"{name} lacks a setting, or one is of a wrong kind: {error}.") from None


def default_delta(rows: int) -> float:
    """One in ten times the number of rows, far below the chance of publishing a row outright;
    three digits, rounded down, so that what is shown is what was chosen.

    >>> default_delta(50_000), default_delta(53_940)
    (2e-06, 1.85e-06)
    """
    return float(Context(prec=3, rounding=ROUND_DOWN).divide(Decimal(1), Decimal(10 * rows)))


def _absolute(**named: str | Path) -> str:
    """So that a resume from another folder finds it."""
    ((name, given),) = named.items()
    if not isinstance(given, str | Path):
        raise InvalidInput(f"{name} must be an address or a path; got {type(given).__name__}.")
    address = str(given)
    return os.path.abspath(address) if address and is_file(address) else address


def _must_know(plain: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    unknown = sorted(set(plain) - set(known))
    if unknown:
        raise InvalidInput(
            f"{where} has no setting {listed(unknown)}; it knows: {', '.join(known) or 'none'}."
        )


def _must_be_built_again(engine: Engine[Any]) -> None:
    """Refuse an engine that a resume could not build as it is."""
    must_be_registered(engine)
    if engine_from({"name": engine.name, **engine.options()}) != engine:
        raise InvalidInput(
            f"{engine!r} cannot be written down: its options must be plain numbers, texts, "
            "booleans or lists, and one that is None must be so by default."
        )


def _must_hold_no_rows(source: Mapping[str, Any]) -> None:
    """Refuse what would write private texts into a run's folder."""
    if any(isinstance(source.get(name), Mapping) for name in ("source", "test", "public")):
        raise InvalidInput(
            "source says where rows lie, and these are in memory; leave it out, and give the data "
            "again to resume: dptune.resume(folder, data)."
        )


def _must_be_shared(recipe: Mapping[str, Any]) -> None:
    for name in set(recipe) & set(_ONCE_IN_RECIPES):
        raise InvalidInput(
            f"{name} is no part of a recipe but an option of the linear engine: engine="
            f"LinearEngine({name}=...) in Python, {name} under [engine] in a --config file."
        )


def _in_order(columns: Columns) -> dict[str, Any]:
    """Each as a section of its own: TOML has plain entries first, wherever they stand."""
    plain = columns.to_plain()
    return {name: {"kind": one} if isinstance(one, str) else one for name, one in plain.items()}


def _options(value: object) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}  # type: ignore[arg-type]


def _without_none(plain: dict[str, Any]) -> dict[str, Any]:
    """TOML has no null; what is not there is None."""
    kept = {key: value for key, value in plain.items() if value is not None}
    return {key: _without_none(v) if isinstance(v, dict) else v for key, v in kept.items()}
