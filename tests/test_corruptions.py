"""The common corruptions: each damages, the same every time, and more with its severity."""

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from dptune.errors import InvalidInput
from dptune.pictures.corruptions import CORRUPTIONS, SEVERITIES, corrupted

# As published: saturation goes down, then up; elastic transforms pull less and wave more.
UNEVEN = {"saturate", "elastic_transform", "glass_blur"}
# A matter of single pixels, whatever the size: seen from as far away, it averages out.
OF_PIXELS = {each for each in CORRUPTIONS if each.endswith("_noise")}
OF_PIXELS |= {"glass_blur", "pixelate", "jpeg_compression"}


def drawn(side: int = 32, seed: int = 0) -> NDArray[np.uint8]:
    """Something like a photograph: smooth patches, edges and a little grain, in colour."""
    rng = np.random.default_rng(seed)
    base = ndimage.gaussian_filter(rng.normal(size=(32, 32, 3)), (3, 3, 0), mode="wrap")
    base = 0.5 + 1.5 * base
    top, left = rng.integers(4, 14, 2)
    base[top : top + 12, left : left + 14] = rng.random(3)
    pixels = np.clip(base + 0.02 * rng.normal(size=base.shape), 0, 1)
    picture = Image.fromarray(np.rint(255 * pixels).astype(np.uint8))
    return np.asarray(picture.resize((side, side), Image.Resampling.BICUBIC))


PICTURES = [drawn(seed=seed) for seed in range(8)]


def damage(corruption: str, severity: int, pictures: list[NDArray[np.uint8]] = PICTURES) -> float:
    changes = [
        corrupted(picture, corruption, severity, number).astype(float) - picture
        for number, picture in enumerate(pictures)
    ]
    return float(np.square(changes).mean())


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("corruption", CORRUPTIONS)
def test_every_corruption_changes_a_picture_and_keeps_its_form(
    corruption: str, severity: int
) -> None:
    for shape in ((32, 32), (40, 24)):
        picture = np.ascontiguousarray(drawn(40)[: shape[0], : shape[1]])
        before = picture.copy()
        damaged = corrupted(picture, corruption, severity, 3)
        assert damaged.shape == (*shape, 3) and damaged.dtype == np.uint8
        assert (damaged != picture).any() and (picture == before).all()
        assert np.abs(damaged.astype(float) - picture).mean() < 90  # it is the same picture still
        assert (corrupted(picture, corruption, severity, 3) == damaged).all()


@pytest.mark.parametrize("corruption", CORRUPTIONS)
def test_damage_grows_with_severity(corruption: str) -> None:
    at = [damage(corruption, severity) for severity in SEVERITIES]
    if corruption in UNEVEN:
        assert min(at) > 1
    else:
        assert at == sorted(at) and at[-1] > 1.5 * at[0]


@pytest.mark.parametrize("corruption", [each for each in CORRUPTIONS if each not in OF_PIXELS])
def test_larger_pictures_are_damaged_like_small_ones(corruption: str) -> None:
    large = [drawn(96, seed) for seed in range(8)]
    small, other = damage(corruption, 4), damage(corruption, 4, large)
    assert 0.25 < other / small < 4


@pytest.mark.parametrize("corruption", ["gaussian_noise", "motion_blur", "fog", "snow"])
def test_chance_depends_on_the_number_of_the_picture_and_on_the_severity(corruption: str) -> None:
    (picture, *_) = PICTURES
    assert (corrupted(picture, corruption, 5, 0) != corrupted(picture, corruption, 5, 1)).any()
    noise = [
        corrupted(np.full((8, 8, 3), 128, np.uint8), "gaussian_noise", s, 0).astype(float) - 128
        for s in (4, 5)
    ]
    assert abs(np.corrcoef(noise[0].ravel(), noise[1].ravel())[0, 1]) < 0.5


def flat(value: float, side: int = 64) -> NDArray[np.uint8]:
    return np.full((side, side, 3), round(255 * value), np.uint8)


def spread(corruption: str, severity: int, value: float) -> float:
    return float((corrupted(flat(value), corruption, severity, 0) / 255).std())


def test_noise_is_as_strong_as_published() -> None:
    """12,288 values: the deviation is known to 1 %, so that 10 % are never reached by luck; and the
    draws are always the same."""
    for severity, strength in zip(SEVERITIES, (0.04, 0.06, 0.08, 0.09, 0.10), strict=True):
        assert spread("gaussian_noise", severity, 0.5) == pytest.approx(strength, rel=0.1)
    for severity, photons in zip(SEVERITIES, (500, 250, 100, 75, 50), strict=True):
        assert spread("shot_noise", severity, 0.5) == pytest.approx((0.5 / photons) ** 0.5, rel=0.1)
    for severity, strength in zip(SEVERITIES, (0.06, 0.1, 0.12, 0.16, 0.2), strict=True):
        assert spread("speckle_noise", severity, 0.5) == pytest.approx(strength / 2, rel=0.1)
    hit = corrupted(flat(0.5), "impulse_noise", 5, 0)
    assert (hit == 0).mean() == pytest.approx(0.035, rel=0.25)
    assert (hit == 255).mean() == pytest.approx(0.035, rel=0.25)
    assert ((hit == 0) | (hit == 255) | (hit == flat(0.5))).all()


