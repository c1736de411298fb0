"""Files of measurements: written whole or not at all, and never taken for what they are not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from dptune.engines.tensor_files import write_whole
from dptune.errors import FolderProblem

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
        return what(json.loads(file.read_text()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FolderProblem(f"{file} is damaged ({error}); remove it to measure again.") from None
