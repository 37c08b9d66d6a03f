"""What was taken at a layer as a picture: a grid, a plot, heads of attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from PIL import Image
from torch import Tensor

from hookscope.layers.addresses import Address
from hookscope.layers.probe import Probe
from hookscope.layout import Layout, channels_first
from hookscope.models.opening import OpenedModel
from hookscope.render.attention import attention_grid, attention_sheet, token_maps
from hookscope.render.channels import reduce_map
from hookscope.render.grid import feature_grid
from hookscope.render.overlay import overlay
from hookscope.render.plots import matrix_plot, plot
from hookscope.run.capturing.apart import FeatureMaps
from hookscope.run.preparing import Prepared

Draw = Callable[[], Image.Image]


@dataclass(frozen=True)
class GridLook:
    """How feature maps are drawn. None: what suits what was taken."""

    channels: tuple[int, ...] | None = None
    top: int | None = None
    normalize: Literal["channel", "layer"] | None = None
    cmap: str | None = None
    cols: int | None = None
    annotate: bool = True
    reduce: Literal["mean", "max", "norm"] | None = None


@dataclass(frozen=True)
class TapPictures:
    """Draws what one tap brought, a table from the kind of file to the drawing of it."""

    opened: OpenedModel
    probe: Probe
    what: str
    look: GridLook
    rolled_out: bool = False

    def draws(self, prepared: Prepared, maps: FeatureMaps) -> dict[str, Draw]:
        """Kind of file (``grid``, ``sheet``) -> what draws it."""
        if self.what != "attention":
            return {"grid": partial(self._grid, prepared, maps)}
        tokens = self._tokens_at(maps.address.layer)
        if self.rolled_out:
            return {"grid": partial(self._rollout, prepared, maps, tokens)}
        draws: dict[str, Draw] = {"grid": partial(self._heads, prepared, maps)}
        if tokens is not None and _grid_of(maps, tokens) is not None:
            draws["sheet"] = partial(self._head_sheet, prepared, maps, tokens)
        return draws

    def kinds_expected(self, address: Address) -> list[str]:
        """The kinds that ``draws`` will have there, as far as the probe can tell."""
        if self.what == "attention" and not self.rolled_out and self._tokens_at(address.layer):
            return ["grid", "sheet"]
        return ["grid"]

    def _tokens_at(self, layer: str) -> Layout | None:
        """The patches among the tokens that a layer hands on; None where there are none."""
        layouts = (info.layout for info in self.probe.of(layer))
        return next((layout for layout in layouts if layout.kind == "tokens"), None)

    def _grid(self, prepared: Prepared, maps: FeatureMaps) -> Image.Image:
        look, header = self.look, self._header(prepared, maps)
        signed = self.what == "gradient"
        if maps.tensor.numel() == 0:  # a detector that found nothing
            return plot(maps.tensor, title=header)
        channels = spatial_maps(maps)
        if channels is None:
            labels = self.opened.labels
            of_classes = self.what != "input" and maps.tensor.shape[-1:] == (len(labels),)
            return plot(
                maps.tensor,
                names=labels.name if of_classes else None,
                title=header,
                diverging=signed,
            )
        if look.reduce:
            return feature_grid(
                reduce_map(channels, look.reduce),
                normalize="layer" if signed else "channel",
                cmap=look.cmap,
                annotate=look.annotate,
                header=f"{header} · {look.reduce} of the channels",
                diverging=signed and look.reduce != "norm",
            )
        return feature_grid(
            channels,
            channels=look.channels,
            top=look.top,
            # Gradients of channels compare with each other, and their scale is worth knowing.
            normalize=look.normalize or ("layer" if signed else "channel"),
            cmap=look.cmap,
            cols=look.cols,
            annotate=look.annotate,
            header=header,
            diverging=signed,
        )

    def _heads(self, prepared: Prepared, maps: FeatureMaps) -> Image.Image:
        weights, header = maps.tensor, self._header(prepared, maps)
        if weights.dim() > 3:
            windows = weights.flatten(0, -4)
            weights, header = windows.mean(0), f"{header} · mean of {len(windows)} windows"
        look = self.look
        if look.reduce:
            header = f"{header} · {look.reduce} of the heads"
            return feature_grid(
                reduce_map(weights, look.reduce),
                cmap=look.cmap,
                annotate=look.annotate,
                header=header,
            )
        return attention_grid(
            weights,
            channels=look.channels,
            top=look.top,
            normalize=look.normalize or "channel",
            cmap=look.cmap,
            cols=look.cols,
            annotate=look.annotate,
            header=header,
        )

    def _head_sheet(self, prepared: Prepared, maps: FeatureMaps, tokens: Layout) -> Image.Image:
        grid = _grid_of(maps, tokens)
        assert grid is not None
        from_where = "from the class token" if tokens.prefix else "mean over the queries"
        return attention_sheet(
            prepared.image,
            prepared.geometry.seen,
            token_maps(maps.tensor, grid, tokens.prefix),
            title=f"{self._header(prepared, maps)} · {from_where}",
        )

    def _rollout(self, prepared: Prepared, maps: FeatureMaps, tokens: Layout | None) -> Image.Image:
        grid = None if tokens is None else _grid_of(maps, tokens)
        if tokens is None or grid is None:
            return matrix_plot(
                maps.tensor,
                title=self._header(prepared, maps),
                row_label="token of the last layer",
                column_label="token of the first",
            )
        (rows,) = token_maps(maps.tensor[None], grid, tokens.prefix)
        return overlay(prepared.image, rows, prepared.geometry.seen)

    def _header(self, prepared: Prepared, maps: FeatureMaps) -> str:
        shape = "x".join(str(side) for side in maps.tensor.shape) or "scalar"
        parts = [self.opened.file_name, str(maps.address), shape, prepared.sample.source.path.name]
        if self.what != "output":
            parts.insert(2, _what_it_is(self.what, maps.about))
        return " · ".join(parts)


def spatial_maps(maps: FeatureMaps) -> Tensor | None:
    """C x h x w, or None for what is not spatial."""
    if not maps.layout.spatial:
        return None
    try:
        return channels_first(maps.tensor.unsqueeze(0), maps.layout, maps.input_size)[0]
    except ValueError:
        return None


def _grid_of(maps: FeatureMaps, tokens: Layout) -> tuple[int, int] | None:
    """The patches high x wide among the keys; None for windows, and where the keys are others."""
    keys = maps.tensor.shape[-1]
    if maps.tensor.dim() > 3 or maps.tensor.shape[-2] != keys:
        return None
    return tokens.grid_of(keys, maps.input_size)


def _what_it_is(what: str, about: Mapping[str, Any]) -> str:
    if what != "gradient":
        return what
    name = about.get("class_name") or f"class {about.get('class_index')}"
    return f"gradient of {'the cross-entropy with ' if 'loss' in about else ''}{name}"