def point(side: int = 33) -> NDArray[np.uint8]:
    pixels = np.zeros((side, side, 3), np.uint8)
    pixels[side // 2, side // 2] = 255
    return pixels


def test_blurs_are_as_wide_as_published() -> None:
    blurred = corrupted(point(), "gaussian_blur", 5, 0)[..., 0] / 255
    width = 33 / 32  # one pixel of 32
    away = np.arange(-16, 17)
    bell = np.exp(-(away**2) / (2 * width**2))
    np.testing.assert_allclose(blurred, np.outer(bell, bell) / bell.sum() ** 2, atol=0.003)
    box = corrupted(point(), "defocus_blur", 5, 0)[15:18, 15:18, 0] / 255
    np.testing.assert_allclose(box, 1 / 9, atol=0.003)
    crossed = corrupted(point(), "defocus_blur", 4, 0)[..., 0] / 255
    assert (crossed > 0.15).sum() == 5  # a disk of radius one
    dragged = corrupted(point(), "motion_blur", 5, 0)[..., 0] / 255
    assert dragged.sum() == pytest.approx(1, abs=0.05) and dragged[16, 16] == dragged.max()
    columns = np.nonzero(dragged)[1]
    assert (columns <= 16).all() and columns.min() <= 12  # the light falls on one side


def test_colours_change_as_published() -> None:
    colour = np.tile(np.array([200, 100, 50], np.uint8), (8, 8, 1))
    brighter = corrupted(colour, "brightness", 5, 0)[0, 0]
    assert brighter.max() == 255 and brighter.tolist() == [255, 128, 64]
    assert corrupted(flat(0), "brightness", 2, 0)[0, 0].tolist() == [26] * 3
    paler = corrupted(colour, "saturate", 1, 0)[0, 0]  # 0.3 of a saturation of 0.75
    assert paler.tolist() == [200, 170, 155]
    assert corrupted(flat(0.4), "saturate", 5, 0)[0, 0].tolist() == [102, 82, 82]
    grey = np.concatenate([flat(0.2, 4), flat(0.8, 4)])
    assert np.unique(corrupted(grey, "contrast", 2, 0)).tolist() == [89, 166]


def test_a_zoom_keeps_the_middle_and_moves_the_rim() -> None:
    blurred = corrupted(point(), "zoom_blur", 5, 0)[..., 0]
    assert blurred.argmax() == 33 * 16 + 16
    ring = np.zeros((33, 33, 3), np.uint8)
    ring[2:4] = 255
    assert corrupted(ring, "zoom_blur", 5, 0)[2:4].mean() < 150


@pytest.mark.parametrize("corruption", CORRUPTIONS)
def test_the_smallest_pictures_and_flat_ones_are_not_refused(corruption: str) -> None:
    for shape in ((1, 1, 3), (1, 5, 3), (3, 2, 3)):
        for value in (0, 255):
            pixels = np.full(shape, value, np.uint8)
            assert corrupted(pixels, corruption, 5, 0).shape == shape


def test_names_that_nobody_knows_are_answered_with_those_there_are() -> None:
    with pytest.raises(InvalidInput, match=r"gaussian_blur.*jpeg_compression.*got 'blur'"):
        corrupted(PICTURES[0], "blur", 1, 0)
    assert "frost" not in CORRUPTIONS and len(CORRUPTIONS) == 17


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"severity": 0}, "severity"),
        ({"severity": 6}, "severity"),
        ({"number": -1}, "number"),
        ({"pixels": np.zeros((4, 4), np.uint8)}, r"\(height, width, 3\) of uint8; got shape"),
        ({"pixels": np.zeros((4, 4, 3))}, "float64"),
        ({"pixels": np.zeros((0, 4, 3), np.uint8)}, "uint8"),
    ],
)
def test_what_cannot_be_corrupted_is_refused(changed: Any, message: str) -> None:
    usual = {"pixels": PICTURES[0], "corruption": "fog", "severity": 1, "number": 0}
    with pytest.raises(InvalidInput, match=message):
        corrupted(**usual | changed)


def test_no_picture_files_are_needed() -> None:
    source = Path(inspect.getfile(corrupted))
    assert not [file for file in source.parent.iterdir() if file.suffix in (".png", ".jpg")]
