"""Runs of earlier versions that measured a second, finer mean of the rows."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dptune import Ledger, Preparation, load, resume, tune
from dptune.errors import FolderProblem
from dptune.report import model_card
from dptune.study.config import Config
from support.rows import make_data, make_rows
from support.studies import BUDGET, SPACE, stop_after, study


def _as_earlier_versions_wrote(self: Config, now: Any = Config.to_toml) -> str:
    return now(self).replace("[preparation]\n", "[preparation]\nfiner_mean = true\n")


@pytest.fixture(autouse=True)
def _earlier_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Config, "to_toml", _as_earlier_versions_wrote)


def test_unfinished_run_with_a_finer_mean_is_refused(tmp_path: Path) -> None:
    run, data = tmp_path / "run", make_data()
    stop_after(run, data, "final run: segment 2", preparation=Preparation())
    with pytest.raises(FolderProblem, match="begun with a second mean of the rows"):
        resume(run, data)


def test_finished_run_with_a_finer_mean_loads_and_predicts(tmp_path: Path) -> None:
    run, data = tmp_path / "run", make_data()
    result = study(run, data, preparation=Preparation())
    features, _ = make_rows(50, 3)
    assert np.array_equal(load(run).predict(features), result.model.predict(features))
    assert "differentially private" in model_card(run)
    with pytest.raises(FolderProblem, match=r"is finished, .* open the model"):
        resume(run, data)


def test_search_with_a_finer_mean_is_not_reused(tmp_path: Path) -> None:
    address, data = str(tmp_path / "ledger.db"), make_data()
    Ledger.create(address, BUDGET, dataset="people", fingerprint=data.fingerprint)
    asked: dict[str, Any] = {"ledger": address, "space": SPACE, "budget": BUDGET}
    tune(data, out=tmp_path / "first", **asked)
    with pytest.raises(FolderProblem, match="leave reuse out"):
        tune(data, reuse=tmp_path / "first", **asked)
