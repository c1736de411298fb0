"""What a user may ask of the preparation of rows."""

import math
from dataclasses import dataclass
from typing import Any

from dptune import validate
from dptune.columns.encoding import MOST_CURVED
from dptune.errors import InvalidInput

MOST_SHARE = 0.5  # of mu^2, for one statistic
_MOST_FEATURES = 10_000  # that polynomials may add
AUTO = "auto"  # measured, or done, where that is worth its price


@dataclass(frozen=True)
class Preparation:
    """What is done to features before training.

    A share is a part of mu^2: 0 for never, a number for always, "auto" where it is worth its price.

    Args:
        unit_rows: whether rows are scaled to unit length.
        standardize: whether columns are standardised with public rows.
        center_share: for a private mean, which is subtracted.
        whiten_share: for a private second moment, which whitens rows.
        range_share: for ranges of columns that declare none.
        category_share: for names of categories that nobody declared.
        class_share: for names of classes that nobody declared.
        logarithm_share: for a noisy count that says whether columns without ranges are of very
            different scale; their numbers are then log-scaled.
        shrink_mean: whether a mean that is planned to be mostly noise is shrunk.
        rescale: whether rows of unit length are scaled back to it after every later step.
        ranges: a (low, high) a column, in their order, which becomes [-1, 1].
        shorten: whether rows are clipped to their typical length instead of scaled to unit length;
            "auto" for regression, None for regression as earlier versions did it: scaled, and
            never checked.
        curves: degree of polynomial features of numbers and dates with a range; 1 for none, "auto"
            for as many as the rows allow.
        curves_up_to: how far the degree may rise if some columns have only two values; None for 6,
            or for a degree that is named.
        curves_room: how many polynomial features there are at most.

    """

    unit_rows: bool = True
    standardize: bool = False
    center_share: float | str = AUTO
    whiten_share: float | str = AUTO
    range_share: float | str = AUTO
    category_share: float | str = AUTO
    class_share: float | str = AUTO
    logarithm_share: float | str = AUTO
    shrink_mean: bool = True
    rescale: bool = True
    ranges: tuple[tuple[float, float], ...] = ()
    shorten: bool | str | None = AUTO
    curves: int | str = AUTO
    curves_up_to: int | None = None
    curves_room: int | None = None

    def __post_init__(self) -> None:
        validate.store(
            self,
            unit_rows=validate.flag(unit_rows=self.unit_rows),
            standardize=validate.flag(standardize=self.standardize),
            center_share=_share(center_share=self.center_share),
            whiten_share=_share(whiten_share=self.whiten_share),
            range_share=_share(range_share=self.range_share),
            category_share=_share(category_share=self.category_share),
            class_share=_share(class_share=self.class_share),
            logarithm_share=_share(logarithm_share=self.logarithm_share),
            shrink_mean=validate.flag(shrink_mean=self.shrink_mean),
            rescale=validate.flag(rescale=self.rescale),
            ranges=_ranges(self.ranges),
        )
        if self.shorten not in (AUTO, None):
            validate.store(self, shorten=validate.flag(shorten=self.shorten))
        self._check_curves()
        whitened = self.whiten_share not in (AUTO, 0)
        if whitened and not (self.unit_rows and self.rescale):
            raise InvalidInput(
                "rows are whitened where they are scaled to unit length, before and after "
                f"(unit_rows and rescale), and whiten_share is {self.whiten_share}; make it 0."
            )
        if self.shorten is True and not (self.unit_rows and self.rescale):
            raise InvalidInput(
                "rows are shortened in place of being scaled to unit length, which was switched "
                "off (unit_rows or rescale); leave shorten out."
            )
        if self.ranges and self.standardize:
            raise InvalidInput(
                "columns are brought to one scale by declared ranges or by public rows "
                "(standardize), and both were asked for; leave one out."
            )

    def _check_curves(self) -> None:
        """Their degree, how far it may rise, and in which room."""
        if self.curves_up_to is not None:
            most = validate.whole(1, at_most=MOST_CURVED, curves_up_to=self.curves_up_to)
            validate.store(self, curves_up_to=most)
        if self.curves_room is not None:
            room = validate.whole(0, at_most=_MOST_FEATURES, curves_room=self.curves_room)
            validate.store(self, curves_room=room)
        if self.curves == AUTO:
            return
        named = {f'curves, if not "{AUTO}",': self.curves}
        degree = validate.whole(1, at_most=MOST_CURVED, **named)
        validate.store(self, curves=degree)
        up_to = degree if self.curves_up_to is None else self.curves_up_to
        if up_to < degree:
            raise InvalidInput(
                f"curves of degree {degree} are asked for, and curves_up_to is {up_to}; "
                "make it larger, or leave it out."
            )
        if self.curves_room is not None and up_to == degree:
            raise InvalidInput(
                f"curves of degree {degree} are asked for, and room for more "
                f"(curves_room is {self.curves_room}), which is for curves that may rise; say how "
                'far with curves_up_to, leave curves to us ("auto"), or leave curves_room out.'
            )
        if self.curves_room is None and degree == 1 < up_to:
            raise InvalidInput(
                f"straight lines are asked for (curves is 1), and curves_up_to is {up_to}; leave "
                'curves to us ("auto"), or curves_up_to out.'
            )

    def must_fit(self, columns: int) -> None:
        """Refuse ranges that are not one a column."""
        if self.ranges and len(self.ranges) != columns:
            raise InvalidInput(
                f"ranges has {len(self.ranges)} pairs, and the data have {columns} columns of "
                "features; give one pair (low, high) a column, in their order, none for the label."
            )


def _share(**named: Any) -> float | str:
    ((name, given),) = named.items()
    if isinstance(given, str):
        if given != AUTO:
            raise InvalidInput(f'{name} must be a share of mu^2 or "{AUTO}"; got {given!r}.')
        return given
    return validate.non_negative(**named, at_most=MOST_SHARE)


def _ranges(given: Any) -> tuple[tuple[float, float], ...]:
    try:
        pairs = [(_finite(low), _finite(high)) for low, high in given]
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(
            f"ranges must be pairs of finite numbers (low, high), one a column; got {given!r}."
        ) from None
    for number, (low, high) in enumerate(pairs, start=1):
        if not high / 2 - low / 2 > 0:  # half the width is divided by, so it must not vanish
            raise InvalidInput(
                f"the range of column {number} goes from {low:g} to {high:g}; give the lower end "
                "first, and a column that never changes any range around its value."
            )
    return tuple(pairs)


def _finite(end: Any) -> float:
    if isinstance(end, bool | str) or not math.isfinite(end):
        raise ValueError
    return float(end)
