"""What made features of pictures or texts, or the rows of texts, in words."""

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
    taken = f"{backbone['kind']} features of {size_in_words(backbone)}"
    return f"{taken}, trained on {trained_on(backbone)}"


def size_in_words(backbone: Mapping[str, Any]) -> str:
    """Of what the backbone takes."""
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
    """What is counted."""
    if not is_of_texts(made_by):
        return "rows" if made_by is None else "pictures"
    unit = made_by["unit"]
    return "texts" if unit is None else f"people that the column {unit} tells apart"


def are_joined(made_by: Mapping[str, Any]) -> bool:
    """Whether all texts of a person are one, cut into rows."""
    alone = made_by["task"] == "words" and len(made_by["columns"]) == 1
    return alone and made_by["unit"] is not None


def texts_in_words(made_by: Mapping[str, Any]) -> list[str]:
    """What becomes public of texts; how many were cut does not."""
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
