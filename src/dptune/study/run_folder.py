"""The run folder: everything a study leaves behind, written so that a crash leaves the old file or
the new one, never half of one.

    run.toml              what was asked, resolved: enough to resume
    classes.json          names of classes, as bought
    ranges.json           of columns, as bought
    categories.json       of columns, as bought
    trials.jsonl          every trial that may be shown
    models/               the trials' weights, each paid for; runs that go on, as far as they came
    model.safetensors     the final weights, with what prediction needs
    guarantee.json, .txt  the promise, for programs and for people
    result.json           figures of the study, and a SHA-256 of every file that may leave
    environment.json      versions
    search.png            a picture
    shifts.png            another, where the model was tried on rows of other origins
    hugging-face/         of a language model: what from_pretrained opens, tokenizer and card beside
    ledger.db             the ledger, unless another was named: for the owner of the data only,
                          since it can tell whether a guess of all rows is right
    .lock                 empty, and there only while a process is at work

Records and tensors carry digests of themselves, which are checked whenever they are read. A
finished run has digests of whole files as well, in result.json.
"""

import json
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dptune import whole_files
from dptune.accounting import Guarantee
from dptune.engines import tensor_files
from dptune.engines.digests import with_digest, without_digest
from dptune.errors import FolderProblem, InvalidInput
from dptune.lock import FileLock
from dptune.plain_data import read_json
from dptune.search.trial import Trial
from dptune.table_files import listed

_PACKAGES = (
    *("dptune", "torch", "numpy", "scipy", "dp-accounting", "sqlalchemy", "safetensors"),
    *("transformers", "tokenizers", "peft"),  # of language models
)

EXPORTED = "hugging-face"
RESULT = "result.json"
PICTURES = ("search.png", "shifts.png")  # which are drawn once the study has ended
# What a resume makes of the other files of a finished run.
_WRITTEN_AGAIN = (RESULT, "model.safetensors", "guarantee.", f"{EXPORTED}/", *PICTURES)
_LOCK = ".lock"
# What an attempt that was killed before it began may leave.
_EARLY = {"models", "ledger.db", "ledger.db-journal", "environment.json"}


