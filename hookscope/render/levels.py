"""Values to palette levels: the numbers of a tensor as the bytes of a palette picture."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hookscope.render.arrays import finite_limits, is_flat
from hookscope.render.palette import lut

# The palette: LEVELS colours of the colormap (an odd number, so that zero has a level of its own
# in a diverging one), then the colours that mean something else.
LEVELS = 247
FLAT, NOT_FINITE, PAPER = 247, 248, 249
INK = np.arange(249, 256, dtype=np.uint8)  # from paper to full ink, for smooth letters

_FLAT_RGB = (214, 214, 219)
_NOT_FINITE_RGB = (255, 0, 200)
_PAPER_RGB = (255, 255, 255)
_INK_RGB = (24, 24, 32)

# Values in flight while quantising: bounds the memory of a layer of gigabytes.
_CHUNK = 1 << 22


def palette_bytes(cmap: str) -> bytes:
    """The 256 colours of a picture made of levels: 768 bytes, red green blue."""
    share = np.linspace(0.0, 1.0, len(INK))[:, None]
    ink = (1 - share) * np.array(_PAPER_RGB) + share * np.array(_INK_RGB)
    special = [_FLAT_RGB, _NOT_FINITE_RGB, *np.rint(ink).astype(int).tolist()]
    return lut(cmap, LEVELS).tobytes() + np.array(special, np.uint8).tobytes()


def ink_levels(mask: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The palette levels of a mask of letters (0 to 255)."""
    steps = len(INK) - 1
    return INK[(mask.astype(np.uint16) * steps + 127) // 255]


def common_limits(channels: NDArray[Any], diverging: bool) -> tuple[float, float]:
    """The one range of all the channels; (0, 0) where no value is finite."""
    low, high = finite_limits(channels) or (0.0, 0.0)
    if diverging:
        high = max(abs(low), abs(high))
        low = -high
    return low, high


def quantise(
    channels: NDArray[Any],
    normalize: Literal["channel", "layer"] = "channel",
    diverging: bool = False,
) -> NDArray[np.uint8]:
    """Levels of C x H x W values: 0 for the lowest finite one, ``LEVELS - 1`` for the highest.

    ``normalize``: over each channel, or over all of them. ``diverging``: symmetric, with zero on
    the middle level. A channel that is constant, but for rounding, is one level throughout:
    ``FLAT`` where it has no range to be placed in. What is not finite becomes ``NOT_FINITE``.
    """
    levels = np.empty(channels.shape, np.uint8)
    if channels.size == 0:
        return levels
    shared = common_limits(channels, diverging) if normalize == "layer" else None
    step = max(1, _CHUNK // max(1, channels[0].size))
    for start in range(0, len(channels), step):
        part = slice(start, start + step)
        levels[part] = _quantise_part(channels[part], shared, diverging)
    return levels


def _quantise_part(
    channels: NDArray[Any], shared: tuple[float, float] | None, diverging: bool
) -> NDArray[np.uint8]:
    flattened = channels.reshape(len(channels), -1)
    with np.errstate(invalid="ignore"):
        low, high = flattened.min(axis=1), flattened.max(axis=1)
    whole = np.isfinite(low) & np.isfinite(high)
    for index in np.flatnonzero(~whole):
        low[index], high[index] = finite_limits(flattened[index]) or (0.0, 0.0)
    constant = np.flatnonzero(is_flat(low, high))
    value = low.copy()
    if diverging:
        high = np.maximum(np.abs(low), np.abs(high))
        low = -high
    if shared is not None:
        low, high = np.full_like(low, shared[0]), np.full_like(high, shared[1])
    without_range = is_flat(low, high)

    levels = _scale(flattened, low, high)
    # The last digits of a constant must not be stretched into a pattern.
    levels[constant] = _scale(value[constant, None], low[constant], high[constant])
    levels[without_range] = (LEVELS - 1) // 2 if diverging else FLAT
    for index in np.flatnonzero(~whole):
        levels[index, ~np.isfinite(flattened[index])] = NOT_FINITE
    return levels.reshape(channels.shape)


def _scale(values: NDArray[Any], low: NDArray[Any], high: NDArray[Any]) -> NDArray[np.uint8]:
    with np.errstate(over="ignore"):
        reach = high - low
        # float32 cannot hold the width of this range, or the inverse of it.
        if not np.all((reach == 0) | ((reach > 1e-30) & (reach < 1e38))):
            values, low, high = (array.astype(np.float64) for array in (values, low, high))
            reach = high - low
    slope = np.divide(LEVELS - 1, reach, out=np.zeros_like(reach), where=reach > 0)
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = values - low[:, None]
        scaled *= slope[:, None]
        scaled += 0.5
        # NaN has no defined integer; it is painted over afterwards.
        return np.clip(scaled, 0.5, LEVELS - 0.5, out=scaled).astype(np.uint8)
