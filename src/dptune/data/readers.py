"""Files, folders and hub data sets as parts: features and labels, read when they are asked for.

Messages show the columns of a file, never its values.
"""

import shlex
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dptune.columns import Coded, Columns
from dptune.columns.problems import Problems
from dptune.data.classes import Numbered
from dptune.data.declared_files import Batches, Declared, batches_of, read_labelled
from dptune.data.disk import DiskRows
from dptune.data.parquet_rows import ParquetRows
from dptune.errors import InvalidInput
from dptune.hub import load_from_disk, load_from_hub
from dptune.table_files import (
    is_number,
    listed,
    must_be_told_apart,
    parquet_files,
    parquet_schema,
    read_csv,
    read_parquet,
    reading,
    without_index,
)
from dptune.unpacked import must_unpack_within_limit

DEFAULT_LABEL = "label"
NPZ_ARRAYS = {
    "new": ("X", "y", "groups"),
    "train": ("X_train", "y_train", "groups_train"),
    "test": ("X_test", "y_test", "groups_test"),
}
SAVED_TO_DISK = ("dataset_dict.json", "state.json")


@dataclass(frozen=True, eq=False, repr=False)  # no repr: it would print rows
class Part:
    """Some rows. `columns` are the names of the features, one each, `classes` those of numbered
    labels. `gaps` says whether labels are missing in some rows. Chunks on disk hold their labels.
    `groups` are those of a `Shift`. `asked` is how many rows there would be if none were empty, and
    `numbers` which of them each is. `plain` are undeclared columns of a table, one number each."""

    features: NDArray[Any] | DiskRows | Coded
    labels: NDArray[Any] | Numbered | None
    columns: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    gaps: bool = False
    groups: NDArray[Any] | None = None
    group_names: tuple[str, ...] = ()
    asked: int | None = None
    plain: Columns | None = None
    numbers: NDArray[np.int64] | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Source:
    """A file, a folder or a data set of the hub: parts, read when called, and contents in words.

    Parts are "train", "test", "new" (rows to predict) and "whole" (a table that may or may not
    have labels).
    """

    parts: Mapping[str, Callable[[], Part]]
    contents: str
    columns: Sequence[str] | None = None  # of a table that names them, with the label's
    made_by: Mapping[str, Any] | None = None  # the backbone that made the features, if one did


def _from_npz(path: Path, label: str | None) -> Source:
    with reading(path):
        if not zipfile.is_zipfile(path):
            raise ValueError("not a file that numpy.savez wrote")
        must_unpack_within_limit(path)
        with np.load(path, allow_pickle=False) as arrays:
            names = list(arrays.keys())
    parts = {
        part: partial(_npz_part, path, *keys)
        for part, keys in NPZ_ARRAYS.items()
        if keys[0] in names
    }
    return Source(parts, f"the arrays {listed(names)}")


def _plain(arrays: Any, name: str, path: Path) -> Any:
    with _no_objects(f"{name} in {str(path)!r}"):
        return arrays[name]


