"""Files of measurements: written whole or not at all, and never taken for what they are not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from dptune.errors import FolderProblem
from dptune.plain_data import UNFIT, read_json
from dptune.whole_files import write_whole

Found = TypeVar("Found")


def write(file: Path, content: str | bytes) -> None:
    """All of it or nothing, and its folder where there is none."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, content)
    except OSError as error:
        raise FolderProblem(f"{file} could not be written: {error.strerror}.") from None


def read(file: Path, what: Callable[[dict[str, Any]], Found]) -> Found | None:
    """What a record says, or None where it was not measured yet."""
    if not file.exists():
        return None
    try:
        return what(read_json(file.read_bytes(), "it"))
    except (OSError, *UNFIT) as error:
        raise FolderProblem(f"{file} is damaged ({error}); remove it to measure again.") from None
