"""Decode one picture to uint8 RGB; any problem raises BadPicture.

The pixels depend on the bytes of the picture alone, not on other pictures or its name.
"""

import io
import os
import re
import warnings
from threading import Lock

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from dptune.errors import DptuneError
from dptune.pictures.pictures import Content

MOST_PIXELS = 100_000_000
Pixels = NDArray[np.uint8]  # (height, width, 3)

# Formats of photographs, drawings and scans that are recognised by their first bytes. Other formats
# of Pillow run programs (EPS) or accept any bytes as a picture (TGA).
_SUFFIXES = {
    "JPEG": {".jpg", ".jpeg", ".jpe", ".jfif"},
    "PNG": {".png", ".apng"},
    "GIF": {".gif"},
    "BMP": {".bmp", ".dib"},
    "WEBP": {".webp"},
    "PPM": {".ppm", ".pgm", ".pbm", ".pnm", ".pfm"},
    "TIFF": {".tif", ".tiff"},
    "AVIF": {".avif", ".avifs"},
    "JPEG2000": {".jp2", ".j2k", ".jpx", ".jpf", ".jpc"},
}
_FORMATS = tuple(_SUFFIXES)
_SUFFIXES["MPO"] = _SUFFIXES["JPEG"] | {".mpo"}  # Pillow's name for a JPEG with a second one in it
_ORIENTATION = 0x0112  # the EXIF tag
_EXIF_IN = {"exif", "Raw profile type exif", "XML:com.adobe.xmp", "xmp"}  # keys of `info`
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class BadPicture(DptuneError):
    """A picture that cannot be decoded; the message says why."""


def decode(
    content: Content, at_least: int | None = None, name: str = ""
) -> tuple[Pixels, tuple[str, ...]]:
    """Return the pixels (height, width, 3) and remarks on the picture.

    With `at_least`, a JPEG may be decoded smaller by a power of two, with both sides at least this
    long: much faster if it is resized later anyway. `name` is used only for a remark on a suffix of
    another format.
    """
    if isinstance(content, np.ndarray):
        return _from_array(content), ()
    with _QUIET:
        try:
            return _from_file(content, at_least, name)
        except (BadPicture, MemoryError):  # with more memory the picture might be readable
            raise
        except UnidentifiedImageError:
            what = "no picture in a known format" if content else "empty"
            raise BadPicture(what) from None
        except Image.DecompressionBombError:
            raise _too_large() from None
        except Exception as error:  # decoders fail in any way on arbitrary bytes
            raise BadPicture(f"damaged: {_reason(error)}") from None


def _from_array(pixels: NDArray[np.uint8]) -> Pixels:
    if pixels.dtype != np.uint8:
        raise BadPicture(f"pixels must be of type uint8; found {pixels.dtype}")
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    if pixels.ndim != 3 or pixels.shape[2] not in (1, 3, 4):
        raise BadPicture(
            "pixels must have the shape (height, width) or (height, width, channels), with 1, 3 "
            f"or 4 channels; found {pixels.shape}"
        )
    height, width, channels = pixels.shape
    _check_size(width, height)
    if channels == 1:
        return np.repeat(pixels, 3, axis=2)
    return _on_white(Image.fromarray(pixels))[0] if channels == 4 else pixels


def _from_file(content: bytes, at_least: int | None, name: str) -> tuple[Pixels, tuple[str, ...]]:
    remarks = []
    with Image.open(io.BytesIO(content), formats=_FORMATS) as image:
        _check_size(*image.size)
        kind = image.format or ""
        suffix = os.path.splitext(name)[1].lower()
        if suffix and suffix not in _SUFFIXES.get(kind, ()):
            remarks.append(f"its content is {kind}, whatever its suffix says")
        if kind != "MPO" and getattr(image, "is_animated", False):
            remarks.append("several pictures in one: the first is taken")
        if at_least is not None and min(image.size) >= 2 * at_least:
            image.draft(None, (at_least, at_least))
        image.load()
        turned = _UPRIGHT.get(_orientation(image))
        pixels, odd = _as_rgb(image if turned is None else image.transpose(turned))
    if odd:
        remarks.append(odd)
    return pixels, tuple(remarks)


def _as_rgb(image: Image.Image) -> tuple[Pixels, str]:
    if image.mode == "RGB" and "transparency" not in image.info:
        return np.asarray(image), ""
    if image.mode.startswith("I"):
        return _from_wide(image), "grey"
    if image.mode == "F":
        raise BadPicture("its values are fractions, and nothing says of what")
    if image.has_transparency_data:
        return _on_white(image.convert("RGBA"))
    return np.asarray(image.convert("RGB")), "grey" if image.mode in ("1", "L") else ""


def _on_white(image: Image.Image) -> tuple[Pixels, str]:
    opaque = image.getchannel("A").getextrema() == (255, 255)
    if not opaque:
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return np.asarray(image.convert("RGB")), "" if opaque else "transparent: put on white"


def _from_wide(image: Image.Image) -> Pixels:
    """Convert 16-bit grey values, which Pillow sometimes stores in 32 bits."""
    values = np.asarray(image)
    if values.min() < 0 or values.max() > 65_535:
        raise BadPicture("its values are beyond 16 bits, and nothing says how far they go")
    return np.repeat((values // 257).astype(np.uint8)[:, :, None], 3, axis=2)


def _orientation(image: Image.Image) -> int:
    """The orientation in the EXIF data; 1 (upright) if these are damaged."""
    if image.format in ("JPEG", "PNG") and not image.info.keys() & _EXIF_IN:
        return 1  # without reading EXIF, which is slow
    try:
        orientation = image.getexif().get(_ORIENTATION, 1)
    except MemoryError:
        raise
    except Exception:
        return 1
    return orientation if isinstance(orientation, int) else 1


def _check_size(width: int, height: int) -> None:
    if width < 1 or height < 1:
        raise BadPicture(f"it has no pixels: {width} x {height}")
    if width * height > MOST_PIXELS:
        raise _too_large()


def _too_large() -> BadPicture:
    return BadPicture(f"larger than {MOST_PIXELS // 1_000_000} million pixels")


def _reason(error: Exception) -> str:
    """The message of a decoder if it is plain text, else the type of the error."""
    words = str(error).split("\n")[0]
    return words if words.isascii() and words.isprintable() and words else type(error).__name__


class _Quiet:
    """Hides Pillow's warnings while a thread decodes; the relevant ones become remarks.

    `warnings.catch_warnings` does not work here: threads that leave it in another order than they
    entered would leave the filters changed.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._threads = 0
        self._filters: list[object] = []
        where = re.compile(r"PIL\b|dptune\.pictures\b")
        self._ignore = ("ignore", None, Warning, where, 0)

    def __enter__(self) -> None:
        with self._lock:
            self._threads += 1
            if self._threads == 1:
                self._filters = warnings.filters  # type: ignore[assignment]
                self._filters.insert(0, self._ignore)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._threads -= 1
            if self._threads == 0 and self._ignore in self._filters:  # others may reset them
                self._filters.remove(self._ignore)


_QUIET = _Quiet()
