"""Data sets by name: the bundled one, files, folders of Hugging Face datasets, and the hub.

`load_data` reads one into a `Data`; `read_features` reads new rows for a trained model. What a
message shows of a file is its columns, never its values.
"""

import hashlib
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv, parquet

from dptune import _validate
from dptune.data import Data, name_classes
from dptune.errors import InvalidInput, MissingExtra
from dptune.fingerprint import fingerprint_file

DEFAULT_LABEL = "label"
_DEMO, _HUB = "demo", "hub:"
_NPZ_ARRAYS = {"new": ("X", "y"), "train": ("X_train", "y_train"), "test": ("X_test", "y_test")}
_SAVED_TO_DISK = ("dataset_dict.json", "state.json")
_UNREADABLE = (
    OSError,
    ValueError,
    TypeError,
    EOFError,
    MemoryError,  # a torn header can ask for any size
    RuntimeError,  # a zip that is encrypted, or compressed in an unknown way
    zipfile.BadZipFile,
    zlib.error,
    pa.ArrowException,
)


@dataclass(frozen=True, eq=False, repr=False)  # no repr: it would print rows
class _Part:
    """Some rows. `columns` are the names of the features, `classes` those of numbered labels;
    a table's labels may be missing in some rows as long as nobody needs them."""

    features: NDArray[Any]
    labels: NDArray[Any] | None
    columns: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    gaps: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class _Source:
    """What a file, a folder or the hub offers: parts, read when called, and its contents in words.

    Parts are "train", "test", "new" (rows to predict) and "whole" (a table that may or may not
    have labels).
    """

    parts: Mapping[str, Callable[[], _Part]]
    contents: str
    columns: Sequence[str] | None = None  # of a table that names them, the labels' included


def load_data(
    source: str | Path,
    *,
    label: str | None = None,
    test: str | Path | None = None,
    public: str | Path | None = None,
    classes: Sequence[Any] | None = None,
    rows: int | None = None,
    task: str = "classes",
    target_range: tuple[float, float] | None = None,
    name: str | None = None,
) -> Data:
    """Read "demo", an .npz, .npy, .csv or .parquet file, a folder written by `save_to_disk`, or
    "hub:NAME". `test` and `public` are such sources too; `label` names the column of labels.

    >>> load_data("demo")
    Data('demo', 50,000 rows, 64 columns, 10 classes)
    """
    opened = _open(source, label)
    if label is not None and _is_npz(source):
        raise InvalidInput("the labels of an .npz file are its y_train; leave label out.")
    train = _labelled(source, opened, label, "train")
    others = {}
    if test is not None:
        others["test"] = _beside(source, test, label, "test", "train")
    elif "test" in opened.parts:
        others["test"] = _labelled(source, opened, label, "test")
    if public is not None:
        others["public"] = _beside(source, public, label, "train")
    for which, part in others.items():
        if part.columns and train.columns and part.columns != train.columns:
            raise InvalidInput(
                f"the {which} rows have the columns {_listed(part.columns)}, the private ones "
                f"{_listed(train.columns)}; they need the same, in the same order."
            )
    by_name = task == "classes"
    if by_name and classes is None:
        classes = train.classes or None
    return Data(
        train.features,
        _labels(train, by_name),
        name=_default_name(source) if name is None else name,
        task=task,
        classes=classes,
        rows=rows,
        target_range=target_range,
        fingerprint=None if _is_hub(source) else _identity(source),
        test=_pair(others.get("test"), by_name),
        public=_pair(others.get("public"), by_name),
    )


def read_features(source: str | Path, columns: int, label: str | None = None) -> NDArray[Any]:
    """New rows for a model of `columns` columns; a column of labels, if there, is left out."""
    columns = _validate.whole(1, columns=columns)
    opened = _open(source, label)
    wanted = next((part for part in ("whole", "new", "test", "train") if part in opened.parts), "")
    if not wanted:
        raise InvalidInput(
            f"{str(source)!r} holds no rows to predict (X in an .npz file, the split test of a "
            f"data set); found {opened.contents}."
        )
    features = opened.parts[wanted]().features
    if wanted == "whole" and features.shape[1] != columns:
        features = opened.parts["train"]().features
    if features.ndim != 2 or features.shape[1] != columns:
        raise InvalidInput(
            f"{str(source)!r} has features of shape {features.shape}, the model takes {columns} "
            f"columns; found {opened.contents}."
        )
    return features


