"""Everything that can go wrong, named so that the reader knows what to do next.

One base class; every message says what was asked, what was found and what to do. `exit_code`
is what the command line returns: 2 where the input is at fault, 3 where a budget would be
exceeded, 1 for everything else. What a message quotes from a file or an argument is made printable.
"""

from dptune.printable import printable_lines

_LONGEST = 6_000  # characters; only what was quoted makes a message longer


def _shortened(message: str) -> str:
    """Without the middle, where that is needed: the end says what to do."""
    beyond = len(message) - _LONGEST
    if beyond <= 0:
        return message
    half = _LONGEST // 2
    return f"{message[:half]}[... {beyond:,} characters left out ...]{message[-half:]}"


class DptuneError(Exception):
    """Base of every error that dptune raises on purpose."""

    exit_code = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(_shortened(printable_lines(message)))


class InvalidInput(DptuneError, ValueError):
    """A value outside what the function can take; nothing was done."""

    exit_code = 2


class OwnCodeProblem(InvalidInput):
    """A function of the user's cannot be imported, fails, or makes something else than before: no
    file of ours is damaged."""


class UnpricedEvent(DptuneError):
    """No accountant here can bound the privacy cost of this event, so it must not run."""

    exit_code = 2


class BudgetExceeded(DptuneError):
    """The request does not fit in what is left of the budget; nothing was spent."""

    exit_code = 3


class LedgerNotFound(DptuneError):
    """There is no ledger at this address."""

    exit_code = 2


class LedgerExists(DptuneError):
    """A ledger is there already; opening a new one over it would forget what was spent."""

    exit_code = 2


class WrongDataset(DptuneError):
    """The rows at hand are not a declared version of the data set this ledger pays for."""

    exit_code = 2


class LedgerCorrupt(DptuneError):
    """The ledger is torn or was edited: its numbers cannot be trusted, so it is refused."""


class LedgerLocked(DptuneError):
    """Another process held the ledger for longer than we were willing to wait."""


class LedgerUnavailable(DptuneError):
    """The ledger's store cannot be reached or written: server down, disk full, no permission."""


class MissingExtra(DptuneError):
    """The feature needs an optional package that is not installed."""


class FolderProblem(DptuneError):
    """A run folder cannot be written or is damaged; the ledger still knows what was spent."""
