"""Features as rows: they are made first, in a folder that the study reads."""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dptune.cli import picture_screen
from dptune.columns.kinds import PAID
from dptune.data import Data
from dptune.data.extracted import SHIFT, Extracted, holds_features, origins_of_features
from dptune.data.made_by import is_of_texts
from dptune.data.origin import Origin
from dptune.data.shift import Shift
from dptune.features.extraction import (
    Extraction,
    FolderTaken,
    fingerprint_of_pictures,
    write_features,
)
from dptune.features.from_pictures import place_of
from dptune.features.network import Networks, short_name
from dptune.pictures.pictures import Pictures
from dptune.pictures.stored import shown

_LONGEST = 60  # letters in the name of a folder, of which file systems take 255 bytes
_ON_FILES = re.compile(r"\.(py|onnx|safetensors)$")


@dataclass(frozen=True, eq=False, repr=False)
class FeatureRows:
    """Pictures or texts, the networks for them, and where their features are or will be."""

    given: str  # how the pictures or texts were named
    place: str  # the name of the folder of features
    name: str
    parts: Mapping[str, Pictures]
    networks: Networks
    folder: Path  # where features are expected
    unused_test: bool  # pictures or texts that `given` holds

    @property
    def source(self) -> dict[str, Any]:
        """Arguments of `load_data`, if features are made where they are expected."""
        return self._source_in(self.folder)

    def _source_in(self, folder: Path) -> dict[str, Any]:
        inside = {name: str(folder / name) for name in self.parts}
        return {
            "source": str(folder),
            "test": inside.get("test"),
            "public": inside.get("public"),
            "shifts": [path for name, path in inside.items() if name.startswith(SHIFT)] or None,
            "name": self.name,
        }

    def make(self) -> dict[str, Any]:
        """Make the features that are not there yet; return the arguments of `load_data`."""
        source = place_of(self.given)
        with picture_screen.live_view() as watch:
            extraction = _in_first_free_folder(
                self.place,
                lambda folder: write_features(
                    self.parts, self.networks, folder, source=source, watch=watch
                ),
            )
        picture_screen.show_extraction(extraction, to_tune=False)
        return self._source_in(extraction.folder)

    def stand_in(
        self,
        *,
        name: str,
        rows: int | None = None,
        classes: Sequence[Any] | str | None = None,
        **_: Any,
    ) -> Data:
        """Made-up data in place of `load_data`, of which only the public facts are true."""
        trained, made_by = self.parts["train"], self.networks.made_by
        columns = sum(backbone["columns"] for backbone in made_by["backbones"])
        # Other rows in every part, since those of one may not be those of another.
        features = {
            part: np.full((2, columns), number, np.float32)
            for number, part in enumerate(self.parts)
        }
        # Of texts, names of classes are what a column of labels holds: secret if not declared.
        usual = PAID if is_of_texts(made_by) else trained.classes
        labels = np.array((trained.classes * 2)[:2])
        return Data.from_table(
            features["train"],
            labels,
            name=name,
            classes=usual if classes is None else classes,
            rows=len(trained) if rows is None else rows,
            test=(features["test"], labels) if "test" in features else None,
            public=(features["public"], labels) if "public" in features else None,
            shifts={
                part.removeprefix(SHIFT): Shift(table, labels)
                for part, table in features.items()
                if part.startswith(SHIFT)
            },
            origin=Origin(made_by=made_by, in_words=origins_of_features(made_by, rows, classes)),
        )

    def fingerprint(self) -> str:
        """What a ledger will know the features by; reads every picture or text to train on."""
        return fingerprint_of_pictures(self.parts["train"])


def plan_features(
    given: str,
    parts: Mapping[str, Pictures],
    networks: Networks,
    *,
    name: str | None,
    words: Sequence[str],
    unused_test: bool,
) -> FeatureRows:
    """Plan where features will be; nothing is made yet. `words` end the name of the folder."""
    expected = Extracted(networks.made_by, place_of(given), parts["train"].classes, {})
    models = [_without_suffixes(backbone.name) for backbone in networks.backbones]
    called = _name_study(given, networks.things)
    place = "-".join(map(_spell, (called, *models, *words)))[:_LONGEST]
    return FeatureRows(
        given=given,
        place=place,
        name=name or called,
        parts=parts,
        networks=networks,
        folder=_find_folder(place, expected),
        unused_test=unused_test,
    )


def _numbered(name: str) -> Iterator[Path]:
    """features/NAME, features/NAME-2, ..."""
    for number in itertools.count(1):
        yield Path("features") / (name if number == 1 else f"{name}-{number}")


def _find_folder(name: str, expected: Extracted) -> Path:
    """The first folder that is free or holds such features."""
    return next(
        folder
        for folder in _numbered(name)
        if not folder.exists()
        or (holds_features(folder) and Extracted.read(folder).same_but_parts(expected))
    )


def _in_first_free_folder(name: str, made_in: Callable[[Path], Extraction]) -> Extraction:
    """Make features in the first folder that holds no others."""
    for folder in _numbered(name):
        with suppress(FolderTaken):
            return made_in(folder)
    raise AssertionError  # there are numbers enough


def _name_study(given: str, things: str) -> str:
    """Name a study of these pictures or texts."""
    path = Path(given)
    if path.is_dir():
        path = path.resolve()
    return shown(path.stem if path.is_file() else path.name) or things


def _without_suffixes(backbone: str) -> str:
    return ":".join(_ON_FILES.sub("", part) for part in short_name(backbone).split(":"))


def _spell(text: str) -> str:
    """Spell `text` as part of a folder name."""
    return re.sub(r"[^\w.-]+", "-", text).strip("-.") or "rows"
