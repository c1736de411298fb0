"""tune() and resume(): the one place where ledger, data, search and engine meet."""

from typing import TYPE_CHECKING

from dptune.lazy import lazy_names

if TYPE_CHECKING:
    from dptune.study.config import Preparation as Preparation
    from dptune.study.result import StudyResult as StudyResult
    from dptune.study.run_folder import RunFolder as RunFolder
    from dptune.study.study import resume as resume
    from dptune.study.study import tune as tune
    from dptune.study.trained_model import TrainedModel as TrainedModel
    from dptune.study.trained_model import load as load
else:
    __getattr__, __all__ = lazy_names(
        __name__,
        {
            "config": ("Preparation",),
            "result": ("StudyResult",),
            "run_folder": ("RunFolder",),
            "study": ("resume", "tune"),
            "trained_model": ("TrainedModel", "load"),
        },
    )
