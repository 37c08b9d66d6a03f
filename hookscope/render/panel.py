"""One overlay on a sheet: its map, what is written below it, and the scale of its colours."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from PIL import Image

from hookscope.render.arrays import as_array, finite_limits
from hookscope.render.overlay import overlay
from hookscope.render.placement import Box


@dataclass(frozen=True)
class Scale:
    """What the colours of a panel mean, where it does not share those of the sheet.

    ``limits``: the values of the lowest and the highest colour. ``diverging``: the middle means
    nothing, and leaves the picture as it is.
    """

    limits: tuple[float, float]
    cmap: str
    diverging: bool = False


@dataclass(frozen=True)
class Panel:
    """One map (h x w) on a sheet, its name, and its probability where there is one.

    ``lines``: what else is written below it. ``note``: why the map shows nothing, as for
    ``overlay``. ``scale``: its own one, instead of the sheet's.
    """

    heatmap: Any
    name: str
    probability: float | None = None
    note: str | None = None
    lines: tuple[str, ...] = ()
    scale: Scale | None = None

    @property
    def details(self) -> list[str]:
        """The lines below the name."""
        if self.probability is None:
            return list(self.lines)
        small = self.probability < 0.0005
        value = "probability < 0.001" if small else f"probability {self.probability:.3f}"
        return [value, *self.lines]

    @property
    def shares_scale(self) -> bool:
        """Whether the sheet's colour bar speaks of this panel."""
        return self.note is None and self.scale is None

    def drawn(
        self, picture: Image.Image, box: Box, alpha: float, scale: Scale, dim: float
    ) -> Image.Image:
        """The overlay, in the panel's own ``scale`` if it has one."""
        scale = self.scale or scale
        return overlay(
            picture,
            self.heatmap,
            box,
            alpha=alpha,
            cmap=scale.cmap,
            limits=scale.limits,
            diverging=scale.diverging,
            dim=dim,
            note=self.note,
        )


def shared_limits(panels: Iterable[Panel]) -> tuple[float, float]:
    """The one range of all maps that show something on the sheet's scale; (0, 1) where none
    does."""
    ranges = [finite_limits(as_array(panel.heatmap)) for panel in panels if panel.shares_scale]
    found = [limits for limits in ranges if limits is not None]
    if not found:
        return 0.0, 1.0
    return min(low for low, _ in found), max(high for _, high in found)


def places(panels: int, per_row: int | None, most: int) -> list[tuple[int, int]]:
    """Row and column of the original and of every panel on a sheet of ``most`` columns.

    ``per_row``: as for ``sheet``.
    """
    if per_row is not None:
        return [(0, 0), *((k // per_row, 1 + k % per_row) for k in range(panels))]
    rows = math.ceil((1 + panels) / most)
    cols = math.ceil((1 + panels) / rows)
    return [divmod(place, cols) for place in range(1 + panels)]
