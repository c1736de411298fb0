"""Tokenizers: from a folder, or by name from the hub, never with code of their own."""

import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from dptune.hub import ModelPlace, quiet, transformers_package

_FILES = "config.json, model.safetensors, tokenizer.json and tokenizer_config.json"
# Public words that two tokenizers must cut alike to be one.
_PROBE = ("The quick brown Fox, 1234 x!", "a second text")


def load_tokenizer(where: str) -> Any:
    """That of a FOLDER, or NAME[@REVISION] on the hub."""
    # Keyed by what a folder holds, too: one that is written again is read again.
    folder = Path(where)
    files = sorted(folder.glob("*token*")) if folder.is_dir() else []
    return _loaded(where, tuple((file.name, file.stat().st_mtime_ns) for file in files))


@lru_cache(maxsize=4)
def _loaded(where: str, files: tuple[tuple[str, int], ...]) -> Any:
    place, transformers = ModelPlace.of(where), transformers_package("text")
    try:
        with quiet(transformers):
            tokenizer = transformers.AutoTokenizer.from_pretrained(place.where, **place.options)
    except Exception as problem:  # tokenizers fail in more ways than can be listed
        raise place.unreachable(problem, _FILES, "tokenizer.json") from None
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
        # What transformers makes of a model's kind alone: every word would be an unknown one.
        raise place.unreachable(ValueError("it has no tokenizer that knows a word"), _FILES)
    return tokenizer


def pinned_place(where: str) -> str:
    """The same place with the commit that a name on the hub stands for now: what lies there later
    may be another."""
    return str(ModelPlace.of(where).pinned("tokenizer_config.json", _FILES))


def digest_of(tokenizer: Any) -> str:
    """Of its words and of how it cuts public ones, by which the same one is known again."""
    words = sorted(tokenizer.get_vocab().items())
    cut: Sequence[int] = tokenizer(*_PROBE).input_ids
    return hashlib.sha256(json.dumps([words, list(cut)]).encode()).hexdigest()
