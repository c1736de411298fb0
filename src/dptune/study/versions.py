"""Runs that earlier versions of dptune began, and that this one cannot go on with."""

from dptune.errors import FolderProblem
from dptune.study.run_folder import RunFolder
from dptune.study.run_settings import read_settings


def must_be_resumable(folder: RunFolder) -> None:
    """Refuse a run that was begun with a second, finer mean of the rows, which took the place of a
    part of its final run: no later version measures that."""
    if not _has_finer_mean(folder):
        return
    if folder.is_finished():
        raise FolderProblem(
            f"the run in {folder.path} is finished, and its rows were centred twice (finer_mean), "
            "which this version of dptune does not do. There is nothing to resume; open the model "
            f"with dptune.load({str(folder.path)!r})."
        )
    raise FolderProblem(
        f"the run in {folder.path} was begun with a second mean of the rows (finer_mean), which "
        "this version of dptune does not measure. Resume it with the version that began it, or "
        "start a new study if the budget allows one."
    )


def must_be_reusable(folder: RunFolder) -> None:
    """Refuse the search of such a run."""
    if _has_finer_mean(folder):
        raise FolderProblem(
            f"the search in {folder.path} was made on rows that were centred twice (finer_mean), "
            "which this version of dptune does not do; leave reuse out."
        )


def _has_finer_mean(folder: RunFolder) -> bool:
    asked = read_settings(folder)["preparation"].get("finer_mean", False)
    return bool(asked) or (folder.path / "models" / "finer_mean.safetensors").exists()
