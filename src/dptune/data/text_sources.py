"""Private data that are texts: read, checked, and turned into rows of words by a public tokenizer.

Sources are those of `dptune.texts`: csv, jsonl (both also .gz) and Parquet files, folders by
save_to_disk, "hub:NAME", and mappings of columns to lists.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune.data.arrays import as_class_labels
from dptune.data.classes import (
    PUBLIC,
    WITH_CLASSES,
    are_secret,
    class_numbers,
    list_of_classes,
    name_classes,
)
from dptune.data.copies import has_copies
from dptune.data.data import Data
from dptune.data.fingerprint import fingerprint_file, fingerprint_folder
from dptune.data.origin import Origin
from dptune.data.readers import DEFAULT_LABEL
from dptune.data.shift import Shift, shifted
from dptune.data.targets import TAKEN
from dptune.errors import InvalidInput
from dptune.texts.encoder import DEFAULT_LENGTH, DEFAULT_TEXTS_PER_UNIT, Encoder
from dptune.texts.reading import names_of_columns
from dptune.texts.sources import HUB, place_and_split
from dptune.texts.texts import Texts

_TASKS = ("classes", "words", "spans")


def load_texts(
    source: Any,
    encoder: Encoder,
    *,
    label: str | None,
    test: Any,
    public: Any,
    shifts: Mapping[str, Any],
    classes: Sequence[Any] | str | None,
    rows: int | None,
    name: str | None,
) -> Data:
    """`load_data` explains the arguments."""
    unit = encoder.unit
    if encoder.task in ("classes", "inside"):
        label = label or DEFAULT_LABEL
    elif label is not None:
        raise InvalidInput(
            f"task={encoder.task!r} has no labels; leave out --label (label= in Python)."
        )
    encoder.words  # noqa: B018  # a tokenizer that does not fit is refused before texts are read
    private = encoder.read(source, label, unit=unit)
    beside = {"test": test, "public": public} | {shifted(each): shifts[each] for each in shifts}
    others = {
        which: _beside(encoder, source, private, other, label, which)
        for which, other in beside.items()
        if other is not None
    }
    of_private = f"the labels in the column {label!r}"
    declared = classes or private.classes or None
    if encoder.task == "inside":  # rows hold the numbers of classes
        labels = np.asarray(_labels(private, of_private))
        if are_secret(declared, labels):
            raise InvalidInput(
                f"{of_private} are names, which are not estimated if texts are joined by {unit!r}; "
                f'declare all classes {WITH_CLASSES}, or say "{PUBLIC}" if those that occur are '
                "public."
            )
        declared = list_of_classes(declared, labels)
    made = {
        which: _rows(encoder, texts, declared, f"the {which} labels")
        for which, texts in others.items()
    }
    features, targets = _rows(encoder, private, declared, of_private, shown=False)
    origin = Origin(
        fingerprint=_fingerprint(source, private, unit),
        made_by=encoder.made_by,
        in_words={} if classes else {"classes": TAKEN},
    )
    return Data.from_texts(
        features,
        targets,
        name=_default_name(source) if name is None else name,
        task=encoder.task,
        classes=declared,
        rows=rows,
        augmented=unit is not None,
        test=made.get("test"),
        public=made.get("public"),
        shifts={each: Shift(*made[shifted(each)]) for each in shifts},
        origin=origin,
    )


def encoder_of(
    text: str | Sequence[str],
    task: str,
    tokenizer: str | None,
    length: int | None,
    unit: str | None,
    texts_per_unit: int | None,
) -> Encoder:
    """The encoder of rows that `load_data` is asked for."""
    if task not in _TASKS:
        raise InvalidInput(f"task must be one of {', '.join(_TASKS)} for texts; got {task!r}.")
    if tokenizer is None:
        raise InvalidInput(
            "texts need a tokenizer: give the folder of a model, or its NAME@REVISION on the hub, "
            "with --model (tokenizer= in Python)."
        )
    if unit is None and texts_per_unit is not None:
        raise InvalidInput(
            "texts_per_unit says how many texts of a person enter; name the column that "
            "identifies people with --unit (unit= in Python), or leave it out."
        )
    return Encoder(
        tokenizer=tokenizer,
        columns=names_of_columns(text),
        task="inside" if task == "classes" and unit is not None else task,
        length=DEFAULT_LENGTH if length is None else length,
        unit=unit,
        texts_per_unit=DEFAULT_TEXTS_PER_UNIT if texts_per_unit is None else texts_per_unit,
    )


def _beside(
    encoder: Encoder, source: Any, private: Texts, other: Any, label: str | None, which: str
) -> Texts:
    """Texts beside the private ones, each of them a row of its own."""
    splits = ("train",) if which == "public" else ("test", "train")
    if not isinstance(source, Mapping) and not isinstance(other, Mapping):
        (mine, my_split), (theirs, their_split) = map(place_and_split, (source, other))
        if _are_one(mine, theirs):
            has_no_test = which == "public" or Path(theirs).is_file()
            if their_split == (my_split or "train") or (has_no_test and not their_split):
                raise InvalidInput(
                    f"{theirs!r} is the private data itself: scores on it would leak it. Give "
                    "other texts, or leave it out."
                )
            splits = ("test",)
    texts = encoder.read(other, label, splits=splits, unit=encoder.unit, unit_is_needed=False)
    if texts.units is not None and not set(texts.units).isdisjoint(private.units or ()):
        raise InvalidInput(
            f"by the column {encoder.unit!r}, some {which} texts are by people who wrote private "
            "ones, too: whatever is measured on them would leak their texts. Split by people, so "
            "that each is on one side."
        )
    texts = replace(texts, units=None)
    if has_copies([private.prints(encoder.given)], [texts.prints(encoder.given)]):
        raise InvalidInput(
            f"some {which} texts are private texts, more than chance would give: whatever is "
            "measured on them would leak them. Give other texts, or leave out those that are among "
            "the private ones."
        )
    return texts


def _are_one(mine: str, theirs: str) -> bool:
    if mine.startswith(HUB) or theirs.startswith(HUB):
        return mine == theirs
    places = Path(mine), Path(theirs)
    if not all(place.exists() for place in places):
        return False
    return len({_identity(place) for place in places}) == 1


def _identity(place: Path) -> str:
    return fingerprint_folder(place) if place.is_dir() else fingerprint_file(place)


def _fingerprint(source: Any, texts: Texts, unit: str | None) -> str:
    """Of a file's bytes, or of texts in memory. A ledger that protects texts protects people less,
    so the same texts by `unit` are other data."""
    place = "" if isinstance(source, Mapping) else place_and_split(source)[0]
    in_files = place and not place.startswith(HUB)
    whole = _identity(Path(place)) if in_files else texts.fingerprint()
    if unit is None:
        return whole
    return hashlib.sha256(f"{whole} by {unit}".encode()).hexdigest()


def _default_name(source: Any) -> str:
    if isinstance(source, Mapping):
        return "texts"
    place, _ = place_and_split(source)
    if place.startswith(HUB):
        return place.removeprefix(HUB)
    path = Path(place)
    return path.absolute().name if path.is_dir() else path.name.partition(".")[0] or path.name


def _rows(
    encoder: Encoder,
    texts: Texts,
    classes: Sequence[Any] | str | None,
    what: str,
    *,
    shown: bool = True,
) -> tuple[NDArray[np.int32], NDArray[Any] | None]:
    """Features and labels as `Data` takes them."""
    labels = _labels(texts, what)
    if encoder.task != "inside" or labels is None or classes is None or isinstance(classes, str):
        return encoder.encode(texts), labels
    return encoder.encode(texts, class_numbers(labels, classes, what, shown=shown).tolist()), None


def _labels(texts: Texts, what: str) -> NDArray[Any] | None:
    if texts.labels is None:
        return None
    if texts.classes:
        return name_classes(texts.labels, texts.classes)
    return as_class_labels(texts.labels, what)
