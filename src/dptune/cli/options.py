"""What a study was asked: options override a file, which overrides defaults."""

import csv
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from dptune.accounting import Budget
from dptune.cli.screen import tell_rows
from dptune.columns.kinds import PAID
from dptune.data import Data
from dptune.data.classes import PUBLIC
from dptune.data.sources import load_data
from dptune.errors import InvalidInput
from dptune.ledger import Ledger
from dptune.own_code import is_pretrained, pretrained_name
from dptune.plain_data import read_toml
from dptune.preparation.options import AUTO, MOST_SHARE
from dptune.search.space import Space
from dptune.study.config import (
    Config,
    Preparation,
    build,
    default_delta,
    engine_from,
    parse,
    score_from,
    search_from,
    usual_measure,
    usual_preparation,
    usual_space,
)
from dptune.table_files import listed

DEFAULT_EPSILON = 1.0
# What --engine calls engines that train a module which a function of the user's makes.
ENGINES_OF_MODULES = {"module": "torch-module", "lora": "lora", "zeroth-order": "zeroth-order"}
_ANY_DELTA = 1e-6  # until rows are counted
_OF_FEATURES = ("name", "rows", "classes")  # what a file may declare of pictures or texts


@dataclass(frozen=True)
class TuneOptions:
    """The data, and all settings of a study."""

    data: Data
    settings: dict[str, Any]  # the fields of Config, and so the keywords of tune
    delta_chosen: bool  # by us, because the user gave none

    @property
    def config(self) -> Config:
        return Config(study="not begun", columns=self.data.declared, **self.settings)


def read_options(
    file: str | None,
    options: Mapping[str, Mapping[str, Any]],
    load: Callable[..., Data] = load_data,
) -> TuneOptions:
    """Merge `options`, by section, over those of a TOML file, and load the data that they name.
    None stands for the default."""
    plain = read_config(file)
    given = {
        section: {key: value for key, value in values.items() if value is not None}
        for section, values in options.items()
    }
    trained = _merge(plain["engine"], given["engine"], "name")
    source = {"source": "demo"} | plain["data"] | given["data"]
    if "text" in source and is_pretrained(str(trained.get("factory", ""))):
        source.setdefault("tokenizer", pretrained_name(trained["factory"]))
    typed, source = source, _make_absolute(source)
    run = plain["run"] | given["run"]
    columns = plain["columns"] | given.get("columns", {})
    if columns and load is not load_data:
        raise InvalidInput(
            "columns are declared for tables, not for pictures or texts; leave them out."
        )
    declared = {"columns": columns, "told": tell_rows()} if columns else {}
    budget = {"epsilon": DEFAULT_EPSILON} | plain["budget"] | given["budget"]
    delta_chosen = "delta" not in budget
    # What is wrong for any rows is refused before they are read, which may take minutes.
    promised = build(Budget, {"delta": _ANY_DELTA} | budget, "[budget]")
    search = search_from(_merge(plain["search"], given["search"], "method"))
    engine = engine_from(trained)
    given_score = _merge(plain["score"], given["score"], "kind")
    score_from(given_score)
    space = build(Space, asdict(usual_space(search, engine)) | plain["space"], "[space]")
    preparation = build(Preparation, plain["preparation"] | given["preparation"], "[preparation]")
    # Messages about a table show its path as it was typed.
    data = load(**(typed if load is load_data else source), **declared)
    if delta_chosen:
        promised = replace(promised, delta=_default_delta(run.get("ledger", ""), data))
    if not plain["preparation"] and "unit_rows" not in given["preparation"]:
        usual = usual_preparation(data.facts, engine)
        preparation = replace(preparation, unit_rows=usual.unit_rows)
    settings = {
        "budget": promised,
        "search": search,
        "score": score_from(usual_measure(data.facts) | given_score),
        "space": space,
        "recipe": plain["recipe"],
        "preparation": preparation,
        "engine": engine,
        "source": source,
        **run,
    }
    return TuneOptions(data, settings, delta_chosen)


