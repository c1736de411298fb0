"""What a run was asked to do, as `run.toml` in its folder says."""

from typing import Any

from dptune.errors import FolderProblem, InvalidInput
from dptune.study.config import parse
from dptune.study.run_folder import RunFolder

AS_IT_WAS = (
    "What was paid for is what it said at first: put it back as it was, or begin a new study."
)


def read_settings(folder: RunFolder) -> dict[str, Any]:
    """The sections of its `run.toml`."""
    name = folder.path / "run.toml"
    try:
        return parse(folder.read("run.toml") or "", str(name))
    except InvalidInput as error:
        raise FolderProblem(f"{name} cannot be read: {error} {AS_IT_WAS}") from None


def read_source(folder: RunFolder) -> dict[str, Any]:
    """Where the rows of the run in `folder` lie."""
    source: dict[str, Any] = read_settings(folder)["data"]
    return source
