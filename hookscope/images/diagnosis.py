"""What a file is that Pillow does not take for a picture, and what its owner can do."""

from __future__ import annotations

from hookscope.errors import PictureError

_LFS = b"version https://git-lfs.github.com/spec/"
_HEIC_BRANDS = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"})
_AVIF_BRANDS = frozenset({b"avif", b"avis"})

# How each kind begins, what it is, and the way to pictures.
_KINDS = (
    (_LFS, "a Git LFS pointer, not the picture itself", "Fetch the pictures with: git lfs pull"),
    (b"%PDF", "a PDF document", "Draw its pages first: pdftoppm -png FILE PAGES"),
    (b"%!PS", "a PostScript drawing", "Turn it into a PNG first."),
    (b"\xff\x0a", "a JPEG XL picture, which Pillow cannot read", "Turn it into a PNG first."),
    (b"\0\0\0\x0cJXL ", "a JPEG XL picture, which Pillow cannot read", "Turn it into a PNG first."),
    (b"\x93NUMPY", "a NumPy array", "Save it as a picture first."),
    (b"PK\x03\x04", "a ZIP archive", "Unpack it, then name the folder."),
    (b"\x1f\x8b", "a gzip archive", "Unpack it first."),
    (b"\x1aE\xdf\xa3", "a video", "Extract frames first: ffmpeg -i FILE FRAMES-%05d.png"),
    (b"\xff\xd8", "a damaged JPEG", "Copy or download it again."),
    (b"\x89PNG", "a damaged PNG", "Copy or download it again."),
    (b"GIF8", "a damaged GIF", "Copy or download it again."),
    (b"II*\0", "a damaged TIFF, or one of a kind that Pillow cannot read", "Save it as PNG."),
    (b"MM\0*", "a damaged TIFF, or one of a kind that Pillow cannot read", "Save it as PNG."),
)


def is_heic(data: bytes) -> bool:
    """Whether this begins as HEIC and HEIF pictures do, and not as AVIF."""
    return bool(_brands(data) & _HEIC_BRANDS) and not _brands(data) & _AVIF_BRANDS


def diagnose(data: bytes) -> PictureError:
    """The error for a file in which Pillow found no picture."""
    if is_heic(data):
        return PictureError(
            "a HEIC picture, and no decoder for it is installed",
            "Install one: pip install pillow-heif",
        )
    if _brands(data) & _AVIF_BRANDS:
        return PictureError(
            "an AVIF picture, which this Pillow cannot read",
            "Install a newer one: pip install --upgrade pillow",
        )
    if _brands(data):
        return PictureError("a video", "Extract frames first: ffmpeg -i FILE FRAMES-%05d.png")
    for start, what, hint in _KINDS:
        if data.startswith(start):
            return PictureError(what, hint)
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return PictureError("a damaged WebP", "Copy or download it again.")
    return PictureError(*_text(data[:4096]))


def _brands(data: bytes) -> set[bytes]:
    """The brands in the first box of an ISO media file: the picture and video kinds it claims."""
    if data[4:8] != b"ftyp":
        return set()
    end = min(int.from_bytes(data[:4], "big"), 256)
    return {data[8:12]} | {data[at : at + 4] for at in range(16, end - 3, 4)}


def _text(start: bytes) -> tuple[str, str]:
    folded = start.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if folded.startswith((b"<!doctype html", b"<html", b"<head")):
        return "a web page, not a picture", "Did a download go wrong?"
    if b"<svg" in folded:
        return "an SVG drawing", "Turn it into a PNG first."
    if not start.strip(b"\0"):
        return "nothing but zero bytes", "Copy or download it again."
    printable = sum(byte >= 32 or byte in b"\t\r\n\f" for byte in start)
    if b"\0" not in start and printable == len(start):
        return "text, not a picture", ""
    return "no kind of picture that Pillow knows", ""
