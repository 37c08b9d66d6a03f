"""The sheet as a vector figure: pictures as pixels, everything else as text and lines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import numpy as np
from PIL import Image

from hookscope.render.canvas import drawing, new_figure, save_vector
from hookscope.render.overlay import overlay
from hookscope.render.palette import lut
from hookscope.render.placement import Box, fit_within
from hookscope.render.sheet import Panel, shared_limits
from hookscope.render.text import font, wrap

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# In inches, on a page as wide as a paper's two columns.
_PANEL, _GAP, _BAR, _BAR_ROOM = 1.7, 0.1, 0.09, 0.6
_LINE = 0.125  # from one line of text to the next
_TITLE_POINTS, _NAME_POINTS, _DETAIL_POINTS = 8.0, 7.0, 6.5
_COLUMNS = 4
_MOST_PIXELS_A_SIDE = 1200


def write_figure(
    target: str | Path | BinaryIO,
    format: Literal["pdf", "svg"],
    picture: Image.Image,
    box: Box,
    panels: Sequence[Panel],
    *,
    title: str | None = None,
    alpha: float = 0.6,
    cmap: str = "turbo",
    limits: tuple[float, float] | None = None,
    dim: float = 0.5,
    text: Mapping[str, str] | None = None,
) -> None:
    """Write the original, the overlays and the colour bar of ``sheet`` as PDF or SVG.

    ``text``: its first value is kept in the document's description. Other parameters as for
    ``sheet``; pictures are shrunk to 1200 pixels a side.
    """
    low, high = limits or shared_limits(panels)
    small, small_box = fit_within(picture.convert("RGB"), box, _MOST_PIXELS_A_SIDE)
    options = {"alpha": alpha, "cmap": cmap, "limits": (low, high), "dim": dim}
    drawn = [("original", "", small)]
    for panel in panels:
        image = overlay(small, panel.heatmap, small_box, note=panel.note, **options)  # type: ignore[arg-type]
        drawn.append((panel.name, panel.detail, image))
    with drawing():
        shows_heat = any(panel.note is None for panel in panels)
        figure = _layout(drawn, title, cmap, (low, high) if shows_heat else None)
        save_vector(figure, target, format, text)


def _layout(
    drawn: list[tuple[str, str, Image.Image]],
    title: str | None,
    cmap: str,
    limits: tuple[float, float] | None,
) -> Figure:
    rows = math.ceil(len(drawn) / _COLUMNS)
    cols = math.ceil(len(drawn) / rows)
    first = drawn[0][2]
    scale = _PANEL / max(first.size)
    width, height = max(first.width * scale, 0.6), first.height * scale
    names = [_fitted(name, _NAME_POINTS, width, bold=True) for name, _, _ in drawn]
    most_lines = max(len(lines) for lines in names)
    step_down = height + _LINE * (most_lines + 1) + 2 * _GAP
    top = _GAP + (2 * _LINE if title else 0.0)
    page = cols * (width + _GAP) + _GAP + _BAR_ROOM, top + rows * step_down
    figure = new_figure(*page)

    def axes(left: float, upper: float, wide: float, high: float) -> Any:
        """In inches from the upper left corner."""
        place = (left / page[0], 1 - (upper + high) / page[1], wide / page[0], high / page[1])
        return figure.add_axes(place)

    def write(left: float, upper: float, words: str, **style: Any) -> None:
        at = left / page[0], 1 - upper / page[1]
        figure.text(*at, words, va="top", **style)

    if title:
        line = _fitted(title, _TITLE_POINTS, page[0] - 2 * _GAP, lines=1)
        write(_GAP, _GAP, line[0], fontsize=_TITLE_POINTS)
    for index, (_, detail, image) in enumerate(drawn):
        row, col = divmod(index, cols)
        left, upper = _GAP + col * (width + _GAP), top + row * step_down
        panel = axes(left, upper, image.width * scale, height)
        panel.imshow(np.asarray(image), interpolation="none", aspect="auto")
        panel.set_axis_off()
        below = upper + height + 0.04
        for line_of_name in names[index]:
            write(left, below, line_of_name, fontsize=_NAME_POINTS, fontweight="bold")
            below += _LINE
        write(left, below, detail, fontsize=_DETAIL_POINTS, color="0.35")
    if limits is not None:
        bar = axes(_GAP + cols * (width + _GAP), top, _BAR, height)
        low, high = limits if limits[1] > limits[0] else (limits[0], limits[0] + 1e-12)
        bar.imshow(lut(cmap, 256)[:, None], extent=(0, 1, low, high), origin="lower", aspect="auto")
        bar.set_xticks([])
        bar.yaxis.tick_right()
        bar.tick_params(labelsize=_DETAIL_POINTS, length=2, width=0.5)
        bar.spines[:].set_visible(False)
    return figure


def _fitted(
    text: str, points: float, inches: float, lines: int = 2, bold: bool = False
) -> list[str]:
    # Measured at ten times the size, in pixels of a tenth of a point: hinting rounds small ones.
    return wrap(text, font(round(10 * points), bold), 720 * inches, lines)
