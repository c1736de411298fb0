"""Copy what may leave of a finished run into a folder of its own."""

import shutil
from pathlib import Path

import tomli_w

from dptune.errors import FolderProblem, InvalidInput
from dptune.plain_data import read_toml
from dptune.study.finished_run import FinishedRun, digests, finish, may_leave
from dptune.study.run_folder import PICTURES, RunFolder
from dptune.whole_files import draft_of, new_file, open_regular

_CONFIG = "run.toml"
_PLACES = ("source", "test", "public", "shifts", "tokenizer")  # the paths of rows in [data]
# Replaces the address of a ledger: prices depend on whether one was named.
_NAMED = "kept-by-its-owner"


def publish(folder: str | Path, out: str | Path) -> list[str]:
    """Copy what may leave of the run in `folder` into the new folder `out`, which can be loaded,
    predicts and has a card; return the names of its files.

    Guarantees: the run's guarantee covers every file, and every file is as the study wrote it. No
    ledger, checkpoint, key or path of rows is copied. An error leaves no folder.
    """
    run, target = FinishedRun.open(folder), Path(out)
    if not run.has_digests:
        raise InvalidInput(
            f"{run.unchecked}, so it cannot be published. Write them: dptune resume {run.path}"
        )
    if not run.read_guarantee().releases:
        raise InvalidInput(
            f"the guarantee of the run in {run.path} covers nothing, because its trials were "
            "chosen by scores that were not paid for. Nothing of it may leave; run a study whose "
            "scores are paid for or public."
        )
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InvalidInput(f"{target} exists already; give a new folder.")
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
    shutil.rmtree(draft, ignore_errors=True)  # left by a killed process
    draft.mkdir(parents=True)
    copies, names = RunFolder(draft), may_leave(run)
    pictures = [name for name in PICTURES if (run.path / name).exists()]
    for name in [*(name for name in names if name in run.files), *pictures]:
        _copy(run, name, draft / name)
    actual = digests(copies)
    for name, digest in run.files.items():
        if actual.get(name) != digest:
            raise FolderProblem(
                f"{run.path / name} has changed since the study wrote it, by its SHA-256 in "
                f"result.json. {run.advice(name)}"
            )
    copies.write(_CONFIG, _without_places(copies.read(_CONFIG) or ""))
    finish(copies, {**run.result, "out": None})


def _copy(run: FinishedRun, name: str, target: Path) -> None:
    place = run.path / name
    # A link could lead to any file that you can read.
    if not place.resolve().is_relative_to(run.path.resolve()):
        raise FolderProblem(f"{place} is a link to another place; replace it by the file itself.")
    target.parent.mkdir(parents=True, exist_ok=True)
    with run.undamaged(name), open_regular(place) as source, new_file(target) as copy:
        shutil.copyfileobj(source, copy)


def _without_places(text: str) -> str:
    """The config without paths of rows and the address of the ledger; no digest depends on them."""
    plain = read_toml(text, "run.toml")
    plain["data"] = {key: value for key, value in plain["data"].items() if key not in _PLACES}
    if plain["run"]["ledger"]:
        plain["run"]["ledger"] = _NAMED
    return tomli_w.dumps(plain)
