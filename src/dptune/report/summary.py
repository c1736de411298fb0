"""A finished run as its folder describes it, read without the code of its engine."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dptune.accounting import Budget
from dptune.accounting.split import Slot
from dptune.engines.linear import LinearEngine
from dptune.errors import DptuneError, FolderProblem
from dptune.ledger.store import open_store
from dptune.plain_data import UNFIT
from dptune.search.trial import Trial
from dptune.study.finished_run import FinishedRun
from dptune.study.model_facts import ModelFacts, read_facts
from dptune.study.outline import objective
from dptune.study.planning import read_asked


@dataclass(frozen=True)
class Summary:
    """What a run was asked and its results: `asked` is its run.toml, `result` its result.json."""

    folder: FinishedRun
    asked: dict[str, Any]
    budget: Budget
    model: ModelFacts
    final: Trial
    result: dict[str, Any]

    @staticmethod
    def read(path: str | Path) -> "Summary":
        """Read the run in this folder, which must be finished."""
        folder = FinishedRun.open(path)
        asked, (model, *_) = read_asked(folder), read_facts(folder)
        folder.must_be_as_left()
        try:
            budget = Budget(**asked["budget"])
            final = Trial.from_dict(folder.result["final"])
        except (*UNFIT, DptuneError) as error:
            raise FolderProblem(
                f"{folder.path / 'result.json'} is missing or damaged ({error}); write it again "
                f"with: dptune resume {folder.path}"
            ) from None
        summary = Summary(folder, asked, budget, model, final, folder.result)
        summary._must_promise_the_budget()
        return summary

    def _must_promise_the_budget(self) -> None:
        """Refuse a promise of less than what the study was asked to spend, which run.toml says
        under a digest of its own."""
        promised, asked, folder = self.model.guarantee, self.budget, self.folder
        less = promised.epsilon < asked.epsilon or promised.delta != asked.delta
        if folder.has_digests and less:
            raise FolderProblem(
                f"{folder.path / 'guarantee.json'} promises epsilon {promised.epsilon:g} at delta "
                f"{promised.delta:g}, and run.toml says that the study spent epsilon "
                f"{asked.epsilon:g} at delta {asked.delta:g}, so one of them is damaged. Put the "
                "folder back from a backup."
            )

    @property
    def trains(self) -> str:
        """What was trained, in words; version 0.1 trained linear models only."""
        return str(self.result.get("trains", LinearEngine().traits.trains))

    @property
    def slots(self) -> tuple[Slot, ...] | None:
        """How the budget was split; None where an older version did not store it."""
        stored = self.result.get("paid_for")
        return None if stored is None else tuple(Slot(**one) for one in stored)

    @property
    def objective(self) -> str:
        """What was optimised, in words; not always what was asked."""
        weighs = self.asked["run"].get("balance") == "classes"
        return objective(weighs=weighs, weighted=self.final.plan.class_weights is not None)

    @property
    def ledger(self) -> str:
        """Where to see what was paid, without password; LEDGER in a published folder, which does
        not say where it lies."""
        named = self.asked["run"].get("ledger")
        if self.result.get("out", "") is None:
            return "LEDGER"
        return open_store(named).shown if named else str(self.folder.path / "ledger.db")
