"""Files of measurements: written whole or not at all, and never taken for what they are not."""

import json
from pathlib import Path
from typing import Any

from dptune.artifacts import write_whole
from dptune.errors import FolderProblem


def write(file: Path, content: str | bytes) -> None:
    """All of it or nothing, and its folder where there is none."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, content)
    except OSError as error:
        raise FolderProblem(f"{file} could not be written: {error.strerror}.") from None


def read_json(file: Path) -> dict[str, Any] | None:
    """A record, or None where it was not measured yet."""
    if not file.exists():
        return None
    try:
        plain = json.loads(file.read_text())
        if isinstance(plain, dict):
            return plain
        raise TypeError("it is no record")
    except (OSError, ValueError, TypeError) as error:
        raise FolderProblem(f"{file} is damaged ({error}); remove it to measure again.") from None
