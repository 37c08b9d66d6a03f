"""The sheet as a vector figure: pictures as pixels, everything else as text and lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import numpy as np
from PIL import Image

from hookscope.render.canvas import drawing, new_figure, save_vector
from hookscope.render.heading import number
from hookscope.render.palette import lut
from hookscope.render.panel import Panel, Scale, places, shared_limits
from hookscope.render.placement import Box, fit_within
from hookscope.render.text import font, wrap

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# In inches, on a page as wide as a paper's two columns.
_PANEL, _GAP, _BAR, _BAR_ROOM = 1.7, 0.1, 0.09, 0.6
_LINE = 0.125  # from one line of text to the next
_TITLE_POINTS, _NAME_POINTS, _DETAIL_POINTS = 8.0, 7.0, 6.5
_COLUMNS, _GREY = 4, "0.35"
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
    per_row: int | None = None,
) -> None:
    """Write the original, the overlays and the colour bar of ``sheet`` as PDF or SVG.

    ``text``: its first value is kept in the document's description. Other parameters as for
    ``sheet``; pictures are shrunk to 1200 pixels a side.
    """
    scale = Scale(limits or shared_limits(panels), cmap)
    small, small_box = fit_within(picture.convert("RGB"), box, _MOST_PIXELS_A_SIDE)
    drawn = [_Drawn("original", small)]
    for panel in panels:
        image = panel.drawn(small, small_box, alpha, scale, dim)
        own = panel.scale if panel.note is None else None
        drawn.append(_Drawn(panel.name, image, panel.details, own))
    with drawing():
        shared = any(panel.shares_scale for panel in panels)
        cells = places(len(panels), per_row, _COLUMNS)
        figure = _layout(drawn, cells, title, scale if shared else None)
        save_vector(figure, target, format, text)


@dataclass(frozen=True)
class _Drawn:
    """A picture of the figure with what stands below it; ``own``: the scale of its bar there."""

    name: str
    image: Image.Image
    details: Sequence[str] = ()
    own: Scale | None = None


def _layout(
    drawn: Sequence[_Drawn],
    cells: Sequence[tuple[int, int]],
    title: str | None,
    scale: Scale | None,
) -> Figure:
    rows, cols = (1 + max(axis) for axis in zip(*cells, strict=True))
    first = drawn[0].image
    inches = _PANEL / max(first.size)
    width, height = max(first.width * inches, 0.6), first.height * inches
    names = [_fitted(one.name, _NAME_POINTS, width, bold=True) for one in drawn]
    details = [
        [line for text in one.details for line in _fitted(text, _DETAIL_POINTS, width)]
        for one in drawn
    ]
    most_lines = max(
        len(name) + len(lines) + (2 if one.own else 0)
        for one, name, lines in zip(drawn, names, details, strict=True)
    )
    step_down = height + _LINE * max(2, most_lines) + 2 * _GAP
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
        (heading,) = _fitted(title, _TITLE_POINTS, page[0] - 2 * _GAP, lines=1)
        write(_GAP, _GAP, heading, fontsize=_TITLE_POINTS)
    for index, (one, (row, col)) in enumerate(zip(drawn, cells, strict=True)):
        left, upper = _GAP + col * (width + _GAP), top + row * step_down
        panel = axes(left, upper, one.image.width * inches, height)
        panel.imshow(np.asarray(one.image), interpolation="none", aspect="auto")
        panel.set_axis_off()
        below = upper + height + 0.04
        if one.own:
            bar = axes(left, below, width, 0.05)
            bar.imshow(lut(one.own.cmap, 256)[None], aspect="auto")
            bar.set_axis_off()
            low, high = (number(value) for value in one.own.limits)
            write(left, below + 0.07, low, fontsize=_DETAIL_POINTS, color=_GREY)
            write(
                left + width, below + 0.07, high, fontsize=_DETAIL_POINTS, color=_GREY, ha="right"
            )
            below += 2 * _LINE
        for line in names[index]:
            write(left, below, line, fontsize=_NAME_POINTS, fontweight="bold")
            below += _LINE
        for line in details[index]:
            write(left, below, line, fontsize=_DETAIL_POINTS, color=_GREY)
            below += _LINE
    if scale is not None:
        bar = axes(_GAP + cols * (width + _GAP), top, _BAR, height)
        least, most = scale.limits
        most = most if most > least else least + 1e-12
        colours = lut(scale.cmap, 256)[:, None]
        bar.imshow(colours, extent=(0, 1, least, most), origin="lower", aspect="auto")
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
