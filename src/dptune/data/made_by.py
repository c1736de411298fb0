"""What made the features of pictures, or the rows of texts, in words."""

from collections.abc import Mapping
from typing import Any, TypeGuard

from dptune.texts.encoder import KIND


def made_by_in_words(made_by: Mapping[str, Any]) -> str:
    """Its name, and what is on record of each backbone behind it."""
    about = "; ".join(map(_about, made_by.get("backbones", ())))
    return f"{made_by['name']} ({about})" if about else str(made_by["name"])


def trained_on(backbone: Mapping[str, Any]) -> str:
    """Which data its weights saw, as far as that is known."""
    return backbone["trained_on"] or "data that are not on record"


def _about(backbone: Mapping[str, Any]) -> str:
    size = backbone["transform"]["size"]
    return (
        f"{backbone['kind']} features of pictures of {size} x {size} pixels, trained on "
        f"{trained_on(backbone)}"
    )


def is_of_texts(made_by: Mapping[str, Any] | None) -> TypeGuard[Mapping[str, Any]]:
    """Whether rows were made of texts by a tokenizer."""
    return made_by is not None and made_by.get("kind") == KIND


def has_units(made_by: Mapping[str, Any] | None) -> bool:
    """Whether a row is everything that one person wrote."""
    return is_of_texts(made_by) and made_by["unit"] is not None


def rows_in_words(made_by: Mapping[str, Any] | None) -> str:
    """What is counted."""
    if not is_of_texts(made_by):
        return "rows" if made_by is None else "pictures"
    unit = made_by["unit"]
    return "texts" if unit is None else f"people that the column {unit} tells apart"


def texts_in_words(made_by: Mapping[str, Any]) -> list[str]:
    """What becomes public of texts; how many were cut does not."""
    length, name = made_by["length"], made_by["name"]
    rows = made_by["texts_per_unit"]
    facts = [
        f"texts are cut to {length:,} words and marks of the tokenizer {name}, and shorter ones "
        "padded to that; how many were cut is not released",
        f"the tokenizer {name}: nothing is promised about texts that it was made from",
    ]
    if made_by["unit"] is None:
        return facts
    if made_by["task"] == "words" and len(made_by["columns"]) == 1:
        facts[0] = (
            f"the texts of a person are joined in the order of the file and cut into {rows:,} rows "
            f"of {length:,} words and marks of the tokenizer {name}, never with those of another; "
            "what is beyond them is left out, and what is missing is padded; how much is not "
            "released"
        )
    else:
        facts.append(
            f"of every person the first {rows:,} texts enter, in the order of the file; how many "
            "were left out is not released"
        )
    return facts
