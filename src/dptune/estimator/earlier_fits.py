"""Which fits of this process share rows, and what they cost together.

Rows are compared by hashes under a key that the process draws and forgets; neither is ever stored
or released. Labels are ignored: a row that two fits have with different labels pays for both.
Unlike a ledger, this sees one process only, and only rows given as the same numbers.
"""

import math
import secrets
import threading
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune import accounting, gdp
from dptune.accounting import Guarantee
from dptune.data.copies import row_hashes
from dptune.privacy import Price, total
from dptune.rounding import cost, probability

_Hashes = NDArray[np.uint64]


class EarlierFits:
    """All fits so far: what each cost, and hashes of its rows."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._fits: dict[bytes, tuple[_Hashes, list[Price]]] = {}
        self._lock = threading.Lock()

    def add(self, features: NDArray[Any], price: Price) -> list[Price]:
        """Record a fit of this price. Returns the prices of earlier fits that share a row with
        it."""
        hashes = np.unique(row_hashes(features, self._key))
        same_rows = sha256(hashes.tobytes()).digest()  # kept once, however often fitted
        with self._lock:
            shared = [
                earlier
                for others, prices in self._fits.values()
                if np.intersect1d(hashes, others, assume_unique=True).size
                for earlier in prices
            ]
            self._fits.setdefault(same_rows, (hashes, []))[1].append(price)
        return shared


OF_THIS_PROCESS = EarlierFits()


def add_earlier_fits(promise: Guarantee, earlier: Sequence[Price]) -> Guarantee:
    """The guarantee of one fit, with what it and `earlier` fits on some of its rows cost together
    for a row that is in all of them."""
    if not earlier:
        return promise
    spent = total([*earlier, Price(promise.mu**2, promise.slack)])
    finite = spent.mu <= gdp.LARGEST_MU and spent.slack < promise.delta
    epsilon = accounting.epsilon(spent, promise.delta) if finite else math.inf
    together = f"({cost(epsilon)}, {probability(promise.delta)})-differential privacy"
    fits = "an earlier fit" if len(earlier) == 1 else f"{len(earlier)} earlier fits"
    return replace(
        promise,
        public_facts=(*promise.public_facts, "that earlier fits in this process share rows"),
        caveats=(
            *promise.caveats,
            f"rows of this fit were also in {fits} in this process; all of them together promise "
            f"{together if finite else 'nothing'}, and none covers an exact score on such rows",
        ),
    )