@contextmanager
def _no_objects(what: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        if "Object arrays" not in str(error):
            raise
        raise InvalidInput(
            f"{what} holds objects of Python, as pandas has them, which are not read: they could "
            "run anything. Save texts by .astype(str), numbers by .astype(float)."
        ) from None


def _npz_part(path: Path, features_name: str, labels_name: str, groups_name: str) -> Part:
    names = (features_name, labels_name, groups_name, "scale", "classes", "group_names")
    with reading(path), np.load(path, allow_pickle=False) as arrays:
        read = {name: _plain(arrays, name, path) for name in names if name in arrays}
        if not all(isinstance(array, np.ndarray) for array in read.values()):
            raise ValueError("some of its members are no arrays")
        features, labels = read[features_name], read.get(labels_name)
        groups = read.get(groups_name)
        classes, group_names = (
            tuple(map(str, read[name].tolist())) if name in read else ()
            for name in ("classes", "group_names")
        )
        if "scale" in read:
            scale = read["scale"]
            if scale.shape != features.shape[1:]:
                raise InvalidInput(
                    f"scale in {str(path)!r} must be one number a column, so of shape "
                    f"{features.shape[1:]}; got {scale.shape}."
                )
            features = features * scale
    if groups is None:  # the names may belong to other rows of the file
        group_names = ()
    return Part(features, labels, classes=classes, groups=groups, group_names=group_names)


def _from_npy(path: Path, label: str | None) -> Source:
    with reading(path), _no_objects(repr(str(path))):
        table = np.load(path, allow_pickle=False)
        if not isinstance(table, np.ndarray) or table.ndim < 2:
            raise InvalidInput(
                f"{str(path)!r} must be one table (rows, columns), a column of labels in it."
            )

    def split() -> Part:
        column = _column_number(label, table.shape[1])
        return Part(np.delete(table, column, axis=1), table[:, column])

    if table.ndim > 2:  # such as pictures, which have no place for a label
        contents = f"rows of shape {table.shape[1:]}, without labels"
        return Source({"new": lambda: Part(table, None)}, contents)
    contents = f"a table of shape {table.shape}"
    return Source({"whole": lambda: Part(table, None), "train": split}, contents)


def _column_number(label: str | None, columns: int) -> int:
    try:
        number = columns - 1 if label is None else int(label)
    except ValueError:
        number = -1
    if 0 <= number < columns:
        return number
    raise InvalidInput(
        "--label (label= in Python) must be the number of a column of the .npy table, from 0 to "
        f"{columns - 1}; got {label!r}."
    )


def _from_csv(path: Path, label: str | None) -> Source:
    return _from_table(read_csv(path), path, label or DEFAULT_LABEL)


def _from_parquet(path: Path, label: str | None) -> Source:
    return _from_table(read_parquet(path), path, label or DEFAULT_LABEL)


def from_parquet_folder(folder: Path, label: str | None) -> Source:
    """Parquet files that make one table."""
    with reading(folder):
        table = pa.concat_tables(map(read_parquet, parquet_files(folder)))
    return _from_table(table, folder, label or DEFAULT_LABEL)


def from_declared_files(paths: Sequence[Path], where: Path, declared: Declared) -> Source:
    """A table whose columns are declared."""
    return _from_batches(lambda: batches_of(paths, repr(str(where))), declared)


def from_large_files(paths: Sequence[Path], where: Path, declared: Declared) -> Source:
    """The same for more rows than fit in memory."""
    names = parquet_schema(paths[0]).names
    parts = {"train": lambda: Part(ParquetRows(paths, declared, where), None)}
    return Source(parts, f"the columns {listed(names)}", names)


def _from_batches(opened: Callable[[], Batches], declared: Declared) -> Source:
    names = opened().names

    def part() -> Part:
        rows, labels, gaps = read_labelled(opened(), declared)
        return Part(rows, labels, gaps=gaps)

    return Source({"train": part}, f"the columns {listed(names)}", names)


def _from_table(table: Any, path: Path, label: str) -> Source:
    names = table.column_names
    contents = f"the columns {listed(names)}"
    part = partial(_table_part, table, str(path), label)
    return Source({"train": part, "new": partial(part, new=True)}, contents, names)


READERS: dict[str, Callable[[Path, str | None], Source]] = {
    ".npz": _from_npz,
    ".npy": _from_npy,
    ".csv": _from_csv,
    ".csv.gz": _from_csv,
    ".parquet": _from_parquet,
}


def from_folder(folder: Path, label: str, declared: Declared | None = None) -> Source:
    with reading(folder):
        return _from_splits(load_from_disk(folder), str(folder), label, declared)


def from_chunks(folder: Path) -> Source:
    """What `write_chunks` wrote."""
    return Source({"train": lambda: Part(DiskRows(folder), None)}, "chunks of rows with labels")


def from_hub(name: str, label: str, declared: Declared | None = None) -> Source:
    return _from_splits(load_from_hub(name), f"hub:{name}", label, declared)


def _from_splits(
    splits: dict[str, Any], where: str, label: str, declared: Declared | None
) -> Source:
    parts: dict[str, Callable[[], Part]] = {
        split: partial(_split_part, splits[split], where, label)
        if declared is None
        else partial(_declared_split, splits[split], where, declared)
        for split in ("train", "test")
        if split in splits
    }
    columns = next(iter(splits.values())).column_names if splits else []
    contents = f"the splits {listed(list(splits))} of the columns {listed(columns)}"
    return Source(parts, contents, columns)


def new_in_folder(folder: Path) -> Batches:
    """Rows to predict that save_to_disk wrote."""
    with reading(folder):
        return _new(load_from_disk(folder), str(folder))


def new_in_hub(name: str) -> Batches:
    """The same from the hub."""
    return _new(load_from_hub(name), f"hub:{name}")


def _new(splits: dict[str, Any], where: str) -> Batches:
    split = next((each for each in ("test", "train") if each in splits), None)
    if split is None:
        raise InvalidInput(
            f"{where!r} holds no rows to predict, in a split test or train; found the splits "
            f"{listed(list(splits))}."
        )
    return _split_batches(splits[split], where)


def _declared_split(split: Any, where: str, declared: Declared) -> Part:
    rows, labels, gaps = read_labelled(_split_batches(split, where), declared)
    return Part(rows, labels, gaps=gaps)


def _split_batches(split: Any, where: str) -> Batches:
    table = _arrow(split, where)
    return Batches(table.column_names, [table], repr(where), texts=False)


def _arrow(split: Any, where: str) -> Any:
    with reading(Path(where)):
        return split.with_format("arrow")[:]


def _split_part(split: Any, where: str, label: str) -> Part:
    table = _arrow(split, where)
    classes = getattr(split.features.get(label), "names", None) or ()
    return _table_part(table, where, label, tuple(classes))


def _table_part(
    table: Any, where: str, label: str, classes: tuple[str, ...] = (), *, new: bool = False
) -> Part:
    names = without_index(table.column_names)
    must_be_told_apart(names, repr(where))
    if table.num_rows == 0:
        raise InvalidInput(f"{where!r} holds no rows, only the columns {listed(names)}.")
    features = [name for name in names if name != label]
    if not features:
        raise InvalidInput(f"{where!r} has no columns besides {label!r}; features are needed.")
    blocks = _all_numbers(table, features, where, labelled=label in names, new=new)
    columns = [
        each
        for name, block in zip(features, blocks, strict=True)
        for each in _each_name(name, table.column(name).type, block.shape[1])
    ]
    labels, gaps = None, False
    if label in names and not new:
        column = table.column(label)
        labels, gaps = column.to_numpy(), column.null_count > 0
    # The numbers of a list are of one scale, so lists are not plain columns.
    lists = any(_is_list(table.column(name).type) for name in features)
    plain = None if lists else Columns.of_numbers(columns)
    return Part(np.concatenate(blocks, axis=1), labels, tuple(columns), classes, gaps, plain=plain)


def _each_name(name: str, kind: Any, width: int) -> list[str]:
    """The names of a column's features: a list has several."""
    return [f"{name}[{number}]" for number in range(width)] if _is_list(kind) else [name]


def _all_numbers(
    table: Any, names: Sequence[str], where: str, *, labelled: bool, new: bool
) -> list[NDArray[Any]]:
    """Every column as numbers; the error names all that are not."""
    problems, blocks = Problems(), []
    for name in names:
        column = table.column(name)
        try:
            blocks.append(_numbers(column))
        except InvalidInput as error:
            problems.add(name, str(error))
        if not new and _any_infinite(column):  # predictions clip them
            problems.add(name, "holds numbers that are infinite or too large.")
    if new:
        problems.raise_any(
            f"{where!r} does not fit the model, which was trained on numbers without gaps; put "
            "numbers there, or leave those rows or columns out"
        )
    name_labels = "; name a column of labels with --label (label= in Python)"
    problems.raise_any(
        f"{where!r} has columns that must be declared. Begin with dptune columns "
        f"{shlex.quote(where)} -o columns.toml, fill that in, and give it with --columns "
        f"columns.toml (columns= in Python){'' if labelled else name_labels}"
    )
    return blocks


def _numbers(column: Any) -> NDArray[Any]:
    """A column of numbers, or of equally long lists of numbers, as a table."""
    kind, width, rows, missing = column.type, 1, len(column), column.null_count
    if _is_list(kind) and not missing:
        lengths = pc.unique(pc.list_value_length(column)).to_pylist()
        if len(lengths) != 1:
            raise InvalidInput(
                "holds lists of different lengths; they need the same, one number a feature."
            )
        width, column = lengths[0], pc.list_flatten(column)
        kind, missing = column.type, missing + column.null_count
    if pa.types.is_decimal(kind):
        kind, column = pa.float64(), column.cast(pa.float64())
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    if missing:
        raise InvalidInput("has missing values.")
    if not number:
        first = _first_text(column) if width == 1 else ""
        raise InvalidInput(f"must be numbers, or lists of numbers; found {kind}{first}.")
    return _as_array(column).reshape(rows, width)


def _any_infinite(column: Any) -> bool:
    """Whether any number is infinite in float32, the type used in training."""
    if not pa.types.is_floating(column.type):
        return False
    return bool(pc.any(pc.is_inf(column.cast(pa.float32(), safe=False))).as_py())


def _as_array(column: Any) -> NDArray[Any]:
    """Numbers or booleans, none missing. Arrow's own `to_numpy` loads pandas if it is installed."""
    if pa.types.is_boolean(column.type):
        return _as_array(column.cast(pa.uint8())).view(np.bool_)
    return np.concatenate([np.from_dlpack(chunk) for chunk in column.chunks])


def _first_text(column: Any) -> str:
    """The first row whose text is no number, if some rows hold numbers."""
    if not pa.types.is_string(column.type):
        return ""
    numbers = [is_number(each) for each in column.to_pylist()]
    if all(numbers) or not any(numbers):
        return ""
    return f" (the first in row {numbers.index(False) + 1:,})"


def _is_list(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))
