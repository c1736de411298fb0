"""Records of what made features of pictures or texts, or the rows of texts, and their words."""

from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Any, TypeGuard

from dptune.errors import InvalidInput
from dptune.texts.encoder import KIND

# What is recorded of a tokenizer, and of each backbone.
_OF_TEXTS: Mapping[str, type | UnionType] = {
    **dict.fromkeys(("name", "tokenizer", "digest", "task"), str),
    **dict.fromkeys(("length", "texts_per_unit"), int),
    "columns": list,
    "unit": str | None,
}
_OF_BACKBONES: Mapping[str, type | UnionType] = {
    **dict.fromkeys(("name", "kind", "digest"), str),
    "trained_on": str | None,
    "transform": Mapping,
}


def must_be_whole(made_by: Mapping[str, Any]) -> None:
    """Refuse a record that lacks an entry that this version writes."""
    _must_have(made_by, {"name": str})
    if is_of_texts(made_by):
        _must_have(made_by, _OF_TEXTS)
        if not all(isinstance(column, str) for column in made_by["columns"]):
            raise InvalidInput("made_by must name its columns of texts.")
    if "backbones" in made_by:
        _must_have(made_by, {"backbones": list})
        for backbone in made_by["backbones"]:
            _must_have(backbone, _OF_BACKBONES)
            transform = backbone["transform"]
            _must_have(transform, {"length" if "length" in transform else "size": int})


def _must_have(record: object, kinds: Mapping[str, type | UnionType]) -> None:
    for name, kind in kinds.items():
        if not (isinstance(record, Mapping) and isinstance(record.get(name, ...), kind)):
            raise InvalidInput(
                f"made_by must have {name!r} as dptune extract writes it, a value of type "
                f"{getattr(kind, '__name__', kind)}."
            )


def recorded_backbones(made_by: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The backbones on record; refuses features that dptune did not make."""
    if not made_by.get("backbones"):
        raise InvalidInput(
            f"the features that the model takes were made by {made_by['name']!r}, of which only "
            "the name is on record; make them of the new rows, and give them with --data."
        )
    backbones: Sequence[Mapping[str, Any]] = made_by["backbones"]
    return backbones


def made_by_in_words(made_by: Mapping[str, Any]) -> str:
    """The name of the maker, and what is on record of each of its backbones."""
    about = "; ".join(map(_about, made_by.get("backbones", ())))
    return f"{made_by['name']} ({about})" if about else str(made_by["name"])


def trained_on(backbone: Mapping[str, Any]) -> str:
    """Which data its weights saw, if that is on record."""
    return backbone["trained_on"] or "data that are not on record"


def _about(backbone: Mapping[str, Any]) -> str:
    taken = f"{backbone['kind']} features of {size_in_words(backbone)}"
    return f"{taken}, trained on {trained_on(backbone)}"


def size_in_words(backbone: Mapping[str, Any]) -> str:
    """The size of what the backbone takes."""
    transform = backbone["transform"]
    if "length" in transform:
        return f"texts of {transform['length']:,} tokens"
    return f"pictures of {transform['size']} x {transform['size']} pixels"


def is_of_texts(made_by: Mapping[str, Any] | None) -> TypeGuard[Mapping[str, Any]]:
    """Whether rows were made of texts: by a tokenizer, and perhaps by a language model."""
    return made_by is not None and made_by.get("kind") == KIND


def is_of_words(made_by: Mapping[str, Any] | None) -> TypeGuard[Mapping[str, Any]]:
    """Whether rows are the words of texts themselves, not what a public network made of them."""
    return is_of_texts(made_by) and "backbones" not in made_by


def has_units(made_by: Mapping[str, Any] | None) -> bool:
    """Whether a row is everything that one person wrote."""
    return is_of_texts(made_by) and made_by["unit"] is not None


def rows_in_words(made_by: Mapping[str, Any] | None) -> str:
    """What the rows are, in the plural."""
    if not is_of_texts(made_by):
        return "rows" if made_by is None else "pictures"
    unit = made_by["unit"]
    return "texts" if unit is None else f"people that the column {unit} tells apart"


def are_joined(made_by: Mapping[str, Any]) -> bool:
    """Whether all texts of a person are one, cut into rows."""
    alone = made_by["task"] == "words" and len(made_by["columns"]) == 1
    return alone and made_by["unit"] is not None


def facts_of_maker(made_by: Mapping[str, Any] | None) -> list[str]:
    """What is public about public networks that made features."""
    if made_by is None or is_of_words(made_by):
        return []
    return [
        f"the features were made by {made_by_in_words(made_by)}, whose weights are taken as "
        f"public: nothing is promised about {rows_in_words(made_by)} that they were trained on"
    ]


def facts_of_texts(made_by: Mapping[str, Any] | None) -> list[str]:
    """What becomes public of texts; how many were cut does not."""
    if not is_of_texts(made_by):
        return []
    length, name = made_by["length"], made_by["name"]
    task, rows = made_by["task"], made_by["texts_per_unit"]
    has_prompts = task == "words" and len(made_by["columns"]) == 2
    how = ", prompts at their beginning" * has_prompts
    how += ", questions to half of it before their contexts" * (task == "spans")
    facts = [
        f"texts are cut to {length:,} tokens of the tokenizer {name}{how}, and shorter "
        "ones padded to that; how many were cut is not released",
        f"the tokenizer {name}: nothing is promised about texts that it was made from",
    ]
    if made_by["unit"] is None:
        return facts
    if are_joined(made_by):
        facts[0] = (
            f"the texts of a person are joined in the order of the file and cut into {rows:,} rows "
            f"of {length:,} tokens of the tokenizer {name}, never with those of another; "
            "what is beyond them is left out, and what is missing is padded; how much is not "
            "released"
        )
    else:
        facts.append(
            f"of every person the first {rows:,} texts enter, in the order of the file; how many "
            "were left out is not released"
        )
    return facts
