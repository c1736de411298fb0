"""Where trials run makes no difference to what they are, and a dead worker takes one with it."""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dptune.accounting import Budget, Guarantee
from dptune.data import Data
from dptune.data.rows import MemoryRows
from dptune.engines.executors import ProcessExecutor, SerialExecutor
from dptune.engines.linear import LinearEngine
from dptune.engines.randomness import Randomness
from dptune.errors import InvalidInput, OwnCodeProblem
from dptune.estimator import DPLinearClassifier
from dptune.ledger import Ledger
from dptune.plan import TrainPlan
from dptune.study.result import StudyResult
from dptune.study.study import resume
from support.rows import make_data, make_rows
from support.studies import BUDGET, stop_after, study


def make_plans(count: int, noise: float = 1.0) -> list[TrainPlan]:
    return [
        TrainPlan(rows=60, steps=3 + i, learning_rate=1.0, noise_multiplier=noise)
        for i in range(count)
    ]


def small_rows() -> MemoryRows:
    features, labels = make_rows(60)
    return MemoryRows(features.astype(np.float32), labels)


class DyingEngine(LinearEngine):
    """Whose process dies when it trains this many steps."""

    def fit_many(self, plans: Sequence[TrainPlan], *args: Any, **more: Any) -> Any:
        if any(plan.steps == 4 for plan in plans):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().fit_many(plans, *args, **more)


class FailingEngine(LinearEngine):
    def fit_many(self, plans: Sequence[TrainPlan], *args: Any, **more: Any) -> Any:
        raise InvalidInput("this engine trains nothing.")


def test_processes_give_the_same_models_as_one_process() -> None:
    """With a noise seed, which only research may fix."""
    streams = [Randomness(trial=trial, noise_seed=7) for trial in range(2)]
    plans, rows = make_plans(2), small_rows()
    together = SerialExecutor().fit(LinearEngine(outputs=2), plans, rows, streams)
    apart = ProcessExecutor(workers=2).fit(LinearEngine(outputs=2), plans, rows, streams)
    for one, other in zip(together, apart, strict=True):
        assert one is not None and other is not None
        assert torch.allclose(one.weights, other.weights, atol=1e-6)
        assert one.velocity is not None and other.velocity is not None


@pytest.mark.usefixtures("warm_processes")
def test_a_worker_that_dies_takes_only_its_trial_with_it() -> None:
    streams = [Randomness(trial=trial) for trial in range(2)]
    engine = DyingEngine(outputs=2)
    models = ProcessExecutor(workers=2).fit(engine, make_plans(2), small_rows(), streams)
    assert [model is None for model in models] == [False, True]


@pytest.mark.usefixtures("warm_processes")
def test_an_error_in_a_worker_is_passed_on() -> None:
    with pytest.raises(InvalidInput, match="trains nothing"):
        ProcessExecutor().fit(FailingEngine(outputs=2), make_plans(1), small_rows(), [Randomness()])


def test_there_is_at_least_one_worker() -> None:
    with pytest.raises(InvalidInput, match="workers must be"):
        ProcessExecutor(workers=0)


def _promised(result: StudyResult) -> Guarantee:
    """Without what is said of settings, which noisy scores have decided."""
    told = {note for trial in (*result.trials, result.final) for note in trial.notes}
    promise = result.guarantee
    return replace(promise, caveats=tuple(c for c in promise.caveats if c not in told))


@pytest.mark.usefixtures("warm_processes")
def test_a_study_in_processes_has_the_form_of_one_in_this(tmp_path: Path) -> None:
    data = make_data()
    serial = study(tmp_path / "serial", data)
    apart = study(tmp_path / "apart", data, executor=ProcessExecutor(workers=2))
    for one, other in zip(
        (*serial.trials, serial.final), (*apart.trials, apart.final), strict=True
    ):
        assert (one.number, one.stage, one.lost) == (other.number, other.stage, other.lost)
        assert one.mu == other.mu and (one.score is None) == (other.score is None)
    assert _promised(serial) == _promised(apart)
    states = [
        [(p.purpose.split(" (")[0], p.state) for p in Ledger.open(str(path)).state().counted]
        for path in (tmp_path / "serial" / "ledger.db", tmp_path / "apart" / "ledger.db")
    ]
    assert states[0] == states[1]


