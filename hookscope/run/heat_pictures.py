"""What a heatmap is drawn as: overlay, heatmap, sheet, figure; each with its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO, Literal

from PIL import Image

from hookscope.gradcam import Heatmap
from hookscope.models.labels import Labels
from hookscope.models.preprocess import Geometry
from hookscope.output.store import Piece
from hookscope.render.figure import write_figure
from hookscope.render.overlay import heatmap_view, overlay
from hookscope.render.placement import Box, fit_within
from hookscope.render.sheet import Panel, sheet
from hookscope.run.clock import Clock
from hookscope.run.pieces import picture_piece, tensor_piece
from hookscope.run.preparing import Prepared


@dataclass(frozen=True)
class Look:
    """How heatmaps are drawn.

    ``limits``: the values of the lowest and the highest colour, by default each map's own (on a
    sheet, those of all its maps).
    """

    views: tuple[str, ...] = ("overlay",)
    format: Literal["png", "jpg", "webp"] = "png"
    figure: Literal["pdf", "svg"] | None = None
    alpha: float = 0.6
    cmap: str = "turbo"
    max_side: int | None = None
    limits: tuple[float, float] | None = None

    def drawn_together(self) -> bool:
        """Whether all classes of a picture go into one file."""
        return "sheet" in self.views or self.figure is not None


@dataclass(frozen=True)
class HeatPictures:
    """The pictures of one photograph's heatmaps at one layer by one method."""

    prepared: Prepared
    heatmaps: Sequence[Heatmap]
    labels: Labels
    look: Look
    clock: Clock
    title: str

    def pieces(self, heatmap: Heatmap, files: Mapping[str, str]) -> list[Piece]:
        """A piece for each of ``files``, kind -> name."""
        return [self._piece(heatmap, kind, name) for kind, name in files.items()]

    def _piece(self, heatmap: Heatmap, kind: str, name: str) -> Piece:
        if kind == "tensor":
            return tensor_piece(name, heatmap.map)
        if kind == "figure":
            return Piece(kind, name, self._write_figure)
        draw: dict[str, Callable[[], Image.Image]] = {
            "overlay": partial(self._overlay, heatmap),
            "heatmap": partial(self._heatmap, heatmap),
            "sheet": self._sheet,
        }
        return picture_piece(kind, name, draw[kind], self.clock)

    def _overlay(self, heatmap: Heatmap) -> Image.Image:
        picture, box = self._shrunk(heatmap)
        return overlay(
            picture,
            heatmap.map,
            box,
            alpha=self.look.alpha,
            cmap=self.look.cmap,
            limits=self.look.limits,
            note=unreadable(heatmap),
        )

    def _heatmap(self, heatmap: Heatmap) -> Image.Image:
        picture, box = self._shrunk(heatmap)
        return heatmap_view(
            heatmap.map,
            picture.size,
            box,
            cmap=self.look.cmap,
            limits=self.look.limits,
            note=unreadable(heatmap),
        )

    def _sheet(self) -> Image.Image:
        return sheet(
            self.prepared.image,
            self._box,
            self._panels,
            title=self.title,
            alpha=self.look.alpha,
            cmap=self.look.cmap,
            limits=self.look.limits,
        )

    def _write_figure(self, file: BinaryIO, text: Mapping[str, str]) -> None:
        assert self.look.figure is not None
        with self.clock.stage("render"):
            write_figure(
                file,
                self.look.figure,
                self.prepared.image,
                self._box,
                self._panels,
                title=self.title,
                alpha=self.look.alpha,
                cmap=self.look.cmap,
                limits=self.look.limits,
                text=text,
            )

    @property
    def _box(self) -> Box:
        return seen_by(self.heatmaps[0], self.prepared.geometry)

    @property
    def _panels(self) -> list[Panel]:
        return [
            Panel(one.map, class_text(one, self.labels), one.probability, unreadable(one))
            for one in self.heatmaps
        ]

    def _shrunk(self, heatmap: Heatmap) -> tuple[Image.Image, Box]:
        box = seen_by(heatmap, self.prepared.geometry)
        return fit_within(self.prepared.image, box, self.look.max_side)


def seen_by(heatmap: Heatmap, geometry: Geometry) -> Box:
    """Where the map lies on the picture; a model that pads its input sees a little beyond it."""
    left, top, right, bottom = geometry.seen
    high, wide = heatmap.extent
    return left, top, left + (right - left) * wide, top + (bottom - top) * high


def unreadable(heatmap: Heatmap) -> str | None:
    """Why there is no heat to see, or None."""
    nothing_found = heatmap.note if heatmap.class_index is None else None
    return nothing_found or heatmap.degenerate


def class_text(heatmap: Heatmap, labels: Labels) -> str:
    """The class as a caption names it."""
    if heatmap.class_index is None:
        return "nothing found"
    return labels.name(heatmap.class_index) or f"class {heatmap.class_index}"
