"""Bytes -> a picture in grey or RGB, upright and opaque, whatever kind of file holds it."""

from __future__ import annotations

import hashlib
import os
import stat
import warnings
from dataclasses import dataclass, field
from functools import cache
from io import BytesIO

from PIL import Image, ImageFile, UnidentifiedImageError

from hookscope.errors import PictureError
from hookscope.images.diagnosis import diagnose, is_heic
from hookscope.images.grey import WIDE_MODES, eight_bits

WHITE = (255, 255, 255)

# Those that Pillow loads at once; only where none fits are the other plugins worth importing.
_COMMON = ("JPEG", "PNG", "GIF", "BMP", "PPM")
# Not EPS, which runs Ghostscript, nor kinds that take any bytes for theirs.
_RARE = (
    "WEBP",
    "TIFF",
    "AVIF",
    "HEIF",
    "JPEG2000",
    "MPO",
    "DIB",
    "ICO",
    "QOI",
    "PCX",
    "SGI",
    "PSD",
)
_ANIMATED = frozenset({"GIF", "WEBP", "PNG", "AVIF"})
_ORIENTATION = 0x0112
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_MOST_BYTES = 1 << 31

# Large photographs and odd metadata are no news to the user. Said here for the whole process:
# pictures are decoded in several threads, where catch_warnings is not safe.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
warnings.filterwarnings("ignore", module=r"PIL\.")


@dataclass(frozen=True)
class Picture:
    """``image`` is in mode ``RGB`` or ``L``; ``sha256`` is that of the whole file, in hex digits.

    ``note`` says what was decided for a picture that had more to it than was taken.
    """

    image: Image.Image
    sha256: str
    note: str | None = None


@dataclass(frozen=True)
class PictureFile:
    """A file's bytes, read once for both the hash and the picture."""

    name: str
    data: bytes = field(repr=False)
    sha256: str

    def decode(self, background: tuple[int, int, int] = WHITE) -> Picture:
        """The picture, turned upright, its first frame, laid over ``background`` (RGB).

        Raises ``PictureError``.
        """
        try:
            image = _opened(self.data, self.name)
            notes = [_first_of_many(image)]
            # A user's network may have set this to True, and half a picture would pass for one.
            ImageFile.LOAD_TRUNCATED_IMAGES = False
            image.load()
            orientation = _orientation(image)
            image, note = _plain(image, background)
        except PictureError:
            raise
        except Image.DecompressionBombError as error:
            raise PictureError(
                "more pixels than Pillow takes, which guards against decompression bombs",
                f"Make the picture smaller if you trust it. ({error})",
            ) from error
        except MemoryError as error:
            raise PictureError("the picture does not fit into memory") from error
        # Plugins meet broken bytes with errors of many kinds; each is this file's fault alone.
        except Exception as error:
            raise _damaged(error) from error
        if orientation in _UPRIGHT:
            image = image.transpose(_UPRIGHT[orientation])
        return Picture(image, self.sha256, "; ".join(filter(None, [*notes, note])) or None)


def open_picture(
    path: str | os.PathLike[str], *, background: tuple[int, int, int] = WHITE
) -> Picture:
    """The picture in the file at ``path``. Raises ``PictureError``, without the path."""
    return read_picture(path).decode(background)


def read_picture(path: str | os.PathLike[str]) -> PictureFile:
    """The file's bytes and their hash, not yet decoded. Raises ``PictureError``."""
    try:
        with open(path, "rb") as file:
            _refuse(os.fstat(file.fileno()))
            data = file.read()
    except OSError as error:
        raise _unreadable(path, error) from error
    except MemoryError as error:
        raise PictureError("the file does not fit into memory") from error
    if not data:
        raise PictureError("the file is empty", "Copy or download it again.")
    return PictureFile(os.fspath(path), data, hashlib.sha256(data).hexdigest())


def _refuse(status: os.stat_result) -> None:
    if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
        raise PictureError("a device, not a picture")
    if status.st_size > _MOST_BYTES:
        raise PictureError("the file is larger than 2 GiB")


def _unreadable(path: str | os.PathLike[str], error: OSError) -> PictureError:
    if isinstance(error, IsADirectoryError) or os.path.isdir(path):
        return PictureError("a folder, not a picture")
    if isinstance(error, FileNotFoundError):
        if os.path.islink(path):
            return PictureError(f"a link to {os.readlink(path)}, which is not there")
        return PictureError("there is no such file")
    if isinstance(error, PermissionError):
        return PictureError("you are not allowed to read this file", "Change its permissions.")
    return PictureError(f"the file cannot be read: {error.strerror or error}")


def _opened(data: bytes, name: str) -> Image.Image:
    """The picture, identified by its content and not yet decoded."""
    try:
        return Image.open(BytesIO(data), formats=_COMMON)
    except UnidentifiedImageError:
        Image.init()
    if is_heic(data):
        _register_heic()
    rare = [kind for kind in _RARE if kind in Image.OPEN]
    # TGA has no mark to know it by, so that it takes other bytes for its own.
    if name.lower().endswith(".tga"):
        rare.append("TGA")
    try:
        return Image.open(BytesIO(data), formats=rare)
    except UnidentifiedImageError:
        raise diagnose(data) from None


@cache
def _register_heic() -> None:
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        return
    register_heif_opener()


def _first_of_many(image: Image.Image) -> str | None:
    if image.format in _ANIMATED and getattr(image, "is_animated", False):
        return "an animation, of which the first frame was taken"
    if image.format == "TIFF" and getattr(image, "n_frames", 1) > 1:
        return "several pages, of which the first was taken"
    return None


def _orientation(image: Image.Image) -> int | None:
    try:
        return image.getexif().get(_ORIENTATION)
    # Broken metadata around a sound picture: it is taken as it lies.
    except Exception:
        return None


def _plain(image: Image.Image, background: tuple[int, int, int]) -> tuple[Image.Image, str | None]:
    """The same in ``L`` or ``RGB``, and a note if something had to be decided."""
    if image.mode in WIDE_MODES:
        return eight_bits(image)
    if image.has_transparency_data:
        return _opaque(image, background)
    if image.mode in ("1", "L"):
        return image.convert("L"), None
    return image if image.mode == "RGB" else image.convert("RGB"), None


def _opaque(image: Image.Image, background: tuple[int, int, int]) -> tuple[Image.Image, str | None]:
    layer = image.convert("LA") if image.mode == "La" else image
    layer = layer.convert("RGBA")
    alpha = layer.getchannel("A")
    if alpha.getextrema() == (255, 255):
        return layer.convert("RGB"), None
    canvas = Image.new("RGB", layer.size, background)
    canvas.paste(layer, mask=alpha)
    over = "white" if background == WHITE else "the background"
    return canvas, f"transparent, laid over {over}"


def _damaged(error: Exception) -> PictureError:
    """Pillow knew the kind of file and could not decode it."""
    said = str(error) or type(error).__name__
    if "truncated" in said.lower() or isinstance(error, EOFError):
        return PictureError(f"the file is cut short ({said})", "Copy or download it again.")
    return PictureError(f"the picture is damaged ({said})", "Copy or download it again.")
