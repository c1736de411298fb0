"""What people do by hand before they train: one column of 0 and 1 a category, numbers brought to
[-1, 1] by known ranges, dates taken apart. From the same facts that a columns file declares, by
pandas alone: nothing of dptune's own encoding."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.tables.sets import Table

PARTS = {"weekday": ("day_of_week", 7), "hour": ("hour", 24)}  # pandas' name, and how many


def frames(table: Table, root: str) -> tuple[Any, Any]:
    """Both files as pandas reads them, without what is dropped."""
    import pandas as pd

    columns = table.columns()
    dropped = [name for name, column in columns.items() if column["kind"] == "drop"]
    dates = [name for name, column in columns.items() if column["kind"] == "date"]
    read = [
        pd.read_csv(file, parse_dates=dates).drop(columns=dropped)
        for file in (table.train(root), table.test(root))
    ]
    return read[0], read[1]


def write_features(table: Table, root: str, file: Path) -> None:
    """Numbers only, as `dptune tune` takes them without any columns."""
    arrays: dict[str, NDArray[Any]] = {}
    columns = table.columns()
    label = columns.pop(table.label)
    numbers = {name: number for number, name in enumerate(label["values"])}
    for part, frame in zip(("train", "test"), frames(table, root), strict=True):
        blocks = [
            _block(frame[name], column)
            for name, column in columns.items()
            if column["kind"] != "drop"
        ]
        arrays[f"X_{part}"] = np.concatenate(blocks, axis=1).astype(np.float32)
        arrays[f"y_{part}"] = frame[table.label].map(numbers).to_numpy(np.int64)
    np.savez(file, allow_pickle=False, **arrays)


def _block(values: Any, column: dict[str, Any]) -> NDArray[np.float64]:
    """The columns that one column becomes."""
    gap = values.isna().to_numpy()
    match column["kind"]:
        case "number":
            found = _scaled(values.to_numpy(np.float64), column["range"], column.get("fill"))
        case "boolean":
            found = np.where(values.astype(str).str.lower() == "yes", 1.0, -1.0)[:, None]
        case "date":
            found = _date(values, column)
        case _:
            found = _category(values, column)
    return np.hstack([found, gap[:, None]]) if column.get("indicator") else found


def _scaled(numbers: NDArray[np.float64], ends: Any, fill: Any) -> NDArray[np.float64]:
    low, high = ends
    middle = (low + high) / 2
    known = np.nan_to_num(numbers, nan=fill if isinstance(fill, int) else middle)
    scaled = (np.clip(known, low, high) - middle) / (high - middle)
    return np.asarray(scaled, np.float64)[:, None]


def _date(values: Any, column: dict[str, Any]) -> NDArray[np.float64]:
    import pandas as pd

    moments = values.dt.tz_localize(None)
    low, high = (pd.Timestamp(end) for end in column["range"])
    share = np.asarray((moments - low) / (high - low), np.float64)
    parts = [np.clip(2 * share - 1, -1, 1)[:, None]]
    for part in column["parts"]:
        called, count = PARTS[part]
        parts.append(np.eye(count)[getattr(moments.dt, called).to_numpy()])
    return np.hstack(parts)


def _category(values: Any, column: dict[str, Any]) -> NDArray[np.float64]:
    texts = values.astype(str)
    if "buckets" in column:
        count = column["buckets"]
        digests = texts.map(lambda text: int(hashlib.md5(text.encode()).hexdigest(), 16) % count)
        return np.asarray(np.eye(count)[digests.to_numpy()], np.float64)
    return np.stack([(texts == value).to_numpy(np.float64) for value in column["values"]], axis=1)
