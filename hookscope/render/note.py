"""A few words written into a picture, when there is no heat to show."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from hookscope.render.text import elide, font, line_height, printable

_SMALLEST = 9  # pixels; below that letters cannot be read
_BANNER, _LETTERS, _STRIPES = (24, 24, 32), (255, 255, 255), (255, 0, 200)


def write_note(picture: Image.Image, text: str) -> None:
    """Write ``text`` across the lower edge of an RGB ``picture``, in place.

    A picture too small for letters is striped instead, so that it is not taken for a result.
    """
    text = printable(text)
    size = max(13, round(min(picture.size) / 22))
    while size >= _SMALLEST:
        lines = _lines(text, size, picture.width - size)
        height = line_height(size) * len(lines) + size // 2
        if lines and height <= picture.height:
            _banner(picture, lines, size, height)
            return
        size -= 1 if size <= 16 else size // 8
    _stripe(picture)


def empty_picture(shape: Sequence[int], title: str | None = None) -> Image.Image:
    """The picture of a tensor without elements, RGB: its shape as a note, under its title."""
    lines = [f"empty tensor {'x'.join(map(str, shape))}"]
    if title:
        lines.insert(0, elide(printable(title), font(13), 400))
    picture = Image.new("RGB", (440, 80), (255, 255, 255))
    write_note(picture, " \u00b7 ".join(lines))
    return picture


def _lines(text: str, size: int, width: int) -> list[str]:
    """``text`` broken at spaces; empty when a word alone is too wide."""
    face = font(size)
    lines: list[str] = []
    for word in text.split(" "):
        if face.getlength(word) > width:
            return []
        if lines and face.getlength(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _banner(picture: Image.Image, lines: list[str], size: int, height: int) -> None:
    pen = ImageDraw.Draw(picture)
    top = picture.height - height
    pen.rectangle((0, top, picture.width, picture.height), fill=_BANNER)
    for row, line in enumerate(lines):
        place = size // 2, top + size // 4 + row * line_height(size)
        pen.text(place, line, fill=_LETTERS, font=font(size))


def _stripe(picture: Image.Image) -> None:
    rows, columns = np.indices((picture.height, picture.width))
    stripes = ((rows + columns) % 4 == 0).astype(np.uint8) * 255
    picture.paste(_STRIPES, (0, 0, *picture.size), Image.fromarray(stripes))
