"""Studies of many kinds, and what preparing their rows gives with noise that is always the same."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dptune import Budget, Preparation
from dptune.columns import Encoding
from dptune.columns.spec import Columns
from dptune.data.preprocess import Preprocessing
from dptune.data.row_maps import RowMap
from dptune.data.rows import DataFacts
from dptune.engines.linear import LinearEngine
from dptune.preparation.pipeline import prepare
from dptune.preparation.step import Decision, PrivateRows, State, Step
from dptune.search.linear_scaling import LinearScaling
from dptune.search.private_selection import PrivateSelection
from dptune.search.score import NoisyScore
from dptune.study.config import Config, usual_measure, usual_space
from dptune.study.outline import Outline
from dptune.study.recipe import settled

VOCABULARIES = {"town": ("a", "b", "c", "d", "e", "f"), "job": tuple(f"j{n}" for n in range(12))}
DECLARED = Columns.of(
    {
        "income": {"kind": "number"},
        "age": {"kind": "number", "range": [0, 100]},
        "debt": {"kind": "number", "range": "paid"},
        "yes": {"kind": "boolean"},
        "town": {"kind": "category", "values": "paid", "at_most": 5},
        "job": {"kind": "category", "values": "paid", "at_most": 8},
        "born": {"kind": "date", "range": ["1950-01-01", "2020-01-01"]},
        "count": {"kind": "number"},
    }
)


@dataclass(frozen=True)
class Study:
    """One configuration, its public facts, its rows as they are coded, and what is lost of it."""

    name: str
    config: Config
    facts: DataFacts
    rows: Any


def rows_of(rows: int, columns: int) -> Any:
    draw = np.random.default_rng(1)
    return draw.normal(size=(rows, columns)) * draw.lognormal(0, 1.5, columns) + 3


def declared_rows(rows: int) -> Any:
    draw = np.random.default_rng(2)
    codes = np.column_stack(
        [
            draw.lognormal(10, 1.0, rows),
            draw.uniform(10, 90, rows),
            draw.normal(0, 5000, rows),
            draw.integers(0, 2, rows),
            draw.integers(0, 6, rows) * draw.integers(0, 2, rows),
            draw.integers(0, 12, rows),
            draw.uniform(-7000 * 24, 15000 * 24, rows),
            draw.integers(0, 2, rows),
        ]
    )
    codes[draw.random(codes.shape) < 0.02] = np.nan
    return codes


def config_of(facts: DataFacts, epsilon: float, search: Any = None, **asked: Any) -> Config:
    search, engine = search or LinearScaling(), asked.pop("engine", LinearEngine())
    return Config(
        study="",
        budget=Budget(epsilon, 1e-5),
        search=search,
        score=NoisyScore(**usual_measure(facts)),
        space=usual_space(search, engine),
        recipe={},
        preparation=Preparation(**asked),
        source={},
        engine=engine,
    )


def facts_of(rows: int, columns: int, *, values: bool, named: Columns | None = None) -> DataFacts:
    outputs, loss = (1, "squared") if values else (3, "softmax")
    as_given = named is not None and named is not DECLARED
    shape = (Encoding(named).width if named is DECLARED else columns,)
    return DataFacts(rows, shape, 1, outputs, loss, named, as_given)


ASKED: dict[str, dict[str, Any]] = {
    "usual": {},
    "named mean": {"center_share": 0.03, "logarithm_share": 0},
    "named moment": {"whiten_share": 0.05},
    "moment alone": {"center_share": 0, "whiten_share": 0.05},
    "not rescaled": {"rescale": False, "center_share": 0.02, "shorten": False},
    "plain": {"center_share": 0, "whiten_share": 0, "range_share": 0, "curves": 1},
    "as they are": {"unit_rows": False, "center_share": 0.02},
    "shortened": {"shorten": True},
    "not shortened": {"shorten": False},
    "straight": {"curves": 1},
    "ranges named": {"range_share": 0.1},
    "curves named": {"range_share": 0.1, "curves": 3},
    "no ranges": {"range_share": 0},
    "biased": {"engine": LinearEngine(bias=True)},
    "sealed": {"search": PrivateSelection()},
}


def studies() -> Iterator[Study]:
    many = [300, 1500]
    for epsilon, rows, columns, values, as_given in itertools.product(
        [0.3, 8.0],
        many,
        [1, 4, 40],
        [False, True],
        [False, True],
    ):
        named = Columns.of_numbers(f"column {i}" for i in range(1, columns + 1))
        facts = facts_of(rows, columns, values=values, named=named if as_given else None)
        for asked in ASKED:
            if asked not in ("usual", "straight") and not (rows == 1500 and columns in (4, 40)):
                continue
            name = f"epsilon {epsilon}, {rows} x {columns}, {values=}, {as_given=}, {asked}"
            config = config_of(facts, epsilon, **ASKED[asked])
            yield Study(name, config, facts, rows_of(rows, columns))
    ranges = tuple((0.0, 10.0) for _ in range(4))
    for epsilon, rows, values in itertools.product([0.5, 2.0, 10.0], many, [False, True]):
        facts = facts_of(rows, 8, values=values, named=DECLARED)
        for asked in ASKED:
            name = f"declared, epsilon {epsilon}, {rows}, {values=}, {asked}"
            config = config_of(facts, epsilon, **ASKED[asked])
            yield Study(name, config, facts, declared_rows(rows))
        named = Columns.of_numbers(f"column {i}" for i in range(1, 5))
        facts = facts_of(rows, 4, values=values, named=named)
        for curves in ("auto", 1, 3):
            name = f"ranges by position, epsilon {epsilon}, {rows}, {values=}, {curves=}"
            config = config_of(facts, epsilon, ranges=ranges, curves=curves)
            yield Study(name, config, facts, rows_of(rows, 4))


@dataclass(frozen=True)
class Prepared:
    """What preparing the rows of a study comes to."""

    outline: Outline
    state: State
    rows: Any


def prepared(study: Study, lost: str | None = None) -> Prepared:
    """With the same noise every time; `lost` names a statistic that is paid for and lost."""
    draw = np.random.default_rng(7)
    config = settled(study.config, study.facts)
    outline = Outline(config=config, data=study.facts, reused=False)
    plan, named = outline.preparation, study.facts.named

    def tables(maps: Sequence[RowMap] | None) -> list[Any]:
        if maps is None:
            return [study.rows]
        made = Preprocessing(maps)
        if made.encoding is not None:
            made = made.with_encoding(made.encoding.reading(VOCABULARIES))
        return [made.apply(study.rows)]

    rows = PrivateRows(tables, lambda: VOCABULARIES, lambda shape: draw.standard_normal(shape))

    def measured(step: Step, decision: Decision, state: State) -> Any:
        return None if step.name == lost else step.measure(plan.case, decision, state, rows)

    state = prepare(plan, measured, plan.start(None if named is None else Encoding(named)))
    return Prepared(outline, state, state.preprocessing.apply(study.rows))


def record(study: Study, lost: str | None = None) -> dict[str, Any]:
    """What is kept of it, in numbers that hardly depend on the machine."""
    made = prepared(study, lost)
    asked = made.outline.config.preparation
    shares = ("center_share", "whiten_share", "range_share", "category_share", "logarithm_share")
    rows = made.rows[:300].astype(float)
    along = rows @ np.random.default_rng(0).standard_normal(rows.shape[1])
    return {
        "decided": [asked.curves, asked.curves_up_to, asked.curves_room, asked.shorten],
        "shares": [getattr(asked, name) for name in shares],
        "noise": {
            label: getattr(event, "noise", None) or getattr(event, "noise_multiplier", None)
            for label, event in made.outline.preparing.items()
        },
        "shape": list(made.rows.shape),
        "sums": [float(along.sum()), float((along**2).sum())],
        "curvature": made.state.curvature,
        "lost": list(made.state.lost),
    }
