"""The ledger of a private data set: its payments, and the budget that is left."""

from typing import TYPE_CHECKING

from dptune.lazy import lazy_names

if TYPE_CHECKING:
    from dptune.ledger.balance import Balance as Balance
    from dptune.ledger.ledger import Ledger as Ledger
    from dptune.ledger.state import BudgetChange as BudgetChange
    from dptune.ledger.state import Payment as Payment
    from dptune.ledger.state import State as State
    from dptune.ledger.state import Version as Version
else:
    __getattr__, __all__ = lazy_names(
        __name__,
        {
            "balance": ("Balance",),
            "ledger": ("Ledger",),
            "state": ("BudgetChange", "Payment", "State", "Version"),
        },
    )