def declared_of_features(file: str | None) -> dict[str, Any]:
    """Section [data] of a TOML file beside --data, which names the pictures or texts."""
    declared: dict[str, Any] = read_config(file)["data"]
    others = [key for key in declared if key not in _OF_FEATURES]
    if others:
        raise InvalidInput(
            f"[data] in {file} says {listed(others)}, and --data takes its place; leave that out "
            "(--test, --public and --shift name more data)."
        )
    return declared


def read_columns(file: str | None) -> dict[str, Any]:
    """Read the columns that a file declares, in a section [columns] or by themselves."""
    if file is None:
        return {}
    plain = read_toml(_read_text(file), file)
    section = plain.get("columns")
    if not isinstance(section, dict) or "kind" in section:  # a column may be called so, too
        return plain
    others = [name for name in plain if name != "columns"]
    if others:
        raise InvalidInput(
            f"{file} has a section [columns], and {listed(others)} beside it; give other "
            "settings in a --config file."
        )
    return section


def parse_classes(text: str | None) -> list[Any] | str | None:
    """Parse --classes: names, which are numbers or booleans where all of them are; or how to find
    them."""
    if text is None or text in (PAID, PUBLIC):
        return text
    ((*names,),) = csv.reader([text], skipinitialspace=True)  # a name may hold a comma
    names = [name.strip() for name in names]
    if all(name.lower() in ("true", "false") for name in names):
        return [name.lower() == "true" for name in names]
    try:
        return [int(name) for name in names]
    except ValueError:
        return names


def parse_engine(text: str | None) -> dict[str, Any]:
    """Parse --engine, such as module:FACTORY or linear, as section [engine] of a file."""
    if text is None:
        return {}
    word, _, factory = text.partition(":")
    if not factory:
        if word in ENGINES_OF_MODULES:
            raise InvalidInput(
                f"--engine {word} needs the function that makes the module: {word}:FILE.py:NAME."
            )
        return {"name": word}
    if word not in ENGINES_OF_MODULES:
        kinds = ", ".join(f"{each}:FILE.py:NAME" for each in ENGINES_OF_MODULES)
        raise InvalidInput(f"--engine takes linear, {kinds}; got {text!r}.")
    return {"name": ENGINES_OF_MODULES[word], "factory": factory}


def parse_share(text: str | None, option: str) -> float | str | None:
    """Parse a share of mu^2: auto, no, or a number."""
    if text in (None, AUTO, "no"):
        return 0.0 if text == "no" else text
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number <= MOST_SHARE:
        raise InvalidInput(
            f"{option} takes auto, no, or a share of mu^2 such as 0.01, at most {MOST_SHARE}; got "
            f"{text!r}."
        )
    return number


def _default_delta(ledger: str, data: Data) -> float:
    """That of the ledger to pay from, else one from the number of rows."""
    return Ledger.open(ledger).state().budget.delta if ledger else default_delta(data.count)


def _merge(file: dict[str, Any], given: dict[str, Any], kind: str) -> dict[str, Any]:
    """The file's options belong to the kind it names; another kind starts afresh."""
    return file | given if given.get(kind) in (None, file.get(kind)) else given


def _make_absolute(source: dict[str, Any]) -> dict[str, Any]:
    """Make paths absolute, so that a run can be resumed from another folder."""
    absolute = dict(source)
    for key in ("source", "test", "public"):
        if key in absolute:
            absolute[key] = _absolute(absolute[key])
    if isinstance(absolute.get("shifts"), list):
        absolute["shifts"] = [_absolute(place) for place in absolute["shifts"]]
    return absolute


def _absolute(place: Any) -> Any:
    if not isinstance(place, str) or place == "demo" or place.startswith("hub:") or "://" in place:
        return place
    return str(Path(place).absolute())


def read_config(file: str | None) -> dict[str, Any]:
    """Read the sections of a --config file, all empty where there is none."""
    return parse("", "") if file is None else parse(_read_text(file), file)


def _read_text(file: str) -> str:
    try:
        return Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InvalidInput(f"the configuration {file!r} cannot be read: {reason}.") from None
