"""Which fits of this process share rows, and what they cost together.

Rows are compared by hashes under a key that the process draws and forgets; neither is ever stored
or released. Labels do not count: whoever is in one fit with one label and in the next with another
pays for both. Unlike a ledger this sees one process, and only rows that came as the same numbers.
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
    """The fits so far: what each cost, and hashes of its rows."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._fits: dict[bytes, tuple[_Hashes, list[Price]]] = {}
        self._lock = threading.Lock()

    def add(self, features: NDArray[Any], price: Price) -> list[Price]:
        """Note a fit of this price; the prices of those before it that share a row with it."""
        hashes = np.unique(row_hashes(features, self._key))
        same_rows = sha256(hashes.tobytes()).digest()  # kept once, however often fitted
        with self._lock:
            shared = [
                earlier
                for known, prices in self._fits.values()
                if np.intersect1d(hashes, known, assume_unique=True).size
                for earlier in prices
            ]
            self._fits.setdefault(same_rows, (hashes, []))[1].append(price)
        return shared


OF_THIS_PROCESS = EarlierFits()


def beside(promise: Guarantee, earlier: Sequence[Price]) -> Guarantee:
    """The promise of one fit, saying what it and `earlier` ones on some of its rows cost together:
    as much as for a row that is in all of them."""
    if not earlier:
        return promise
    spent = total([*earlier, Price(promise.mu**2, promise.slack)])
    known = spent.mu <= gdp.LARGEST_MU and spent.slack < promise.delta
    epsilon = accounting.epsilon(spent, promise.delta) if known else math.inf
    together = f"({cost(epsilon)}, {probability(promise.delta)})-differential privacy"
    fits = "an earlier fit" if len(earlier) == 1 else f"{len(earlier)} earlier fits"
    return replace(
        promise,
        public_facts=(*promise.public_facts, "that earlier fits in this process share rows"),
        caveats=(
            *promise.caveats,
            f"rows of this fit were also in {fits} in this process; all of them together promise "
            f"{together if known else 'nothing'}, and none covers an exact score on such rows",
        ),
    )
