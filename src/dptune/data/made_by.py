"""What made the features of pictures, in words."""

from collections.abc import Mapping
from typing import Any


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