def fingerprint_folder(folder: str | Path) -> str:
    """Digest of the names and bytes of all files in a folder, in sorted order."""
    folder, digest = Path(folder), hashlib.sha256()
    # Hugging Face keeps scratch files, called cache-, beside the data.
    files = [path for path in folder.rglob("*") if path.is_file()]
    files = sorted(path for path in files if not path.name.startswith("cache-"))
    if not files:
        raise InvalidInput(f"{str(folder)!r} is no folder with files in it.")
    with _reading(folder):
        for path in files:
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
            digest.update(f"{path.relative_to(folder).as_posix()}\0{content}\n".encode())
    return digest.hexdigest()


def fingerprint_source(source: str | Path) -> str:
    """Digest of what `load_data` reads, as its `Data` carries it, without reading rows."""
    if _is_hub(source):
        raise InvalidInput(
            f"{str(source)!r} is known by its rows, once downloaded; save_to_disk it and give the "
            "folder."
        )
    path = _path(source)
    if path.is_dir() and not any((path / name).exists() for name in _SAVED_TO_DISK):
        raise InvalidInput(
            f"{str(source)!r} is a folder, but not one that save_to_disk wrote; give such a "
            "folder, a file, or 'demo'."
        )
    return _identity(source)


def _is_hub(source: str | Path) -> bool:
    return isinstance(source, str) and source.startswith(_HUB)


def _is_npz(source: str | Path) -> bool:
    return _path(source).suffix.lower() == ".npz"


def _path(source: str | Path) -> Path:
    if source == _DEMO:
        return Path(str(resources.files("dptune") / "demo" / "cifar10_resnet20.npz"))
    return Path(source)


def _default_name(source: str | Path) -> str:
    return str(source).removeprefix(_HUB) if _is_hub(source) else Path(source).stem


def _identity(source: str | Path) -> str:
    if _is_hub(source):
        return str(source)
    path = _path(source)
    return fingerprint_folder(path) if path.is_dir() else fingerprint_file(path)


def _open(source: str | Path, label: str | None) -> _Source:
    if not isinstance(source, str | Path):
        raise InvalidInput(f"a source is a path, 'demo' or 'hub:NAME'; got {source!r}.")
    if _is_hub(source):
        return _from_hub(str(source).removeprefix(_HUB), label or DEFAULT_LABEL)
    path = _path(source)
    if not path.exists():
        raise InvalidInput(
            f"there is no file or folder {str(source)!r}; give a path, 'demo' for the bundled data "
            "set, or 'hub:NAME'."
        )
    if path.is_dir():
        return _from_folder(path, label or DEFAULT_LABEL)
    if path.suffix.lower() not in _READERS:
        raise InvalidInput(
            f"{str(source)!r} does not end in one of {', '.join(_READERS)}; convert it to one of "
            "these, or rename it if it is one."
        )
    if path.stat().st_size == 0:
        raise InvalidInput(f"the file {str(source)!r} is empty; give one that holds rows.")
    return _READERS[path.suffix.lower()](path, label)


def _labelled(source: str | Path, opened: _Source, label: str | None, *wanted: str) -> _Part:
    """The first of the wanted parts that is there, which must have labels."""
    which = next((part for part in wanted if part in opened.parts), None)
    if which is None:
        raise InvalidInput(
            f"{str(source)!r} holds no rows with labels (X_train and y_train in an .npz file, the "
            f"split train of a data set); found {opened.contents}."
        )
    column = label or DEFAULT_LABEL
    if opened.columns is not None and column not in opened.columns:
        raise InvalidInput(
            f"{str(source)!r} has no column of labels {column!r}; found {opened.contents}. Say "
            "which it is with label=."
        )
    part = opened.parts[which]()
    if part.labels is None:
        raise InvalidInput(
            f"{str(source)!r} has rows but no labels {_NPZ_ARRAYS[which][1]}; found "
            f"{opened.contents}."
        )
    if part.gaps:
        raise InvalidInput(
            f"the column {column!r} of {str(source)!r} has missing values; remove those rows first."
        )
    return part


