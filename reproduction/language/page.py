"""A page of all cells, beside the paper's tables."""

from pathlib import Path

PAGE = "language.md"


def write_page(folder: Path) -> Path:
    (folder / PAGE).write_text("")
    return folder / PAGE
