"""Decoding: every format and mode becomes RGB, and whatever bytes come, only a BadPicture."""

import io
import struct
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, ImageFile

from dptune.pictures.decode import BadPicture, decode
from support.pictures import encoded, pixels

EXACT = ("PNG", "BMP", "TIFF", "PPM")
FORMATS = (*EXACT, "JPEG", "GIF", "WEBP", "AVIF", "JPEG2000")
SMALL = {kind: encoded(pixels(), kind) for kind in FORMATS}


# What becomes of good pictures


@pytest.mark.parametrize("kind", EXACT)
def test_what_was_stored_without_loss_comes_back_as_it_was(kind: str) -> None:
    found, odd = decode(SMALL[kind])
    assert np.array_equal(found, pixels()) and odd == ()


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_becomes_rgb(kind: str) -> None:
    flat = np.full((16, 24, 3), (200, 40, 90), np.uint8)
    found, odd = decode(encoded(flat, kind))
    assert found.shape == (16, 24, 3) and found.dtype == np.uint8 and odd == ()
    assert np.abs(found.astype(int) - flat).max() <= 8


def test_a_grey_picture_has_three_equal_channels() -> None:
    grey = pixels()[:, :, 0]
    for content in (encoded(grey), encoded(Image.fromarray(grey > 127))):
        found, odd = decode(content)
        assert odd == ("grey",) and found.shape == (8, 6, 3)
        assert (found == found[:, :, :1]).all()
    assert np.array_equal(decode(encoded(grey))[0][:, :, 2], grey)


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_of_sixteen_bits_the_upper_eight_are_taken(kind: str) -> None:
    wide = np.array([[0, 256, 257, 32_896, 65_535]], np.uint16)
    found, odd = decode(encoded(wide, kind))
    assert found[0, :, 0].tolist() == [0, 0, 1, 128, 255] and odd == ("grey",)


@pytest.mark.parametrize("values", [np.array([[70_000]], np.int32), np.array([[-1]], np.int32)])
def test_values_of_no_known_range_are_no_picture(values: NDArray[Any]) -> None:
    with pytest.raises(BadPicture, match="beyond 16 bits"):
        decode(encoded(values, "TIFF"))


def test_fractions_are_no_picture() -> None:
    with pytest.raises(BadPicture, match="fractions"):
        decode(encoded(np.ones((2, 2), np.float32), "TIFF"))


def see_through(alpha: int) -> NDArray[np.uint8]:
    return np.dstack([pixels(), np.full((8, 6), alpha, np.uint8)])


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
def test_what_is_transparent_is_put_on_white(kind: str) -> None:
    found, odd = decode(encoded(see_through(0), kind))
    assert (found == 255).all() and odd == ("transparent: put on white",)


def test_half_transparent_is_half_white() -> None:
    found, _ = decode(encoded(see_through(128)))
    assert np.abs(found - (pixels() * 0.502 + 255 * 0.498)).max() <= 1


def test_an_opaque_alpha_channel_is_nothing_odd() -> None:
    found, odd = decode(encoded(see_through(255)))
    assert np.array_equal(found, pixels()) and odd == ()


def test_a_colour_that_stands_for_transparent_becomes_white() -> None:
    picture = np.zeros((2, 2, 3), np.uint8)
    picture[0, 0] = (9, 8, 7)
    found, odd = decode(encoded(picture, transparency=(9, 8, 7)))
    assert found[0, 0].tolist() == [255, 255, 255] and found[1, 1].tolist() == [0, 0, 0]
    assert odd == ("transparent: put on white",)


def test_a_palette_becomes_its_colours() -> None:
    picture = Image.fromarray(pixels()).quantize(256)
    assert np.array_equal(decode(encoded(picture))[0], pixels())
    one_of_them = decode(encoded(picture, transparency=bytes([0] + [255] * 255)))
    assert one_of_them[1] == ("transparent: put on white",)


