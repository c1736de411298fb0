"""What a Hugging Face folder says of the model in it: what was learned, how well, and what
is promised."""

from collections.abc import Mapping, Sequence
from typing import Any

from dptune.accounting import Guarantee
from dptune.data.made_by import are_joined, is_of_texts
from dptune.printable import markdown

_LEARNED = {
    "classes": "the classes of texts",
    "inside": "the classes of texts",
    "words": "the next words of texts",
    "spans": "where answers stand in texts",
}


def model_page(
    guarantee: Guarantee, made_by: Mapping[str, Any] | None, figures: Sequence[str]
) -> str:
    """Markdown, without a head of its own; `figures` are lines about how good the model is."""
    lines = ["## What it is", "", _about(made_by), ""]
    if figures:
        lines += ["## How good it is", "", *figures, ""]
    lines += ["## What is promised", ""]
    lines += [f"- **{heading}**: {markdown(said)}." for heading, said in guarantee.sections()]
    return "\n".join(lines)


def _about(made_by: Mapping[str, Any] | None) -> str:
    if not is_of_texts(made_by):
        return "A language model, trained and tuned by dptune under one privacy budget."
    length = made_by["length"]
    named = [f'"{markdown(column)}"' for column in made_by["columns"]]
    columns = f"the column{'s' if len(named) > 1 else ''} {' and '.join(named)}"
    cut = f"cut to {length:,} tokens"
    if are_joined(made_by):
        cut = f"those of a person joined and cut into rows of {length:,} tokens"
    return (
        f"It learned {_LEARNED[made_by['task']]}, trained and tuned by dptune under one privacy "
        f"budget. Texts were read from {columns} and {cut} of the tokenizer beside it."
    )
