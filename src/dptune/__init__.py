"""dptune: private training and hyperparameter search inside one privacy budget.

These are the public names; nothing else is promised. They load on first use, so that
`import dptune` stays light.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dptune.accounting.split import Sweep as Sweep
    from dptune.accounting.split import split_budget as split_budget
    from dptune.data import Data as Data
    from dptune.data.fingerprint import fingerprint_arrays as fingerprint_arrays
    from dptune.data.fingerprint import fingerprint_file as fingerprint_file
    from dptune.data.preprocess import Preprocessing as Preprocessing
    from dptune.data.rows import DiskRows as DiskRows
    from dptune.data.rows import MemoryRows as MemoryRows
    from dptune.data.rows import write_chunks as write_chunks
    from dptune.data.sources import load_data as load_data
    from dptune.engines.executors import ProcessExecutor as ProcessExecutor
    from dptune.engines.executors import SerialExecutor as SerialExecutor
    from dptune.engines.linear import LinearEngine as LinearEngine
    from dptune.engines.linear import LinearModel as LinearModel
    from dptune.engines.randomness import Randomness as Randomness
    from dptune.errors import BudgetExceeded as BudgetExceeded
    from dptune.errors import DptuneError as DptuneError
    from dptune.estimator import DPLinearClassifier as DPLinearClassifier
    from dptune.ledger import Ledger as Ledger
    from dptune.plan import TrainPlan as TrainPlan
    from dptune.privacy import Budget as Budget
    from dptune.privacy import Composition as Composition
    from dptune.privacy import FullBatchRun as FullBatchRun
    from dptune.privacy import Guarantee as Guarantee
    from dptune.privacy import NoisyCount as NoisyCount
    from dptune.privacy import Price as Price
    from dptune.privacy import PrivateMean as PrivateMean
    from dptune.privacy import RandomStopping as RandomStopping
    from dptune.privacy import Receipt as Receipt
    from dptune.privacy import SampledRun as SampledRun
    from dptune.privacy import SubsetSearch as SubsetSearch
    from dptune.report.card import model_card as model_card
    from dptune.report.plots import search_picture as search_picture
    from dptune.search.base import SearchMethod as SearchMethod
    from dptune.search.grid_search import GridSearch as GridSearch
    from dptune.search.hypo import Hypo as Hypo
    from dptune.search.linear_scaling import LinearScaling as LinearScaling
    from dptune.search.one_step import OneStep as OneStep
    from dptune.search.paper_line import PaperLine as PaperLine
    from dptune.search.private_selection import PrivateSelection as PrivateSelection
    from dptune.search.private_selection import SubsetSelection as SubsetSelection
    from dptune.search.random_search import RandomSearch as RandomSearch
    from dptune.search.score import HeldOutScore as HeldOutScore
    from dptune.search.score import NoisyScore as NoisyScore
    from dptune.search.score import PublicScore as PublicScore
    from dptune.search.score import UnpaidScore as UnpaidScore
    from dptune.search.space import Space as Space
    from dptune.search.unit_noise import UnitNoise as UnitNoise
    from dptune.search.wosm import Wosm as Wosm
    from dptune.study.config import Preparation as Preparation
    from dptune.study.study import StudyResult as StudyResult
    from dptune.study.study import resume as resume
    from dptune.study.study import tune as tune
    from dptune.study.trained_model import TrainedModel as TrainedModel
    from dptune.study.trained_model import load as load

__version__ = "0.2.0.dev0"

_HOMES = {
    "study.config": ("Preparation",),
    "data": ("Data",),
    "data.sources": ("load_data",),
    "engines.linear": ("LinearEngine", "LinearModel"),
    "engines.randomness": ("Randomness",),
    "data.rows": ("DiskRows", "MemoryRows", "write_chunks"),
    "errors": ("BudgetExceeded", "DptuneError"),
    "estimator": ("DPLinearClassifier",),
    "engines.executors": ("ProcessExecutor", "SerialExecutor"),
    "data.fingerprint": ("fingerprint_arrays", "fingerprint_file"),
    "ledger": ("Ledger",),
    "plan": ("TrainPlan",),
    "study.trained_model": ("TrainedModel", "load"),
    "data.preprocess": ("Preprocessing",),
    "privacy": (
        "Budget",
        "Composition",
        "FullBatchRun",
        "Guarantee",
        "NoisyCount",
        "Price",
        "PrivateMean",
        "RandomStopping",
        "Receipt",
        "SampledRun",
        "SubsetSearch",
    ),
    "report.card": ("model_card",),
    "report.plots": ("search_picture",),
    "search.score": ("HeldOutScore", "NoisyScore", "PublicScore", "UnpaidScore"),
    "search.base": ("SearchMethod",),
    "search.grid_search": ("GridSearch",),
    "search.hypo": ("Hypo",),
    "search.linear_scaling": ("LinearScaling",),
    "search.paper_line": ("PaperLine",),
    "search.one_step": ("OneStep",),
    "search.private_selection": ("PrivateSelection", "SubsetSelection"),
    "search.random_search": ("RandomSearch",),
    "search.space": ("Space",),
    "search.unit_noise": ("UnitNoise",),
    "search.wosm": ("Wosm",),
    "accounting.split": ("Sweep", "split_budget"),
    "study.study": ("StudyResult", "resume", "tune"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
__all__ = sorted(_HOME_OF)  # noqa: PLE0605


def __getattr__(name: str) -> object:
    if name in _HOME_OF:
        return getattr(import_module(f"dptune.{_HOME_OF[name]}"), name)
    raise AttributeError(f"module 'dptune' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
