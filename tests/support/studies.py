"""Small studies, and what they leave behind."""

from pathlib import Path
from typing import Any

import pytest

from dptune.accounting import Budget
from dptune.data import Data
from dptune.search.linear_scaling import LinearScaling
from dptune.search.score import NoisyScore
from dptune.search.space import Space
from dptune.study.config import Config, Preparation
from dptune.study.result import StudyResult
from dptune.study.runner import Progress
from dptune.study.study import tune
from support.rows import make_data

BUDGET = Budget(2.0, 1e-5)
SPACE = Space(steps=(5, 20))
# Nothing is bought to prepare rows, so that what is paid is the search's.
PLAIN = Preparation(center_share=0, whiten_share=0, range_share=0, curves=1)


def a_config(**asked: Any) -> Config:
    """What a study is asked for, as little as there can be."""
    usual: dict[str, Any] = {
        "study": "",
        "budget": BUDGET,
        "search": LinearScaling(),
        "score": NoisyScore(),
        "space": SPACE,
        "recipe": {},
        "preparation": Preparation(),
        "source": {},
    }
    return Config(**usual | asked)


def study(out: Path | None, data: Data | None = None, **asked: Any) -> StudyResult:
    data = make_data() if data is None else data
    usual: dict[str, Any] = {"budget": BUDGET, "space": SPACE}
    if "engine" not in asked and data.facts.is_table:  # others are not prepared
        usual["preparation"] = PLAIN
    return tune(data, out=out, **usual | asked)


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
