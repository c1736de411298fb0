"""Pictures by name to features: what `dptune extract` does, for programs too."""

import os
import re
from collections.abc import Container, Mapping, Sequence
from pathlib import Path

from dptune.data.extracted import SHIFT
from dptune.errors import InvalidInput
from dptune.features.extraction import Extraction, Watch, must_be_outside, write_features
from dptune.features.find import find_backbone
from dptune.features.network import Networks
from dptune.pictures.find import find_pictures
from dptune.pictures.pictures import Pictures
from dptune.pictures.shifts import find_shift, matched
from dptune.pictures.stored import shown


def extract(
    images: str | Path,
    backbone: str | Sequence[str],
    out: str | Path,
    *,
    features: str = "pooled",
    size: int | None = None,
    test: str | Path | None = None,
    public: str | Path | None = None,
    shifts: Sequence[str | Path] = (),
    root: str | Path | None = None,
    device: str = "cpu",
    precision: str | None = None,
    watch: Watch | None = None,
) -> Extraction:
    """Write features of pictures into the folder `out`, which `load_data` reads.

    What is there already is kept, and what was cut off goes on. Features that are finished stay as
    they are: once pictures have changed, another folder is needed. The folder is as private as the
    pictures.

    Args:
        images: a folder of class folders, an .npz file, "hub:NAME", or the name of a known set.
        backbone: the public network, or several, whose features then stand side by side.
        out: the folder.
        features: pooled, class-token, blocks or grid4.
        size: pixels of a side, where the backbone's own will not do.
        test: pictures that report a figure; `images` itself for its own test pictures.
        public: pictures that are nobody's secret.
        shifts: other pictures to report accuracies on, by name (`find_shift`).
        root: the folder in which known sets are looked for.
        device: cpu or cuda.
        precision: what networks compute in; by default float32 on a CPU, bfloat16 on a GPU.
        watch: is told how far it is.

    """
    parts = gather(images, test=test, public=public, shifts=shifts, root=root)
    others = (place_of(other) for other in (test, public, *shifts) if other is not None)
    must_be_outside(Path(out), *others)
    networks = find_networks(
        backbone, features=features, size=size, device=device, precision=precision
    )
    return write_features(parts, networks, out, source=place_of(images), watch=watch)


def gather(
    images: str | Path,
    *,
    test: str | Path | None = None,
    public: str | Path | None = None,
    shifts: Sequence[str | Path] = (),
    root: str | Path | None = None,
) -> Mapping[str, Pictures]:
    """The pictures of every part, all with the classes of those to train on."""
    trained = find_pictures(images, root)
    parts = {"train": trained.part("train")}
    classes = parts["train"].classes
    if public is not None and place_of(public) == place_of(images):
        raise InvalidInput(
            f"{str(public)!r} are the private pictures themselves: scores on them would leak them. "
            "Give other public pictures, or leave them out."
        )
    for name, wanted, other in (("test", "test", test), ("public", "train", public)):
        if other is not None:
            own = place_of(other) == place_of(images)
            found = trained if own else find_pictures(other, root)
            # Those of other sets need not be in parts.
            pictures = found.part(wanted if own or wanted in found.parts else "train")
            parts[name] = matched(pictures, found.name, classes)
    for shift in map(str, shifts):
        part = part_of_shift(shift, parts)
        parts[part] = find_shift(shift, trained, root)
    return parts


def has_test_pictures(images: str | Path, root: str | Path | None = None) -> bool:
    return "test" in find_pictures(images, root).parts


def find_networks(
    backbone: str | Sequence[str],
    *,
    features: str = "pooled",
    size: int | None = None,
    device: str = "cpu",
    precision: str | None = None,
) -> Networks:
    """Backbones by name, ready to run."""
    names = [backbone] if isinstance(backbone, str) else backbone
    backbones = [find_backbone(name, features=features, size=size) for name in names]
    return Networks(backbones, device=device, precision=precision)


def place_of(images: str | Path) -> str:
    """Whose pictures: a path wherever it is looked at from, or a name."""
    return str(Path(images).absolute()) if os.path.exists(images) else str(images)


def part_of_shift(shift: str, parts: Container[str]) -> str:
    """What a part of these pictures or texts is called, which no other of the `parts` may be."""
    part = f"{SHIFT}{_short(shift)}"
    if part in parts:
        raise InvalidInput(
            f"two shifts are called {_short(shift)}; rename one of them, or leave it out."
        )
    return part


def _short(shift: str) -> str:
    """A name, or the last of a path."""
    path = Path(shift)
    if os.path.exists(path):
        path = path.resolve()
        return shown(path.name if path.is_dir() else path.stem)
    return re.sub(r"[:/\\]", "-", shift)
