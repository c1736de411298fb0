"""A delta above one in the number of rows and an epsilon above 20 protect nobody: they are refused
before anything is paid, unless they are allowed by name."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dptune.accounting import Budget
from dptune.data import Data
from dptune.errors import InvalidInput
from dptune.estimator import DPLinearClassifier, DPLinearRegressor
from dptune.ledger import Ledger
from dptune.study.study import resume
from support.rows import make_data, make_rows
from support.studies import SPACE, stop_after, study

Run = Callable[..., tuple[int, str, str]]
ROWS = 400
LARGE_DELTA = Budget(2.0, 1.001 / ROWS)
LARGE_EPSILON = Budget(20.5, 1e-5)


@pytest.mark.parametrize(
    "budget, said",
    [
        (
            LARGE_DELTA,
            r"delta is 0.0025025, above one in 400.*such as 0.00025.*allow_large_delta",
        ),
        (LARGE_EPSILON, r"epsilon is 20.5000: above 20 it protects nobody.*allow_large_epsilon"),
    ],
)
def test_tune_refuses_budget_above_meaningful_epsilon(
    tmp_path: Path, budget: Budget, said: str
) -> None:
    data, address = make_data(), str(tmp_path / "ledger.db")
    assert data.count == ROWS
    ledger = Ledger.create(
        address, Budget(90.0, 0.1), dataset=data.name, fingerprint=data.fingerprint
    )
    for asked in ({"out": tmp_path / "run"}, {"out": None, "ledger": address}):
        with pytest.raises(InvalidInput, match=said):
            study(data=data, budget=budget, **asked)
    assert not (tmp_path / "run").exists() and not ledger.state().payments
    # What is allowed is allowed alone.
    other = {"allow_large_delta": budget is LARGE_EPSILON}
    with pytest.raises(InvalidInput, match=said):
        study(None, data, budget=budget, **other, allow_large_epsilon=budget is LARGE_DELTA)


def test_largest_delta_and_epsilon_that_need_no_permission_are_accepted() -> None:
    promise = study(None, budget=Budget(20.0, 1 / ROWS)).guarantee
    assert (promise.epsilon, promise.delta) == (20.0, 1 / ROWS)
    assert not any("delta is above" in caveat for caveat in promise.caveats)


def test_allowed_large_budget_is_kept_for_resume_and_stated(tmp_path: Path) -> None:
    out, data = tmp_path / "run", make_data()
    asked = {"allow_large_delta": True, "allow_large_epsilon": True}
    stop_after(out, data, "final run", budget=Budget(21.0, 0.01), **asked)
    result = resume(out, data)
    assert "allow_large_delta = true" in (out / "run.toml").read_text()
    words = result.guarantee.in_words()
    assert "delta is above one in 400, the number of rows, as was allowed" in words
    assert "so large an epsilon protects no row" in words


def test_run_that_began_without_the_rule_is_resumed(tmp_path: Path) -> None:
    """An older version asked for no permission; what it began was paid for."""
    out, data = tmp_path / "run", make_data()
    stop_after(out, data, "final run", budget=LARGE_DELTA, allow_large_delta=True)
    kept = (out / "run.toml").read_text()
    (out / "run.toml").write_text(kept.replace("allow_large_delta = true\n", ""))
    assert "delta is above one in 400" in resume(out, data).guarantee.in_words()


def test_reused_search_that_takes_epsilon_above_20_needs_permission(tmp_path: Path) -> None:
    data, address = make_data(), str(tmp_path / "ledger.db")
    Ledger.create(address, Budget(90.0, 1e-5), dataset=data.name, fingerprint=data.fingerprint)
    asked: dict[str, Any] = {"budget": Budget(19.9, 1e-5), "ledger": address}
    study(tmp_path / "first", data, **asked)
    paid = len(Ledger.open(address).state().payments)
    asked |= {"reuse": tmp_path / "first"}
    with pytest.raises(InvalidInput, match="for this study and the search that it reuses"):
        study(None, data, **asked)
    assert len(Ledger.open(address).state().payments) == paid
    assert study(None, data, **asked, allow_large_epsilon=True).guarantee.epsilon > 20


def test_estimators_take_the_same_permissions() -> None:
    features, labels = make_rows(ROWS)
    asked = {"space": SPACE, "range_share": 0}
    for estimator, named in [
        (DPLinearClassifier(delta=0.1, **asked), "allow_large_delta"),
        (DPLinearRegressor((0, 1), epsilon=30.0, **asked), "allow_large_epsilon"),
    ]:
        with pytest.raises(InvalidInput, match=f"{named}=True in Python"):
            estimator.fit(features, labels)
        estimator.set_params(**{named: True}).fit(features, labels)
    assert DPLinearClassifier().fit(features, labels).guarantee_.delta == 1e-5


def test_estimator_chooses_a_smaller_delta_for_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stop(Exception):
        pass

    def tune(data: Data, *, budget: Budget, **asked: Any) -> None:
        raise Stop(budget.delta)

    monkeypatch.setattr("dptune.study.study.tune", tune)
    labels = np.arange(120_000) % 2
    with pytest.raises(Stop) as stopped:
        DPLinearClassifier().fit(np.stack([labels, 1 - labels], axis=1), labels)
    assert stopped.value.args == (8.33e-7,)


def test_command_line_refuses_and_allows(tmp_path: Path, command: Run) -> None:
    features, labels = make_rows(ROWS)
    np.savez(tmp_path / "rows.npz", X_train=features, y_train=labels)
    verb = ("tune", "--data", str(tmp_path / "rows.npz"), "--out", str(tmp_path / "run"))
    for given, named in [(("--delta", "0.01"), "delta"), (("--epsilon", "21"), "epsilon")]:
        for more in ((), ("--dry-run",)):
            code, _, said = command(*verb, *given, *more)
            assert code and f"allow it with --allow-large-{named}" in " ".join(said.split())
        allowed = f"--allow-large-{named}"
        code, out, said = command(*verb, *given, allowed, "--dry-run", "--json")
        assert not code, said
        assert json.loads(out)["guarantee"][named] == float(given[1])
    (tmp_path / "asked.toml").write_text(
        "[budget]\ndelta = 0.01\n[run]\nallow_large_delta = true\n"
    )
    code, _, said = command(*verb, "--config", str(tmp_path / "asked.toml"), "--dry-run")
    assert not code, said
    assert not (tmp_path / "run").exists()
