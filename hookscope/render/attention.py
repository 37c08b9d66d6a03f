"""Attention weights as pictures: every head's matrix, or where one token looks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hookscope.render.arrays import as_array
from hookscope.render.grid import feature_grid
from hookscope.render.panel import Panel
from hookscope.render.placement import Box
from hookscope.render.sheet import sheet


def attention_grid(weights: Any, **look: Any) -> Image.Image:
    """A heads x queries x keys tensor as one panel a head, each over its own range.

    ``look``: as for ``feature_grid``, heads being its channels.
    """
    names = [f"head {head}" for head in range(len(as_array(weights)))]
    return feature_grid(weights, numbers=names, **look)


def token_maps(weights: Any, grid: tuple[int, int], prefix: int, query: int = 0) -> NDArray[Any]:
    """What token ``query`` attends to, of heads x queries x keys: heads x h x w.

    ``grid``: h x w of the patches; ``prefix``: tokens before them, which are left out. Where
    there is no prefix, so that token 0 is a patch like the others, the mean over all queries.
    Raises ``ValueError`` where the keys are not prefix and grid.
    """
    array = as_array(weights)
    if array.ndim != 3 or array.shape[2] != prefix + grid[0] * grid[1]:
        raise ValueError(
            f"attention of shape {tuple(array.shape)} is not heads x queries x "
            f"{prefix} + {grid[0]}·{grid[1]} keys"
        )
    rows = array[:, query] if prefix else array.mean(axis=1)
    return rows[:, prefix:].reshape(len(array), *grid)


def attention_sheet(
    picture: Image.Image,
    box: Box,
    maps: Any,
    *,
    title: str | None = None,
    names: Sequence[str] | None = None,
    cmap: str = "turbo",
    alpha: float = 0.6,
) -> Image.Image:
    """The picture, and over it the map of every head (heads x h x w), on one colour scale.

    ``box`` as for ``overlay``; ``names``: captions instead of ``head 0``, ``head 1``...
    """
    array = np.asarray(as_array(maps))
    captions = names or [f"head {head}" for head in range(len(array))]
    panels = [Panel(one, caption) for one, caption in zip(array, captions, strict=True)]
    return sheet(picture, box, panels, title=title, cmap=cmap, alpha=alpha)
