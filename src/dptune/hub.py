"""Data sets and models of the Hugging Face hub, or from disk in the formats of its packages.

Code in their repositories is never run, and weights are read from safetensors files only.
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
from dptune.table_files import reading

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
    """Whether the hub can be reached. Without a network, a request takes up to a minute to fail."""
    from huggingface_hub import constants

    # Offline mode fails at once, and behind a proxy the hub's address cannot be looked up.
    if constants.HF_HUB_OFFLINE or getproxies():
        return True
    try:
        socket.getaddrinfo(urlsplit(constants.ENDPOINT).hostname, 443)
    except OSError:
        return False
    return True


def load_from_hub(
    name: str, config: str | None = None, revision: str | None = None
) -> dict[str, Any]:
    """The splits of a data set on the hub."""
    datasets = datasets_package()
    options = {} if revision is None else {"revision": revision}
    try:
        stored = datasets.load_dataset(name, config, **options)
    except Exception as error:  # the hub can raise errors of any type
        reason = str(error).split("\n")[0].rstrip(".")
        raise InvalidInput(
            f"the data set {name!r} could not be loaded from the hub: {reason}. Check the name and "
            "the connection. Without a connection, use save_to_disk on another machine and give "
            "the folder."
        ) from None
    return splits_of(stored)


def load_from_disk(folder: Path) -> dict[str, Any]:
    """The splits of a data set that save_to_disk wrote, without damage that would crash Arrow."""
    with reading(folder):
        splits = splits_of(datasets_package().load_from_disk(str(folder)))
        for split in splits.values():
            split.data.validate(full=True)
    return splits


def splits_of(stored: Any) -> dict[str, Any]:
    """The splits by name; a data set without splits becomes the training split."""
    return dict(stored) if isinstance(stored, Mapping) else {"train": stored}


@dataclass(frozen=True)
class ModelPlace:
    """The place of a model: NAME[@REVISION] on the hub, or a folder."""

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
        """The options for transformers' from_pretrained."""
        options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        if self.is_folder:
            return options
        # Without a network, files from the local cache are used.
        options["local_files_only"] = not hub_is_near()
        return {**options, "revision": self.revision or "main"}

    def file(self, name: str, files: str) -> Path | None:
        """One of the model's files, or None if it has no such file. `files` is for an error, as in
        `unreachable`."""
        try:
            path = transformers_package("text").utils.cached_file(
                self.where, name, **self.options, _raise_exceptions_for_missing_entries=False
            )
        except (OSError, ValueError) as problem:
            raise self.unreachable(problem, files) from problem
        return None if path is None else Path(path)

    def pinned(self, name: str, files: str) -> "ModelPlace":
        """The same place with the commit that its revision on the hub has now. The path of its file
        `name` gives the commit."""
        if self.is_folder or re.fullmatch("[0-9a-f]{40}", self.revision):
            return self
        stored = self.file(name, files)
        # The hub's cache stores files in .../snapshots/COMMIT/.
        commit = stored and re.search(r"/snapshots/([0-9a-f]{40})/", stored.as_posix())
        return replace(self, revision=commit[1]) if commit else self

    def unreachable(self, problem: BaseException, files: str, needed: str = "") -> InvalidInput:
        """The error for a model that cannot be loaded; `files` describes what its folder must have.
        If the folder lacks `needed`, the error says so, which transformers' own does not."""
        reason = str(problem).strip().partition("\n")[0].rstrip(".") or type(problem).__name__
        rule = "Only safetensors files are read, and models with their own code are refused."
        if self.is_folder:
            missing = self._missing_files()
            if needed in missing:
                reason = f"it lacks {', '.join(missing)}"
            elif not needed and _WEIGHTS in missing:
                reason = f"it lacks {_WEIGHTS}"
            return InvalidInput(
                f"The folder {self.where} has no model that can be opened: {reason}. It must "
                f"contain {files}. {rule}"
            )
        return InvalidInput(
            f"The model {self.where} could not be loaded: {reason}. Without access to the hub, "
            f"download it elsewhere and give its folder instead of its name, with {files}. {rule}"
        )

    def _missing_files(self) -> list[str]:
        names = {path.name for path in Path(self.where).iterdir()}
        if any(name.endswith(".safetensors") for name in names):  # large models have several files
            names.add(_WEIGHTS)
        return [name for name in _OF_LANGUAGE_MODELS if name not in names]


def transformers_package(extra: str) -> Any:
    """The package transformers; without it, an error that names our `extra` to install."""
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
    """Silence progress bars and logs of transformers and the hub. Real problems raise errors."""
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
