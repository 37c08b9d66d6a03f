"""A heatmap over the picture that the network was shown, at the picture's own size."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from PIL import Image

from hookscope.render.note import write_note
from hookscope.render.palette import lut
from hookscope.render.placement import Box, Field, Rectangle, seen_pixels

# Where the map is coldest a fifth of ``alpha`` still tints the picture; from ``_WARM`` of the
# range on the tint is whole. Between them it eases in, so that no edge appears that is not there.
_COLD, _WARM = 0.2, 0.6
# Under the tint the picture gives up half of its own colours: an orange space suit is not heat.
_GREYED, _GREYED_FROM = 0.5, 0.4
# Rows are blended in bands of about this many pixels, which stay in the processor's cache.
_BAND = 1 << 17

_MAP_LEVELS = 254
_UNSEEN_RGB = (214, 214, 219)


def overlay(
    picture: Image.Image,
    heatmap: Any,
    box: Box,
    *,
    alpha: float = 0.6,
    cmap: str = "turbo",
    limits: tuple[float, float] | None = None,
    diverging: bool = False,
    dim: float = 0.5,
    note: str | None = None,
) -> Image.Image:
    """``picture`` with the h x w ``heatmap`` over the part that the network saw, as RGB.

    ``box``: left, top, right, bottom in pixels of the picture, where the map's outer edges lie;
    it may exceed the picture. From cell centre to cell centre the map is interpolated linearly.
    ``alpha``: weight of the colour where the map is hottest; the colder, the more of the picture
    shows. ``limits``: values of the lowest and the highest colour, by default the map's own.
    ``diverging``: it is the middle of them that lets the picture show, and both ends that hide it.
    ``dim``: factor on what the network never saw, which else keeps its own colours. ``note``:
    why there is no heat to see; it is written into the picture, and no heat is drawn.
    """
    canvas = picture.convert("RGB") if picture.mode != "RGB" else picture.copy()
    seen = seen_pixels(box, canvas.size)
    for outside in _around(seen, canvas.size):
        _darken(canvas, outside, dim)
    if note is not None:
        write_note(canvas, f"no heatmap: {note}")
        return canvas
    field = Field(heatmap, box, limits)
    for band in _bands(seen):
        _tint(canvas, band, field.over(band), _tints(cmap, alpha, diverging), alpha)
    return canvas


def heatmap_view(
    heatmap: Any,
    size: tuple[int, int],
    box: Box,
    *,
    cmap: str = "turbo",
    limits: tuple[float, float] | None = None,
    note: str | None = None,
) -> Image.Image:
    """The map alone, as a palette picture of ``size`` (width, height): the overlay's geometry.

    What the network never saw is light grey. Other parameters as for ``overlay``; with a
    ``note`` the picture is RGB.
    """
    canvas = Image.new("L", size, _MAP_LEVELS)
    seen = seen_pixels(box, size)
    if note is None and not seen.empty:
        canvas.paste(Field(heatmap, box, limits, _MAP_LEVELS).over(seen), (seen.left, seen.top))
    canvas.putpalette(lut(cmap, _MAP_LEVELS).tobytes() + bytes(_UNSEEN_RGB * 2))
    if note is None:
        return canvas
    drawn = canvas.convert("RGB")
    write_note(drawn, f"no heatmap: {note}")
    return drawn


def _tint(
    canvas: Image.Image, pixels: Rectangle, levels: Image.Image, tints: bytes, alpha: float
) -> None:
    """Blend the colours of ``levels`` into ``canvas``, in place."""
    corners = pixels.left, pixels.top, pixels.right, pixels.bottom
    part = canvas.crop(corners)
    greyed = _GREYED * min(1.0, alpha / _GREYED_FROM)
    part = Image.blend(part, part.convert("L").convert("RGB"), greyed)
    levels.putpalette(tints, "RGBA")
    # Premultiplied, the paste is five times faster.
    tint = levels.convert("RGBA").convert("RGBa")
    part.paste(tint, (0, 0), tint)
    canvas.paste(part, corners[:2])


@lru_cache(maxsize=32)
def _tints(cmap: str, alpha: float, diverging: bool) -> bytes:
    """Red, green, blue and weight of each of the 256 levels."""
    share = np.linspace(0.0, 1.0, 256)
    warmth = ((abs(2 * share - 1) if diverging else share) / _WARM).clip(0.0, 1.0)
    eased = warmth**2 * (3 - 2 * warmth)
    weight = np.rint(255 * alpha * (_COLD + (1 - _COLD) * eased)).clip(0, 255)
    return np.column_stack([lut(cmap, 256), weight]).astype(np.uint8).tobytes()


def _darken(canvas: Image.Image, pixels: Rectangle, factor: float) -> None:
    size = pixels.right - pixels.left, pixels.bottom - pixels.top
    shade = Image.new("RGBa", size, (0, 0, 0, round(255 * (1 - factor))))
    canvas.paste(shade, (pixels.left, pixels.top), shade)


def _around(seen: Rectangle, size: tuple[int, int]) -> list[Rectangle]:
    """What of a picture lies outside ``seen``, as up to four rectangles."""
    width, height = size
    if seen.empty:
        return [Rectangle(0, 0, width, height)]
    sides = [
        Rectangle(0, 0, width, seen.top),
        Rectangle(0, seen.bottom, width, height),
        Rectangle(0, seen.top, seen.left, seen.bottom),
        Rectangle(seen.right, seen.top, width, seen.bottom),
    ]
    return [side for side in sides if not side.empty]


def _bands(area: Rectangle) -> list[Rectangle]:
    if area.empty:
        return []
    step = max(1, _BAND // (area.right - area.left))
    return [
        Rectangle(area.left, top, area.right, min(top + step, area.bottom))
        for top in range(area.top, area.bottom, step)
    ]
