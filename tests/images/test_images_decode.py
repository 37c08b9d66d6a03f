"""Promises about pictures as they are met in the wild."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import threading
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile, ImageOps

from hookscope.errors import PictureError
from hookscope.images import decode
from hookscope.images.decode import Picture, open_picture, read_picture

SIZE = (40, 24)  # width, height


# The program silences Pillow's warnings when it imports the module; pytest makes them errors again.
pillow_may_warn = pytest.mark.filterwarnings(r"ignore:::PIL\..*")


def photograph(size: tuple[int, int] = SIZE) -> Image.Image:
    """Smooth, so that lossy formats keep it, and different in every corner and channel."""
    x, y = np.meshgrid(np.linspace(0, 1, size[0]), np.linspace(0, 1, size[1]))
    return Image.fromarray(np.uint8(np.stack([200 * x, 200 * y, 255 - 100 * x - 100 * y], -1)))


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    Image.init()
    if kind not in Image.SAVE:
        pytest.skip(f"this Pillow cannot write {kind}")
    buffer = BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


@pytest.fixture
def opened(tmp_path: Path):
    def open_bytes(data: bytes, name: str = "picture", **options: object) -> Picture:
        path = tmp_path / name
        path.write_bytes(data)
        return open_picture(path, **options)

    return open_bytes


def error_of(opened, data: bytes, name: str = "picture.jpg") -> PictureError:
    with pytest.raises(PictureError) as caught:
        opened(data, name)
    assert name not in caught.value.message, "the caller names the file"
    return caught.value


def far(image: Image.Image, other: Image.Image) -> int:
    assert image.size == other.size
    return int(np.abs(np.asarray(image, np.int16) - np.asarray(other, np.int16)).max())


def test_a_picture_comes_as_pillow_decodes_it_with_the_hash_of_its_file(opened):
    data = saved(photograph(), "JPEG")
    picture = opened(data)
    assert picture.sha256 == hashlib.sha256(data).hexdigest()
    assert picture.note is None
    assert far(picture.image, Image.open(BytesIO(data))) == 0


def test_a_large_jpeg_is_decoded_in_full(opened):
    assert opened(saved(photograph((1200, 800)), "JPEG")).image.size == (1200, 800)


def test_the_file_is_read_once(tmp_path):
    read, write = os.pipe()
    data = saved(photograph(), "PNG")
    writer = threading.Thread(target=lambda: (os.write(write, data), os.close(write)))
    writer.start()
    assert open_picture(f"/dev/fd/{read}").sha256 == hashlib.sha256(data).hexdigest()
    writer.join()
    os.close(read)


def test_hashing_comes_without_decoding(tmp_path):
    path = tmp_path / "text.jpg"
    path.write_text("no picture")
    assert read_picture(path).sha256 == hashlib.sha256(b"no picture").hexdigest()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_is_turned_upright(opened, kind, orientation):
    upright = photograph()
    # How a camera held that way stores it: the transposition that undoes Pillow's own.
    lying = next(
        stored
        for stored in (upright.transpose(way) if way is not None else upright for way in ways())
        if far_or_none(turned(stored, orientation), upright) == 0
    )
    exif = Image.Exif()
    exif[0x0112] = orientation
    lossless = {"JPEG": {"quality": 95}, "WEBP": {"lossless": True}}.get(kind, {})
    picture = opened(saved(lying, kind, exif=exif, **lossless))
    assert far(picture.image, upright) <= (12 if kind == "JPEG" else 0)
    assert picture.note is None


def ways() -> list[Image.Transpose | None]:
    return [None, *Image.Transpose]


def turned(image: Image.Image, orientation: int) -> Image.Image:
    copy = image.copy()
    copy.getexif()[0x0112] = orientation
    return ImageOps.exif_transpose(copy)


def far_or_none(image: Image.Image, other: Image.Image) -> int | None:
    return far(image, other) if image.size == other.size else None


def test_the_orientation_that_a_phone_writes_is_a_quarter_turn_clockwise(opened):
    lying = photograph().transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    exif[0x0112] = 6
    assert opened(saved(lying, "PNG", exif=exif)).image.tobytes() == photograph().tobytes()


@pillow_may_warn
@pytest.mark.parametrize("exif", [b"garbage", b"II*\0\xff\xff\xff\xff", b""])
def test_broken_metadata_do_not_cost_the_picture(opened, exif):
    assert opened(saved(photograph(), "JPEG", exif=b"Exif\0\0" + exif)).image.size == SIZE


def test_cmyk(opened):
    picture = opened(saved(photograph().convert("CMYK"), "JPEG", quality=95))
    assert picture.image.mode == "RGB"
    assert far(picture.image, photograph()) <= 12


def test_sixteen_bit_grey_is_scaled(opened):
    levels = np.linspace(0, 65535, 40 * 24).reshape(24, 40).round().astype(np.uint16)
    image = Image.fromarray(levels)
    by_hand = b"P5 40 24 65535\n" + levels.astype(">u2").tobytes()
    for data in (saved(image, "PNG"), saved(image, "TIFF"), by_hand):
        picture = opened(data)
        assert picture.image.mode == "L"
        assert np.array_equal(np.asarray(picture.image), np.rint(levels / 257)), data[:4]
        assert picture.note is None


def test_big_endian_sixteen_bit_tiff(opened):
    levels = np.linspace(0, 65535, 40 * 24).reshape(24, 40).round().astype(">u2")
    image = Image.frombytes("I;16B", SIZE, levels.tobytes())
    assert np.array_equal(np.asarray(opened(saved(image, "TIFF")).image), np.rint(levels / 257))


@pytest.mark.parametrize(
    ("low", "high", "note"),
    [(0.0, 1.0, None), (0.25, 0.5, None), (-3.0, 5.0, "-3 to 5"), (0.0, 4095.0, "0 to 4095")],
)
def test_float_tiff_is_scaled(opened, low, high, note):
    values = np.linspace(low, high, 40 * 24, dtype=np.float32).reshape(24, 40)
    picture = opened(saved(Image.fromarray(values), "TIFF"))
    scale = (0.0, 1.0) if note is None else (low, high)
    expected = np.rint(255 * (values - scale[0]) / (scale[1] - scale[0]))
    assert np.abs(np.asarray(picture.image) - expected).max() <= 1e-3
    assert (note is None) == (picture.note is None)
    assert (note or "") in (picture.note or "")


def test_nan_in_a_float_tiff_is_black_and_said(opened):
    values = np.full((24, 40), 2.0, np.float32)
    values[0] = np.nan
    values[1] = np.inf
    values[2] = 1.0
    picture = opened(saved(Image.fromarray(values), "TIFF"))
    assert np.asarray(picture.image)[:4, 0].tolist() == [0, 0, 0, 255]
    assert "NaN" in picture.note
    all_nan = saved(Image.fromarray(np.full((24, 40), np.nan, np.float32)), "TIFF")
    assert "NaN" in error_of(opened, all_nan).message


def test_a_flat_float_picture_and_thirty_two_bit_integers(opened):
    flat = saved(Image.fromarray(np.full((24, 40), 7.5, np.float32)), "TIFF")
    assert opened(flat).image.getextrema() == (0, 0)
    wide = np.arange(960, dtype=np.int32).reshape(24, 40) * 1_000_000 - 5
    assert opened(saved(Image.fromarray(wide), "TIFF")).image.getextrema() == (0, 255)


@pytest.mark.parametrize("background", [(255, 255, 255), (0, 128, 0)])
@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "palette alpha", "RGB key"])
def test_transparency_is_laid_over_the_background(opened, mode, background):
    image = Image.new("RGBA", SIZE, (10, 10, 10, 255))
    image.paste((200, 200, 200, 0), (0, 0, 20, 24))
    options = {}
    if mode == "LA":
        image = image.convert("LA")
    elif mode == "P":
        image = image.convert("RGB").quantize(4)
        options["transparency"] = image.getpixel((0, 0))
    elif mode == "palette alpha":
        image = image.quantize(4)
    elif mode == "RGB key":
        image = image.convert("RGB")
        options["transparency"] = (200, 200, 200)
    picture = opened(saved(image, "PNG", **options), background=background)
    assert picture.image.mode == "RGB"
    assert picture.image.getpixel((2, 2)) == background
    assert picture.image.getpixel((30, 2)) == (10, 10, 10)
    assert "transparent" in picture.note


def test_half_transparency_mixes_and_opaque_alpha_is_no_news(opened):
    half = opened(saved(Image.new("RGBA", SIZE, (0, 0, 0, 128)), "PNG"))
    assert far(half.image, Image.new("RGB", SIZE, (127, 127, 127))) <= 1
    opaque = opened(saved(photograph().convert("RGBA"), "PNG"))
    assert (far(opaque.image, photograph()), opaque.note) == (0, None)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_of_an_animation_the_first_frame_is_taken_and_said(opened, kind):
    frames = [Image.new("RGB", SIZE, colour) for colour in ("red", "lime", "blue")]
    options = {"lossless": True} if kind == "WEBP" else {}
    data = saved(frames[0], kind, save_all=True, append_images=frames[1:], **options)
    picture = opened(data)
    assert picture.image.getpixel((5, 5)) == (255, 0, 0)
    assert "animation" in picture.note
    assert opened(saved(frames[1], kind, **options)).note is None


def test_of_several_pages_the_first_is_taken_and_said(opened):
    pages = [photograph(), Image.new("RGB", SIZE)]
    picture = opened(saved(pages[0], "TIFF", save_all=True, append_images=pages[1:]))
    assert far(picture.image, photograph()) == 0
    assert "pages" in picture.note


def test_one_bit(opened):
    image = Image.new("1", SIZE)
    image.paste(1, (0, 0, 20, 24))
    for kind in ("PNG", "TIFF", "PPM"):
        picture = opened(saved(image, kind))
        assert picture.image.mode == "L"
        assert [picture.image.getpixel((x, 2)) for x in (2, 30)] == [255, 0]


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP", "PPM", "JPEG2000"])
@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.9])
def test_a_truncated_file_is_an_error_not_half_a_picture(opened, kind, share, monkeypatch):
    # Training scripts set this, and a user's network may be one.
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    noise = np.random.default_rng(0).integers(0, 255, (60, 80, 3), np.uint8)
    data = saved(Image.fromarray(noise), kind)
    error = error_of(opened, data[: int(len(data) * share)])
    assert "cut short" in error.message or "damaged" in error.message
    assert "again" in error.hint


def test_a_jpeg_whose_end_was_never_written_is_an_error(opened):
    data = saved(photograph((800, 600)), "JPEG")
    assert "cut short" in error_of(opened, data[: len(data) // 2] + bytes(len(data) // 2)).message


@pillow_may_warn
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP", "AVIF"])
def test_broken_bytes_are_a_picture_or_a_picture_error(opened, kind):
    sound = saved(photograph(), kind)
    chance = np.random.default_rng(1)
    for _ in range(40):
        broken = bytearray(sound)
        for position in chance.integers(0, len(broken), 3):
            broken[position] = chance.integers(256)
        with contextlib.suppress(PictureError):
            assert opened(bytes(broken)).image.mode in ("L", "RGB")


def test_a_png_named_jpg_is_fine(opened):
    assert far(opened(saved(photograph(), "PNG"), "cat.jpg").image, photograph()) == 0


@pytest.mark.parametrize(
    ("data", "what", "hint"),
    [
        (b"", "empty", "again"),
        (b"just some notes\n", "text", ""),
        ("eine Zeile mit ä\n".encode(), "text", ""),
        (b"  <!DOCTYPE html><html>404</html>", "web page", "download"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "LFS", "git lfs pull"),
        (b"<?xml version='1.0'?><svg width='1'/>", "SVG", "PNG"),
        (b"%PDF-1.7\n%\xe2\xe3", "PDF", "pdftoppm"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "PostScript", "PNG"),
        (b"\0\0\0\x20ftypisom\0\0\2\0isomiso2avc1mp41" + bytes(50), "video", "ffmpeg"),
        (b"\x93NUMPY\1\0v\0{'descr'", "NumPy", ""),
        (b"PK\x03\x04" + bytes(30), "ZIP", "folder"),
        (bytes(2000), "zero bytes", "again"),
        (bytes(range(256)) * 4, "no kind of picture", ""),
        (b"\xff\xd8\xff", "damaged JPEG", "again"),
    ],
)
def test_what_is_no_picture_is_called_what_it_is(opened, data, what, hint):
    error = error_of(opened, data, "named.jpg")
    assert what in error.message
    assert hint in error.hint


HEIC = b"\0\0\0\x1cftypheic\0\0\0\0mif1heicmiaf" + bytes(60)


def test_heic_without_a_decoder_says_what_to_install(opened, monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    monkeypatch.delitem(Image.OPEN, "HEIF", raising=False)
    decode._register_heic.cache_clear()
    error = error_of(opened, HEIC, "IMG_0001.HEIC")
    assert "HEIC" in error.message
    assert "pip install pillow-heif" in error.hint


def test_heic_with_a_decoder_is_a_picture(opened, monkeypatch):
    class Plugin:
        @staticmethod
        def register_heif_opener():
            Image.OPEN["HEIF"] = (lambda file, name: photograph(), lambda start: b"heic" in start)

    monkeypatch.setitem(sys.modules, "pillow_heif", Plugin)
    monkeypatch.setitem(Image.OPEN, "HEIF", None)
    decode._register_heic.cache_clear()
    assert far(opened(HEIC, "IMG_0001.HEIC").image, photograph()) == 0
    decode._register_heic.cache_clear()


def test_a_decompression_bomb_is_an_error_for_that_file(opened, monkeypatch):
    data = saved(photograph(), "PNG")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", SIZE[0] * SIZE[1] // 2 - 1)
    assert "bomb" in error_of(opened, data).message
    monkeypatch.undo()
    assert opened(data).image.size == SIZE


def test_a_picture_near_pillows_limit_is_taken_without_a_word(tmp_path):
    path = tmp_path / "large.png"
    photograph().save(path)
    code = (
        "import sys; from PIL import Image; from hookscope.images.decode import open_picture;"
        f"Image.MAX_IMAGE_PIXELS = {SIZE[0] * SIZE[1] - 1}; open_picture(sys.argv[1])"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_memory_that_runs_out_is_that_files_error(opened, monkeypatch):
    def run_out(self):
        raise MemoryError

    data = saved(photograph(), "BMP")
    monkeypatch.setattr(ImageFile.ImageFile, "load", run_out)
    assert "memory" in error_of(opened, data).message


@pytest.mark.parametrize("name", ["a b.png", "two\nlines.png", "ä日本.png", "-n.png"])
def test_names_of_every_kind(opened, name):
    assert opened(saved(photograph(), "PNG"), name).image.size == SIZE


def test_what_cannot_be_read_says_why(tmp_path):
    (tmp_path / "link.jpg").symlink_to("gone.jpg")
    (tmp_path / "loop.jpg").symlink_to("loop.jpg")
    for path, message in [
        (tmp_path / "none.jpg", "no such file"),
        (tmp_path, "a folder"),
        (tmp_path / "link.jpg", "a link to gone.jpg"),
        (tmp_path / "loop.jpg", "cannot be read"),
        (Path("/dev/zero"), "a device"),
    ]:
        with pytest.raises(PictureError, match=message):
            open_picture(path)


def test_a_file_that_may_not_be_read_says_so(tmp_path, monkeypatch):
    path = tmp_path / "locked.png"
    photograph().save(path)
    path.chmod(0)
    if os.geteuid() == 0:  # root reads everything: be nobody for a moment
        os.seteuid(65534)
    try:
        with pytest.raises(PictureError, match="not allowed"):
            open_picture(path)
    finally:
        os.seteuid(os.getuid())


@pytest.mark.parametrize("kind", ["TGA", "QOI", "ICO", "PCX", "SGI", "AVIF", "MPO"])
def test_rarer_formats(opened, kind):
    image = photograph((32, 32))
    picture = opened(saved(image, kind), f"x.{kind.lower()}")
    assert far(picture.image, image) <= 12
    assert picture.note is None
