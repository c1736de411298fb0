"""Tokenizers: from a folder, or by name from the hub, never with code of their own."""

import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from dptune.errors import InvalidInput, MissingExtra

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
    try:
        import transformers
    except ImportError:
        raise MissingExtra(
            "texts need the package transformers: pip install 'dptune[text]'."
        ) from None
    name, _, revision = (where, "", "") if Path(where).is_dir() else where.partition("@")
    if not name:
        raise InvalidInput(
            "texts need a tokenizer: the folder of a model, or its NAME@REVISION on the hub."
        )
    options = {"revision": revision} if revision else {}
    try:
        return transformers.AutoTokenizer.from_pretrained(
            name, **options, trust_remote_code=False, local_files_only=Path(name).is_dir()
        )
    except Exception as error:  # tokenizers fail in more ways than can be listed
        reason = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
        raise InvalidInput(
            f"the tokenizer {where} could not be had: {reason}. Without a way to the hub, download "
            "the model where there is one and give its folder, with tokenizer.json and "
            "tokenizer_config.json. Tokenizers that bring their own code are not run."
        ) from None


def digest_of(tokenizer: Any) -> str:
    """Of its words and of how it cuts public ones, by which the same one is known again."""
    words = sorted(tokenizer.get_vocab().items())
    cut: Sequence[int] = tokenizer(*_PROBE).input_ids
    return hashlib.sha256(json.dumps([words, list(cut)]).encode()).hexdigest()
