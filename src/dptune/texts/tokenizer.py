"""Load tokenizers from a folder, or by name from the hub, without running their own code."""

import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from dptune.hub import ModelPlace, quiet, transformers_package

_FILES = "config.json, model.safetensors, tokenizer.json and tokenizer_config.json"
# Public texts; equal tokenizers split them alike.
_PROBE = ("The quick brown Fox, 1234 x!", "a second text")


def load_tokenizer(where: str) -> Any:
    """Load the tokenizer of a FOLDER, or of NAME[@REVISION] on the hub."""
    # The cache is keyed by the files of a folder, too, so that a changed folder is read again.
    folder = Path(where)
    files = sorted(folder.glob("*token*")) if folder.is_dir() else []
    return _load(where, tuple((file.name, file.stat().st_mtime_ns) for file in files))


@lru_cache(maxsize=4)
def _load(where: str, files: tuple[tuple[str, int], ...]) -> Any:
    place, transformers = ModelPlace.of(where), transformers_package("text")
    try:
        with quiet(transformers):
            tokenizer = transformers.AutoTokenizer.from_pretrained(place.where, **place.options)
        has_words = not set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens)
        if has_words:
            digest_of(tokenizer)  # a damaged one may fail only when it splits a text
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as problem:  # they fail in many ways; a panic of Rust is no Exception
        raise place.unreachable(problem, _FILES, "tokenizer.json") from None
    if not has_words:
        # transformers makes such a tokenizer from the kind of a model alone: it knows no word.
        raise place.unreachable(ValueError("its tokenizer has no vocabulary"), _FILES)
    return tokenizer


def pinned_place(where: str) -> str:
    """The same place with the current commit of a name on the hub, which may change later."""
    return str(ModelPlace.of(where).pinned("tokenizer_config.json", _FILES))


def digest_of(tokenizer: Any) -> str:
    """The digest of a tokenizer: of its vocabulary and of how it splits public texts."""
    words = sorted(tokenizer.get_vocab().items())
    cut: Sequence[int] = tokenizer(*_PROBE).input_ids
    return hashlib.sha256(json.dumps([words, list(cut)]).encode()).hexdigest()
