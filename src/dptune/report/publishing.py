"""What may leave of a finished run, copied into a folder of its own."""

import shutil
from pathlib import Path

import tomli_w

from dptune.errors import FolderProblem, InvalidInput
from dptune.plain_data import read_toml
from dptune.study.finished_run import FinishedRun, digests, finish, may_leave
from dptune.study.run_folder import PICTURES, RunFolder
from dptune.whole_files import draft_of, new_file, open_regular

_CONFIG = "run.toml"
_PLACES = ("source", "test", "public", "shifts", "tokenizer")  # in [data]: where rows lie
# In place of a ledger's address: prices depend on whether one was named.
_NAMED = "kept-by-its-owner"


def publish(folder: str | Path, out: str | Path) -> list[str]:
    """Copy what may leave of the run in `folder` into the new folder `out`, which loads, predicts
    and has a card; return the names of its files.

    Guarantees: every file is one that the run's guarantee covers and is as the study left it; no
    ledger, checkpoint, key, or path of rows is among them. An error leaves no folder.
    """
    run, target = FinishedRun.open(folder), Path(out)
    if not run.has_digests:
        raise InvalidInput(
            f"{run.unchecked}, so nothing of it is published. dptune resume {run.path} writes them."
        )
    if not run.read_guarantee().releases:
        raise InvalidInput(
            f"the guarantee of the run in {run.path} covers nothing, because its trials were "
            "chosen by scores that were not paid for; nothing of it may leave."
        )
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InvalidInput(f"{target} is there already; give a new folder.")
    draft = draft_of(target)
    try:
        _fill(draft, run)
        if target.exists():
            target.rmdir()
        draft.rename(target)
    except OSError as error:
        raise InvalidInput(f"{target} cannot be written: {error.strerror}.") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    files = (path for path in target.rglob("*") if path.is_file())
    return sorted(path.relative_to(target).as_posix() for path in files)


def _fill(draft: Path, run: FinishedRun) -> None:
    shutil.rmtree(draft, ignore_errors=True)  # what a kill left
    draft.mkdir(parents=True)
    copies, there = RunFolder(draft), may_leave(run)
    pictures = [name for name in PICTURES if (run.path / name).exists()]
    for name in [*(name for name in there if name in run.files), *pictures]:
        _copy(run, name, draft / name)
    found = digests(copies)
    for name, digest in run.files.items():
        if found.get(name) != digest:
            raise FolderProblem(
                f"{run.path / name} is not what the study left there, by its SHA-256 in "
                f"result.json. {run.advice(name)}"
            )
    copies.write(_CONFIG, _without_places(copies.read(_CONFIG) or ""))
    finish(copies, {**run.result, "out": None})


def _copy(run: FinishedRun, name: str, target: Path) -> None:
    place = run.path / name
    # A link might lead to anything that whoever publishes may read.
    if not place.resolve().is_relative_to(run.path.resolve()):
        raise FolderProblem(f"{place} is a link to another place; put the file itself there.")
    target.parent.mkdir(parents=True, exist_ok=True)
    with run.undamaged(name), open_regular(place) as source, new_file(target) as copy:
        shutil.copyfileobj(source, copy)


def _without_places(text: str) -> str:
    """What was asked, without paths of rows and the address of a ledger, on which no digest
    depends."""
    plain = read_toml(text, "run.toml")
    plain["data"] = {key: value for key, value in plain["data"].items() if key not in _PLACES}
    if plain["run"]["ledger"]:
        plain["run"]["ledger"] = _NAMED
    return tomli_w.dumps(plain)
