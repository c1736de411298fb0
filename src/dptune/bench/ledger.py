"""How a ledger's time grows with its entries, and the share of a study's time that it takes."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from dptune.accounting import Budget
from dptune.data import Data
from dptune.errors import InvalidInput
from dptune.ledger import Ledger
from dptune.privacy import FullBatchRun
from dptune.scratch import scratch_folder
from dptune.search import RandomSearch, Space
from dptune.study import tune

SIZES = (100, 100_000)  # entries
RESERVATIONS = 50  # timed at every size
AT_ONCE = 2_000  # reservations in one call while the ledger is filled
TRIALS, ROWS, COLUMNS, STEPS = 1_000, 50, 3, (2, 5)
_TINY = FullBatchRun(steps=1, noise_multiplier=1e6)


def measure(report: Callable[[str], None], addresses: Sequence[str] = ()) -> dict[str, Any]:
    """Time payments from a small and a large ledger in turn; before that, a study pays from the
    large one. The ledgers are made at two `addresses`, or in temporary files."""
    if addresses and len(addresses) != len(SIZES):
        raise InvalidInput(
            f"this benchmark times two ledgers; got {len(addresses)}. Give two addresses, or none."
        )
    draws = np.random.default_rng(0)
    data = Data(draws.normal(size=(ROWS, COLUMNS)), np.arange(ROWS) % 2, name="random rows")
    with scratch_folder() as folder:
        places = list(addresses) or [str(Path(folder, name)) for name in ("small.db", "large.db")]
        ledgers = [
            Ledger.create(place, Budget(8.0, 1e-5), dataset=data.name, fingerprint=data.fingerprint)
            for place in places
        ]
        study = _study(ledgers[-1], places[-1], data, report)
        for ledger, entries in zip(ledgers, SIZES, strict=True):
            report(f"filling a ledger with {entries:,} entries")
            _fill(ledger, data, entries)
        report(f"reserving after {' and '.join(f'{entries:,}' for entries in SIZES)} entries")
        times: list[list[float]] = [[] for _ in ledgers]
        for _ in range(RESERVATIONS):
            for ledger, seconds in zip(ledgers, times, strict=True):
                seconds.append(_seconds(lambda: _reserve(ledger, data)))  # noqa: B023
        sizes = [
            {
                "entries": entries,
                "reserve_seconds": median(seconds),
                "ratio": median(seconds) / median(times[0]),
                "verify_seconds": _seconds(ledger.verify),
            }
            for ledger, entries, seconds in zip(ledgers, SIZES, times, strict=True)
        ]
    return {"sizes": sizes, "study": study}


def _fill(ledger: Ledger, data: Data, entries: int) -> None:
    missing = entries - ledger.state().entries
    while missing > 0:
        now = min(missing, AT_ONCE)
        ledger.reserve_all([("filler", _TINY)] * now, fingerprint=data.fingerprint)
        missing -= now


def _reserve(ledger: Ledger, data: Data) -> None:
    ledger.reserve(_TINY, purpose="timed", fingerprint=data.fingerprint)


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _study(
    ledger: Ledger, address: str, data: Data, report: Callable[[str], None]
) -> dict[str, Any]:
    """Time a study that is so small that the ledger takes most of the time."""
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
    """A clock of the seconds that all ledgers together spent in their public methods."""
    total, depth = 0.0, 0

    def add_clock(method: Callable[..., Any]) -> Callable[..., Any]:
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

    # `open` is excluded: it only verifies.
    plain = {
        name: method
        for name, method in vars(Ledger).items()
        if callable(method) and not name.startswith("_")
    }
    try:
        for name, method in plain.items():
            setattr(Ledger, name, add_clock(method))
        yield lambda: total
    finally:
        for name, method in plain.items():
            setattr(Ledger, name, method)
