"""A picture fit for a paper: the original and one overlay a class, on one colour scale."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from hookscope.render.heading import number
from hookscope.render.palette import lut
from hookscope.render.panel import Panel, Scale, places, shared_limits
from hookscope.render.placement import Box, fit_within
from hookscope.render.text import font, line_height, wrap

# The longer side of a picture on the sheet, and pictures in a row: of up to eight, and of more.
_PANEL, _COLUMNS = (480, 320), (4, 6)
_MARGIN, _GAP = 20, 14
_TITLE, _NAME, _DETAIL = 18, 17, 15
_BAR, _BAR_ROOM, _OWN_BAR = 18, 118, 8
_PAPER, _INK, _GREY = (255, 255, 255), (24, 24, 32), (96, 96, 104)


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
    per_row: int | None = None,
) -> Image.Image:
    """The original, then the overlay of every panel with its caption, and a colour bar, as RGB.

    ``limits``: the values of the lowest and the highest colour, by default ``shared_limits``; a
    panel with a scale of its own has its own bar. ``per_row``: so many panels in each row, the
    original standing before the first; by default rows of equal length, the original in the flow.
    ``picture``, ``box`` and the other parameters as for ``overlay``. Pictures are shrunk to 480
    pixels (320 where there are more than eight), small ones enlarged by a whole factor.
    """
    scale = Scale(limits or shared_limits(panels), cmap)
    many = len(panels) >= 8
    small, small_box = _to_side(picture.convert("RGB"), box, _PANEL[many])
    width, height = max(small.width, 160), small.height
    blocks = [_below(small, _caption("original", (), None, width))]
    for panel in panels:
        image = panel.drawn(small, small_box, alpha, scale, dim)
        own = panel.scale if panel.note is None else None
        blocks.append(_below(image, _caption(panel.name, panel.details, own, width)))

    cells = places(len(panels), per_row, _COLUMNS[many])
    rows, cols = (1 + max(axis) for axis in zip(*cells, strict=True))
    step_across = width + _GAP
    step_down = max(block.height for block in blocks) + _GAP
    bar_room = _BAR_ROOM if any(panel.shares_scale for panel in panels) else 0
    full_width = 2 * _MARGIN + cols * step_across - _GAP + bar_room
    heading = _lines(title, _TITLE, full_width - 2 * _MARGIN) if title else []
    top = _MARGIN + (line_height(_TITLE) * len(heading) + 10 if heading else 0)

    page = Image.new("RGB", (full_width, top + rows * step_down - _GAP + _MARGIN), _PAPER)
    pen = ImageDraw.Draw(page)
    for row, line in enumerate(heading):
        place = _MARGIN, _MARGIN + row * line_height(_TITLE)
        pen.text(place, line, fill=_INK, font=font(_TITLE))
    for block, (row, col) in zip(blocks, cells, strict=True):
        page.paste(block, (_MARGIN + col * step_across, top + row * step_down))
    if bar_room:
        tall = max(height, 3 * line_height(_DETAIL))  # room for its three numbers
        _draw_bar(page, (_MARGIN + cols * step_across + 6, top, tall), scale)
    return page


def _to_side(picture: Image.Image, box: Box, side: int) -> tuple[Image.Image, Box]:
    factor = side // max(picture.size)
    if factor > 1:
        size = picture.width * factor, picture.height * factor
        left, top, right, bottom = (edge * factor for edge in box)
        return picture.resize(size, Image.Resampling.NEAREST), (left, top, right, bottom)
    return fit_within(picture, box, side)


def _below(image: Image.Image, caption: Image.Image) -> Image.Image:
    block = Image.new("RGB", (caption.width, image.height + caption.height), _PAPER)
    block.paste(image, (0, 0))
    block.paste(caption, (0, image.height))
    return block


def _caption(name: str, details: Sequence[str], own: Scale | None, width: int) -> Image.Image:
    """What stands below a picture: the bar of its ``own`` scale, its name, and the details."""
    lines = [(line, _NAME, True, _INK) for line in _lines(name, _NAME, width, bold=True)]
    for detail in details:
        lines += [(line, _DETAIL, False, _GREY) for line in _lines(detail, _DETAIL, width)]
    top = 6 + (_OWN_BAR + 2 + line_height(_DETAIL) if own else 0)
    height = top + sum(line_height(size) for _, size, _, _ in lines)
    caption = Image.new("RGB", (width, height), _PAPER)
    pen = ImageDraw.Draw(caption)
    if own:
        _draw_own_bar(caption, own)
    for text, size, bold, colour in lines:
        pen.text((0, top), text, fill=colour, font=font(size, bold))
        top += line_height(size)
    return caption


def _draw_own_bar(caption: Image.Image, own: Scale) -> None:
    """A bar across the caption, its lowest and its highest value written below it."""
    colours = np.repeat(lut(own.cmap, caption.width)[None], _OWN_BAR, axis=0)
    caption.paste(Image.fromarray(colours), (0, 6))
    pen, below = ImageDraw.Draw(caption), 6 + _OWN_BAR + 2
    face = font(_DETAIL)
    low, high = (number(value) for value in own.limits)
    if face.getlength(f"{low}  {high}") > caption.width:
        low, high = (number(value, digits=2) for value in own.limits)
    pen.text((0, below), low, fill=_GREY, font=face)
    pen.text((caption.width - 1, below), high, fill=_GREY, font=face, anchor="ra")


def _lines(text: str, size: int, width: int, bold: bool = False) -> list[str]:
    return wrap(text, font(size, bold), width, lines=2)


def _draw_bar(page: Image.Image, place: tuple[int, int, int], scale: Scale) -> None:
    """The colour bar: ``place`` is its left, its top and its height."""
    left, top, height = place
    colours = lut(scale.cmap, height)[::-1]
    bar = np.repeat(colours[:, None], _BAR, axis=1)
    page.paste(Image.fromarray(bar), (left, top))
    pen = ImageDraw.Draw(page)
    low, high = scale.limits
    face = font(_DETAIL)
    for share in (0.0, 0.5, 1.0):
        level = top + round((height - 1) * (1 - share))
        pen.line((left + _BAR, level, left + _BAR + 4, level), fill=_INK)
        anchor = "ls" if share == 0 else "lt" if share == 1 else "lm"
        label = number(low + share * (high - low))
        pen.text((left + _BAR + 8, level), label, fill=_INK, font=face, anchor=anchor)
