"""A language model keeps the promises of every engine."""

from pathlib import Path
from typing import Any, ClassVar

import pytest

import dptune
from dptune.data import Data
from dptune.data.rows import IDS
from dptune.engines import HuggingFace
from dptune.search.random_search import RandomSearch
from dptune.search.space import Space
from support.engine_conformance import EngineConformance
from support.tiny_models import write_tiny_model


class TestClassifier(EngineConformance):
    """All of it is trained, so that all that is stored of it moves. Where rows come from, which
    search asks and in which process, is the same for every module: tests/test_torch_module.py.
    Sums of clipped gradients are looked at in tests/test_language_models.py, for all kinds."""

    margin: ClassVar[float] = 0.012
    runs: ClassVar[int] = 12
    shape: ClassVar[tuple[int, ...]] = (5,)
    precisions: ClassVar[tuple[str, ...]] = (IDS,)
    left_out: ClassVar = ("check_clipped_step_is_the_sum_of_clipped_row_gradients",)
    test_every_kind_of_search_drives_it: ClassVar = None
    test_it_is_tuned_on_rows_from_disk_with_held_out_scores: ClassVar = None
    test_it_runs_in_processes_of_its_own: ClassVar = None

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def tiny(cls, tmp_path_factory: pytest.TempPathFactory) -> None:
        folder = write_tiny_model(tmp_path_factory.mktemp("tiny") / "bert", "bert", layers=1)
        cls.engine = HuggingFace(str(folder), trained="all", rows_at_once=24)

    def study(self, data: Data, out: Path, **asked: Any) -> dptune.StudyResult:
        short = {"space": Space(learning_rate=(0.1, 1.0), steps=(2, 2))}
        return super().study(data, out, **short | {"search": RandomSearch(trials=1)} | asked)
