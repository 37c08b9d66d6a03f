"""Greys of more than eight bits, scaled to eight; Pillow's own conversion clips them to white."""

from __future__ import annotations

import numpy as np
from PIL import Image

from hookscope.errors import PictureError

WIDE_MODES = frozenset({"I", "I;16", "I;16L", "I;16B", "I;16N", "F"})
# Formats whose greys reach from 0 to 65535 by definition, in whatever mode Pillow hands them out.
_SIXTEEN_BIT_FORMATS = frozenset({"PNG", "PPM"})


def eight_bits(image: Image.Image) -> tuple[Image.Image, str | None]:
    """A picture of one of ``WIDE_MODES`` in mode ``L``, and what was chosen for it, if anything.

    16-bit greys keep their scale, 65535 being white, and so do floats within 0 to 1. Other
    numbers have no white of their own: the lowest becomes black, the highest white.
    """
    values = np.asarray(image)
    if image.mode.startswith("I;16") or (
        image.mode == "I" and image.format in _SIXTEEN_BIT_FORMATS
    ):
        # 65535 = 255 * 257, so that this rounds to the nearest level.
        return _grey((values.astype(np.uint32) + 128) // 257), None
    finite = np.isfinite(values)
    if not finite.any():
        raise PictureError("the picture holds no number, only NaN or infinity")
    numbers = values if finite.all() else values[finite]
    low, high = float(numbers.min()), float(numbers.max())
    notes = [] if finite.all() else ["NaN and infinity drawn black"]
    if image.mode == "F" and low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    else:
        notes.append(f"grey values {low:g} to {high:g} scaled to black and white")
    # In double precision: the span of two large floats overflows in their own.
    span = np.where(finite, values, low).astype(np.float64) - low
    scaled = np.rint(span * (255 / (high - low))) if high > low else np.zeros(values.shape)
    return _grey(scaled), "; ".join(notes) or None


def _grey(levels: np.ndarray) -> Image.Image:
    return Image.fromarray(levels.astype(np.uint8))
