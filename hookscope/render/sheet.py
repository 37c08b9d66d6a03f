"""A picture fit for a paper: the original and one overlay a class, on one colour scale."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from hookscope.render.arrays import as_array, finite_limits
from hookscope.render.heading import number
from hookscope.render.overlay import overlay
from hookscope.render.palette import lut
from hookscope.render.placement import Box, fit_within
from hookscope.render.text import font, line_height, wrap

# The longer side of a picture on the sheet, and pictures in a row: of up to eight, and of more.
_PANEL, _COLUMNS = (480, 320), (4, 6)
_MARGIN, _GAP = 20, 14
_TITLE, _NAME, _DETAIL = 18, 17, 15
_BAR, _BAR_ROOM = 18, 104
_PAPER, _INK, _GREY = (255, 255, 255), (24, 24, 32), (96, 96, 104)


@dataclass(frozen=True)
class Panel:
    """One class on a sheet: its h x w map, its name, its probability where there is one.

    ``note``: why the map shows nothing, as for ``overlay``.
    """

    heatmap: Any
    name: str
    probability: float | None = None
    note: str | None = None

    @property
    def detail(self) -> str:
        """The second line of the caption."""
        if self.probability is None:
            return ""
        small = self.probability < 0.0005
        return "probability < 0.001" if small else f"probability {self.probability:.3f}"


def shared_limits(panels: Iterable[Panel]) -> tuple[float, float]:
    """The one range of all maps that show something; (0, 1) where none does."""
    ranges = [finite_limits(as_array(panel.heatmap)) for panel in panels if panel.note is None]
    found = [limits for limits in ranges if limits is not None]
    if not found:
        return 0.0, 1.0
    return min(low for low, _ in found), max(high for _, high in found)


def sheet(
    picture: Image.Image,
    box: Box,
    panels: Sequence[Panel],
    *,
    title: str | None = None,
    alpha: float = 0.6,
    cmap: str = "turbo",
    limits: tuple[float, float] | None = None,
    dim: float = 0.5,
) -> Image.Image:
    """The original, then the overlay of every panel with its caption, and a colour bar, as RGB.

    ``limits``: the values of the lowest and the highest colour, by default ``shared_limits``.
    ``picture``, ``box`` and the other parameters as for ``overlay``. Pictures are shrunk to 480
    pixels (320 where there are more than eight), small ones enlarged by a whole factor.
    """
    low, high = limits or shared_limits(panels)
    many = len(panels) >= 8
    small, small_box = _to_side(picture.convert("RGB"), box, _PANEL[many])
    drawn = [small] + [
        overlay(
            small,
            panel.heatmap,
            small_box,
            alpha=alpha,
            cmap=cmap,
            limits=(low, high),
            dim=dim,
            note=panel.note,
        )
        for panel in panels
    ]
    width, height = max(small.width, 160), small.height
    captions = [_caption("original", "", width)]
    captions += [_caption(panel.name, panel.detail, width) for panel in panels]

    rows = math.ceil(len(drawn) / _COLUMNS[many])
    cols = math.ceil(len(drawn) / rows)
    caption_height = max(caption.height for caption in captions)
    step_across, step_down = width + _GAP, height + caption_height + _GAP
    full_width = 2 * _MARGIN + cols * step_across + _BAR_ROOM
    heading = _lines(title, _TITLE, full_width - 2 * _MARGIN) if title else []
    top = _MARGIN + (line_height(_TITLE) * len(heading) + 10 if heading else 0)

    page = Image.new("RGB", (full_width, top + rows * step_down - _GAP + _MARGIN), _PAPER)
    pen = ImageDraw.Draw(page)
    for row, line in enumerate(heading):
        place = _MARGIN, _MARGIN + row * line_height(_TITLE)
        pen.text(place, line, fill=_INK, font=font(_TITLE))
    for index, (image, caption) in enumerate(zip(drawn, captions, strict=True)):
        row, col = divmod(index, cols)
        left, upper = _MARGIN + col * step_across, top + row * step_down
        page.paste(image, (left, upper))
        page.paste(caption, (left, upper + height))
    if any(panel.note is None for panel in panels):
        _draw_bar(page, (_MARGIN + cols * step_across + 6, top, height), cmap, (low, high))
    return page


def _to_side(picture: Image.Image, box: Box, side: int) -> tuple[Image.Image, Box]:
    factor = side // max(picture.size)
    if factor > 1:
        size = picture.width * factor, picture.height * factor
        left, top, right, bottom = (edge * factor for edge in box)
        return picture.resize(size, Image.Resampling.NEAREST), (left, top, right, bottom)
    return fit_within(picture, box, side)


def _caption(name: str, detail: str, width: int) -> Image.Image:
    lines = [(line, _NAME, True, _INK) for line in _lines(name, _NAME, width, bold=True)]
    if detail:
        lines.append((detail, _DETAIL, False, _GREY))
    height = 6 + sum(line_height(size) for _, size, _, _ in lines)
    caption = Image.new("RGB", (width, height), _PAPER)
    pen, top = ImageDraw.Draw(caption), 6
    for text, size, bold, colour in lines:
        pen.text((0, top), text, fill=colour, font=font(size, bold))
        top += line_height(size)
    return caption


def _lines(text: str, size: int, width: int, bold: bool = False) -> list[str]:
    return wrap(text, font(size, bold), width, lines=2)


def _draw_bar(
    page: Image.Image, place: tuple[int, int, int], cmap: str, limits: tuple[float, float]
) -> None:
    """The colour bar: ``place`` is its left, its top and its height."""
    left, top, height = place
    colours = lut(cmap, height)[::-1]
    bar = np.repeat(colours[:, None], _BAR, axis=1)
    page.paste(Image.fromarray(bar), (left, top))
    pen = ImageDraw.Draw(page)
    low, high = limits
    face = font(_DETAIL)
    for share in (0.0, 0.5, 1.0):
        level = top + round((height - 1) * (1 - share))
        pen.line((left + _BAR, level, left + _BAR + 4, level), fill=_INK)
        anchor = "ls" if share == 0 else "lt" if share == 1 else "lm"
        label = number(low + share * (high - low))
        pen.text((left + _BAR + 8, level), label, fill=_INK, font=face, anchor=anchor)
