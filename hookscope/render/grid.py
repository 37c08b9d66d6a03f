"""Feature maps as one picture: every channel a tile, with its number."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from hookscope.render.arrange import GAP, Arrangement, arrange
from hookscope.render.channels import as_maps, choose_channels
from hookscope.render.heading import Note, heading, number, stack
from hookscope.render.levels import (
    FLAT,
    NOT_FINITE,
    PAPER,
    common_limits,
    ink_levels,
    palette_bytes,
    quantise,
)
from hookscope.render.text import font

_MARGIN = 10
TILES = "tiles"  # under this name ``Image.info`` says where the tiles lie

Normalize = Literal["channel", "layer"]


def feature_grid(
    tensor: Any,
    *,
    channels: Sequence[int] | None = None,
    top: int | None = None,
    normalize: Normalize = "channel",
    cmap: str | None = None,
    cols: int | None = None,
    annotate: bool = True,
    header: str | None = None,
    diverging: bool = False,
    numbers: Sequence[int | str] | None = None,
) -> Image.Image:
    """All channels of a C x H x W tensor as one palette picture, lossless in 247 levels.

    ``channels``: only these, in this order; ``top``: of them the K with the largest mean
    magnitude, strongest first. ``normalize``: each channel over its own range, or all over one.
    ``diverging``: symmetric about zero. ``cmap``: any matplotlib colormap; viridis, or RdBu_r
    where diverging. ``annotate=False``: tiles alone. ``numbers``: what to write above each
    channel of the tensor instead of its index. An H x W tensor is one map without a number.

    Maps are enlarged by whole factors, never smoothed. A constant channel is one flat colour, a
    value that is not finite magenta; maps of 1 x 1 share one range. ``info["tiles"]`` of the
    picture says where each channel lies. Raises ``UsageError`` for channels that are not there,
    ``ValueError`` for another shape.
    """
    maps = as_maps(tensor)
    chosen = choose_channels(maps, channels, top)
    selected = maps if channels is None and top is None else maps[chosen]
    names = [str(index if numbers is None else numbers[index]) for index in chosen]
    captions = names if annotate and np.ndim(tensor) != 2 else []

    if selected[0].size == 1:
        normalize = "layer"  # a single value has no range of its own
    plan = arrange(len(selected), *selected.shape[1:], cols=cols, captions=captions)
    levels = quantise(selected[:, :: plan.shrink, :: plan.shrink], normalize, diverging)
    body = _tiles(levels, captions, plan, ruled=diverging)
    if annotate:
        above = heading(
            header,
            _notes(levels, plan.shrink),
            _scale(selected, normalize, diverging),
            body.shape[1],
        )
        body = _framed(body if above is None else stack([above, body], spacing=8))
    picture = Image.fromarray(body)
    picture.putpalette(palette_bytes(cmap or ("RdBu_r" if diverging else "viridis")))
    margin = _MARGIN if annotate else 0
    picture.info[TILES] = {
        "left": margin,
        "top": picture.height - margin - plan.size[0],
        "cell": list(plan.cell),
        "tile": list(plan.tile),
        "caption": plan.caption,
        "cols": plan.cols,
        "count": len(chosen),
        "channels": None if names == [str(index) for index in range(len(maps))] else names,
    }
    return picture


def _tiles(
    levels: NDArray[np.uint8], captions: list[str], plan: Arrangement, ruled: bool
) -> NDArray[np.uint8]:
    """All tiles at once: an array of cells, then one move of its axes to rows and columns.

    ``ruled``: grey between the tiles, where white is one of their colours.
    """
    count = len(levels)
    cells = np.full((plan.rows * plan.cols, *plan.cell), PAPER, np.uint8)
    top, (height, width) = plan.caption, plan.tile
    if ruled:
        cells[:count, top:, : width + GAP] = FLAT
    if plan.factor > 1:
        levels = levels.repeat(plan.factor, axis=1).repeat(plan.factor, axis=2)
    cells[:count, top : top + height, :width] = levels
    for cell, caption in zip(cells, captions, strict=False):
        ink = _caption(caption, plan.font_size, top)[:, : plan.cell[1]]
        cell[:top, : ink.shape[1]] = ink
    rows, cols = plan.size
    rectangle = cells.reshape(plan.rows, plan.cols, *plan.cell).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(
        rectangle.reshape(plan.rows * plan.cell[0], plan.cols * plan.cell[1])[:rows, :cols]
    )


def _caption(text: str, size: int, height: int) -> NDArray[np.uint8]:
    """A tile's number as ink; letter by letter, since thousands share ten digits."""
    return np.concatenate([_glyph(letter, size, height) for letter in text], axis=1)


@lru_cache(maxsize=1024)
def _glyph(letter: str, size: int, height: int) -> NDArray[np.uint8]:
    """One letter, ``height`` pixels high, its feet three pixels above the tile."""
    face = font(size)
    mask = Image.new("L", (max(1, round(face.getlength(letter))), height), 0)
    ImageDraw.Draw(mask).text((0, height - 3), letter, fill=255, font=face, anchor="ls")
    return ink_levels(np.asarray(mask))


def _notes(levels: NDArray[np.uint8], shrink: int) -> list[Note]:
    notes = []
    flat = int((levels == FLAT).any(axis=(1, 2)).sum())
    if flat:
        notes.append(Note(f"constant: {flat} of {len(levels)} channels", FLAT))
    strange = int((levels == NOT_FINITE).sum())
    if strange:
        notes.append(Note(f"not finite: {strange} values", NOT_FINITE))
    if shrink > 1:
        notes.append(Note(f"one value of {shrink} x {shrink} is drawn, the maps being so large"))
    return notes


def _scale(maps: NDArray[Any], normalize: Normalize, diverging: bool) -> tuple[str, str] | None:
    if normalize == "layer":
        low, high = common_limits(maps, diverging)
        return number(low), number(high)
    return ("\u2212 largest of the channel", "+ largest") if diverging else None


def _framed(body: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.pad(body, _MARGIN, constant_values=PAPER)
