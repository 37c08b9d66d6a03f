"""Letters in pictures: the font, and text that fits the room it is given."""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

ELLIPSIS = "…"


@lru_cache(maxsize=64)
def font(size: int, bold: bool = False) -> Any:
    """DejaVu Sans at ``size`` pixels, from matplotlib's files but without importing matplotlib.

    It is crisp at ten pixels and has Latin, Greek, Cyrillic and Arabic letters; Pillow's own
    font stands in where the file is missing.
    """
    spec = importlib.util.find_spec("matplotlib")
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    for folder in spec.submodule_search_locations or () if spec else ():
        path = Path(folder, "mpl-data", "fonts", "ttf", name)
        if path.is_file():
            try:
                # Basic layout: the other engine may or may not be there, and spaces differently.
                return ImageFont.truetype(str(path), size, layout_engine=ImageFont.Layout.BASIC)
            except (OSError, ImportError):
                break
    return ImageFont.load_default(size)


def printable(text: str) -> str:
    """``text`` on one line: control characters and runs of white space become one space."""
    cleaned = "".join(letter if letter.isprintable() else " " for letter in text)
    return " ".join(cleaned.split())


def line_height(size: int) -> int:
    """Pixels from one line to the next."""
    return round(size * 1.3)


def elide(text: str, face: Any, width: float) -> str:
    """``text`` if it fits into ``width`` pixels, else its two ends around an ellipsis."""
    if face.getlength(text) <= width:
        return text
    fits, breaks = 0, len(text)
    while fits + 1 < breaks:
        kept = (fits + breaks) // 2
        if face.getlength(_ends(text, kept)) <= width:
            fits = kept
        else:
            breaks = kept
    return _ends(text, fits)


def _ends(text: str, kept: int) -> str:
    tail = kept // 2
    return text[: kept - tail] + ELLIPSIS + (text[-tail:] if tail else "")


def wrap(text: str, face: Any, width: float, lines: int) -> list[str]:
    """``text`` broken at spaces into at most ``lines`` lines, none wider than ``width`` pixels.

    What does not fit loses its middle, so that the beginning and the end stay readable.
    """
    broken = _break(printable(text), face, width)
    if len(broken) <= lines:
        return broken
    head = broken[: lines - 1]
    return [*head, elide(" ".join(broken[lines - 1 :]), face, width)]


def _break(text: str, face: Any, width: float) -> list[str]:
    lines: list[str] = []
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines else word
        if lines and face.getlength(joined) <= width:
            lines[-1] = joined
        else:
            lines.append(elide(word, face, width))
    return lines


def text_mask(lines: list[str], size: int, width: int, bold: bool = False) -> Image.Image:
    """The lines, left-aligned, as a picture of coverage (mode L, 0 where there is no ink)."""
    step = line_height(size)
    mask = Image.new("L", (width, max(1, step * len(lines))), 0)
    pen = ImageDraw.Draw(mask)
    for row, line in enumerate(lines):
        pen.text((0, row * step), line, fill=255, font=font(size, bold))
    return mask
