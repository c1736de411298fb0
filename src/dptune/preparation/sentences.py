"""Sentences about preparation, from its decisions and its outcomes."""

from collections.abc import Iterable
from typing import Any

from dptune.preparation.pipeline import Plan
from dptune.preparation.step import Reason, State
from dptune.preparation.words import WORDS, Words, filled

_SILENT = Words()


def plan_lines(plan: Plan) -> list[str]:
    """What will be done, and what not and why: about a line a step."""
    return [line for name in plan.decisions for line in _planned(plan, name)]


def result_lines(plan: Plan, state: State) -> list[str]:
    """What was done."""
    lines: list[str] = []
    for name, decision in plan.decisions.items():
        outcome = state.outcomes.get(name)
        if outcome is None:
            lines += _planned(plan, name)
            continue
        words, values = WORDS.get(name, _SILENT), _values(decision) | dict(outcome.values)
        template = words.results.get(outcome.result)
        if template is None:
            template = words.plans.get(outcome.result, "")
        lines += _filled(template, values)
        lines += _also(words, outcome.also)
    return lines


def notes(plan: Plan, state: State) -> list[str]:
    """What was paid for in vain."""
    lines: list[str] = []
    for name, outcome in state.outcomes.items():
        template = WORDS.get(name, _SILENT).notes.get(outcome.result, "")
        lines += _filled(template, _values(plan[name]))
    return lines


def releases(plan: Plan, state: State | None = None) -> list[str]:
    """The statistics that are released; with a `state`, those that are not lost."""
    kept = [name for name in plan.events if state is None or name not in state.lost]
    return [
        line
        for name in kept
        for line in _filled(WORDS.get(name, _SILENT).releases, _values(plan[name]))
    ]


def _planned(plan: Plan, name: str) -> list[str]:
    decision, words = plan[name], WORDS.get(name, _SILENT)
    if decision.skipped is None:
        template, values = words.plans.get(decision.planned.key, ""), _values(decision)
    else:
        key = decision.skipped.key
        template = words.skipped.get(key, words.skipped.get("", ""))
        values = {"why": decision.skipped, **decision.skipped.values}
    return _filled(template, values) + _also(words, decision.also)


def _values(decision: Any) -> dict[str, Any]:
    return {"share": decision.share, **decision.planned.values}


def _also(words: Words, also: Iterable[Reason]) -> list[str]:
    return [line for each in also for line in _filled(words.plans.get(each.key, ""), each.values)]


def _filled(template: str, values: Any) -> list[str]:
    """Nothing where there is no template."""
    return [filled(template, values)] if template else []
