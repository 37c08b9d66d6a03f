"""The statistics of layers as a table, and below it what is suspicious in them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console as RichConsole
from rich.table import Table
from rich.text import Text

from hookscope.cli.console import Console
from hookscope.output.records import dumps

if TYPE_CHECKING:
    from hookscope.run.capturing.measuring import LayerStatistics, Measuring

_COLUMNS = ("mean", "std", "min", "max", "zeros", "dead", "not finite")
_OF_GRADIENTS = ("norm", "to above")
_UNWRAPPED = 10_000  # characters: more than any row has


def print_statistics(console: Console, job: Measuring, *, as_json: bool) -> None:
    """What was measured so far: a table, or a record a layer."""
    rows = job.rows()
    if as_json:
        for row in rows:
            console.data(dumps(job.record(row)))
        return
    if rows:
        what, pictures = job.tap.what, max(row.pictures for row in rows)
        count = "1 picture" if pictures == 1 else f"{pictures:,} pictures"
        weights = job.opened.weights
        named = f"{job.opened.file_name} ({weights})" if weights else job.opened.file_name
        title = f"{named} · {_in_words(job)} · {count}"
        print_table(console, rows, title=title, gradients=what == "gradient")


def _in_words(job: Measuring) -> str:
    settings = job.tap.settings
    if job.tap.what != "gradient":
        return "attention rollout" if settings.get("rollout") else job.tap.what
    index = settings["class_index"]
    name = "the predicted class" if index is None else job.opened.labels.name(index)
    loss = f"the {settings['loss']} with " if settings["loss"] else ""
    return f"gradient of {loss}{name or f'class {index}'}"


def print_table(
    console: Console, rows: Sequence[LayerStatistics], *, title: str, gradients: bool
) -> None:
    """Data on stdout: coloured and fitted to a terminal, whole lines everywhere else."""
    table = Table(title=title, title_justify="left", title_style="", box=box.SIMPLE_HEAD)
    table.add_column("")
    table.add_column("layer", overflow="fold")
    table.add_column("shape")
    for name in (*_COLUMNS, *(_OF_GRADIENTS if gradients else ())):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        cells = [Text(cell) for cell in _cells(row, gradients=gradients)]
        table.add_row(*cells, style="bold yellow" if row.remarks else "")
    terminal = RichConsole(
        file=console.out,
        width=None if console.out.isatty() else _UNWRAPPED,
        no_color=not console.colour,
        highlight=False,
        emoji=False,
    )
    with terminal.capture() as drawn:
        terminal.print(table)
        for row in rows:
            for remark in row.remarks:
                line = Text(f"! {row.address}: {remark}", style="yellow")
                terminal.print(line, soft_wrap=True)
    for text in drawn.get().splitlines():
        console.data(text.rstrip())


def _cells(row: LayerStatistics, *, gradients: bool) -> list[str]:
    numbers = row.numbers
    shape = "varies" if row.shape is None else "x".join(map(str, row.shape)) or "scalar"
    dead = "-" if numbers.dead_channels is None else f"{numbers.dead_channels}/{numbers.channels}"
    cells = [
        "!" if row.remarks else "",
        str(row.address),
        shape,
        *(_number(value) for value in (numbers.mean, numbers.std, numbers.min, numbers.max)),
        "-" if math.isnan(numbers.zero_fraction) else f"{numbers.zero_fraction:.1%}",
        dead,
        f"{numbers.nonfinite:,}",
    ]
    if gradients:
        cells += [_number(row.norm), "-" if row.ratio is None else f"x{row.ratio:.3g}"]
    return cells


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4g}"
