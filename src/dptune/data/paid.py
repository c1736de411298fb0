"""Private rows open only with a receipt of a payment that was started."""

from dptune.errors import InvalidInput
from dptune.privacy import Receipt


def must_be_paid(receipt: object, fingerprint: str) -> None:
    """Ask the ledger that gave the receipt whether it is in force for rows of this fingerprint."""
    if not isinstance(receipt, Receipt):
        raise InvalidInput(
            "private rows open with the Receipt of an event that was paid for (Ledger.reserve "
            f"gives one); got {type(receipt).__name__}."
        )
    if receipt.issuer is None:
        raise InvalidInput(
            "private rows open with a Receipt that a ledger gave, and this one was made by hand, "
            "or copied or sent without its ledger; get it again with "
            f"Ledger.receipt({receipt.payment})."
        )
    receipt.issuer.must_be_in_force(receipt, fingerprint)
