"""The ledger of a private data set: what was paid for, and what is left."""

from dptune.ledger.balance import Balance as Balance
from dptune.ledger.ledger import Ledger as Ledger
from dptune.ledger.state import BudgetChange as BudgetChange
from dptune.ledger.state import Payment as Payment
from dptune.ledger.state import State as State
from dptune.ledger.state import Version as Version
