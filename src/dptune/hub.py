"""Data sets and models as the Hugging Face packages have them, from the hub or from disk.

No code of theirs is ever run, and weights are read from safetensors files only.
"""

import logging
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from dptune.errors import InvalidInput, MissingExtra

_WEIGHTS = "model.safetensors"
_OF_LANGUAGE_MODELS = ("config.json", _WEIGHTS, "tokenizer.json")


def datasets_package() -> Any:
    try:
        import datasets
    except ImportError:
        raise MissingExtra(
            "a Hugging Face data set needs the package datasets: pip install 'dptune[hub]'."
        ) from None
    return datasets


def hub_is_near() -> bool:
    """Whether to ask: where there is no network, it takes up to a minute to be told so."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE or getproxies():  # it answers at once, or others know its address
        return True
    try:
        socket.getaddrinfo(urlsplit(constants.ENDPOINT).hostname, 443)
    except OSError:
        return False
    return True


def load_from_hub(
    name: str, config: str | None = None, revision: str | None = None
) -> dict[str, Any]:
    """The splits of a data set."""
    datasets = datasets_package()
    pinned = {} if revision is None else {"revision": revision}
    try:
        stored = datasets.load_dataset(name, config, **pinned)
    except Exception as error:  # the hub fails in more ways than can be listed
        reason = str(error).split("\n")[0].rstrip(".")
        raise InvalidInput(
            f"the data set {name!r} could not be had from the hub: {reason}. Check the name and "
            "the connection; or save_to_disk it where there is one, and give the folder."
        ) from None
    return splits_of(stored)


def splits_of(stored: Any) -> dict[str, Any]:
    """By name; a data set without splits is one to train on."""
    return dict(stored) if isinstance(stored, Mapping) else {"train": stored}


@dataclass(frozen=True)
class ModelPlace:
    """Where a model lies: NAME[@REVISION] on the hub, or a folder."""

    where: str
    revision: str = ""

    @staticmethod
    def of(named: str) -> "ModelPlace":
        where, _, revision = (named, "", "") if Path(named).is_dir() else named.partition("@")
        if not where:
            raise InvalidInput(
                "hf: needs the name of a model on the hub, or a folder: hf:roberta-base@REVISION, "
                "hf:FOLDER."
            )
        return ModelPlace(where, revision)

    def __str__(self) -> str:
        return f"{self.where}@{self.revision}" if self.revision else self.where

    @property
    def is_folder(self) -> bool:
        return Path(self.where).is_dir()

    @property
    def options(self) -> dict[str, Any]:
        """For transformers' from_pretrained."""
        told: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        if self.is_folder:
            return told
        # What was had before is kept, and had again without a network.
        return {**told, "revision": self.revision or "main", "local_files_only": not hub_is_near()}

    def file(self, name: str, files: str) -> Path | None:
        """One of a model's files; None where it has no such. `files` are as in `unreachable`."""
        try:
            found = transformers_package("text").utils.cached_file(
                self.where, name, **self.options, _raise_exceptions_for_missing_entries=False
            )
        except (OSError, ValueError) as problem:
            raise self.unreachable(problem, files) from problem
        return None if found is None else Path(found)

    def pinned(self, name: str, files: str) -> "ModelPlace":
        """The same with the commit that a name on the hub stands for now, as the file called `name`
        tells."""
        if self.is_folder or re.fullmatch("[0-9a-f]{40}", self.revision):
            return self
        stored = self.file(name, files)
        # What is had from the hub is kept in .../snapshots/COMMIT/.
        commit = stored and re.search(r"/snapshots/([0-9a-f]{40})/", stored.as_posix())
        return replace(self, revision=commit[1]) if commit else self

    def unreachable(self, problem: Exception, files: str, needed: str = "") -> InvalidInput:
        """What to say where it could not be had; `files` are those that a folder must hold. Where
        a folder lacks the one `needed` of a language model, transformers' words would not tell."""
        first = str(problem).strip().partition("\n")[0].rstrip(".") or type(problem).__name__
        only = "Only safetensors files are read, and models that bring their own code are not."
        if self.is_folder:
            lacking = self._lacking()
            if needed in lacking:
                first = f"it lacks {', '.join(lacking)}"
            elif _WEIGHTS in lacking:
                first = f"it lacks {_WEIGHTS}"
            return InvalidInput(
                f"The folder {self.where} holds no model that can be opened: {first}. It must hold "
                f"{files}. {only}"
            )
        return InvalidInput(
            f"The model {self.where} could not be had: {first}. Without a way to the hub, download "
            f"it where there is one and give its folder instead of its name, with {files}. {only}"
        )

    def _lacking(self) -> list[str]:
        there = {path.name for path in Path(self.where).iterdir()}
        if any(name.endswith(".safetensors") for name in there):  # large ones are several files
            there.add(_WEIGHTS)
        return [name for name in _OF_LANGUAGE_MODELS if name not in there]


def transformers_package(extra: str) -> Any:
    """`extra` is what to install of ours where it is not there."""
    try:
        import transformers
    except ImportError as problem:
        raise MissingExtra(
            "Models of the Hugging Face hub need the package transformers. Install it: "
            f'pip install "dptune[{extra}]"'
        ) from problem
    return transformers


@contextmanager
def quiet(transformers: Any) -> Iterator[None]:
    """Without its bars and reports, and those of the hub: what matters becomes an error here."""
    log, hub = transformers.utils.logging, logging.getLogger("huggingface_hub")
    level, bars, hub_level = log.get_verbosity(), log.is_progress_bar_enabled(), hub.level
    log.set_verbosity_error()
    log.disable_progress_bar()
    hub.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.set_verbosity(level)
        hub.setLevel(hub_level)
        if bars:
            log.enable_progress_bar()
