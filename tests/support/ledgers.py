"""A fresh ledger, the rows that it is about, and a receipt where payment is not what is tested."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune.accounting import Budget
from dptune.data import Data
from dptune.ledger import Ledger
from dptune.privacy import FullBatchRun, Price, Receipt

ROWS = "digest of the rows"


def new_ledger(address: str, budget: Budget) -> Ledger:
    ledger = Ledger.create(address, budget, dataset="patients")
    ledger.declare(ROWS, reason="first version")
    return ledger


class Voucher:
    """Stands for a ledger where it is not the payment that is tested."""

    def must_be_in_force(self, receipt: Receipt, fingerprint: str) -> None:
        pass


PAID = Receipt(
    *(1, "data", FullBatchRun(steps=1, noise_multiplier=1.0), Price(1.0), "ab"), issuer=Voucher()
)


def table_of(data: Data) -> NDArray[Any]:
    """The private features as they were given."""
    return np.concatenate(list(data.tables_for(PAID)))
