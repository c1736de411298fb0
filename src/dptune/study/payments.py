"""The payments of one study, found again in the ledger after a crash.

A study reserves everything it plans before it begins, so that nobody can take it away half way.
Each payment carries the study's name, so the ledger alone says what was reserved, what may have
touched rows, and what is done; the run folder only adds the results.
"""

from collections.abc import Callable, Iterable, Sequence

from dptune.errors import DptuneError, FolderProblem, InvalidInput
from dptune.ledger import Ledger, Payment, State
from dptune.privacy import Event, Price, Receipt, total


class Payments:
    """What `study` pays for the rows of `fingerprint`."""

    def __init__(self, ledger: Ledger, study: str, fingerprint: str) -> None:
        self.ledger, self._study, self._fingerprint = ledger, study, fingerprint

    def reserve(self, planned: Sequence[tuple[str, Event]], slack: float, *, fixed: bool) -> None:
        """Hold everything that is not held yet, or nothing of it; `fixed` where it will be run
        exactly as it is planned."""
        held = self._mine()
        for payment in list(held.values())[:1]:  # all of a study are for the same rows
            self.ledger.must_be_for(payment.number, self._fingerprint)
        new = [(self._purpose(label), event) for label, event in planned if label not in held]
        if new:
            self.ledger.reserve_all(
                new, fingerprint=self._fingerprint, slack=slack or None, fixed=fixed
            )

    def give_back(self) -> None:
        """Void what was held and never begun; of a schedule that was fixed, nothing comes back."""
        if self.ledger.state().fixed:
            return
        reason = "the study ended before it began this"
        while held := self._receipts_of("reserved"):
            try:
                return self.ledger.void_all(held, reason=reason)
            except InvalidInput:  # a copy of the study has just begun one of them: look again
                continue

    def hold_nothing(self) -> bool:
        """Whether the ledger can be read and knows nothing of this study."""
        try:
            return not self._mine()
        except DptuneError:
            return False

    def begin(self, label: str, event: Event) -> Receipt | None:
        """The receipt to open rows with, for exactly `event`, which may cost no more than was held.

        None where somebody began it before: then it may have touched rows, and must not again.
        """
        payment, receipt = self._payment(label)
        if payment.state != "reserved":
            return None
        try:
            if event != payment.event:
                receipt = self.ledger.exchange(receipt, event)
            self.ledger.start(receipt)
        except InvalidInput:
            if self.ledger.state().payments[payment.number - 1].state == "reserved":
                raise  # too dear
            return None  # somebody was quicker
        return receipt

    def must_be_begun(self, labels: Iterable[str]) -> None:
        """Refuse results that the ledger knows nothing of."""
        mine = self._mine()
        for label in labels:
            if label not in mine or mine[label].state == "reserved":
                raise FolderProblem(
                    f"there is a result of {label!r}, but {self.ledger.address} says that it never "
                    "began: an older copy of the ledger was put back, or the folder is another "
                    "study's. Put the newest ledger back; without it, nothing may be promised."
                )

    def settle(self, label: str) -> None:
        """Its result is on disk; what is lost stays as it is."""
        payment, receipt = self._payment(label)
        if payment.state == "started":
            try:
                self.ledger.commit(receipt)
            except InvalidInput:
                if self._payment(label)[0].state != "committed":  # by a copy of the study
                    raise

    def receipt(self, label: str) -> Receipt:
        """For rows that were paid for before."""
        return self._payment(label)[1]

    def events(self, *, but: Callable[[str], bool] = lambda label: False) -> list[Event]:
        """What was paid for, except where the label is to be left out."""
        return [payment.event for label, payment in self._listed() if not but(label)]

    def begun(self) -> list[Payment]:
        """What may have touched rows so far."""
        return [payment for _, payment in self._listed() if payment.state != "reserved"]

    def used(self) -> Price:
        return total(payment.price for payment in self.begun())

    def others(self) -> int:
        """How many payments of the ledger are not this study's."""
        state = self.ledger.state()
        return len(state.counted) - len(self._listed(state))

    def _payment(self, label: str) -> tuple[Payment, Receipt]:
        state = self.ledger.state()
        try:
            payment = self._mine(state)[label]
            return payment, state.receipt(payment)
        except KeyError:
            raise FolderProblem(self._lacks(label, state)) from None

    def _lacks(self, label: str, state: State) -> str:
        lacks = f"{self.ledger.address} holds no payment for {label!r} of study {self._study}"
        if any(payment.purpose == self._purpose(label) for payment in state.payments):
            return (
                f"{lacks} any more: it was given back. A copy of this folder was resumed and has "
                "finished the study, or somebody voided the payment; go on with that copy, or "
                "resume this one again."
            )
        return f"{lacks}: this is another ledger than the study began with."

    def _receipts_of(self, what: str) -> list[Receipt]:
        state = self.ledger.state()
        return [state.receipt(p) for p in self._mine(state).values() if p.state == what]

    def _mine(self, state: State | None = None) -> dict[str, Payment]:
        return dict(self._listed(state))

    def _listed(self, state: State | None = None) -> list[tuple[str, Payment]]:
        """With their labels; a payment that was exchanged or given back does not count."""
        end = self._purpose("")
        return [
            (payment.purpose.removesuffix(end), payment)
            for payment in (state or self.ledger.state()).counted
            if payment.purpose.endswith(end)
        ]

    def _purpose(self, label: str) -> str:
        return f"{label} (study {self._study})"
