"""A finished run with its engine, read from its folder. No private row is needed."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dptune.columns import Encoding
from dptune.data.rows import CLASSES_UNTIL_BOUGHT
from dptune.errors import DptuneError, FolderProblem
from dptune.plain_data import UNFIT
from dptune.preparation.pipeline import prepare
from dptune.preparation.step import Decision, State, Step
from dptune.report.summary import Summary
from dptune.search.base import Situation
from dptune.search.picture import Picture
from dptune.search.trial import Trial
from dptune.study.finished_run import FinishedRun
from dptune.study.outline import Outline
from dptune.study.paid_statistics import read_statistic
from dptune.study.planning import read_config
from dptune.study.runner import read_census
from dptune.study.trained_model import TrainedModel, load_from


@dataclass(frozen=True)
class Record:
    """A finished run with its engine, so that what its search knew can be shown."""

    summary: Summary
    outline: Outline
    model: TrainedModel
    situation: Situation  # all that the search knew when it chose the final run

    @staticmethod
    def read(path: str | Path, *, own_code: bool = False) -> "Record":
        """The record of the run in this folder, which must be finished; for `own_code` see load."""
        summary = Summary.read(path)
        folder, result = summary.folder, summary.result
        model, config = load_from(folder, own_code=own_code), read_config(folder, own_code=own_code)
        census = read_census(folder)
        try:
            facts, classes = model.facts(result["data"]["rows"]), None
            if config.preparation.class_share:  # planned before it was known how many there are
                facts = replace(facts, outputs=CLASSES_UNTIL_BOUGHT, secret_classes=True)
                classes = len(model.classes)
            outline = Outline(
                config=config,
                data=facts,
                classes=classes,
                reused=bool(config.reuse),
                set_aside=result.get("set_aside", 0.0),  # which earlier versions did not do
            )
            outline = outline.prepared(_prepared(outline, folder, model))
            situation = outline.situation(outline.schedule.final, model.trials, census)
        except FolderProblem:  # which says what to do about another file
            raise
        except (*UNFIT, DptuneError) as error:
            raise FolderProblem(
                f"{folder.path / 'result.json'} is missing or damaged ({error}); write it again "
                f"with: dptune resume {folder.path}"
            ) from None
        return Record(summary, outline, model, situation)

    @property
    def folder(self) -> FinishedRun:
        return self.summary.folder

    @property
    def result(self) -> dict[str, Any]:
        return self.summary.result

    @property
    def final(self) -> Trial:
        return self.summary.final

    @property
    def picture(self) -> Picture | None:
        """What the method shows of its search, where it has a view of its own."""
        search, final = self.outline.config.search, self.outline.schedule.final
        return search.picture(self.situation, final.mu)


def _prepared(outline: Outline, folder: FinishedRun, model: TrainedModel) -> State:
    """As the search knew it, from what was paid for."""
    plan, encoding = outline.preparation, model.preprocessing.encoding
    start = plan.start(None if encoding is None else Encoding(encoding.columns))

    def stored(step: Step, decision: Decision, state: State) -> Any:
        return read_statistic(folder, plan, step, state)

    return prepare(plan, stored, start)
