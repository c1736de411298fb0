"""A finished run, read from its folder. No private row is needed: all of a folder may be shown."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dptune.data.preprocess import Preprocessing
from dptune.data.rows import CLASSES_UNTIL_BOUGHT
from dptune.errors import DptuneError, FolderProblem
from dptune.ledger.store import open_store
from dptune.plain_data import UNFIT
from dptune.search.base import Situation
from dptune.search.picture import Picture
from dptune.search.trial import Trial
from dptune.study.config import Config
from dptune.study.finished_run import FinishedRun
from dptune.study.outline import Outline
from dptune.study.planning import read_config
from dptune.study.prepare import Prepared, prepare
from dptune.study.runner import read_census, read_figure
from dptune.study.trained_model import TrainedModel, load_from


@dataclass(frozen=True)
class Record:
    """What a run did and found. `result` is its result.json."""

    folder: FinishedRun
    outline: Outline
    model: TrainedModel
    final: Trial
    situation: Situation  # all that the search knew when it chose the final run
    result: dict[str, Any]

    @staticmethod
    def read(path: str | Path, *, own_code: bool = False) -> "Record":
        """The record of the run in this folder, which must be finished; for `own_code` see load."""
        folder = FinishedRun.open(path)
        model, config = load_from(folder, own_code=own_code), read_config(folder, own_code=own_code)
        census = read_census(folder)
        _must_promise_the_budget(folder, model, config)
        try:
            result = folder.result
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
            outline = _prepared(outline, folder, model).known_to(outline)
            final = Trial.from_dict(result["final"])
            situation = outline.situation(outline.final, model.trials, census)
        except (*UNFIT, DptuneError) as error:
            raise FolderProblem(
                f"{folder.path / 'result.json'} is missing or damaged ({error}); write it again "
                f"with: dptune resume {folder.path}"
            ) from None
        return Record(folder, outline, model, final, situation, result)

    @property
    def objective(self) -> str:
        """What was optimised, in words: not always what was asked."""
        if self.outline.weighs_rows and self.final.plan.class_weights is None:
            return "every row counts alike, for want of counts that tell the classes apart"
        return self.outline.objective

    @property
    def picture(self) -> Picture | None:
        """What the method shows of its search, where it has a view of its own."""
        search, final = self.outline.config.search, self.outline.final
        return search.picture(self.situation, final.mu)

    @property
    def ledger(self) -> str:
        """Where to see what was paid, without password; LEDGER in a published folder, which does
        not say where it lies."""
        named = self.outline.config.ledger
        if self.result.get("out", "") is None:
            return "LEDGER"
        return open_store(named).shown if named else str(self.folder.path / "ledger.db")


def _must_promise_the_budget(folder: FinishedRun, model: TrainedModel, config: Config) -> None:
    """Refuse a promise of less than what the study was asked to spend, which run.toml says under a
    digest of its own."""
    promised, asked = model.guarantee, config.budget
    if folder.has_digests and (promised.epsilon < asked.epsilon or promised.delta != asked.delta):
        raise FolderProblem(
            f"{folder.path / 'guarantee.json'} promises epsilon {promised.epsilon:g} at delta "
            f"{promised.delta:g}, and run.toml says that the study spent epsilon "
            f"{asked.epsilon:g} at delta {asked.delta:g}, so one of them is damaged. Put the "
            "folder back from a backup."
        )


def _prepared(outline: Outline, folder: FinishedRun, model: TrainedModel) -> Prepared:
    """As the search knew it, from what was paid for."""
    unit_rows, encoding = outline.config.preparation.unit_rows, model.preprocessing.encoding
    plain = Preprocessing(unit_rows=unit_rows, encoding=encoding)
    return prepare(outline, plain, lambda label, _, shape: read_figure(folder, label, shape))