class ForgetsOne:
    """An executor that loses its second trial."""

    def fit(self, engine: Any, plans: Any, rows: Any, *more: Any) -> list[Any]:
        models = SerialExecutor().fit(engine, plans, rows, *more)
        return [None if index == 1 else model for index, model in enumerate(models)]


def test_a_study_goes_on_without_a_lost_trial_which_stays_paid(tmp_path: Path) -> None:
    out, data = tmp_path / "run", make_data()
    result = study(out, data, executor=ForgetsOne())
    assert [trial.lost for trial in result.trials] == [False, True, False]
    assert [trial.score is None for trial in result.trials] == [False, True, False]
    assert not (out / "models" / "trial-2.safetensors").exists()
    state = Ledger.open(str(out / "ledger.db")).state()
    (lost,) = (payment for payment in state.counted if payment.state != "committed")
    assert lost.purpose.startswith("trial 2") and lost.state == "started"
    assert result.guarantee.mu**2 == pytest.approx(state.spent.mu_squared, rel=1e-14)
    assert result.guarantee.epsilon <= BUDGET.epsilon
    assert resume(out, data).trials == result.trials  # never run again


UNGUARDED = """
import numpy, dptune

rows = numpy.arange(120.0).reshape(60, 2) % 7
data = dptune.Data(rows, numpy.arange(60) % 2, classes=[0, 1], name="d")
budget = dptune.Budget(1.0, 1e-5)
asked = {"search": dptune.RandomSearch(trials=1), "check": False, "ledger": "shared.db"}
dptune.tune(data, budget=budget, **asked)
dptune.tune(data, budget=budget, executor=dptune.engines.ProcessExecutor(), **asked)
"""


def test_worker_that_imports_an_unguarded_script_pays_for_nothing(tmp_path: Path) -> None:
    """The first study is run and paid once, the second is refused with what to do."""
    (tmp_path / "script.py").write_text(UNGUARDED)
    address = str(tmp_path / "shared.db")
    features = np.arange(120.0).reshape(60, 2) % 7
    data = Data(features, np.arange(60) % 2, classes=[0, 1], name="d")
    Ledger.create(address, Budget(8.0, 1e-5), dataset="d", fingerprint=data.fingerprint)
    done = subprocess.run(
        [sys.executable, "script.py"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode
    studies = {payment.purpose.split(" (")[1] for payment in Ledger.open(address).state().counted}
    assert len(studies) == 1
    # The worker says what is wrong with the script, and so does the study that started it.
    asked = 'put the call under `if __name__ == "__main__":`'
    assert f"calls tune at its top level; {asked}" in done.stderr.replace("\n", " ")
    assert done.stderr.count(asked) == 2


def test_no_study_begins_while_multiprocessing_imports_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, data, out = multiprocessing.current_process(), make_data(), tmp_path / "run"
    stop_after(out, data, "final run")
    begun = [payment.purpose for payment in Ledger.open(str(out / "ledger.db")).state().counted]
    features, labels = make_rows(60)
    with monkeypatch.context() as patch:
        patch.setattr(worker, "_inheriting", True, raising=False)  # as multiprocessing marks it
        for name, call in {
            "tune": lambda: study(tmp_path / "new", data),
            "resume": lambda: resume(out, data),
            "fit": lambda: DPLinearClassifier().fit(features, labels),
        }.items():
            with pytest.raises(OwnCodeProblem, match=f"{name} at its top level.*__main__"):
                call()
    assert not (tmp_path / "new").exists()
    now = [payment.purpose for payment in Ledger.open(str(out / "ledger.db")).state().counted]
    assert now == begun
    assert resume(out, data).guarantee.epsilon <= BUDGET.epsilon