def test_inks_become_rgb() -> None:
    found, odd = decode(encoded(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG"))
    assert np.abs(found.astype(int) - (255, 0, 0)).max() <= 8 and odd == ()


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF"])
def test_of_several_pictures_in_one_the_first_is_taken(kind: str) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "lime", "blue")]
    found, odd = decode(encoded(frames[0], kind, save_all=True, append_images=frames[1:]))
    assert np.abs(found.astype(int) - (255, 0, 0)).max() <= 8
    assert odd == ("several pictures in one: the first is taken",)


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "JPEG"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_is_turned_as_the_camera_was_held(kind: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    corner = np.zeros((16, 32, 3), np.uint8)
    corner[:8, :8] = 255
    found, _ = decode(encoded(corner, kind, exif=exif))
    assert found.shape == ((16, 32, 3) if orientation < 5 else (32, 16, 3))
    top, left = orientation in (1, 2, 5, 6), orientation in (1, 4, 5, 8)
    assert found[3 if top else -4, 3 if left else -4].min() > 200
    assert (found > 128).all(axis=2).mean() == pytest.approx(1 / 8, abs=0.02)


def test_damaged_notes_of_the_camera_cost_nothing() -> None:
    content = encoded(pixels(), "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
    assert np.array_equal(decode(content)[0], decode(SMALL["JPEG"])[0])


def test_a_large_jpeg_may_come_smaller_but_not_too_small() -> None:
    content = encoded(np.full((480, 640, 3), 77, np.uint8), "JPEG")
    assert decode(content)[0].shape == (480, 640, 3)
    for at_least in (1, 60, 100, 224, 479, 480, 481):
        found, _ = decode(content, at_least)
        assert min(found.shape[:2]) >= min(at_least, 480)
        assert np.abs(found.astype(int) - 77).max() <= 2
    assert decode(content, 100)[0].shape == (120, 160, 3)
    assert decode(encoded(np.zeros((480, 640, 3), np.uint8)), 100)[0].shape == (480, 640, 3)


def test_a_suffix_that_says_something_else_is_remarked() -> None:
    assert decode(SMALL["PNG"], name="a/b.PNG")[1] == ()
    assert decode(SMALL["JPEG"], name="b.jpe")[1] == ()
    assert decode(SMALL["PNG"], name="17")[1] == ()
    assert decode(SMALL["PNG"], name="b.jpeg")[1] == (
        "its content is PNG, whatever its suffix says",
    )


@pytest.mark.parametrize("shape", [(8, 6), (8, 6, 1), (8, 6, 3), (8, 6, 4)])
def test_pixels_become_rgb_too(shape: tuple[int, ...]) -> None:
    given = np.full(shape, 255, np.uint8)
    given[..., 0] = 7
    found, odd = decode(given)
    assert found.shape == (8, 6, 3) and found.dtype == np.uint8 and odd == ()
    assert found[0, 0, 0] == 7


def test_transparent_pixels_are_put_on_white() -> None:
    assert (decode(see_through(0))[0] == 255).all()


@pytest.mark.parametrize(
    "given",
    [
        np.zeros((2, 2), np.float32),
        np.zeros((2, 2), np.int64),
        np.zeros(4, np.uint8),
        np.zeros((2, 2, 2), np.uint8),
        np.zeros((2, 0, 3), np.uint8),
        np.zeros((1, 2, 2, 3), np.uint8),
        np.broadcast_to(np.uint8(0), (20_000, 20_000, 3)),
    ],
)
def test_other_arrays_are_no_pictures(given: Any) -> None:
    with pytest.raises(BadPicture):
        decode(given)


# What becomes of bad ones


def test_an_empty_file_is_called_empty() -> None:
    with pytest.raises(BadPicture, match="empty"):
        decode(b"")


@pytest.mark.parametrize("content", [b"hello", bytes(1000), b"%!PS-Adobe-3.0\n", b"\xff\xd8\xff"])
def test_what_is_no_picture_is_refused(content: bytes) -> None:
    with pytest.raises(BadPicture):
        decode(content)


@pytest.mark.parametrize("kind", FORMATS)
def test_half_a_picture_is_refused(kind: str) -> None:
    whole = encoded(pixels(64, 64), kind)
    with pytest.raises(BadPicture):
        decode(whole[: len(whole) // 2])


def huge_png(width: int, height: int) -> bytes:
    """The head of one, and no pixels."""
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = b"\0\0\0\r" + head + struct.pack(">I", zlib.crc32(head))
    return b"\x89PNG\r\n\x1a\n" + chunk + b"\0\0\0\x04IDAT"


@pytest.mark.parametrize("width", [10_001, 20_000, 2**31 - 1])
def test_a_picture_too_large_is_refused_by_its_head(width: int) -> None:
    with pytest.raises(BadPicture, match="100 million pixels"):
        decode(huge_png(width, 10_000))


def test_a_picture_without_pixels_is_refused() -> None:
    with pytest.raises(BadPicture):
        decode(huge_png(0, 10))


@given(
    kind=st.sampled_from(FORMATS),
    changes=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=8),
    kept=st.floats(0, 1) | st.just(1.0),
    at_least=st.none() | st.integers(1, 16),
)
def test_whatever_bytes_come_there_are_pixels_or_a_bad_picture(
    kind: str, changes: list[tuple[float, int]], kept: float, at_least: int | None
) -> None:
    content = bytearray(SMALL[kind])
    for where, byte in changes:
        content[int(where * (len(content) - 1))] = byte
    try:
        found, _ = decode(bytes(content[: round(kept * len(content))]), at_least)
    except BadPicture as bad:
        assert str(bad).isascii()
    else:
        assert found.dtype == np.uint8 and found.ndim == 3 and found.shape[2] == 3
        assert found.size > 0


@given(st.sampled_from([SMALL[kind][:16] for kind in FORMATS]), st.binary(max_size=200))
def test_whatever_follows_a_good_beginning(head: bytes, rest: bytes) -> None:
    with suppress(BadPicture):
        assert decode(head + rest)[0].shape[2] == 3


# What is left alone


def test_what_pillow_warns_of_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 40)
    with pytest.raises(Image.DecompressionBombWarning):
        Image.open(io.BytesIO(SMALL["PNG"]))
    before = list(warnings.filters)
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(decode, [SMALL["PNG"]] * 200))
    assert all(np.array_equal(each, pixels()) for each, _ in found)
    assert list(warnings.filters) == before


def test_settings_of_pillow_stay_as_they_are() -> None:
    before = (Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES)
    for content in (*SMALL.values(), b"", huge_png(20_000, 20_000)):
        with suppress(BadPicture):
            decode(content)
    assert before == (Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES)
