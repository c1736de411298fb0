"""A run folder whose study has ended: what may leave it, and whether its files are as they were."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dptune.accounting import Guarantee
from dptune.engines.digests import digest_of_file
from dptune.errors import DptuneError, FolderProblem
from dptune.study.run_folder import EXPORTED, RESULT, RunFolder, is_written_again
from dptune.whole_files import open_regular

TENSORS = ".safetensors"
_FILES = "files"  # in the result: a digest of every file that may leave
# All that the guarantee covers, but pictures: never a ledger or a checkpoint.
_MAY_LEAVE = (
    *("run.toml", "environment.json", "classes.json", "ranges.json", "categories.json"),
    *("census.json", "check.json", "trials.jsonl", "guarantee.json", "guarantee.txt"),
    *("model.safetensors", "models/*.safetensors", f"{EXPORTED}/**/*"),
)


class FinishedRun(RunFolder):
    """A finished run, to be read: every file that is read must be as the study left it.

    Attributes:
        result: what result.json says, without digests.
        files: the digest of every file that may leave, by its name.
        has_digests: whether there are any; versions before 0.2 wrote none.

    """

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self.result: dict[str, Any] = {}
        self.files: Mapping[str, str] = {}
        self.has_digests = False

    @classmethod
    def open(cls, path: str | Path) -> "FinishedRun":
        folder = cls(RunFolder.open(path).path)
        result = folder.read_json(RESULT)
        if result is None:
            raise folder.unfinished()
        folder.result = result
        with folder.undamaged(RESULT):
            folder.has_digests = _FILES in result
            folder.files = dict(result.pop(_FILES, {}))
        return folder

    @property
    def unchecked(self) -> str:
        """What to say where damage to its files would not be noticed; else empty."""
        if self.has_digests:
            return ""
        return (
            f"the run in {self.path} was finished by a version of dptune that kept no SHA-256 of "
            "its files, so damage to them may go unnoticed"
        )

    def read_guarantee(self) -> Guarantee:
        """The promise, of which there are two copies."""
        guarantee = super().read_guarantee()
        with self.undamaged("guarantee.json"):
            if Guarantee.from_dict(self.result["guarantee"]) != guarantee:
                raise ValueError("it promises something else than result.json")
        return guarantee

    def must_be_as_left(self) -> None:
        """Refuse the folder where one of its files is not as the study left it. Tensors are checked
        when they are read."""
        for name in sorted({*self.files, *may_leave(self)} if self.has_digests else ()):
            if not name.endswith(TENSORS):
                with self.undamaged(name):
                    self._is_there(name)

    def _is_there(self, name: str) -> bool:
        there = super()._is_there(name)
        if not self.has_digests:
            return there
        if there and name not in self.files:
            raise ValueError("the study left no such file")
        if not there and name in self.files:
            raise FolderProblem(f"{self.path / name} is missing. {self.advice(name)}")
        if there:
            with open_regular(self.path / name) as file:
                if digest_of_file(file) != self.files[name]:
                    raise ValueError("it does not fit its SHA-256 in result.json")
        return there


def must_hold_what_was_paid(folder: RunFolder) -> None:
    """Refuse a finished run that lacks what was paid for, or holds something else in its place:
    it cannot be made again, and what would be stated without it is not true of the model. Refuse
    an unfinished run with a damaged file, which would be among the results."""
    try:
        files = FinishedRun.open(folder.path).files
    except DptuneError:  # not finished, or its result.json is to be written again
        _must_be_undamaged(folder)
        return
    now = digests(folder)
    for name, digest in files.items():
        if now.get(name) != digest and not is_written_again(name):
            what = "is not what the study left there" if name in now else "is missing"
            raise FolderProblem(f"{folder.path / name} {what}. {folder.advice(name)}")


def _must_be_undamaged(folder: RunFolder) -> None:
    """Refuse records and tensors that do not fit their own digests."""
    for name in may_leave(folder):
        if name.endswith(TENSORS) and not is_written_again(name):
            folder.read_tensors(name)
        elif name.endswith(".json") and not is_written_again(name):
            folder.read_json(name)


def finish(folder: RunFolder, result: Mapping[str, Any]) -> None:
    """Write the last file of a study: figures, and digests of all files that may leave."""
    folder.write_json(RESULT, {**result, _FILES: digests(folder)})


def may_leave(folder: RunFolder) -> list[str]:
    """The names of all files there that may leave, but for result.json and pictures."""
    found = {path for kind in _MAY_LEAVE for path in folder.path.glob(kind) if not path.is_dir()}
    return sorted(path.relative_to(folder.path).as_posix() for path in found)


def digests(folder: RunFolder) -> dict[str, str]:
    """Of these files, by their names."""
    of_files = {}
    for name in may_leave(folder):
        with folder.undamaged(name), open_regular(folder.path / name) as file:
            of_files[name] = digest_of_file(file)
    return of_files
