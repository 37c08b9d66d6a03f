"""Pictures to files, with a few words of text inside."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from hookscope.render.png import can_write, write_png

Target = str | Path | BinaryIO


def save_png(image: Image.Image, target: Target, text: Mapping[str, str] | None = None) -> None:
    """Write ``image`` as PNG, each item of ``text`` in a text chunk of that keyword."""
    text = text or {}
    if not can_write(image):
        info = PngInfo()
        for keyword, value in text.items():
            info.add_text(keyword, value)
        image.save(target, format="PNG", compress_level=1, compress_type=3, pnginfo=info)
    elif isinstance(target, (str, Path)):
        with open(target, "wb") as file:
            write_png(image, file, text)
    else:
        write_png(image, target, text)


def save_picture(
    image: Image.Image,
    target: Target,
    format: Literal["png", "jpg", "webp"] = "png",
    text: Mapping[str, str] | None = None,
) -> None:
    """Write ``image`` as PNG (lossless), JPEG or WebP (quality 92).

    JPEG keeps the first value of ``text`` as its comment, as far as 64 kB hold it; WebP none.
    """
    if format == "png":
        save_png(image, target, text)
        return
    options: dict[str, Any] = {"quality": 92}
    comment = next(iter((text or {}).values()), "").encode()
    if format == "jpg" and 0 < len(comment) < 65_000:
        options["comment"] = comment
    if format == "webp":
        options["method"] = 2  # the default spends three times as long on one percent
    image.convert("RGB").save(target, format="JPEG" if format == "jpg" else "WEBP", **options)
