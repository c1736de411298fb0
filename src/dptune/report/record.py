"""A finished run, read from its folder. No private row is needed: all of a folder may be shown."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dptune.data.preprocess import Preprocessing
from dptune.errors import DptuneError, FolderProblem
from dptune.ledger.store import open_store
from dptune.plain_data import UNFIT
from dptune.search.base import Situation
from dptune.search.picture import Picture
from dptune.search.trial import Trial
from dptune.study.outline import Outline
from dptune.study.planning import read_config
from dptune.study.prepare import Prepared, prepare
from dptune.study.run_folder import RunFolder
from dptune.study.runner import read_census, read_figure
from dptune.study.trained_model import TrainedModel, load


@dataclass(frozen=True)
class Record:
    """What a run did and found. `result` is its result.json."""

    folder: RunFolder
    outline: Outline
    model: TrainedModel
    final: Trial
    situation: Situation  # all that the search knew when it chose the final run
    result: dict[str, Any]

    @staticmethod
    def read(path: str | Path) -> "Record":
        """The record of the run in this folder, which must be finished."""
        model = load(path)
        folder = RunFolder.open(path)
        config, census = read_config(folder), read_census(folder)
        try:
            result = folder.read_json("result.json") or {}
            outline = Outline(
                config=config,
                data=model.facts(result["data"]["rows"]),
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
        """Where to see what was paid, without password."""
        named = self.outline.config.ledger
        return open_store(named).shown if named else str(self.folder.path / "ledger.db")


def _prepared(outline: Outline, folder: RunFolder, model: TrainedModel) -> Prepared:
    """As the search knew it, from what was paid for."""
    unit_rows, encoding = outline.config.preparation.unit_rows, model.preprocessing.encoding
    plain = Preprocessing(unit_rows=unit_rows, encoding=encoding)
    return prepare(outline, plain, lambda label, _, shape: read_figure(folder, label, shape))
