"""The lines above a grid: what it shows, its colour scale, and what its odd colours mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hookscope.render.levels import LEVELS, PAPER, ink_levels
from hookscope.render.text import font, line_height, text_mask, wrap

_TITLE, _NOTE = 15, 12
_NARROWEST = 400  # a header on a small grid may make the picture this wide, then it wraps
_LINES = 3
_BAR = 160


@dataclass(frozen=True)
class Note:
    """A remark below the title, beside a square of one palette ``level`` that it explains."""

    text: str
    level: int | None = None


def heading(
    title: str | None, notes: list[Note], scale: tuple[str, str] | None, width: int
) -> NDArray[np.uint8] | None:
    """Palette levels of the lines above a grid ``width`` pixels wide; None when there are none.

    ``scale``: what stands left and right of a bar of all the colours. May be wider than asked,
    never wider than it must.
    """
    blocks = []
    if title and title.strip():
        blocks.append(_title(title, width))
    if scale is not None:
        blocks.append(_scale_bar(*scale))
    blocks += [_note(note, max(width, _NARROWEST)) for note in notes]
    return stack(blocks, spacing=3) if blocks else None


def stack(blocks: list[NDArray[np.uint8]], spacing: int) -> NDArray[np.uint8]:
    """The blocks below each other, flush left on paper, ``spacing`` pixels between them."""
    width = max(block.shape[1] for block in blocks)
    height = sum(block.shape[0] + spacing for block in blocks) - spacing
    sheet = np.full((height, width), PAPER, np.uint8)
    row = 0
    for block in blocks:
        sheet[row : row + block.shape[0], : block.shape[1]] = block
        row += block.shape[0] + spacing
    return sheet


def number(value: float, digits: int = 3) -> str:
    """So many digits, with a true minus sign."""
    return f"{value:.{digits}g}".replace("-", "\u2212")


def _title(title: str, width: int) -> NDArray[np.uint8]:
    return _letters(wrap(title, font(_TITLE), max(width, _NARROWEST), _LINES), _TITLE)


def _note(note: Note, width: int) -> NDArray[np.uint8]:
    side = line_height(_NOTE)
    indent = 0 if note.level is None else side + 4
    letters = _letters(wrap(note.text, font(_NOTE), width - indent, 2), _NOTE)
    if note.level is None:
        return letters
    block = np.full((letters.shape[0], indent + letters.shape[1]), PAPER, np.uint8)
    block[2 : side - 2, 2 : side - 2] = note.level
    block[:, indent:] = letters
    return block


def _scale_bar(left: str, right: str) -> NDArray[np.uint8]:
    low, high = _letters([left], _NOTE), _letters([right], _NOTE)
    height = line_height(_NOTE)
    bar = np.full((height, _BAR + 12), PAPER, np.uint8)
    bar[2 : height - 2, 6:-6] = np.linspace(0, LEVELS - 1, _BAR).round()
    return np.concatenate([low, bar, high], axis=1)


def _letters(lines: list[str], size: int) -> NDArray[np.uint8]:
    width = max((int(font(size).getlength(line)) + 2 for line in lines), default=1)
    return ink_levels(np.asarray(text_mask(lines, size, width)))
