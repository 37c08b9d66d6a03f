"""What a heatmap is drawn as: overlay, heatmap, sheet, figure; each with its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, Literal

from PIL import Image

from hookscope.gradcam import Heatmap
from hookscope.models.preprocess import Geometry
from hookscope.output.store import Piece
from hookscope.render.figure import write_figure
from hookscope.render.overlay import heatmap_view, overlay
from hookscope.render.panel import Panel
from hookscope.render.placement import Box, fit_within
from hookscope.render.sheet import sheet
from hookscope.run.clock import Clock
from hookscope.run.explaining.asking import Finding
from hookscope.run.explaining.sheets import Words, by_checkpoint, by_class, by_method, unreadable
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
    """The pictures of one photograph's heatmaps at one layer, by one method or by several.

    ``names``: those of the checkpoint and, where there is a second one, of that.
    """

    prepared: Prepared
    findings: Sequence[Finding]
    words: Words
    look: Look
    clock: Clock
    names: tuple[str, str] | None = None

    def pieces(self, finding: Finding, files: Mapping[str, str]) -> list[Piece]:
        """A piece for each of ``files``, kind -> name."""
        return [self._piece(finding, kind, name) for kind, name in files.items()]

    def _piece(self, finding: Finding, kind: str, name: str) -> Piece:
        heatmap = finding.heatmap
        if kind == "tensor":
            return tensor_piece(name, heatmap.map)
        if kind == "versus_tensor":
            assert finding.rival is not None
            return tensor_piece(name, finding.rival.map, kind)
        if kind == "figure":
            return Piece(kind, name, self._write_figure)
        draw: dict[str, Callable[[], Image.Image]] = {
            "overlay": partial(self._overlay, heatmap),
            "heatmap": partial(self._heatmap, heatmap),
            "sheet": self._sheet,
            "versus": partial(self._versus, finding),
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
        return sheet(*self._picture_and_box, self._panels, per_row=self._per_row, **self._drawing)

    def _write_figure(self, file: BinaryIO, text: Mapping[str, str]) -> None:
        assert self.look.figure is not None
        with self.clock.stage("render"):
            write_figure(
                file,
                self.look.figure,
                *self._picture_and_box,
                self._panels,
                text=text,
                per_row=self._per_row,
                **self._drawing,
            )

    def _versus(self, finding: Finding) -> Image.Image:
        assert finding.rival is not None
        assert self.names is not None
        panels = by_checkpoint(finding.heatmap, finding.rival, self.names, self.words)
        title = " \u00b7 ".join(
            (self.words.title, finding.heatmap.method, self.words.of_class(finding.heatmap))
        )
        return sheet(*self._picture_and_box, panels, **{**self._drawing, "title": title})

    @property
    def _methods(self) -> int:
        return len({one.heatmap.method for one in self.findings})

    @property
    def _per_row(self) -> int | None:
        """Each class has a row of methods."""
        return self._methods if 1 < self._methods < len(self.findings) else None

    @property
    def _panels(self) -> list[Panel]:
        if self._methods > 1:
            return by_method(self.findings, self.words, self.look.cmap, self.look.limits)
        return by_class(self.findings, self.words)

    @property
    def _drawing(self) -> dict[str, Any]:
        title = self.words.title
        if self._methods == 1:
            title = f"{title} \u00b7 {self.findings[0].heatmap.method}"
        return {
            "title": title,
            "alpha": self.look.alpha,
            "cmap": self.look.cmap,
            "limits": self.look.limits,
        }

    @property
    def _picture_and_box(self) -> tuple[Image.Image, Box]:
        return self.prepared.image, seen_by(self.findings[0].heatmap, self.prepared.geometry)

    def _shrunk(self, heatmap: Heatmap) -> tuple[Image.Image, Box]:
        box = seen_by(heatmap, self.prepared.geometry)
        return fit_within(self.prepared.image, box, self.look.max_side)


def seen_by(heatmap: Heatmap, geometry: Geometry) -> Box:
    """Where the map lies on the picture; a model that pads its input sees a little beyond it."""
    left, top, right, bottom = geometry.seen
    high, wide = heatmap.extent
    return left, top, left + (right - left) * wide, top + (bottom - top) * high
