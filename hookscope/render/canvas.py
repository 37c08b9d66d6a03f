"""matplotlib without pyplot: figures that belong to no window, and files that do not vary."""

from __future__ import annotations

import io
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# matplotlib keeps its settings and its font cache for the whole process, without a lock.
_ALONE = threading.Lock()

_SETTINGS: dict[Any, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "text.parse_math": False,  # a dollar in a class name is not a formula
    "pdf.fonttype": 42,  # TrueType: publishers refuse type 3
    "svg.fonttype": "none",  # text stays text, to be searched and edited
    "svg.hashsalt": "hookscope",  # else the ids differ from run to run
}


@contextmanager
def drawing() -> Iterator[None]:
    """The only place where matplotlib works: one thread at a time, with our settings."""
    import matplotlib

    with _ALONE, matplotlib.rc_context(rc=_SETTINGS), warnings.catch_warnings():
        # Letters that the font lacks are drawn as boxes; a remark for each would help no one.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from")
        yield


def new_figure(width: float, height: float, dpi: int = 100) -> Figure:
    """An empty white figure, in inches. Call within ``drawing()``."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=dpi, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def rasterise(figure: Figure) -> Image.Image:
    """The figure's pixels as RGB. Call within ``drawing()``."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())[:, :, :3].copy())


def save_vector(
    figure: Figure,
    target: str | Path | BinaryIO,
    format: Literal["pdf", "svg"],
    text: Mapping[str, str] | None = None,
) -> None:
    """Write the figure as PDF or SVG, without a date: the same figure gives the same bytes.

    The first value of ``text`` becomes the document's subject or description. Call within
    ``drawing()``.
    """
    about = next(iter((text or {}).values()), None)
    metadata: dict[str, str | None]
    if format == "pdf":
        metadata = {"CreationDate": None, "Creator": "hookscope", "Subject": about}
    else:
        metadata = {"Date": None, "Creator": "hookscope", "Description": about}
    buffer = io.BytesIO()
    figure.savefig(buffer, format=format, metadata=metadata)
    if isinstance(target, (str, Path)):
        Path(target).write_bytes(buffer.getvalue())
    else:
        target.write(buffer.getvalue())
