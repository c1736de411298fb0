"""Small studies, and what they leave behind."""

from pathlib import Path
from typing import Any

import pytest

from dptune.accounting import Budget
from dptune.data import Data
from dptune.search.space import Space
from dptune.study.result import StudyResult
from dptune.study.runner import Progress
from dptune.study.study import tune
from support.rows import make_data

BUDGET = Budget(2.0, 1e-5)
SPACE = Space(steps=(5, 20))


def study(out: Path | None, data: Data | None = None, **asked: Any) -> StudyResult:
    asked = {"budget": BUDGET, "space": SPACE} | asked
    return tune(make_data() if data is None else data, out=out, **asked)


def stop_after(out: Path, data: Data, doing: str, **asked: Any) -> bool:
    """Begin a study and break it off when it says that it is `doing` this."""

    class Stop(Exception):
        pass

    def watch(progress: Progress) -> None:
        if progress.doing.startswith(doing):
            raise Stop

    with pytest.raises(Stop):
        study(out, data, watch=watch, **asked)
    return True


def contents(folder: Path) -> dict[str, bytes]:
    """Everything a folder holds, apart from the ledger."""
    files = (file for file in folder.rglob("*") if file.is_file() and file.suffix != ".db")
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}
