"""Read the preparation of pictures from a Hugging Face model's preprocessor_config.json."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dptune.errors import InvalidInput
from dptune.features.transform import Transform
from dptune.plain_data import UNFIT, read_json
from dptune.whole_files import read_regular

_RESAMPLING = {2: "bilinear", 3: "bicubic"}  # Pillow's numbers
_NO_CROP_FROM = 384  # ConvNeXT: pictures of this size and more are squashed, not cropped

# Steps that a Transform does not support; harmless if they are off.
_UNKNOWN_STEPS = (
    *("do_pad", "do_flip_channel_order", "do_thumbnail", "do_align_long_axis"),
    *("do_image_splitting", "rescale_offset", "include_top"),
)


def read_processor(path: Path) -> Transform:
    """The transform that a preprocessor_config.json or processor_config.json describes."""
    try:
        stored = read_json(read_regular(path), "it")
        stored = stored.get("image_processor", stored)
        return transform_from(stored)
    except (OSError, *UNFIT) as problem:
        raise InvalidInput(
            f"{path.name} does not say how to prepare pictures: {problem}"
        ) from problem


def transform_from(stored: Mapping[str, Any]) -> Transform:
    odd = [step for step in _UNKNOWN_STEPS if stored.get(step)]
    odd += [step for step in ("do_resize", "do_rescale") if not stored.get(step, True)]
    if odd:
        raise InvalidInput(f"dptune does not support {' and '.join(odd)}.")
    factor = stored.get("rescale_factor", 1 / 255)
    if abs(factor * 255 - 1) > 1e-3:
        raise InvalidInput(f"dptune does not support a rescale_factor of {factor}.")
    resample = stored.get("resample", 2)
    if resample not in _RESAMPLING:
        raise InvalidInput(f"resample {resample} is neither bilinear (2) nor bicubic (3).")
    normalised = stored.get("do_normalize", True)
    if normalised and not (stored.get("image_mean") and stored.get("image_std")):
        raise InvalidInput("image_mean or image_std is missing.")
    size, crop, squash = _geometry(stored)
    return Transform(
        size=size,
        mean=stored["image_mean"] if normalised else (0, 0, 0),
        deviation=stored["image_std"] if normalised else (1, 1, 1),
        crop=crop,
        resampling=_RESAMPLING[resample],
        squash=squash,
    )


def _geometry(stored: Mapping[str, Any]) -> tuple[int, float, bool]:
    """The size of the square that the network takes, its fraction of the picture, and whether the
    picture is squashed into it."""
    cropped = stored.get("do_center_crop", False)
    side, squash = _side(stored.get("size"), squash_by_default=not cropped)
    if stored.get("crop_pct"):  # ConvNeXT
        if side >= _NO_CROP_FROM:
            return side, 1.0, True
        return side, float(stored["crop_pct"]), False
    if not cropped:
        return side, 1.0, squash
    size, _ = _side(stored.get("crop_size"), squash_by_default=True)
    if size > side:
        raise InvalidInput(f"crop_size must be at most the size, {side}; got {size}.")
    return size, size / side, squash


def _side(size: Any, squash_by_default: bool) -> tuple[int, bool]:
    """The pixels of a side, and whether the picture is squashed into a square of this side. For a
    single number this depends on whether the processor crops."""
    if isinstance(size, int):
        return size, squash_by_default
    if isinstance(size, Mapping) and "shortest_edge" in size and len(size) == 1:
        return int(size["shortest_edge"]), False
    if isinstance(size, Mapping) and {*size} == {"height", "width"}:
        if size["height"] == size["width"]:
            return int(size["height"]), True
        raise InvalidInput(f"pictures of {size['height']} x {size['width']} are not square.")
    raise InvalidInput(f"dptune does not support a size of {size!r}.")