def _beside(source: str | Path, other: str | Path, label: str | None, *wanted: str) -> _Part:
    part = _labelled(other, _open(other, label), label, *wanted)
    if _identity(other) == _identity(source):
        raise InvalidInput(
            f"{str(other)!r} is the private data itself: figures and scores on it would leak it. "
            "Give other rows, or leave it out."
        )
    return part


def _labels(part: _Part, by_name: bool) -> NDArray[Any] | None:
    return name_classes(part.labels, part.classes) if by_name and part.classes else part.labels


def _pair(part: _Part | None, by_name: bool) -> tuple[Any, Any] | None:
    return None if part is None else (part.features, _labels(part, by_name))


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:20])
    return shown if len(names) <= 20 else f"{shown}, ... ({len(names)} in all)"


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except InvalidInput:
        raise
    except _UNREADABLE as error:
        raise InvalidInput(
            f"{str(path)!r} cannot be read: {_reason(error)}. It may be damaged, or of another "
            "kind than its name says; write it again."
        ) from None


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, pa.ArrowException):  # which quotes the line it stumbled on
        telling = re.search(
            r"Empty CSV file|(Row #\d+: )?Expected \d+ columns, got \d+", str(error)
        )
        return telling.group() if telling else type(error).__name__
    return str(error).split("\n")[0].rstrip(".")


def _from_npz(path: Path, label: str | None) -> _Source:
    with _reading(path):
        if not zipfile.is_zipfile(path):
            raise ValueError("not a file that numpy.savez wrote")
        with np.load(path, allow_pickle=False) as arrays:
            names = list(arrays.keys())
    parts = {
        part: partial(_npz_part, path, *keys)
        for part, keys in _NPZ_ARRAYS.items()
        if keys[0] in names
    }
    return _Source(parts, f"the arrays {_listed(names)}")


def _npz_part(path: Path, features_name: str, labels_name: str) -> _Part:
    with _reading(path), np.load(path, allow_pickle=False) as arrays:
        read = {
            name: arrays[name]
            for name in (features_name, labels_name, "scale", "classes")
            if name in arrays
        }
        if not all(isinstance(array, np.ndarray) for array in read.values()):
            raise ValueError("some of its members are no arrays")
        features, labels = read[features_name], read.get(labels_name)
        classes = tuple(map(str, read["classes"].tolist())) if "classes" in read else ()
        if "scale" in read:
            scale = read["scale"]
            if scale.shape != features.shape[1:]:
                raise InvalidInput(
                    f"scale in {str(path)!r} must be one number a column, so of shape "
                    f"{features.shape[1:]}; got {scale.shape}."
                )
            features = features * scale
    return _Part(features, labels, classes=classes)


def _from_npy(path: Path, label: str | None) -> _Source:
    with _reading(path):
        table = np.load(path, allow_pickle=False)
        if not isinstance(table, np.ndarray) or table.ndim != 2:
            raise InvalidInput(
                f"{str(path)!r} must be one table (rows, columns), a column of labels in it."
            )

    def split() -> _Part:
        column = _column_number(label, table.shape[1])
        return _Part(np.delete(table, column, axis=1), table[:, column])

    contents = f"a table of shape {table.shape}"
    return _Source({"whole": lambda: _Part(table, None), "train": split}, contents)


def _column_number(label: str | None, columns: int) -> int:
    try:
        number = columns - 1 if label is None else int(label)
    except ValueError:
        number = -1
    if 0 <= number < columns:
        return number
    raise InvalidInput(
        f"label must be the number of a column of the .npy table, from 0 to {columns - 1}; got "
        f"{label!r}."
    )


def _from_csv(path: Path, label: str | None) -> _Source:
    with _reading(path):
        return _from_table(csv.read_csv(path), path, label or DEFAULT_LABEL)


def _from_parquet(path: Path, label: str | None) -> _Source:
    with _reading(path), parquet.ParquetFile(path) as file:
        return _from_table(file.read(), path, label or DEFAULT_LABEL)


