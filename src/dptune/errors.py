"""All errors of dptune.

They share one base class, and every message says what was asked, what was found and what to do.
The command line returns `exit_code`: 2 for invalid input, 3 if a budget would be exceeded, 1 for
everything else. Quotes from files and arguments are made printable.
"""

from dptune.printable import printable_lines

_LONGEST = 6_000  # characters; only quotes make a message longer


def _shorten(message: str) -> str:
    """The message without its middle if it is too long. Its end, which says what to do, stays."""
    beyond = len(message) - _LONGEST
    if beyond <= 0:
        return message
    half = _LONGEST // 2
    return f"{message[:half]}[... {beyond:,} characters left out ...]{message[-half:]}"


class DptuneError(Exception):
    """Base of every error that dptune raises on purpose."""

    exit_code = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(_shorten(printable_lines(message)))


class InvalidInput(DptuneError, ValueError):
    """A value that the function does not accept; nothing was done."""

    exit_code = 2


class OwnCodeProblem(InvalidInput):
    """A user's function cannot be imported, fails, or returns something else than before. No file
    of a run is damaged."""


class UnpricedEvent(DptuneError):
    """No accountant here can bound the privacy cost of this event, so it must not run."""

    exit_code = 2


class BudgetExceeded(DptuneError):
    """The request does not fit in the rest of the budget; nothing was spent."""

    exit_code = 3


class LedgerNotFound(DptuneError):
    """There is no ledger at this address."""

    exit_code = 2


class LedgerExists(DptuneError):
    """A ledger already exists; replacing it would lose what was spent."""

    exit_code = 2


class WrongDataset(DptuneError):
    """The rows are not a declared version of this ledger's data set."""

    exit_code = 2


class LedgerCorrupt(DptuneError):
    """The ledger is damaged or was edited: its numbers cannot be trusted, so it is refused."""


class LedgerLocked(DptuneError):
    """Another process held the ledger for longer than the time limit."""


class LedgerUnavailable(DptuneError):
    """The ledger's store cannot be reached or written: server down, disk full, no permission."""


class MissingExtra(DptuneError):
    """The feature needs an optional package that is not installed."""


class FolderProblem(DptuneError):
    """A run folder cannot be written or is damaged; the ledger still records what was spent."""
