"""dptune: private training and hyperparameter search inside one privacy budget.

This package exports what a study needs. The rest is in its own modules: `dptune.accounting`,
`dptune.data`, `dptune.engines`, `dptune.errors`, `dptune.export`, `dptune.ledger`,
`dptune.privacy`, `dptune.report` and `dptune.search`. Everything else is internal. Names load on
first use, so that `import dptune` stays light.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from dptune.lazy import lazy_names
from dptune.version import __version__ as __version__

if TYPE_CHECKING:
    from dptune import accounting as accounting
    from dptune import data as data
    from dptune import engines as engines
    from dptune import errors as errors
    from dptune import export as export
    from dptune import ledger as ledger
    from dptune import privacy as privacy
    from dptune import report as report
    from dptune import search as search
    from dptune.accounting import Budget as Budget
    from dptune.accounting import Guarantee as Guarantee
    from dptune.data.data import Data as Data
    from dptune.data.sources import load_data as load_data
    from dptune.engines import HuggingFace as HuggingFace
    from dptune.engines import LinearEngine as LinearEngine
    from dptune.engines import LoRA as LoRA
    from dptune.engines import TorchModule as TorchModule
    from dptune.engines import ZerothOrder as ZerothOrder
    from dptune.errors import BudgetExceeded as BudgetExceeded
    from dptune.errors import DptuneError as DptuneError
    from dptune.estimator import DPLinearClassifier as DPLinearClassifier
    from dptune.estimator import DPLinearRegressor as DPLinearRegressor
    from dptune.ledger import Ledger as Ledger
    from dptune.plan import TrainPlan as TrainPlan
    from dptune.search import HeldOutScore as HeldOutScore
    from dptune.search import LinearScaling as LinearScaling
    from dptune.search import NoisyScore as NoisyScore
    from dptune.search import PaperLine as PaperLine
    from dptune.search import PrivateSelection as PrivateSelection
    from dptune.search import PublicScore as PublicScore
    from dptune.search import RandomSearch as RandomSearch
    from dptune.search import Space as Space
    from dptune.search import UnitNoise as UnitNoise
    from dptune.study import Preparation as Preparation
    from dptune.study import StudyResult as StudyResult
    from dptune.study import TrainedModel as TrainedModel
    from dptune.study import load as load
    from dptune.study import resume as resume
    from dptune.study import tune as tune
else:
    _MODULES = (
        "accounting",
        "data",
        "engines",
        "errors",
        "export",
        "ledger",
        "privacy",
        "report",
        "search",
    )
    _get, __all__ = lazy_names(
        __name__,
        {
            "data": ("Data", "load_data"),
            "engines": ("HuggingFace", "LinearEngine", "LoRA", "TorchModule", "ZerothOrder"),
            "errors": ("BudgetExceeded", "DptuneError"),
            "estimator": ("DPLinearClassifier", "DPLinearRegressor"),
            "ledger": ("Ledger",),
            "plan": ("TrainPlan",),
            "accounting": ("Budget", "Guarantee"),
            "search": (
                "HeldOutScore",
                "LinearScaling",
                "NoisyScore",
                "PaperLine",
                "PrivateSelection",
                "PublicScore",
                "RandomSearch",
                "Space",
                "UnitNoise",
            ),
            "study": (
                "Preparation",
                "StudyResult",
                "TrainedModel",
                "load",
                "resume",
                "tune",
            ),
        },
    )

    def __getattr__(name: str) -> object:
        if name in _MODULES:
            return import_module(f"dptune.{name}")
        if name in _MOVED:
            text = f"dptune.{name} has moved: use dptune.{_MOVED[name]}.{name}"
            # `from dptune import NAME` would replace the text of an AttributeError by its own.
            from_import = sys._getframe(1).f_code.co_name == "_handle_fromlist"
            raise ImportError(text) if from_import else AttributeError(text)
        return _get(name)

    def __dir__() -> list[str]:
        return sorted([*__all__, *_MODULES])


# The names that version 0.1 exported here, by their module of today.
_MOVED = {
    name: module
    for module, names in {
        "accounting": ("Sweep", "split_budget"),
        "data": (
            "DiskRows",
            "MemoryRows",
            "Preprocessing",
            "fingerprint_arrays",
            "fingerprint_file",
            "write_chunks",
        ),
        "engines": ("LinearModel", "ProcessExecutor", "Randomness", "SerialExecutor"),
        "privacy": (
            "Composition",
            "FullBatchRun",
            "NoisyCount",
            "Price",
            "PrivateMean",
            "RandomStopping",
            "Receipt",
            "SampledRun",
            "SubsetSearch",
        ),
        "report": ("model_card", "search_picture"),
        "search": (
            "GridSearch",
            "Hypo",
            "OneStep",
            "SearchMethod",
            "SubsetSelection",
            "UnpaidScore",
            "Wosm",
        ),
    }.items()
    for name in names
}