def _from_table(table: Any, path: Path, label: str) -> _Source:
    names = table.column_names
    contents = f"the columns {_listed(names)}"
    if all(re.fullmatch(r"[-+.\deE]+", name) for name in names):
        contents += " (is the line of column names missing?)"
    return _Source({"train": partial(_table_part, table, str(path), label)}, contents, names)


_READERS: dict[str, Callable[[Path, str | None], _Source]] = {
    ".npz": _from_npz,
    ".npy": _from_npy,
    ".csv": _from_csv,
    ".parquet": _from_parquet,
}


def _from_folder(folder: Path, label: str) -> _Source:
    datasets = _hugging_face()
    with _reading(folder):
        return _from_splits(datasets.load_from_disk(str(folder)), str(folder), label)


def _from_hub(name: str, label: str) -> _Source:
    datasets = _hugging_face()
    try:
        stored = datasets.load_dataset(name)
    except Exception as error:  # the hub fails in more ways than can be listed
        reason = str(error).split("\n")[0].rstrip(".")
        raise InvalidInput(
            f"the data set {name!r} could not be had from the hub: {reason}. Check the name and "
            "the connection; or save_to_disk it where there is one, and give the folder."
        ) from None
    return _from_splits(stored, f"{_HUB}{name}", label)


def _hugging_face() -> Any:
    try:
        import datasets
    except ImportError:
        raise MissingExtra(
            "a Hugging Face data set needs the package datasets: pip install 'dptune[hub]'."
        ) from None
    return datasets


def _from_splits(stored: Any, where: str, label: str) -> _Source:
    splits = dict(stored) if isinstance(stored, Mapping) else {"train": stored}
    parts = {
        split: partial(_split_part, splits[split], where, label)
        for split in ("train", "test")
        if split in splits
    }
    columns = next(iter(splits.values())).column_names if splits else []
    contents = f"the splits {_listed(list(splits))} of the columns {_listed(columns)}"
    return _Source(parts, contents, columns)


def _split_part(split: Any, where: str, label: str) -> _Part:
    with _reading(Path(where)):
        table = split.with_format("arrow")[:]
    classes = getattr(split.features.get(label), "names", None) or ()
    return _table_part(table, where, label, tuple(classes))


def _table_part(table: Any, where: str, label: str, classes: tuple[str, ...] = ()) -> _Part:
    # The index of a pandas frame travels as a column of this name, and is no feature.
    names = [name for name in table.column_names if not name.startswith("__index_level_")]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidInput(f"{where!r} has several columns called {_listed(twice)}; rename them.")
    if table.num_rows == 0:
        raise InvalidInput(f"{where!r} holds no rows, only the columns {_listed(names)}.")
    features = [name for name in names if name != label]
    if not features:
        raise InvalidInput(f"{where!r} has no columns besides {label!r}; features are needed.")
    blocks = [_numbers(table.column(name), name, where) for name in features]
    labels, gaps = None, False
    if label in names:
        column = table.column(label)
        labels, gaps = column.to_numpy(), column.null_count > 0
    return _Part(np.concatenate(blocks, axis=1), labels, tuple(features), classes, gaps)


def _numbers(column: Any, name: str, where: str) -> NDArray[Any]:
    """A column of numbers, or of equally long lists of numbers, as a table."""
    kind, width, rows, missing = column.type, 1, len(column), column.null_count
    if _is_list(kind) and not missing:
        lengths = pc.unique(pc.list_value_length(column)).to_pylist()
        if len(lengths) != 1:
            raise InvalidInput(
                f"the column {name!r} of {where!r} holds lists of different lengths; they need "
                "the same, one number a feature."
            )
        width, column = lengths[0], pc.list_flatten(column)
        kind, missing = column.type, missing + column.null_count
    if pa.types.is_decimal(kind):
        kind, column = pa.float64(), column.cast(pa.float64())
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    if missing:
        raise InvalidInput(
            f"the column {name!r} of {where!r} has missing values; fill them or remove those rows "
            "first."
        )
    if not number:
        raise InvalidInput(
            f"the column {name!r} of {where!r} must be numbers, or lists of numbers; found {kind}. "
            f"Leave it out or turn it into numbers; if it holds the labels, say label={name!r}."
        )
    return np.asarray(column.to_numpy()).reshape(rows, width)


def _is_list(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))
