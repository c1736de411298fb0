"""dptune: private training and hyperparameter search inside one privacy budget.

These are the public names; nothing else is promised. They load on first use, so that
`import dptune` stays light.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dptune.engines.linear import LinearEngine as LinearEngine
    from dptune.engines.linear import LinearModel as LinearModel
    from dptune.engines.randomness import Randomness as Randomness
    from dptune.engines.rows import DiskRows as DiskRows
    from dptune.engines.rows import MemoryRows as MemoryRows
    from dptune.engines.rows import write_chunks as write_chunks
    from dptune.errors import BudgetExceeded as BudgetExceeded
    from dptune.errors import DptuneError as DptuneError
    from dptune.fingerprint import fingerprint_arrays as fingerprint_arrays
    from dptune.fingerprint import fingerprint_file as fingerprint_file
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
    from dptune.split import Sweep as Sweep
    from dptune.split import split_budget as split_budget

__version__ = "0.1.0"

_HOMES = {
    "engines.linear": ("LinearEngine", "LinearModel"),
    "engines.randomness": ("Randomness",),
    "engines.rows": ("DiskRows", "MemoryRows", "write_chunks"),
    "errors": ("BudgetExceeded", "DptuneError"),
    "fingerprint": ("fingerprint_arrays", "fingerprint_file"),
    "ledger": ("Ledger",),
    "plan": ("TrainPlan",),
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
    ),
    "split": ("Sweep", "split_budget"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
__all__ = sorted(_HOME_OF)  # noqa: PLE0605


def __getattr__(name: str) -> object:
    if name in _HOME_OF:
        return getattr(import_module(f"dptune.{_HOME_OF[name]}"), name)
    raise AttributeError(f"module 'dptune' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
