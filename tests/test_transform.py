"""Pictures as a backbone takes them, against Pillow's own resizing of the whole picture."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from dptune.errors import InvalidInput
from dptune.features.transform import Transform

GREY = {"mean": (0.0, 0.0, 0.0), "deviation": (1 / 255, 1 / 255, 1 / 255)}  # values stay 0 to 255
FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


def picture(height: int, width: int) -> NDArray[np.uint8]:
    """Edges, slopes and noise."""
    values = np.random.default_rng(height * 1000 + width).integers(0, 256, (height, width, 3))
    down, across = np.mgrid[:height, :width]
    values[:, : width // 2, 0] = 255 * down[:, : width // 2] // height
    values[: height // 2, :, 1] = 255 * across[: height // 2] // width
    values[height // 4 : height // 2, width // 4 : width // 2] = (255, 0, 128)
    return values.astype(np.uint8)


def made(transform: Transform, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    batch = torch.from_numpy(transform.shrunk(pixels)[None])
    result: NDArray[np.float32] = transform.normalised(batch)[0].permute(1, 2, 0).numpy()
    return result


def by_pillow(transform: Transform, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Resize the whole picture, then cut out the middle."""
    height, width = pixels.shape[:2]
    side, shorter = int(transform.size / transform.crop + 1e-6), min(height, width)
    new = (side, side)
    if not transform.squash:
        new = (side * width // shorter, side * height // shorter)
    whole = Image.fromarray(pixels).resize(new, FILTERS[transform.resampling])
    left, top = round((new[0] - transform.size) / 2), round((new[1] - transform.size) / 2)
    middle = whole.crop((left, top, left + transform.size, top + transform.size))
    return np.asarray(middle).astype(np.float32)


@pytest.mark.parametrize("resampling", FILTERS)
@pytest.mark.parametrize("crop", [1.0, 0.875, 0.9])
@pytest.mark.parametrize("shape", [(100, 100), (150, 201), (333, 97), (64, 64), (65, 71)])
def test_large_pictures_come_out_as_pillow_has_them(
    shape: tuple[int, int], crop: float, resampling: str
) -> None:
    transform = Transform(64, **GREY, crop=crop, resampling=resampling)
    pixels = picture(*shape)
    assert transform.shrunk(pixels).shape == (64, 64, 3)
    assert np.abs(made(transform, pixels) - by_pillow(transform, pixels)).max() <= 2.01


@pytest.mark.parametrize("resampling", FILTERS)
@pytest.mark.parametrize("crop", [1.0, 0.875, 0.9])
@pytest.mark.parametrize("shape", [(32, 32), (28, 40), (33, 33), (60, 30), (95, 95)])
def test_small_pictures_are_enlarged_as_pillow_does(
    shape: tuple[int, int], crop: float, resampling: str
) -> None:
    transform = Transform(96, **GREY, crop=crop, resampling=resampling)
    pixels = picture(*shape)
    sent = transform.shrunk(pixels)
    assert sent.shape == (min(shape), min(shape), 3)
    top, left = ((side - min(shape)) // 2 for side in shape)
    square = pixels[top : top + min(shape), left : left + min(shape)]
    np.testing.assert_array_equal(sent, square)
    assert np.abs(made(transform, pixels) - by_pillow(transform, square)).max() <= 2.01


@pytest.mark.parametrize("shape", [(200, 100), (20, 33), (47, 48)])
@pytest.mark.parametrize("crop", [1.0, 0.875])
def test_with_squash_the_whole_picture_is_pressed_into_the_square(
    shape: tuple[int, int], crop: float
) -> None:
    transform = Transform(48, **GREY, crop=crop, squash=True)
    pixels = picture(*shape)
    assert np.abs(made(transform, pixels) - by_pillow(transform, pixels)).max() <= 2.01


@pytest.mark.parametrize("shape", [(1, 1), (1, 500), (500, 1), (7, 1000), (999, 1001), (23, 24)])
def test_every_shape_becomes_the_square_that_was_asked_for(shape: tuple[int, int]) -> None:
    for transform in (Transform(24, **GREY, crop=0.9), Transform(24, **GREY, squash=True)):
        result = made(transform, picture(*shape))
        assert result.shape == (24, 24, 3)
        assert 0 <= result.min() <= result.max() <= 255.001


def test_little_travels_and_what_is_sent_is_on_its_own() -> None:
    transform = Transform(224, **GREY)
    pixels = picture(32, 48)
    sent = transform.shrunk(pixels)
    np.testing.assert_array_equal(sent, pixels[:, 8:40])
    assert sent.base is None  # else the whole picture would be sent along


def test_colours_are_normalised_one_by_one() -> None:
    transform = Transform(2, mean=(0.5, 0.25, 0.0), deviation=(0.5, 0.25, 2.0))
    batch = torch.tensor([255, 0, 51], dtype=torch.uint8).expand(3, 2, 2, 3)
    result = transform.normalised(batch)
    assert result.shape == (3, 3, 2, 2)
    assert result.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(result[1, :, 0, 1], torch.tensor([1.0, -1.0, 0.1]))


def test_a_picture_does_not_depend_on_its_batch() -> None:
    transform = Transform(50, mean=(0.4, 0.4, 0.4), deviation=(0.2, 0.2, 0.2))
    batch = torch.from_numpy(np.stack([picture(20, 20), picture(20, 20)[::-1].copy()]))
    together = transform.normalised(batch)
    for number in range(2):
        torch.testing.assert_close(together[number], transform.normalised(batch[number, None])[0])


def test_the_type_is_the_one_asked_for() -> None:
    transform = Transform(8, mean=(0.4, 0.4, 0.4), deviation=(0.2, 0.2, 0.2))
    batch = torch.from_numpy(picture(8, 8)[None])
    assert transform.normalised(batch, torch.bfloat16).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("size", "crop", "side"), [(224, 0.875, 256), (224, 224 / 232, 232), (224, 0.9, 248)]
)
def test_the_side_before_cropping_is_rounded_down(size: int, crop: float, side: int) -> None:
    assert Transform(size, **GREY, crop=crop).side == side


@pytest.mark.parametrize(
    "wrong",
    [
        {"size": 0},
        {"size": 2.5},
        {"crop": 1.5},
        {"crop": 0.0},
        {"resampling": "nearest"},
        {"mean": (0.5, 0.5)},
        {"mean": 0.5},
        {"deviation": (1.0, 0.0, 1.0)},
        {"deviation": (1.0, float("nan"), 1.0)},
        {"squash": "yes"},
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    ((name, _),) = wrong.items()
    with pytest.raises(InvalidInput, match=name):
        Transform(**{"size": 32, **GREY, **wrong})  # type: ignore[arg-type]
