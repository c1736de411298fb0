"""What made the features of pictures or texts, in words."""

from collections.abc import Mapping
from typing import Any


def things_of(made_by: Mapping[str, Any]) -> str:
    """What the features were made of: pictures, or texts."""
    return "texts" if made_by.get("kind") == "text" else "pictures"


def made_by_in_words(made_by: Mapping[str, Any]) -> str:
    """Its name, and what is on record of each backbone behind it."""
    things = things_of(made_by)
    about = "; ".join(_about(backbone, things) for backbone in made_by.get("backbones", ()))
    return f"{made_by['name']} ({about})" if about else str(made_by["name"])


def trained_on(backbone: Mapping[str, Any]) -> str:
    """Which data its weights saw, as far as that is known."""
    return backbone["trained_on"] or "data that are not on record"


def _about(backbone: Mapping[str, Any], things: str) -> str:
    transform = backbone["transform"]
    if things == "texts":
        taken = f"texts of {transform['length']} words, longer ones cut and shorter ones padded"
    else:
        taken = f"pictures of {transform['size']} x {transform['size']} pixels"
    return f"{backbone['kind']} features of {taken}, trained on {trained_on(backbone)}"
