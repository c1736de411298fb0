"""What the Hugging Face hub or a folder has: data sets of the package `datasets`, and models of the
package `transformers`, of which no code is ever run and weights are read from safetensors only."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dptune.errors import InvalidInput, MissingExtra


def datasets_package() -> Any:
    try:
        import datasets
    except ImportError:
        raise MissingExtra(
            "a Hugging Face data set needs the package datasets: pip install 'dptune[hub]'."
        ) from None
    return datasets


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
        revision = {} if self.is_folder else {"revision": self.revision or "main"}
        return {**revision, "local_files_only": self.is_folder, "trust_remote_code": False}

    def unreachable(self, problem: Exception, files: str) -> InvalidInput:
        """What to say where it could not be had; `files` are those that a folder must hold."""
        first = str(problem).strip().partition("\n")[0].rstrip(".") or type(problem).__name__
        return InvalidInput(
            f"The model {self.where} could not be had: {first}. Without a way to the hub, download "
            f"it where there is one and give its folder, with {files}: hf:FOLDER. Only safetensors "
            "files are read, and models that bring their own code are not."
        )


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
    """Without its bars and reports: what matters in them becomes an error here."""
    log = transformers.utils.logging
    level, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(level)
        if bars:
            log.enable_progress_bar()
