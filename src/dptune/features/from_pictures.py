"""Extract features of pictures by name: the function behind `dptune extract`."""

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

    Existing features are kept, and an interrupted extraction continues. Finished features never
    change: if the pictures have changed, give another folder. The folder is as private as the
    pictures.

    Args:
        images: a folder of class folders, an .npz file, "hub:NAME", or the name of a known set.
        backbone: the public network, or several, whose features are concatenated.
        out: the folder.
        features: pooled, class-token, blocks or grid4.
        size: pixels of a side; default: the backbone's own size.
        test: pictures for the test accuracy; `images` itself for its own test pictures.
        public: pictures that are public.
        shifts: other pictures to report accuracies on, by name (`find_shift`).
        root: the folder with known data sets.
        device: cpu or cuda.
        precision: the networks' number format; default: float32 on a CPU, bfloat16 on a GPU.
        watch: callback that receives `Progress` updates.

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
    """Find the pictures of every part, all with the classes of the training pictures."""
    trained = find_pictures(images, root)
    parts = {"train": trained.part("train")}
    classes = parts["train"].classes
    if public is not None and place_of(public) == place_of(images):
        raise InvalidInput(
            f"{str(public)!r} are the private pictures themselves: scores on them would leak them. "
            "Give other public pictures, or leave them out."
        )
    for name, part, other in (("test", "test", test), ("public", "train", public)):
        if other is not None:
            own = place_of(other) == place_of(images)
            source = trained if own else find_pictures(other, root)
            # Other sets need not have parts.
            pictures = source.part(part if own or part in source.parts else "train")
            parts[name] = matched(pictures, source.name, classes)
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
    """Open backbones by name, ready to run."""
    names = [backbone] if isinstance(backbone, str) else backbone
    backbones = [find_backbone(name, features=features, size=size) for name in names]
    return Networks(backbones, device=device, precision=precision)


def place_of(images: str | Path) -> str:
    """The identity of a source: the absolute path, or the name."""
    return str(Path(images).absolute()) if os.path.exists(images) else str(images)


def part_of_shift(shift: str, parts: Container[str]) -> str:
    """Name the part of a shift; the name must not be among `parts` yet."""
    part = f"{SHIFT}{_short(shift)}"
    if part in parts:
        raise InvalidInput(
            f"two shifts are called {_short(shift)}; rename one of them, or leave it out."
        )
    return part


def _short(shift: str) -> str:
    """The last name of a path, or the name of a set without separators."""
    path = Path(shift)
    if os.path.exists(path):
        path = path.resolve()
        return shown(path.name if path.is_dir() else path.stem)
    return re.sub(r"[:/\\]", "-", shift)
