"""What is not spatial: vectors as curves and bars, sequences as heatmaps, with axes."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hookscope.render.arrays import as_array, finite_limits
from hookscope.render.canvas import drawing, new_figure, rasterise
from hookscope.render.encode import save_png
from hookscope.render.grid import feature_grid
from hookscope.render.note import empty_picture
from hookscope.render.palette import lut
from hookscope.render.text import elide, font, printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Names = Sequence[str] | Callable[[int], str | None] | None

_LINE, _POSITIVE, _NEGATIVE = "#2c5f8a", "#2c5f8a", "#b2533e"
_FEW = 5  # bars do not grow wider than a fifth of the plot
_LONGEST_LABEL = 230  # pixels at ten points


def plot(
    values: Any, *, names: Names = None, title: str | None = None, diverging: bool = False
) -> Image.Image:
    """A tensor of one picture of any shape, as RGB: a vector, or rows of its last axis.

    More than two axes are folded into rows, the last one staying. See ``vector_plot`` and
    ``matrix_plot``. A tensor without elements gives a small picture that says so.
    """
    array = as_array(values)
    if array.size == 0:
        return empty_picture(array.shape, title)
    if array.ndim <= 1:
        return vector_plot(array, names=names, title=title, signed=diverging)
    rows = array.reshape(-1, array.shape[-1])
    leading = " × ".join(map(str, array.shape[:-1]))
    label = "token or step" if array.ndim == 2 else f"{leading}, folded"
    return matrix_plot(rows, title=title, row_label=label, diverging=diverging)


def vector_plot(
    values: Any,
    *,
    names: Names = None,
    title: str | None = None,
    top: int = 10,
    signed: bool = False,
) -> Image.Image:
    """A vector as RGB: all entries in falling order, and the ``top`` largest with their names.

    ``names``: the name of an index, by list or by function, for class scores; else the index
    alone labels the bar. ``signed``: the largest by magnitude. Entries that are not finite are
    left out, and counted in the title. Raises ``ValueError`` where there is no entry.
    """
    vector = as_array(values).ravel()
    if vector.size == 0:
        raise ValueError("there is nothing to draw in an empty vector")
    finite = np.flatnonzero(np.isfinite(vector))
    ordered = finite[np.argsort(-vector[finite], kind="stable")]
    largest = ordered
    if signed:
        largest = finite[np.argsort(-np.abs(vector[finite]), kind="stable")]
    largest = largest[:top]
    with drawing():
        # Placed by hand: matplotlib's layout engine takes as long as all the drawing.
        figure = new_figure(10.0, 4.2)
        _draw_order(figure.add_axes((0.085, 0.13, 0.36, 0.7)), vector[ordered])
        labels = [_label(names, int(index)) for index in largest]
        widest = max((font(14).getlength(label) for label in labels), default=0.0) / 1000
        right = figure.add_axes((0.475 + widest, 0.13, 0.51 - widest, 0.7))
        _draw_bars(right, vector[largest], labels)
        right.set_title("largest by magnitude" if signed else "largest", fontsize=10)
        _finish(figure, title, vector.size - finite.size)
        return rasterise(figure)


def matrix_plot(
    values: Any,
    *,
    title: str | None = None,
    row_label: str = "row",
    column_label: str = "channel",
    cmap: str | None = None,
    diverging: bool = False,
) -> Image.Image:
    """A matrix as a heatmap with axes and a colour bar, as RGB; not finite is magenta.

    ``diverging``: symmetric about zero, by default in RdBu_r. Raises ``ValueError`` for another
    number of axes, or where there is no entry.
    """
    matrix = as_array(values)
    if matrix.ndim != 2 or matrix.size == 0:
        raise ValueError(f"a matrix has rows and columns, and this has the shape {matrix.shape}")
    low, high = finite_limits(matrix) or (0.0, 0.0)
    if diverging:
        high = max(abs(low), abs(high))
        low = -high
    colours = lut(cmap or ("RdBu_r" if diverging else "viridis"), 256)
    with drawing():
        from matplotlib.colors import ListedColormap

        height = min(9.0, max(3.0, 1.6 + 8.4 * matrix.shape[0] / matrix.shape[1]))
        figure = new_figure(10.0, height)
        below, above = 0.6 / height, 1 - 0.45 / height
        axes = figure.add_axes((0.085, below, 0.82, above - below))
        bar = figure.add_axes((0.92, below, 0.018, above - below))
        table = ListedColormap(colours / 255.0).with_extremes(bad="#ff00c8")
        shown = axes.imshow(
            np.ma.masked_invalid(matrix),
            cmap=table,
            vmin=low,
            vmax=high if high > low else low + 1.0,
            aspect="auto",
            # Every pixel shows one entry: a mean of neighbours would invent values.
            interpolation="nearest",
        )
        axes.set_xlabel(column_label)
        axes.set_ylabel(row_label)
        axes.yaxis.set_major_locator(_whole_numbers(matrix.shape[0]))
        axes.xaxis.set_major_locator(_whole_numbers(matrix.shape[1]))
        figure.colorbar(shown, cax=bar).outline.set_visible(False)
        _finish(figure, title, int(matrix.size - np.isfinite(matrix).sum()))
        return rasterise(figure)


def show_feature_maps(
    tensor: Any,
    title: str | None = None,
    cols: int | None = None,
    save_path: str | Path | None = None,
    *,
    channels: Sequence[int] | None = None,
    cmap: str | None = None,
) -> Figure:
    """The grid of ``feature_grid`` as a matplotlib figure, which a notebook shows.

    ``save_path`` writes it too, and makes its folder: ``.png`` losslessly, anything else as
    matplotlib does. Where pyplot is in use the figure is one of its figures, so that
    ``plt.show()`` opens it.
    """
    grid = feature_grid(tensor, header=title, cols=cols, channels=channels, cmap=cmap)
    pyplot = sys.modules.get("matplotlib.pyplot")
    # The inline backend draws what a cell returns, and pyplot's figures a second time.
    shown_by_pyplot = pyplot is not None and "inline" not in pyplot.get_backend()
    size = grid.width / 100, grid.height / 100
    with drawing():
        figure: Figure
        if pyplot is not None and shown_by_pyplot and save_path is None:
            figure = pyplot.figure(figsize=size, dpi=100)
        else:
            figure = new_figure(*size)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.imshow(np.asarray(grid.convert("RGB")), interpolation="nearest", aspect="auto")
        axes.set_axis_off()
        # IPython asks the object itself where pyplot has registered nothing for figures.
        figure._repr_png_ = partial(_png_bytes, grid)  # type: ignore[attr-defined]
        if save_path is not None:
            Path(save_path).parent.mkdir(parents=True, exist_ok=True)
            if Path(save_path).suffix.lower() == ".png":
                save_png(grid, save_path)
            else:
                figure.savefig(save_path)
    return figure


def _png_bytes(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    save_png(picture, buffer)
    return buffer.getvalue()


def _draw_order(axes: Any, ordered: NDArray[Any]) -> None:
    ranks = np.arange(1, len(ordered) + 1)
    if len(ordered) <= 40:
        axes.bar(ranks, ordered, color=_colours(ordered), width=0.8)
    else:
        axes.plot(ranks, ordered, color=_LINE, linewidth=1.4)
        axes.fill_between(ranks, ordered, 0, color=_LINE, alpha=0.15, linewidth=0)
    axes.axhline(0, color="0.3", linewidth=0.6)
    axes.set_xlabel("rank")
    axes.set_ylabel("value")
    axes.set_title(f"all {len(ordered)} in falling order", fontsize=10)
    axes.set_xlim(0.4, max(len(ordered), _FEW) + 0.6)
    axes.xaxis.set_major_locator(_whole_numbers(len(ordered)))


def _draw_bars(axes: Any, values: NDArray[Any], labels: list[str]) -> None:
    places = np.arange(len(values))
    bars = axes.barh(places, values, color=_colours(values), height=0.7)
    axes.bar_label(bars, [f"{value:.3g}".replace("-", "\u2212") for value in values], padding=3)
    axes.set_yticks(places, labels)
    axes.set_ylim(max(len(values), _FEW) - 0.4, -0.6)
    axes.margins(x=0.18)
    axes.axvline(0, color="0.3", linewidth=0.6)


def _colours(values: NDArray[Any]) -> list[str]:
    return [_NEGATIVE if value < 0 else _POSITIVE for value in values]


def _label(names: Names, index: int) -> str:
    name: str | None = None
    if callable(names):
        name = names(index)
    elif names is not None and index < len(names):
        name = names[index]
    return elide(f"{index}  {printable(name)}", font(14), _LONGEST_LABEL) if name else str(index)


def _whole_numbers(count: int) -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(nbins=min(10, max(1, count)), integer=True)


def _finish(figure: Any, title: str | None, not_finite: int) -> None:
    heading = printable(title or "")
    if not_finite:
        heading = f"{heading} · not finite: {not_finite}".lstrip(" ·")
    if heading:
        fitted = elide(heading, font(15), figure.get_figwidth() * 98)
        across, down = 0.012, 1 - 0.08 / figure.get_figheight()
        figure.text(across, down, fitted, va="top", fontsize=11)
