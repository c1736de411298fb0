"""Records of trials."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptune import TrainPlan
from dptune.errors import InvalidInput
from dptune.search.trial import Trial

PLAN = TrainPlan(rows=50_000, steps=40, learning_rate=2.5, noise_multiplier=30.0, sampling_rate=0.1)
TRIAL = Trial(number=3, stage="sweep 1", plan=PLAN, mu=0.2, notes=("the space ended",))


def test_a_score_comes_with_its_noise_and_changes_nothing_else() -> None:
    scored = TRIAL.with_score(0.01, 0.002)
    assert (scored.score, scored.score_noise) == (0.01, 0.002)
    assert (TRIAL.score, TRIAL.score_noise) == (None, None)
    assert scored.plan == TRIAL.plan and scored.notes == TRIAL.notes


def test_a_trials_noise_is_that_on_its_weights() -> None:
    assert TRIAL.noise == PLAN.weight_noise > 0


@given(
    number=st.integers(0, 10**6),
    stage=st.text(),
    mu=st.floats(1e-6, 100),
    score=st.one_of(st.none(), st.floats(-1, 1)),
    noise=st.one_of(st.none(), st.floats(0, 1)),
    lost=st.booleans(),
    notes=st.lists(st.text(), max_size=3).map(tuple),
)
def test_trials_survive_json(
    number: int,
    stage: str,
    mu: float,
    score: float | None,
    noise: float | None,
    lost: bool,
    notes: tuple[str, ...],
) -> None:
    trial = Trial(
        number=number,
        stage=stage,
        plan=PLAN,
        mu=mu,
        score=score,
        score_noise=noise,
        lost=lost,
        notes=notes,
    )
    assert Trial.from_dict(json.loads(json.dumps(trial.to_dict()))) == trial


def test_a_record_shows_what_follows_from_the_plan() -> None:
    plain = TRIAL.to_dict()
    assert plain["total_step_size"] == 100.0
    assert plain["weight_noise"] == PLAN.weight_noise
    assert plain["plan"]["sampling_rate"] == 0.1


@pytest.mark.parametrize(
    "change",
    [
        {"mu": None},
        {"number": "three"},
        {"plan": {**TRIAL.to_dict()["plan"], "steps": 0}},
        {"plan": {**TRIAL.to_dict()["plan"], "warp": 9}},
        {"plan": None},
        {"score": "high"},
    ],
)
def test_invalid_trial_record_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="not a valid record of a trial"):
        Trial.from_dict(TRIAL.to_dict() | change)


@pytest.mark.parametrize("field", ["number", "stage", "plan", "mu", "score", "lost", "notes"])
def test_a_record_must_be_whole(field: str) -> None:
    plain = TRIAL.to_dict()
    del plain[field]
    with pytest.raises(InvalidInput, match=field):
        Trial.from_dict(plain)