class RunFolder:
    """One study on disk."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._made: tuple[Path, ...] = ()

    @classmethod
    def create(cls, path: str | Path) -> "RunFolder":
        """A new folder; one that holds a run already is never overwritten."""
        folder = cls(path)
        folder.must_be_new()
        ours = (folder.path / "models", folder.path, *folder.path.parents)
        folder._made = tuple(path for path in ours if not os.path.exists(path))
        try:
            (folder.path / "models").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInput(
                f"the run folder {folder.path} cannot be made: {error.strerror}."
            ) from None
        return folder

    @classmethod
    @contextmanager
    def begin(cls, path: str | Path) -> Iterator["RunFolder"]:
        """A new folder that is ours alone until the end of the block; where no run has begun by
        then, the folders that were made for it are removed."""
        folder = cls.create(path)
        while (lock := folder._lock()) is None:  # removed by a process whose run did not begin
            folder = cls.create(path)
        try:
            cls.create(path)  # locked now, but another process may have been quicker
            yield folder
        finally:
            lock.release()
            if not folder.holds_a_run():
                folder.discard()

    @classmethod
    def open(cls, path: str | Path) -> "RunFolder":
        folder = cls(path)
        if not folder.holds_a_run():
            raise InvalidInput(
                f"{folder.path} holds no run; give the folder that dptune tune wrote (--out). If "
                "that was interrupted before it counted or trained anything, nothing was paid, and "
                "the same command begins anew."
            )
        return folder

    def must_be_new(self) -> None:
        """Refuse a folder in which no run can begin; nothing is made."""
        if self.holds_a_run():
            raise InvalidInput(
                f"{self.path} holds a run already; dptune resume {self.path} goes on with it, or "
                "shows its result if it has ended. Give another folder for a new one."
            )
        if os.path.islink(self.path) and not os.path.exists(self.path):
            raise InvalidInput(
                f"{self.path} is a link to {os.readlink(self.path)}, which is not there; make that "
                "folder, or give another."
            )
        there = os.listdir(self.path) if os.path.isdir(self.path) else []
        # Hidden files are drafts that a kill left behind.
        strangers = sorted(name for name in set(there) - _EARLY if not name.startswith("."))
        if strangers:
            raise InvalidInput(
                f"{self.path} holds other files ({listed(strangers[:3])}), and a run folder "
                "holds one study and nothing else; give a new folder."
            )

    def discard(self, *names: str) -> None:
        """Leave nothing of a run that did not begin."""
        for name in names:
            (self.path / name).unlink(missing_ok=True)
        for folder in self._made:
            with suppress(OSError):  # another process uses it
                folder.rmdir()

    def is_finished(self) -> bool:
        return os.path.exists(self.path / RESULT)

    def holds_a_run(self) -> bool:
        return os.path.exists(self.path / "run.toml")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """For one process at a time, and for as long as it lives; there must be a run."""
        lock = self._lock()
        try:
            RunFolder.open(self.path)  # a process whose run could not begin may have removed it
            yield
        finally:
            if lock is not None:
                lock.release()

    def _lock(self) -> FileLock | None:
        """None where there is no folder."""
        try:
            lock = FileLock.take(self.path / _LOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise FolderProblem(
                f"{self.path / _LOCK}, which keeps others from working here at the same time, "
                f"cannot be made: {error.strerror or error}. See to it that you may write there."
            ) from None
        if lock is None:
            raise InvalidInput(
                f"the study in {self.path} is at work in another process; wait until that one has "
                "ended. Nothing was touched."
            )
        return lock

    def give_one_date(self) -> None:
        """So that no date tells how long a part of the study took: all files get that of run.toml,
        which was written before anything ran. Ledgers keep their own."""
        began = os.stat(self.path / "run.toml")
        for path in [*self.path.rglob("*"), self.path]:
            if not path.name.startswith("ledger.db"):
                with suppress(FileNotFoundError):  # a lock or a draft that is gone by now
                    os.utime(path, ns=(began.st_mtime_ns, began.st_mtime_ns))

    @contextmanager
    def undamaged(self, name: str) -> Iterator[None]:
        """Say so where what was read from a file does not make sense."""
        with tensor_files.undamaged(self.path / name, self.advice(name)):
            yield

    def advice(self, name: str) -> str:
        """What to do about a file that is missing or damaged."""
        if is_written_again(name):
            return f"Put it back from a backup, or write it again with: dptune resume {self.path}"
        if self.is_finished() or name == "run.toml":
            return "Put it back from a backup: dptune resume does not make it again."
        return tensor_files.GO_ON_WITHOUT

    def write(self, name: str, content: str | bytes) -> None:
        """Replace a file as a whole."""
        with self._writing(self.path / name):
            whole_files.write_whole(self.path / name, content)

    def write_folder(self, name: str, fill: Callable[[Path], None]) -> None:
        """Replace a folder as a whole by what `fill` writes into a new one."""
        target, draft = self.path / name, self.path / f".{name}"
        with self._writing(target):
            if draft.is_symlink():  # which would be written through
                draft.unlink()
            shutil.rmtree(draft, ignore_errors=True)  # what a kill left
            fill(draft)
            shutil.rmtree(target, ignore_errors=True)
            draft.rename(target)
            whole_files.sync_folder(self.path)

    @contextmanager
    def _writing(self, target: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            then = "Nothing was paid for yet; make room, then begin again."
            if self.holds_a_run():
                then = (
                    "What was paid for stays paid; make room, then continue with: dptune resume "
                    f"{self.path}"
                )
            raise FolderProblem(
                f"{target} could not be written: {error.strerror}. {then}"
            ) from None

    def read(self, name: str) -> str | None:
        """A file's text, or None where there is none yet."""
        with self.undamaged(name):
            if not self._is_there(name):
                return None
            with whole_files.open_regular(self.path / name) as file:
                return file.read().decode()

    def _is_there(self, name: str) -> bool:
        """Whether there is such a file; ValueError where it is known to be another than it was."""
        return os.path.exists(self.path / name)

    def write_json(self, name: str, plain: Mapping[str, Any]) -> None:
        """A record, with a digest of itself."""
        self.write(name, json.dumps(with_digest(plain), indent=2, allow_nan=False) + "\n")

    def read_json(self, name: str) -> dict[str, Any] | None:
        text = self.read(name)
        if text is None:
            return None
        with self.undamaged(name):
            plain = without_digest(read_json(text, "it"))
        return plain

    def write_tensors(
        self, name: str, tensors: Mapping[str, Tensor], **metadata: str | int
    ) -> None:
        """Weights, on the CPU, with a few words about them."""
        words = {key: str(value) for key, value in metadata.items()}
        self.write(name, tensor_files.tensors_as_bytes(tensors, words))

    def read_tensors(self, name: str) -> tuple[dict[str, Tensor], dict[str, str]] | None:
        """The reverse, or None where there is none yet."""
        with self.undamaged(name):
            if not self._is_there(name):
                return None
            return tensor_files.read_tensors(self.path / name)

    def write_trials(self, trials: Sequence[Trial]) -> None:
        """A line each, with a digest of its own; no file where there are none."""
        if not trials:
            return
        lines = [json.dumps(with_digest(trial.to_dict()), allow_nan=False) for trial in trials]
        self.write("trials.jsonl", "".join(f"{line}\n" for line in lines))

    def read_trials(self) -> list[Trial]:
        text = self.read("trials.jsonl")
        if text is None:
            return []
        with self.undamaged("trials.jsonl"):
            if not text:
                raise ValueError("it is empty")
            lines = [without_digest(read_json(line, "a line")) for line in text.splitlines()]
            trials = [Trial.from_dict(line) for line in lines]
        return trials

    def write_guarantee(self, guarantee: Guarantee) -> None:
        self.write("guarantee.json", guarantee.to_json() + "\n")
        self.write("guarantee.txt", guarantee.in_words() + "\n")

    def read_guarantee(self) -> Guarantee:
        plain = self.read_json("guarantee.json")
        if plain is None:
            raise self.unfinished()
        with self.undamaged("guarantee.json"):
            guarantee = Guarantee.from_dict(plain)
        return guarantee

    def unfinished(self) -> InvalidInput:
        """What to say where a finished run was asked for."""
        return InvalidInput(
            f"the run in {self.path} is not finished; continue it with: dptune resume {self.path}"
        )

    def write_environment(self, device: str) -> None:
        self.write_json(
            "environment.json",
            {
                "python": sys.version.split()[0],
                "platform": platform.platform(),
                "device": torch.cuda.get_device_name() if device.startswith("cuda") else "cpu",
                "packages": {name: _version(name) for name in _PACKAGES},
            },
        )


def is_written_again(name: str) -> bool:
    """Whether `dptune resume` makes this file of a finished run again, from the others."""
    return name.startswith(_WRITTEN_AGAIN)


@cache  # a package's metadata are text that takes as long to read as a step of training
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # run from a folder of sources
        return "not installed"
