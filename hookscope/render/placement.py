"""Where a map lies on a picture: from cells of the one to pixels of the other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hookscope.render.arrays import as_array, finite_limits, is_flat

# Left, top, right, bottom of what the network saw, in pixels of the picture: the outer edges of
# the map's outer cells. Pixel (0, 0) covers 0 to 1, so a whole picture is (0, 0, width, height).
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Rectangle:
    """Whole pixels from ``left`` and ``top`` up to, without them, ``right`` and ``bottom``."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def empty(self) -> bool:
        return self.right <= self.left or self.bottom <= self.top


def seen_pixels(box: Box, size: tuple[int, int]) -> Rectangle:
    """The pixels of a picture of ``size`` (width, height) whose centres lie in ``box``."""
    left, top, right, bottom = (math.ceil(edge - 0.5) for edge in box)
    return Rectangle(max(0, left), max(0, top), min(size[0], right), min(size[1], bottom))


class Field:
    """A map's levels between its cells, over any rows of a picture.

    ``heatmap``: h x w. ``limits``: the values of level 0 and of the last of ``levels``, by
    default the map's own lowest and highest; values that are not finite count as the lowest.
    """

    def __init__(
        self, heatmap: Any, box: Box, limits: tuple[float, float] | None, levels: int = 256
    ) -> None:
        values = as_array(heatmap)
        if values.ndim != 2 or values.size == 0:
            raise ValueError(f"a heatmap is height x width, and this has the shape {values.shape}")
        left, top, right, bottom = box
        if not (right > left and bottom > top):
            raise ValueError(f"the map lies on no pixel: {box}")
        self._origin = left, top
        self._cells_per_pixel = values.shape[1] / (right - left), values.shape[0] / (bottom - top)
        # The outer cells go on outward: half a pixel there may lie past the edge of the box.
        self._pad = 1 + math.ceil(max(self._cells_per_pixel))
        cells = np.pad(_levels(values, limits, levels), self._pad, mode="edge")
        self._cells = Image.fromarray(cells)

    def over(self, pixels: Rectangle) -> Image.Image:
        """The levels at the centres of ``pixels``, mode L; averaged where cells are finer."""
        (left, top), (across, down) = self._origin, self._cells_per_pixel
        source = (
            (pixels.left - left) * across + self._pad,
            (pixels.top - top) * down + self._pad,
            (pixels.right - left) * across + self._pad,
            (pixels.bottom - top) * down + self._pad,
        )
        size = pixels.right - pixels.left, pixels.bottom - pixels.top
        return self._cells.resize(size, Image.Resampling.BILINEAR, box=source)


def fit_within(picture: Image.Image, box: Box, max_side: int | None) -> tuple[Image.Image, Box]:
    """``picture`` shrunk until no side exceeds ``max_side``, and the box on it; never enlarged."""
    if max_side is None or max(picture.size) <= max_side:
        return picture, box
    scale = max_side / max(picture.size)
    width, height = (max(1, round(side * scale)) for side in picture.size)
    # Not one scale for both axes: sizes are whole numbers, and the map must not shift by that.
    across, down = width / picture.width, height / picture.height
    shrunk = picture.resize((width, height), Image.Resampling.LANCZOS, reducing_gap=2.0)
    return shrunk, (box[0] * across, box[1] * down, box[2] * across, box[3] * down)


def _levels(
    values: NDArray[Any], limits: tuple[float, float] | None, levels: int
) -> NDArray[np.uint8]:
    low, high = limits or finite_limits(values) or (0.0, 0.0)
    if is_flat(low, high):
        return np.zeros(values.shape, np.uint8)
    # Halves, so that the widest range of float64 does not overflow.
    share = (values.astype(np.float64) / 2 - low / 2) / (high / 2 - low / 2)
    share = np.where(np.isfinite(values), share, 0.0).clip(0.0, 1.0)
    return np.rint(share * (levels - 1)).astype(np.uint8)
