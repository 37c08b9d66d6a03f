"""``hookscope list-layers``: the tree of a model's layers, with what a forward pass makes of it."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from hookscope.cli.completion.values import model_names
from hookscope.cli.console import Console
from hookscope.cli.opening import input_size_of, model_arguments
from hookscope.cli.options import LayerFlags, ModelFlags, TalkFlags
from hookscope.cli.status import ExitCode

if TYPE_CHECKING:
    from hookscope.layers.info import LayerInfo
    from hookscope.models.opening import OpenedModel

_COLUMNS = ("name", "type", "output", "parameters", "calls", "")


def command(
    layers: LayerFlags,
    flags: ModelFlags,
    talk: TalkFlags,
    model: Annotated[
        str,
        Argument(
            help="torchvision name, timm:NAME, path/to/net.py:factory, package.module:factory, "
            "or a torch.export archive.",
            envvar="HOOKSCOPE_MODEL",
            metavar="[MODEL]",
            autocompletion=model_names,
        ),
    ] = "resnet18",
    format: Annotated[
        Literal["tree", "table", "names"],
        Option("--format", help="names: ready for xargs.", rich_help_panel="Output"),
    ] = "tree",
    depth: Annotated[
        int | None,
        Option("--depth", help="Levels of the tree.", metavar="N", min=1, rich_help_panel="Output"),
    ] = None,
    input_size: Annotated[
        str | None,
        Option(
            "--input-size",
            help="Default: the preset's crop, or the model's own size.",
            metavar="HxW",
            rich_help_panel="Preprocessing",
        ),
    ] = None,
    no_shapes: Annotated[
        bool, Option("--no-shapes", help="No forward pass.", rich_help_panel="Output")
    ] = False,
    as_json: Annotated[
        bool, Option("--json", help="One JSON document.", rich_help_panel="Output")
    ] = False,
) -> int:
    """Print a model's layers: name, type, output shape, parameters, calls.

    [bold]Examples[/]

      hookscope list-layers mobilenet_v2 --depth 2

      hookscope list-layers vit_b_16 --type LayerNorm --format names

      hookscope list-layers resnet18 --json | jq '.layers[] | select(.cam_default)'

    Marks the layer that gradcam takes by itself (CAM), layers that never run, and
    layers whose output a later in-place operation overwrites. Downloads nothing.
    """
    console = Console.of_process(quiet=talk.quiet, verbose=talk.verbose)
    from hookscope.layers.addresses import select
    from hookscope.layers.listing import describe
    from hookscope.layers.probe import probe
    from hookscope.models.opening import open_structure

    with console.alone_on_stdout():
        opened = open_structure(model, **model_arguments(flags))
        if opened.account:
            console.note(opened.account.line())
        wanted = select(opened.module, layers.layer or (), layers.type or ())
        size = input_size_of(input_size) if input_size else opened.preprocessing.input_size
        seen = None if no_shapes else probe(opened.module, size)
        rows = describe(opened.module, seen)
    if seen is not None and seen.problem:
        console.note(f"note: no forward pass could be run: {seen.problem}")
    if wanted:
        names = {selection.layer for selection in wanted}
        rows = [row for row in rows if row.name in names]
    if depth is not None:
        rows = [row for row in rows if row.depth < depth]
    if as_json:
        size = size if seen is None else seen.input_size
        console.data(json.dumps(_document(opened, size, rows), ensure_ascii=False))
    elif format == "names":
        for row in rows:
            console.data(row.name)
    else:
        _print_rows(console, rows, indent=format == "tree")
    return ExitCode.OK


def _document(
    opened: OpenedModel, size: tuple[int, int] | None, rows: list[LayerInfo]
) -> dict[str, Any]:
    from hookscope.layers.listing import count_parameters

    parameters, trainable = count_parameters(opened.module)
    return {
        "schema": 1,
        "command": "list-layers",
        "model": opened.file_name,
        "parameters": parameters,
        "trainable": trainable,
        "input_size": None if size is None else list(size),
        "layers": [dataclasses.asdict(row) for row in rows],
    }


def _print_rows(console: Console, rows: list[LayerInfo], *, indent: bool) -> None:
    table = [_cells(row, indent=indent) for row in rows]
    widths = [max((len(cells[i]) for cells in table), default=0) for i in range(len(_COLUMNS))]
    if not indent:
        widths = [max(width, len(title)) for width, title in zip(widths, _COLUMNS, strict=True)]
        console.data(_line(_COLUMNS, widths))
    if not console.colour:
        for cells in table:
            console.data(_line(cells, widths))
        return
    from rich.console import Console as RichConsole
    from rich.text import Text

    terminal = RichConsole(file=console.out, highlight=False)
    for row, cells in zip(rows, table, strict=True):
        style = "bold green" if row.cam_default else "dim" if row.calls == 0 else ""
        terminal.print(Text(_line(cells, widths), style=style), soft_wrap=True)


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    padded = [
        cell.rjust(width) if index in (3, 4) else cell.ljust(width)
        for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(padded).rstrip()


def _cells(row: LayerInfo, *, indent: bool) -> tuple[str, ...]:
    name = "  " * row.depth + row.name if indent else row.name
    calls = "" if row.calls is None else f"x{row.calls}"
    return name, row.type, _shape(row.output_shape), f"{row.parameters:,}", calls, _marks(row)


def _shape(shape: Any) -> str:
    if shape is None:
        return "-"
    if shape and isinstance(shape[0], (tuple, list)):
        return " + ".join(_shape(part) for part in shape)
    return "x".join(str(side) for side in shape) or "scalar"


def _marks(row: LayerInfo) -> str:
    marks = []
    if row.cam_default:
        marks.append("<- CAM")
    if row.calls == 0:
        marks.append("never runs")
    if row.overwritten_in_place:
        marks.append("overwritten in place")
    return ", ".join(marks)
