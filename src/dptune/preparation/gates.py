"""When a private mean and a private second moment are worth their price: where their noise does not
outweigh them, by public numbers alone. Measurements: docs/law-measured.md."""

import math

from dptune import rounding
from dptune.preparation.step import Case, Reason

# Of mu^2, where the user names no share; of a mean at least.
_CENTER_SHARE, WHITEN_SHARE = 0.01, 0.02
# A noisy mean may be off by this part of a row's length. What brings it there is paid, up to so
# much of mu^2; one that is off by more is shrunk, and worth its price up to the last of these.
_MEAN_ERROR, _MOST_CENTER_SHARE, _MOST_MEAN_ERROR = 0.25, 0.05, 0.7
# Below so much signal for every weight, where no price is small, so much is paid at most.
_LITTLE_SIGNAL, _MOST_FOR_LITTLE = 0.1, 0.02
# The noise on a second moment may be so many times its mean eigenvalue.
_NOISE_LEVEL = 5.0


def center_share(case: Case) -> float:
    """Of mu^2, what is paid for a mean; 0 where it would be mostly noise."""
    wanted = _CENTER_SHARE * (_mean_error(case, _CENTER_SHARE) / _MEAN_ERROR) ** 2
    most, limit = _most(case)
    share = min(max(rounding.share(wanted), _CENTER_SHARE), most)
    return share if _mean_error(case, share) <= limit else 0.0


def is_clear(case: Case, share: float) -> bool:
    """Whether a mean measured for this share has so little noise that it is subtracted as it is."""
    return _mean_error(case, share) <= _MEAN_ERROR


def _most(case: Case) -> tuple[float, float]:
    """What may be paid, and by how much the mean may be off then."""
    if not case.has_classes:  # values were measured at the usual price alone
        return _CENTER_SHARE, _MEAN_ERROR
    if case.signal < _LITTLE_SIGNAL:
        return _MOST_FOR_LITTLE, _MEAN_ERROR
    return _MOST_CENTER_SHARE, _MOST_MEAN_ERROR


def _mean_error(case: Case, share: float) -> float:
    """By which part of a row's length the mean of all is off that is measured for this share."""
    mu = math.sqrt(share) * case.budget.mu
    return math.sqrt(case.columns) / (mu * case.rows)


def noisy_moment(case: Case, columns: int) -> bool:
    """Whether a second moment of rows of so many features would be mostly noise."""
    mu = math.sqrt(WHITEN_SHARE) * case.budget.mu
    size = 1.4 * columns * math.sqrt(columns)
    return size / (mu * case.rows) > _NOISE_LEVEL


def never(case: Case) -> Reason | None:
    """Why neither is of use, whatever the budget; None where nothing speaks against them."""
    if why := impossible(case):
        return why
    if not case.has_classes and case.options.shorten in (None, False):
        return Reason("for classes")
    return Reason("one column") if case.columns == 1 else None


def impossible(case: Case) -> Reason | None:
    """Why rows are left as they are."""
    if case.alone:
        return Reason("alone")
    if not case.options.unit_rows:
        return Reason("not unit length")
    if not case.engine.linear_in_rows:
        return Reason("unmeasured", {"trains": case.engine.trains})
    return None


def too_many_features(case: Case) -> Reason:
    """That there are too many features for the rows."""
    unbent = case.columns == case.straight
    named = case.facts.named is not None and not (case.facts.as_given and unbent)
    what = "features" if named else "columns"
    values = {"features": case.columns, "what": what, "rows": case.rows}
    return Reason("too many features", values)
