"""How a ledger's time grows with its entries, and how much of a study's time is spent in it."""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from dptune.accounting import Budget
from dptune.data import Data
from dptune.ledger import Ledger
from dptune.privacy import FullBatchRun
from dptune.search import RandomSearch, Space
from dptune.study import tune

SIZES = (100, 100_000)  # entries
RESERVATIONS = 50  # timed at every size
AT_ONCE = 2_000  # while the ledger is filled
TRIALS, ROWS, COLUMNS, STEPS = 1_000, 50, 3, (2, 5)
_TINY = FullBatchRun(steps=1, noise_multiplier=1e6)


def measure(report: Callable[[str], None], address: str = "") -> dict[str, Any]:
    """One ledger from its first entries to its last, with a study in between. It is a new one at
    `address`, or in a temporary file."""
    draws = np.random.default_rng(0)
    data = Data(draws.normal(size=(ROWS, COLUMNS)), np.arange(ROWS) % 2, name="random rows")
    with tempfile.TemporaryDirectory(prefix="dptune-") as folder:
        ledger = Ledger.create(
            address or str(Path(folder, "ledger.db")),
            Budget(8.0, 1e-5),
            dataset=data.name,
            fingerprint=data.fingerprint,
        )
        small = _reserving(ledger, data, SIZES[0], report)
        study = _study(ledger, address or ledger.address, data, report)
        large = _reserving(ledger, data, SIZES[1], report)
    for size in (small, large):
        size["ratio"] = size["reserve_seconds"] / small["reserve_seconds"]
    return {"sizes": [small, large], "study": study}


def _reserving(
    ledger: Ledger, data: Data, entries: int, report: Callable[[str], None]
) -> dict[str, Any]:
    """The median time of one reservation in a ledger that has so many entries already."""
    report(f"filling a ledger with {entries:,} entries")
    missing = entries - ledger.verify().entries
    while missing > 0:
        now = min(missing, AT_ONCE)
        ledger.reserve_all([("filler", _TINY)] * now, fingerprint=data.fingerprint)
        missing -= now
    report(f"reserving beside {entries:,} entries")
    times = []
    for _ in range(RESERVATIONS):
        began = time.perf_counter()
        ledger.reserve(_TINY, purpose="timed", fingerprint=data.fingerprint)
        times.append(time.perf_counter() - began)
    began = time.perf_counter()
    ledger.verify()
    verified = time.perf_counter() - began
    return {"entries": entries, "reserve_seconds": median(times), "verify_seconds": verified}


def _study(
    ledger: Ledger, address: str, data: Data, report: Callable[[str], None]
) -> dict[str, Any]:
    """A study so small that little but the ledger could take time."""
    report(f"a study of {TRIALS:,} trials")
    before = ledger.state().entries
    with _stopwatch() as in_ledger:
        began = time.perf_counter()
        tune(
            data,
            budget=Budget(1.0, 1e-5),
            search=RandomSearch(trials=TRIALS),
            space=Space(steps=STEPS),
            ledger=address,
        )
        seconds = time.perf_counter() - began
        inside = in_ledger()
    return {
        "trials": TRIALS,
        "entries": ledger.state().entries - before,
        "seconds": seconds,
        "ledger_seconds": inside,
        "share": inside / seconds,
    }


@contextmanager
def _stopwatch() -> Iterator[Callable[[], float]]:
    """The seconds that all ledgers together spent in their public methods, so far."""
    total, depth = 0.0, 0

    def timed(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def wrapper(*args: Any, **more: Any) -> Any:
            nonlocal total, depth
            began, depth = time.perf_counter(), depth + 1
            try:
                return method(*args, **more)
            finally:
                depth -= 1
                if not depth:  # methods call each other
                    total += time.perf_counter() - began

        return wrapper

    # `open` is left out: all it does is to verify.
    plain = {
        name: method
        for name, method in vars(Ledger).items()
        if callable(method) and not name.startswith("_")
    }
    try:
        for name, method in plain.items():
            setattr(Ledger, name, timed(method))
        yield lambda: total
    finally:
        for name, method in plain.items():
            setattr(Ledger, name, method)
