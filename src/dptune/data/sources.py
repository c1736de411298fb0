"""Data sets by name: the bundled one, files, folders of Hugging Face datasets, and the hub.

`load_data` reads one into a `Data`; `read_features` reads new rows for a trained model. Messages
show the columns of a file, never its values.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune import validate
from dptune.columns import Coded, Columns, Encoding
from dptune.data.arrays import places
from dptune.data.classes import Numbered, must_name_classes, name_classes
from dptune.data.data import Data
from dptune.data.declared_files import Declared, batches_of, read_new
from dptune.data.disk import DiskRows
from dptune.data.extracted import is_extracted, origins_of_features
from dptune.data.kinds import PlainRows
from dptune.data.made_by import is_of_texts
from dptune.data.opening import (
    DEMO,
    HUB,
    default_name,
    holds_chunks,
    identify,
    is_hub,
    is_npz,
    must_be_known_folder,
    must_exist,
    named_files,
    open_source,
    path_of,
)
from dptune.data.origin import Origin
from dptune.data.readers import (
    DEFAULT_LABEL,
    NPZ_ARRAYS,
    SAVED_TO_DISK,
    Part,
    Source,
    new_in_folder,
    new_in_hub,
)
from dptune.data.rows import MOST_COLUMNS_OF_A_TABLE
from dptune.data.shift import Shift, shifted
from dptune.data.text_sources import encoder_of, load_texts
from dptune.errors import InvalidInput
from dptune.table_files import listed, perhaps_meant


def load_data(
    source: str | Path,
    *,
    label: str | None = None,
    test: str | Path | None = None,
    public: str | Path | None = None,
    classes: Sequence[Any] | str | None = None,
    rows: int | None = None,
    task: str = "classes",
    target_range: tuple[float, float] | None = None,
    name: str | None = None,
    columns: Columns | Mapping[str, Any] | None = None,
    shifts: Sequence[str | Path] = (),
    text: str | Sequence[str] | None = None,
    tokenizer: str | None = None,
    length: int | None = None,
    unit: str | None = None,
    texts_per_unit: int | None = None,
    told: Callable[[int], None] | None = None,
) -> Data:
    """Read "demo", an .npz, .npy, .csv, .csv.gz or .parquet file, a folder of .parquet files or
    one written by `save_to_disk`, `write_chunks` or `dptune extract`, or "hub:NAME". `test` and
    `public` are such sources too.

    Args:
        source: the private rows. Their own test rows (X_test, the split test) are used if `test`
            names the same source; those of "demo", which are public, always.
        label: the column of labels.
        test: rows that report results.
        public: rows that score trials.
        classes: all classes; "paid" estimates their names privately, "public" takes those that
            occur. Default: "paid" for texts, "public" for numbers.
        rows: the public number of rows. Default: taken from the data.
        task: as for `Data`; for texts "classes", "words" or "spans".
        target_range: as for `Data`.
        name: what reports call the data set. Default: the name of the file.
        columns: declares the columns of a table by name: numbers, categories, dates, booleans, what
            is dropped and what stands for gaps. If the label is among them, it declares the classes
            or the range. Such rows of Parquet files that would take more than 1 GiB are read anew
            in every step.
        shifts: sources of other origins that report results: their test rows, if they have any. An
            .npz file may hold `groups_test`, the number of a group for every row, and
            `group_names`. A shift is named after its file, without the suffix.
        text: the columns of texts, if the source holds texts (`text_sources`).
        tokenizer: turns texts into rows of tokens.
        length: how many tokens a row has.
        unit: the column that names the author of a text: all texts of one person are one row.
        texts_per_unit: how many times `length` tokens such a row has at most.
        told: callback that receives the number of rows read so far.

    Examples:
        >>> load_data("demo")
        Data('demo', 50,000 rows, 64 columns, 10 classes)

    """
    if text is not None:
        wrong = "does not go with texts; leave it out."
        _must_be_left_out(wrong, target_range=target_range, columns=columns)
        return load_texts(
            source,
            encoder_of(text, task, tokenizer, length, unit, texts_per_unit),
            label=label,
            test=test,
            public=public,
            shifts=_named(shifts),
            classes=classes,
            rows=rows,
            name=name,
        )
    wrong = "is for texts; name their columns with --column (text= in Python), or leave it out."
    _must_be_left_out(wrong, tokenizer=tokenizer, length=length)
    _must_be_left_out(wrong, unit=unit, texts_per_unit=texts_per_unit)
    declared = None
    if columns is not None:
        declared = Declared(Columns.of(columns), label or DEFAULT_LABEL, told=told)
    task, classes, target_range = _label_facts(declared, task, classes, target_range)
    opened = open_source(source, label, declared)
    _must_need_a_label(source, label)
    train = _labelled(source, opened, label, "train")
    if declared is not None:
        declared = declared.after(train.features)
    identity = identify(source)  # once: it may mean reading all of a file
    if test is None and source == DEMO:
        test = DEMO
    named = _named(shifts)
    sources = {"test": test, "public": public} | {shifted(each): named[each] for each in named}
    others = {}
    for which, other in sources.items():
        if other is None:
            continue
        splits = ("train",) if which == "public" else ("test", "train")
        part = _read_beside(source, identity, opened, other, label, declared, *splits)
        if part.columns and train.columns and part.columns != train.columns:
            raise InvalidInput(
                f"the {which} rows have the columns {listed(part.columns)}, the private ones "
                f"{listed(train.columns)}; they need the same, in the same order."
            )
        others[which] = part
    by_name = task == "classes"
    origin = Origin(
        fingerprint=None if is_hub(source) else identity,
        made_by=opened.made_by,
        numbers=train.numbers,
        in_words=origins_of_features(opened.made_by, rows, classes) if opened.made_by else None,
    )
    labels_are_texts = is_of_texts(opened.made_by) and not isinstance(train.features, DiskRows)
    if by_name and classes is None and not labels_are_texts:
        classes = train.classes or None
    _must_be_learnable(train, classes, declared, by_name)
    data = _data_of(
        train,
        _labels(train, by_name),
        declared,
        origin,
        name=default_name(source) if name is None else name,
        task=task,
        classes=classes,
        rows=train.asked if rows is None else rows,
        target_range=target_range,
        test=_rows_beside(others.get("test"), by_name),
        public=_rows_beside(others.get("public"), by_name),
        shifts={
            each: Shift(part.features, _labels(part, by_name), part.groups, part.group_names)
            for each in named
            for part in (others[shifted(each)],)
        },
    )
    data.unused_test_rows = test is None and "test" in opened.parts
    return data


def _data_of(
    train: Part, labels: Any, declared: Declared | None, origin: Origin, **facts: Any
) -> Data:
    """By the constructor for rows of this kind."""
    if isinstance(train.features, DiskRows):
        data = Data.from_disk(train.features, origin=origin, **facts)
    elif declared is not None:
        data = Data.from_columns(train.features, labels, declared.features, origin=origin, **facts)
    else:
        # More columns are rather features that some model made.
        few = len(train.columns) <= MOST_COLUMNS_OF_A_TABLE
        columns = train.plain if few else None
        kind = PlainRows(train.features, train.columns, origin=origin, columns=columns)
        data = Data(kind, labels, **facts)
    if declared is not None:
        data.declared = declared.columns  # run.toml has the label's column, too
    return data


def _must_be_left_out(why: str, **named: object) -> None:
    for name, value in named.items():
        if value is not None:
            raise InvalidInput(f"{name} {why}")


def _must_need_a_label(source: str | Path, label: str | None) -> None:
    path = path_of(source)
    if label is not None and (is_npz(source) or holds_chunks(path) or is_extracted(path)):
        raise InvalidInput(
            "the labels of an .npz file are its y_train, and chunks of rows and features of "
            "pictures or texts hold their own; leave out --label (label= in Python)."
        )


def _label_facts(
    declared: Declared | None,
    task: str,
    classes: Sequence[Any] | str | None,
    target_range: tuple[float, float] | None,
) -> tuple[str, Sequence[Any] | str | None, tuple[float, float] | None]:
    """The task and its classes or range, which a declared label decides."""
    facts = None if declared is None else declared.facts
    if declared is None or facts is None:
        return task, classes, target_range
    learned = "classes" if facts.classes else "values"
    if classes is not None or target_range is not None or task not in ("classes", learned):
        raise InvalidInput(
            f"the label {declared.label!r} is declared among the columns, which says that "
            f"{learned} are learned; leave task, classes and target_range out."
        )
    if facts.classes is None and facts.target_range is None:
        raise InvalidInput(
            f"{declared.label}: a label that is a number needs its range, the lowest and the "
            "highest value to learn, from general knowledge and not from the rows; if "
            'it numbers classes, declare it as a "category" with all its values.'
        )
    return learned, facts.classes, facts.target_range


def _must_be_learnable(
    train: Part, classes: Sequence[Any] | str | None, declared: Declared | None, by_name: bool
) -> None:
    """Refuse labels that are no classes, if only the other columns are declared."""
    if declared is not None and by_name and classes is None and train.labels is not None:
        must_name_classes(np.asarray(train.labels), declared.label)


def read_new_rows(source: str | Path, encoding: Encoding) -> Coded:
    """New rows for a model whose columns are encoded, from a table that names them in any order.
    Columns that the model does not know, such as labels, are left out."""
    path = path_of(source)
    if is_hub(source):
        return read_new(new_in_hub(str(source).removeprefix(HUB)), encoding)
    must_exist(source)
    if any((path / name).exists() for name in SAVED_TO_DISK):
        return read_new(new_in_folder(path), encoding)
    return read_new(batches_of(named_files(source), repr(str(source))), encoding)


def read_features(
    source: str | Path,
    columns: int | Sequence[str] | Sequence[int],
    label: str | None = None,
) -> NDArray[Any]:
    """New rows for a model of `columns`: how many, or the shape of a row, or their names, which a
    source that names its columns must have, in any order. A column of labels is left out."""
    names: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()
    if isinstance(columns, Sequence):
        names = tuple(each for each in columns if isinstance(each, str))
        shape = tuple(each for each in columns if not isinstance(each, str))
    else:
        shape = (validate.whole(1, columns=columns),)
    opened = open_source(source, label)
    which = next((part for part in ("whole", "new", "test", "train") if part in opened.parts), "")
    if not which:
        raise InvalidInput(
            f"{str(source)!r} holds no rows to predict (X in an .npz file, the split test of a "
            f"data set); found {opened.contents}."
        )
    part = opened.parts[which]()
    features = _table(part)
    if names and part.columns:
        return features[:, places(names, part.columns, repr(str(source)))]
    shape = shape or (len(names),)
    if which == "whole" and features.shape[1:] != shape and "train" in opened.parts:
        features = _table(opened.parts["train"]())
    if features.shape[1:] != shape:
        takes = f"{shape[0]} columns" if len(shape) == 1 else f"rows of shape {shape}"
        raise InvalidInput(
            f"{str(source)!r} has features of shape {features.shape}, the model takes {takes}; "
            f"found {opened.contents}."
        )
    return features


def fingerprint_source(source: str | Path) -> str:
    """The fingerprint of the `Data` that `load_data` makes, without reading rows."""
    if is_hub(source):
        raise InvalidInput(
            f"{str(source)!r} is identified by its rows, once downloaded; save_to_disk it and "
            "give the folder."
        )
    path = path_of(source)
    if path.is_dir():
        must_be_known_folder(path)
    return identify(source)


def _labelled(source: str | Path, opened: Source, label: str | None, *splits: str) -> Part:
    """The first of these parts that the source has, which must have labels."""
    which = next((part for part in splits if part in opened.parts), None)
    if which is None:
        raise InvalidInput(
            f"{str(source)!r} holds no rows with labels (X_train and y_train in an .npz file, the "
            f"split train of a data set); found {opened.contents}."
        )
    column = label or DEFAULT_LABEL
    if opened.columns is not None and column not in opened.columns:
        raise InvalidInput(
            f"{str(source)!r} has no column of labels {column!r}; found {opened.contents}."
            f"{perhaps_meant(column, opened.columns, path_of(source))} Say which it is with "
            "--label (label= in Python)."
        )
    part = opened.parts[which]()
    if isinstance(part.features, DiskRows):
        return part
    if part.labels is None:
        raise InvalidInput(
            f"{str(source)!r} has rows but no labels {NPZ_ARRAYS[which][1]}; found "
            f"{opened.contents}."
        )
    if part.gaps:
        raise InvalidInput(
            f"the column {column!r} of {str(source)!r} has missing values; remove those rows first."
        )
    return part


def _read_beside(
    source: str | Path,
    identity: str,
    mine: Source,
    other: str | Path,
    label: str | None,
    declared: Declared | None,
    *splits: str,
) -> Part:
    opened = open_source(other, label, declared)
    _must_be_made_alike(source, mine, other, opened)
    if identify(other) == identity:
        if "test" not in splits:
            raise InvalidInput(
                f"{str(other)!r} is the private data itself: scores on it would leak it. Give "
                "other rows, or leave it out."
            )
        if "test" not in opened.parts:
            raise InvalidInput(
                f"{str(other)!r} is the private data itself, and holds no test rows beside them "
                "(X_test and y_test in an .npz file, the split test of a data set); found "
                f"{opened.contents}. Give other rows."
            )
        splits = ("test",)
    return _labelled(other, opened, label, *splits)


def _must_be_made_alike(
    source: str | Path, mine: Source, other: str | Path, others: Source
) -> None:
    """Two backbones may make as many columns, which mean other things."""
    if mine.made_by != others.made_by:
        made = [
            "no backbone of dptune" if each is None else each["name"]
            for each in (mine.made_by, others.made_by)
        ]
        raise InvalidInput(
            f"the features of {str(source)!r} were made by {made[0]}, those of {str(other)!r} by "
            f"{made[1]}, or with other settings; make both with the same (dptune extract)."
        )


def _named(shifts: Sequence[str | Path]) -> dict[str, str | Path]:
    """Shifts by their names, which must differ."""
    if isinstance(shifts, str | Path) or not isinstance(shifts, Sequence):
        raise InvalidInput(
            f"shifts must be a list of sources, such as --data takes; got {shifts!r}."
        )
    named: dict[str, str | Path] = {}
    for source in shifts:
        if not isinstance(source, str | Path):
            raise InvalidInput(f"a shift is a path, 'demo' or 'hub:NAME'; got {source!r}.")
        name = default_name(source)
        if name in named:
            raise InvalidInput(
                f"two shifts are called {name}: {str(named[name])!r} and {str(source)!r}; rename "
                "one of the files."
            )
        named[name] = source
    return named


def _labels(part: Part, by_name: bool) -> NDArray[Any] | Numbered | None:
    if part.labels is None or not by_name or not part.classes:  # chunks hold theirs themselves
        return part.labels
    return name_classes(part.labels, part.classes)


def _table(part: Part) -> NDArray[Any]:
    if isinstance(part.features, DiskRows):
        return np.concatenate(list(part.features.tables()))
    assert isinstance(part.features, np.ndarray)  # raw codes are read by `read_new_rows`
    return part.features


def _rows_beside(part: Part | None, by_name: bool) -> tuple[Any, Any] | DiskRows | None:
    if part is None:
        return None
    if isinstance(part.features, DiskRows):
        return part.features
    return part.features, _labels(part, by_name)
