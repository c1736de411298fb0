"""Find pictures of other origins (shifts) by name, with the labels of the training pictures.

Classes are matched by name; pictures of other classes are left out. Corrupted pictures are read
from their usual files, or computed from the test pictures of the training set.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dptune import validate
from dptune.errors import InvalidInput
from dptune.pictures.corruptions import CORRUPTIONS, SEVERITIES, corrupted
from dptune.pictures.decode import BadPicture, decode
from dptune.pictures.find import find_pictures, plain_name
from dptune.pictures.known.class_names import CIFAR10, CIFAR100
from dptune.pictures.pictures import Content, Pictures, PictureSet, Remark
from dptune.pictures.stored import Listed, Numbers
from dptune.printable import printable

COMPUTED = "corrupted"
_USUAL = "gaussian_blur"  # the default corruption
_CORRUPTED_SETS = {"cifar10c": CIFAR10, "cifar100c": CIFAR100}
# One name for each class that data sets name differently.
_SAME = {
    **dict.fromkeys(("car", "auto", "motorcar"), "automobile"),
    **dict.fromkeys(("plane", "aeroplane"), "airplane"),
    **dict.fromkeys(("motorbike",), "motorcycle"),
    **dict.fromkeys(("bike",), "bicycle"),
    **dict.fromkeys(("lorry",), "truck"),
    **dict.fromkeys(("sofa",), "couch"),
    **dict.fromkeys(("tvmonitor", "tv"), "television"),
}


def find_shift(name: str, trained: PictureSet, root: str | Path | None = None) -> Pictures:
    """Find pictures of another origin, labelled with the classes of `trained`.

    `name` is one of `find_pictures` (its part "shift", else its test pictures, else all); cifar10-c
    or cifar100-c, or cifar10-c:CORRUPTION, computed if the files are missing; or
    corrupted:CORRUPTION, computed from the test pictures of `trained`.
    """
    kind, _, corruption = name.partition(":")
    corruption = corruption or _USUAL
    if kind == COMPUTED:
        return _compute(corruption, trained)
    classes = trained.part("train").classes
    if plain_name(kind) not in _CORRUPTED_SETS:
        return matched(_part(find_pictures(name, root)), name, classes)
    asked = f"{kind}:{corruption}"
    try:
        source = find_pictures(asked, root)
    except InvalidInput as error:
        # The test pictures of another set would be another shift than the one asked for.
        theirs = _CORRUPTED_SETS[plain_name(kind)]
        if corruption not in CORRUPTIONS or set(map(plain_name, classes)) != set(
            map(plain_name, theirs)
        ):
            raise InvalidInput(
                f"{error} If you train on the clean pictures of that set, these can be computed: "
                f"{', '.join(CORRUPTIONS)}; for any other set use {COMPUTED}:CORRUPTION."
            ) from None
        what = f"not at hand: computed from the test pictures of {trained.name}"
        return _compute(corruption, trained, Remark(asked, what, left_out=False))
    return matched(_part(source), asked, classes)


def _compute(corruption: str, trained: PictureSet, *remarks: Remark) -> Pictures:
    validate.one_of(CORRUPTIONS, corruption=corruption)
    clean = trained.part("test")
    return CorruptedPictures(
        classes=clean.classes,
        labels=np.tile(clean.labels, len(SEVERITIES)),
        groups=tuple(f"severity {severity}" for severity in SEVERITIES),
        grouped=np.repeat(np.arange(len(SEVERITIES), dtype=np.int64), len(clean)),
        remarks=(*clean.remarks, *remarks),
        clean=clean,
        corruption=corruption,
    )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CorruptedPictures(Listed):
    """All pictures at severity 1, then all at severity 2, and so on."""

    clean: Pictures
    corruption: str

    def name(self, number: int) -> str:
        severity, picture = self._of(number)
        return f"{self.clean.name(picture)} ({self.corruption}, severity {severity})"

    def content(self, number: int) -> Content:
        severity, picture = self._of(number)
        content = self.clean.content(picture)
        try:
            pixels, _ = decode(content)
        except BadPicture:
            return content  # the extraction reports the bad picture
        return corrupted(pixels, self.corruption, severity, picture)

    def _of(self, number: int) -> tuple[int, int]:
        repeat, picture = divmod(number, len(self.clean))
        return SEVERITIES[repeat], picture


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MatchedPictures(Listed):
    """The pictures of `others` with the numbers `kept`, and their own labels."""

    others: Pictures
    kept: Numbers

    def name(self, number: int) -> str:
        return self.others.name(int(self.kept[number]))

    def content(self, number: int) -> Content:
        return self.others.content(int(self.kept[number]))


def _part(source: PictureSet) -> Pictures:
    which = next((part for part in ("shift", "test") if part in source.parts), "train")
    return source.part(which)


def matched(others: Pictures, name: str, classes: tuple[str, ...]) -> Pictures:
    """Keep the pictures whose classes are among `classes`, and number them by these."""
    numbers = _numbers(others.classes, classes)
    labels = np.array(numbers, np.int64)[others.labels]
    kept = np.flatnonzero(labels >= 0)
    if not len(kept):
        raise InvalidInput(
            f"{name} has no pictures of the classes trained on ({_some(classes)}), only of "
            f"{_some(others.classes)}. Classes are matched by name: rename them, or use others."
        )
    counts = np.bincount(others.labels, minlength=len(numbers)).tolist()
    unknown = [
        Remark(each, f"not among the classes trained on: {count:,} pictures", left_out=True)
        for each, number, count in zip(others.classes, numbers, counts, strict=True)
        if number < 0 and count
    ]
    return MatchedPictures(
        classes=classes,
        labels=labels[kept],
        groups=others.groups,
        grouped=others.group_numbers[kept],
        remarks=(*others.remarks, *unknown),
        others=others,
        kept=kept,
    )


def some(pictures: Pictures, count: int) -> Pictures:
    """Keep at most `count` of the pictures, evenly spaced."""
    if count >= len(pictures):
        return pictures
    kept = np.arange(count, dtype=np.int64) * len(pictures) // count
    return MatchedPictures(
        classes=pictures.classes,
        labels=pictures.labels[kept],
        groups=pictures.groups,
        grouped=pictures.group_numbers[kept],
        remarks=pictures.remarks,
        others=pictures,
        kept=kept,
    )


def _numbers(theirs: tuple[str, ...], ours: tuple[str, ...]) -> list[int]:
    """For each of their classes the number of ours with the same or a synonymous name; -1 if there
    is none, or more than one."""
    exact, alike = (_unique(names) for names in (ours, tuple(map(_canonical, ours))))
    return [exact.get(name, alike.get(_canonical(name), -1)) for name in theirs]


def _unique(names: tuple[str, ...]) -> dict[str, int]:
    counts = Counter(names)
    return {name: number for number, name in enumerate(names) if counts[name] == 1}


def _canonical(name: str) -> str:
    plain = plain_name(name)
    return _SAME.get(plain, plain)


def _some(names: tuple[str, ...]) -> str:
    shown = ", ".join(map(printable, names[:10]))
    return shown if len(names) <= 10 else f"{shown}, ..."
