"""A fresh ledger, and the rows that it is about."""

from dptune.accounting import Budget
from dptune.ledger import Ledger

ROWS = "digest of the rows"


def new_ledger(address: str, budget: Budget) -> Ledger:
    ledger = Ledger.create(address, budget, dataset="patients")
    ledger.declare(ROWS, reason="first version")
    return ledger
