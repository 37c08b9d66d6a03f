"""The flags of ``gradcam`` alone: what is asked of the network, and how the answer is drawn."""

# No postponed annotations here either; see options.py.
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal

from typer import Option

from hookscope.cli.completion.values import class_names, colormap_names, method_names


class View(str, Enum):
    """A picture that a heatmap can become."""

    overlay = "overlay"
    heatmap = "heatmap"
    sheet = "sheet"


def _question(*names: str, help: str, **more: Any) -> Any:
    return Option(*names, help=help, rich_help_panel="Question", **more)


def _look(*names: str, help: str, **more: Any) -> Any:
    return Option(*names, help=help, rich_help_panel="Output", **more)


@dataclass(frozen=True)
class QuestionFlags:
    """What is asked of the network."""

    class_: Annotated[
        list[str] | None,
        _question(
            "--class",
            help="Index, name, or a unique part of a name. Repeatable. Default: the predicted one.",
            metavar="CLASS",
            autocompletion=class_names,
        ),
    ] = None
    top_k: Annotated[
        int | None,
        _question("--top-k", help="The K best classes of each picture.", metavar="K", min=1),
    ] = None
    method: Annotated[
        list[str] | None,
        _question(
            "--method",
            help="gradcam, gradcam++, hirescam, xgradcam, layercam, eigencam, eigengradcam, "
            "scorecam or ablationcam. Repeatable. Default: gradcam.",
            metavar="NAME",
            autocompletion=method_names,
        ),
    ] = None
    fuse: Annotated[bool, _question("--fuse", help="One map: the mean over the layers.")] = False
    smooth: Annotated[
        int,
        _question("--smooth", help="Mean over N noised copies of the picture.", metavar="N", min=0),
    ] = 0
    flip: Annotated[bool, _question("--flip", help="Mean with the mirrored picture.")] = False
    output_key: Annotated[
        str | None,
        _question("--output-key", help="Which part of the output holds the scores.", metavar="KEY"),
    ] = None


@dataclass(frozen=True)
class OverlayFlags:
    """How the answer is drawn."""

    view: Annotated[
        list[View] | None,
        _look("--view", help="sheet: all classes side by side. Repeatable. Default: overlay."),
    ] = None
    format: Annotated[Literal["png", "jpg", "webp"], _look("--format", help="Of the overlays.")] = (
        "png"
    )
    figure: Annotated[
        Literal["pdf", "svg"] | None, _look("--figure", help="The sheet as a vector figure too.")
    ] = None
    max_side: Annotated[
        int | None,
        _look(
            "--max-side",
            help="Shrink what is written; not what is computed.",
            metavar="N",
            min=16,
        ),
    ] = None
    scale: Annotated[
        Literal["own", "shared"],
        _look("--scale", help="One colour scale a map, or one for the run (two passes)."),
    ] = "own"
    alpha: Annotated[
        float, _look("--alpha", help="Weight of the heat, 0 to 1.", metavar="A", min=0.0, max=1.0)
    ] = 0.6
    cmap: Annotated[
        str,
        _look(
            "--cmap",
            help="Any matplotlib colormap.",
            metavar="NAME",
            autocompletion=colormap_names,
        ),
    ] = "turbo"
