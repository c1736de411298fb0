"""The ledger of a private data set: what was paid for, and what is left."""

from dptune.ledger.chain import BudgetChange as BudgetChange
from dptune.ledger.chain import Payment as Payment
from dptune.ledger.chain import State as State
from dptune.ledger.chain import Version as Version
from dptune.ledger.ledger import Ledger as Ledger
