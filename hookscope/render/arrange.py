"""Where the tiles of a grid lie: enlargement, columns, and room for the numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hookscope.errors import UsageError
from hookscope.render.text import font

# A grid is about this wide and high, in pixels, where the size of the maps leaves a choice.
_SIDE = 1000
_ASPECT = 1.2  # width over height: screens and pages of text are wider than a tile is high
_LARGEST_TILE = 512
_LARGEST_FACTOR = 64
# Above this many pixels Pillow itself warns of a bomb when it opens a picture.
_MOST_PIXELS = 80_000_000
GAP = 2


@dataclass(frozen=True)
class Arrangement:
    """Tiles in rows and columns.

    ``factor``: each value is drawn as a square of so many pixels. ``shrink``: of maps too large
    for one picture, one value of so many is drawn along each axis.
    ``tile``: height x width in pixels. ``cell``: the same with caption and gap.
    ``caption``: pixels above each tile for its number, 0 for none; ``font_size`` to draw it in.
    """

    rows: int
    cols: int
    factor: int
    shrink: int
    tile: tuple[int, int]
    cell: tuple[int, int]
    caption: int
    font_size: int

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of all the tiles together."""
        return self.rows * self.cell[0] - GAP, self.cols * self.cell[1] - GAP

    def corner(self, index: int) -> tuple[int, int]:
        """Top and left pixel of the tile, caption not counted, of the map number ``index``."""
        row, col = divmod(index, self.cols)
        return row * self.cell[0] + self.caption, col * self.cell[1]


def arrange(
    count: int,
    height: int,
    width: int,
    *,
    cols: int | None = None,
    captions: Sequence[str] = (),
) -> Arrangement:
    """Place ``count`` maps of ``height`` x ``width`` values, each under its caption if any.

    Raises ``UsageError`` for less than one column.
    """
    if cols is not None and cols < 1:
        raise UsageError(f"a grid of {cols} columns holds nothing", "Ask for one column or more.")
    shrink = max(1, math.ceil(math.sqrt(count * height * width / _MOST_PIXELS)))
    height, width = math.ceil(height / shrink), math.ceil(width / shrink)
    factor = max(
        1,
        min(
            round(_SIDE / math.sqrt(count * height * width)),
            _LARGEST_TILE // max(height, width),
            _LARGEST_FACTOR,
        ),
    )
    tile = height * factor, width * factor
    font_size = 10 if tile[1] < 48 else 11 if tile[1] < 128 else 13
    longest = max(captions, key=len, default="")
    caption = font_size + 3 if longest else 0
    room = math.ceil(font(font_size).getlength(longest)) + 3 if longest else 0
    cell = tile[0] + caption + GAP, max(tile[1], room) + GAP
    cols = min(cols or _columns(count, cell), count)
    return Arrangement(
        rows=math.ceil(count / cols),
        cols=cols,
        factor=factor,
        shrink=shrink,
        tile=tile,
        cell=cell,
        caption=caption,
        font_size=font_size,
    )


def _columns(count: int, cell: tuple[int, int]) -> int:
    """The number of columns whose picture is nearest the wanted shape, with few empty cells."""

    def ugliness(cols: int) -> float:
        rows = math.ceil(count / cols)
        aspect = cols * cell[1] / (rows * cell[0])
        empty = (rows * cols - count) / (rows * cols)
        return abs(math.log(aspect / _ASPECT)) + 4 * empty

    return min(range(1, count + 1), key=ugliness)
