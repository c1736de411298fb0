"""Names of classes that nobody declared: those that many rows have, by noisy counts."""

import math

from dptune import accounting
from dptune.data.classes import PUBLIC, WITH_CLASSES
from dptune.errors import InvalidInput
from dptune.preparation import categories
from dptune.preparation.options import AUTO
from dptune.preparation.step import Case
from dptune.preparation.words import REASONS
from dptune.privacy import ThresholdedCount

CLASSES = "names of classes"
_SEEN = 0.05  # a class that this part of all rows has is found, where the user names no share


def class_share(case: Case, against: str = "") -> float:
    """Of mu^2, for names of classes that are secret; 0 where none are. `against`: why they cannot
    be estimated."""
    asked = case.options.class_share
    if not case.facts.secret_classes:
        if asked not in (AUTO, 0):
            raise InvalidInput(
                f"class_share is {asked}, and the classes are declared or public; leave it out."
            )
        return 0.0
    share = categories.usual_share(case, 1, _SEEN) if isinstance(asked, str) else asked
    if case.alone:
        against = REASONS["alone"]
    elif not against and share == 0:
        against = "class_share is 0"
    elif not against and rows_of_a_class(case, share) > categories.MOST_HIDDEN * case.rows:
        against = f"{case.rows:,} rows are too few at this budget"
    if against:
        raise InvalidInput(
            "the names of classes are not declared, and a name that one row has, such as a "
            "mistyped one, would be published; they are not estimated privately "
            f"({against}). Nothing was spent; declare all classes {WITH_CLASSES}, or say "
            f'"{PUBLIC}" in their place if those that occur are public.'
        )
    return share


def rows_of_a_class(case: Case, share: float) -> int:
    """How many rows a class must have, about, so that its name is found."""
    return math.ceil(categories.least_rows(case, 1, share))


def class_event(case: Case, share: float) -> ThresholdedCount | None:
    """What names of classes are found by."""
    if not share:
        return None
    mu = math.sqrt(share * case.budget.mu_squared())
    return accounting.calibrate_thresholded(mu=mu, slack=case.slack, counts=1)


def class_line(case: Case, share: float) -> list[str]:
    """What is planned; nothing where classes are declared or public."""
    if not share:
        return []
    rows = rows_of_a_class(case, share)
    return [
        f"classes: names that about {rows:,} rows or more have, by noisy counts; rows of others "
        f"count as empty: {100 * share:g} % of the budget"
    ]
