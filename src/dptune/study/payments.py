"""The payments of one study, found again in the ledger after a crash.

A study reserves everything it plans before it begins, so that nobody can take it away half way.
Each payment carries the study's name and a label, so the ledger alone says what was reserved, what
may have touched rows, and what is done; the run folder only adds the results.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from dptune.errors import DptuneError, FolderProblem, InvalidInput
from dptune.ledger import Ledger, Payment
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
        new = [(label, event) for label, event in planned if label not in held]
        if new:
            self.ledger.reserve_all(
                new,
                fingerprint=self._fingerprint,
                slack=slack or None,
                fixed=fixed,
                study=self._study,
            )

    def give_back(self) -> None:
        """Void what was held and never begun; of a schedule that was fixed, nothing comes back."""
        if self.ledger.balance().fixed:
            return
        reason = "the study ended before it began this"
        while held := _numbers("reserved", self._mine()):
            try:
                return self.ledger.void_all(self.ledger.receipts(held), reason=reason)
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

        None if it was begun before: then it may have touched rows, and must not again.
        """
        return self.begin_all({label: event}).get(label)

    def begin_all(self, wanted: Mapping[str, Event]) -> dict[str, Receipt]:
        """The same for several labels, all begun at once or none of them; without those that
        were begun before."""
        while True:
            held = self._held(wanted)
            free = {label: event for label, event in wanted.items() if _is_free(held[label])}
            receipts = self.ledger.receipts([held[label].number for label in free])
            try:
                begun = self.ledger.begin_all(list(zip(receipts, free.values(), strict=True)))
            except InvalidInput:
                if all(map(_is_free, self._held(free).values())):
                    raise  # too dear
                continue  # another process was quicker with one of them: look again
            return dict(zip(free, begun, strict=True))

    def in_state(self, state: str, labels: Iterable[str]) -> list[str]:
        """Those that are only held (reserved), begun (started) or settled (committed)."""
        return [label for label, held in self._held(labels).items() if held.state == state]

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
        self.settle_all([label])

    def settle_all(self, labels: Iterable[str]) -> None:
        """The same for several labels, all at once."""
        labels = list(labels)
        while started := _numbers("started", self._held(labels)):
            try:
                return self.ledger.settle_all(self.ledger.receipts(started))
            except InvalidInput:
                if _numbers("started", self._held(labels)) == started:
                    raise
                # a copy of the study has just settled one of them: look again

    def receipt(self, label: str) -> Receipt:
        """For rows that were paid for before."""
        return self.ledger.receipt(self._held([label])[label].number)

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
        return self.ledger.balance().payments - len(self._listed())

    def _held(self, labels: Iterable[str]) -> dict[str, Payment]:
        """The payments of these labels, each of which must be there."""
        mine = self._mine()
        for label in labels:
            if label not in mine:
                raise FolderProblem(self._lacks(label))
        return {label: mine[label] for label in labels}

    def _lacks(self, label: str) -> str:
        lacks = f"{self.ledger.address} holds no payment for {label!r} of study {self._study}"
        if any(payment.label == label for payment in self.ledger.payments_of(self._study)):
            return (
                f"{lacks} any more: it was given back. A copy of this folder was resumed and has "
                "finished the study, or the payment was voided; go on with that copy, or "
                "resume this one again."
            )
        return f"{lacks}: this is another ledger than the study began with."

    def _mine(self) -> dict[str, Payment]:
        return dict(self._listed())

    def _listed(self) -> list[tuple[str, Payment]]:
        """With their labels; a payment that was exchanged or given back does not count."""
        paid = self.ledger.payments_of(self._study)
        return [(payment.label or "", payment) for payment in paid if payment.counts]


def _is_free(payment: Payment) -> bool:
    return payment.state == "reserved"


def _numbers(state: str, held: Mapping[str, Payment]) -> list[int]:
    return [payment.number for payment in held.values() if payment.state == state]
