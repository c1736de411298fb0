"""Preparation as uniform steps: what they decide, measure and make of rows is as it always was, and
a new step is one class, one entry of the list of steps, and its sentences."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dptune.data.preprocess import Preprocessing
from dptune.data.row_maps import ClipLength
from dptune.errors import DptuneError
from dptune.noise import add_noise
from dptune.preparation import words
from dptune.preparation.pipeline import STEPS, plan, prepare
from dptune.preparation.sentences import notes, plan_lines, releases, result_lines
from dptune.preparation.step import Case, Decision, Outcome, PrivateRows, Reason, State, Step
from dptune.preparation.words import Words
from dptune.privacy import NoisyCount
from dptune.study.recipe import case_of
from support.prepared_rows import VOCABULARIES, Study, prepared, record, studies

# Written by the code that came before the steps, for every eleventh of the studies: with all
# statistics, and with each of them lost.
BEFORE: dict[str, Any] = json.loads(
    (Path(__file__).parent / "support" / "prepared_rows.json").read_text()
)
SOME = [study for number, study in enumerate(studies()) if number % 11 == 0]


@pytest.mark.parametrize("study", SOME, ids=lambda study: study.name)
def test_rows_are_prepared_as_before_there_were_steps(study: Study) -> None:
    before = BEFORE[study.name]
    if before is None:
        with pytest.raises(DptuneError):
            prepared(study)
        return
    for lost, then in before.items():
        now = record(study, lost or None)
        for name in ("decided", "shape", "lost"):
            assert now[name] == then[name], (lost, name)
        assert now["shares"] == pytest.approx(then["shares"])
        assert list(now["noise"]) == list(then["noise"])
        assert now["noise"] == pytest.approx(then["noise"])
        assert now["curvature"] == pytest.approx(then["curvature"], rel=1e-6)
        assert_allclose(now["sums"], then["sums"], rtol=1e-4, atol=1e-3)


def a_study(name: str) -> Study:
    return next(study for study in studies() if study.name == name)


TABLE = "declared, epsilon 10.0, 1500, values=False, usual"


@pytest.mark.parametrize("study", SOME[::4], ids=lambda study: study.name)
def test_prepared_rows_are_the_same_after_storage(study: Study) -> None:
    if BEFORE[study.name] is None:
        return
    made = prepared(study).state.preprocessing
    again = Preprocessing.from_arrays(made.arrays(), json.loads(json.dumps(made.facts())))
    assert again.in_words() == made.in_words()
    if made.encoding is not None:
        made = made.with_encoding(made.encoding.reading(VOCABULARIES))
        assert again.encoding is not None
        again = again.with_encoding(again.encoding.reading(VOCABULARIES))
    assert_array_equal(again.apply(study.rows), made.apply(study.rows))


def test_every_statistic_has_a_sentence_for_plan_result_loss_and_release() -> None:
    study = a_study(TABLE)
    whole = prepared(study)
    steps = whole.outline.preparation
    for name in steps.events:
        lost = prepared(study, name).state
        own = words.WORDS[name]
        assert own.releases and own.notes["lost"]
        assert len(releases(steps)) == len(releases(steps, lost)) + 1
        assert len(notes(steps, lost)) == 1 and not notes(steps, whole.state)
        said = " ".join(result_lines(steps, lost))
        assert "interrupted after payment" in said
        assert "interrupted" not in " ".join(result_lines(steps, whole.state))
    assert sum("% of the budget" in line for line in plan_lines(steps)) >= 4


class LongRows(Step):
    """A toy: rows are clipped to length 2 if a noisy count says that many are longer."""

    name: ClassVar[str] = "long rows"
    file: ClassVar[str] = "models/long_rows.safetensors"

    def decide(self, case: Case, earlier: Mapping[str, Any]) -> Decision:
        if case.rows < 500:
            return Decision(skipped=Reason("too few rows", {"rows": case.rows}))
        return Decision(share=0.01, event=NoisyCount(noise=case.noise(0.01)))

    def shape(self, case: Case, decision: Decision, state: State) -> tuple[int, ...]:
        return (1,)

    def measure(self, case: Case, decision: Decision, state: State, rows: PrivateRows) -> Any:
        assert isinstance(decision.event, NoisyCount)
        tables = rows.tables(state.maps)
        count = sum((np.linalg.norm(table, axis=1) > 2).sum(keepdims=True) for table in tables)
        return add_noise(np.asarray(count), decision.event.noise, rows.normal)

    def apply(
        self, case: Case, decision: Decision, statistic: Any, state: State
    ) -> tuple[State, Outcome]:
        share = float(statistic[0]) / case.rows
        maps = (ClipLength(2.0),) if share > 0.25 else ()
        return state.then(*maps), Outcome(values={"percent": 100 * share})


def test_new_step_is_one_class_one_entry_and_its_sentences(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sentences = Words(
        plans={"done": "clipped if many are long: {price}"},
        skipped={"": "not clipped: {why}"},
        results={
            "done": "{percent:.0f} % of them are long: {price}",
            "lost": "not clipped: {price}",
        },
        notes={"lost": "the count of long rows was interrupted after payment"},
        releases="a noisy count of long rows",
    )
    monkeypatch.setitem(words.WORDS, LongRows.name, sentences)
    study = a_study("epsilon 8.0, 1500 x 4, values=False, as_given=False, usual")
    steps = plan(case_of(study.config, study.facts), (LongRows(), *STEPS))
    assert next(iter(steps.events)) == "long rows" and steps["private mean"].event
    assert "clipped if many are long: 1 % of the budget" in plan_lines(steps)
    assert "a noisy count of long rows" in releases(steps)
    rows = PrivateRows(
        lambda maps: [Preprocessing(maps).apply(study.rows)],
        dict,
        np.random.default_rng(1).standard_normal,
    )

    def measured(step: Step, decision: Decision, state: State) -> Any:
        return step.measure(steps.case, decision, state, rows)

    state = prepare(steps, measured, steps.start(None))
    percent = 100 * float((np.linalg.norm(study.rows, axis=1) > 2).mean())
    assert percent > 50 and state.preprocessing.find(ClipLength) is state.maps[0]
    assert f"{percent:.0f} % of them are long: 1 % of the budget" in result_lines(steps, state)
    lost = prepare(
        steps,
        lambda step, *given: None if step.name == LongRows.name else measured(step, *given),
        steps.start(None),
    )
    assert lost.lost == ("long rows",) and not lost.preprocessing.find(ClipLength)
    assert "the count of long rows was interrupted after payment" in notes(steps, lost)
    assert "a noisy count of long rows" not in releases(steps, lost)
    few = a_study("epsilon 8.0, 300 x 4, values=False, as_given=False, usual")
    steps = plan(case_of(few.config, few.facts), (LongRows(), *STEPS))
    assert "not clipped: 300 rows are too few at this budget" in plan_lines(steps)
