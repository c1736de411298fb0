"""What every engine must keep, as one class: subclass it, name an engine, and pytest does the rest.

Promises of training and of models come with the product (`dptune.engines.check_engine`); whole
studies are added here.
"""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import dptune
from dptune.accounting import Budget
from dptune.data import Data
from dptune.data.disk import DiskRows, write_chunks
from dptune.data.rows import IDS
from dptune.engines import ProcessExecutor
from dptune.engines.promises import CHECKS, EngineChecks, in_words
from dptune.search.base import SearchMethod
from dptune.search.random_search import RandomSearch
from dptune.search.score import HeldOutScore
from dptune.search.space import Space
from dptune.study.study import resume


class EngineConformance(EngineChecks):
    """The promises of one engine on rows of one shape."""

    left_out: ClassVar[tuple[str, ...]] = ()  # checks that are made elsewhere

    def data(self, count: int = 300, **facts: Any) -> Data:
        tests = self.features(60, 1, 1)[:, 0], self.labels(60, 1)
        return Data(self.features(count)[:, 0], self.labels(count), test=tests, **facts)

    @pytest.mark.parametrize("check", CHECKS, ids=in_words)
    def test_engine_passes(self, check: str) -> None:
        if check in self.left_out:
            pytest.skip("checked elsewhere")
        getattr(self, check)()

    # -- whole studies

    def study(self, data: Data, out: Path, **asked: Any) -> dptune.StudyResult:
        asked = {"space": Space(learning_rate=(0.1, 10.0), steps=(5, 10))} | asked
        return dptune.tune(data, budget=Budget(8.0, 1e-5), engine=self.engine, out=out, **asked)

    def test_it_is_tuned_resumed_and_loaded(self, tmp_path: Path) -> None:
        data, out = self.data(), tmp_path / "run"

        class Stop(Exception):
            pass

        def stop(progress: Any) -> None:
            if progress.doing.startswith("final run"):
                raise Stop

        with pytest.raises(Stop):
            self.study(data, out, watch=stop)
        assert f'name = "{self.engine.name}"' in (out / "run.toml").read_text()
        result = resume(out, data)
        assert result.guarantee.epsilon <= 8.0 and result.guarantee.covers_selection
        features = self.features(60, 1, 1)[:, 0]
        loaded = dptune.load(out)
        assert (loaded.predict(features) == result.model.predict(features)).all()
        right = (loaded.predict(features) == self.labels(60, 1)).mean()
        assert result.test_accuracy == pytest.approx(right)

    @pytest.mark.parametrize(
        "search", [RandomSearch(trials=3), dptune.PrivateSelection(expected_trials=3)], ids=repr
    )
    def test_every_kind_of_search_drives_it(self, search: SearchMethod, tmp_path: Path) -> None:
        result = self.study(self.data(), tmp_path / "run", search=search)
        assert result.guarantee.epsilon <= 8.0

    def test_it_is_tuned_on_rows_from_disk_with_held_out_scores(self, tmp_path: Path) -> None:
        parts = np.split(self.features(300, 2), 3), np.split(self.labels(300), 3)
        precision = IDS if self.engine.traits.takes_ids else "float32"
        folder = tmp_path / "rows"
        write_chunks(folder, zip(*parts, strict=True), precision=precision, augmented=True)
        result = self.study(
            Data.from_disk(DiskRows(folder)),
            tmp_path / "run",
            score=HeldOutScore(every=5),
            recipe={"augmentations": 2},
        )
        assert all(trial.plan.rows == 240 for trial in result.trials)
        assert result.final.plan.rows == 300 and result.final.plan.augmentations == 2

    @pytest.mark.usefixtures("warm_processes")
    def test_it_runs_in_processes_of_its_own(self, tmp_path: Path) -> None:
        search, executor = RandomSearch(trials=2), ProcessExecutor(workers=2)
        result = self.study(self.data(60), tmp_path / "run", search=search, executor=executor)
        assert [trial.lost for trial in result.trials] == [False, False]
