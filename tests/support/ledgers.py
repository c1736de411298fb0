"""A fresh ledger, and the rows that it is about."""

from dptune.ledger import Ledger
from dptune.privacy import Budget

ROWS = "digest of the rows"


def new_ledger(address: str, budget: Budget) -> Ledger:
    ledger = Ledger.create(address, budget, dataset="patients")
    ledger.declare(ROWS, reason="first version")
    return ledger
