"""What `dptune tune` was asked: options over a file over defaults."""

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
_THINGS = {"--images": "pictures", "--text": "texts"}


@dataclass(frozen=True)
class TuneOptions:
    """The data and everything that `tune` is told about them."""

    data: Data
    settings: dict[str, Any]  # the fields of Config, and so the keywords of tune
    delta_chosen: bool  # by us, because nobody gave one

    @property
    def config(self) -> Config:
        return Config(study="not begun", columns=self.data.declared, **self.settings)


def read_options(
    file: str | None,
    options: Mapping[str, Mapping[str, Any]],
    load: Callable[..., Data] = load_data,
) -> TuneOptions:
    """Merge `options`, by section, over those of a TOML file; None is not given. `load` is told
    what [data] says, and options over it."""
    plain = parsed(file)
    given = {
        section: {key: value for key, value in values.items() if value is not None}
        for section, values in options.items()
    }
    trained = _merge(plain["engine"], given["engine"], "name")
    source = {"source": "demo"} | plain["data"] | given["data"]
    if "text" in source and is_pretrained(str(trained.get("factory", ""))):
        source.setdefault("tokenizer", pretrained_name(trained["factory"]))
    typed, source = source, _from_anywhere(source)
    run = plain["run"] | given["run"]
    columns = plain["columns"] | given.get("columns", {})
    if columns and load is not load_data:
        raise InvalidInput(
            "columns are declared of tables, not of pictures or texts; leave them out."
        )
    declared = {"columns": columns, "told": tell_rows()} if columns else {}
    budget = {"epsilon": DEFAULT_EPSILON} | plain["budget"] | given["budget"]
    delta_chosen = "delta" not in budget
    # What is wrong whatever the rows are is told before they are read, which may take minutes.
    promised = build(Budget, {"delta": _ANY_DELTA} | budget, "[budget]")
    search = search_from(_merge(plain["search"], given["search"], "method"))
    engine = engine_from(trained)
    space = build(Space, asdict(usual_space(search, engine)) | plain["space"], "[space]")
    preparation = build(Preparation, plain["preparation"] | given["preparation"], "[preparation]")
    # Messages about a table show its path as it was typed.
    data = load(**(typed if load is load_data else source), **declared)
    if delta_chosen:
        promised = replace(promised, delta=_default_delta(run.get("ledger", ""), data))
    score = usual_measure(data.facts) | _merge(plain["score"], given["score"], "kind")
    if not plain["preparation"] and "unit_rows" not in given["preparation"]:
        usual = usual_preparation(data.facts, engine)
        preparation = replace(preparation, unit_rows=usual.unit_rows)
    settings = {
        "budget": promised,
        "search": search,
        "score": score_from(score),
        "space": space,
        "recipe": plain["recipe"],
        "preparation": preparation,
        "engine": engine,
        "source": source,
        **run,
    }
    return TuneOptions(data, settings, delta_chosen)


def declared_of_features(file: str | None, option: str) -> dict[str, Any]:
    """What [data] of a TOML file says beside --images or --text, which names the data."""
    declared: dict[str, Any] = parsed(file)["data"]
    others = [key for key in declared if key not in _OF_FEATURES]
    if others:
        raise InvalidInput(
            f"[data] in {file} says {listed(others)}, and {option} takes its place; leave that "
            f"out (--test, --public and --shift name more {_THINGS[option]})."
        )
    return declared


def columns_in(file: str | None) -> dict[str, Any]:
    """What a --columns file declares: in a section [columns], or by itself."""
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


def classes_in(text: str | None) -> list[Any] | str | None:
    """What --classes says: names, which are numbers or booleans where all of them are; or how to
    find them."""
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


def engine_options(text: str | None) -> dict[str, Any]:
    """What --engine says, as [engine] of a file does: module:FACTORY, say, or a plain name."""
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
        known = ", ".join(f"{each}:FILE.py:NAME" for each in ENGINES_OF_MODULES)
        raise InvalidInput(f"--engine takes linear, {known}; got {text!r}.")
    return {"name": ENGINES_OF_MODULES[word], "factory": factory}


def share(text: str | None, option: str) -> float | str | None:
    """What an option says of a share of mu^2: auto, no, or a number."""
    if text in (None, AUTO, "no"):
        return 0.0 if text == "no" else text
    try:
        named = float(text)
    except ValueError:
        named = math.nan
    if not 0 <= named <= MOST_SHARE:
        raise InvalidInput(
            f"{option} takes auto, no, or a share of mu^2 such as 0.01, at most {MOST_SHARE}; got "
            f"{text!r}."
        )
    return named


def _default_delta(ledger: str, data: Data) -> float:
    """Where nobody gave one: that of the ledger to pay from, else from the number of rows."""
    return Ledger.open(ledger).state().budget.delta if ledger else default_delta(data.count)


def _merge(file: dict[str, Any], given: dict[str, Any], kind: str) -> dict[str, Any]:
    """The file's options belong to the kind it names; another kind starts afresh."""
    return file | given if given.get(kind) in (None, file.get(kind)) else given


def _from_anywhere(source: dict[str, Any]) -> dict[str, Any]:
    """With whole paths, so that a run can be resumed from another folder."""
    found = dict(source)
    for key in ("source", "test", "public"):
        if key in found:
            found[key] = _absolute(found[key])
    if isinstance(found.get("shifts"), list):
        found["shifts"] = [_absolute(place) for place in found["shifts"]]
    return found


def _absolute(place: Any) -> Any:
    if not isinstance(place, str) or place == "demo" or place.startswith("hub:") or "://" in place:
        return place
    return str(Path(place).absolute())


def parsed(file: str | None) -> dict[str, Any]:
    """The sections of a --config file, all empty where there is none."""
    return parse("", "") if file is None else parse(_read_text(file), file)


def _read_text(file: str) -> str:
    try:
        return Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InvalidInput(f"the configuration {file!r} cannot be read: {reason}.") from None
