"""``hookscope capture``: what flows through chosen layers, as pictures or in numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from hookscope.cli.completion.values import colormap_names
from hookscope.cli.console import Console
from hookscope.cli.opening import model_arguments, preprocessing_of, store_arguments
from hookscope.cli.options import (
    LayerFlags,
    ModelFlags,
    ModelName,
    OutputFlags,
    PreprocessingFlags,
    RunFlags,
    TalkFlags,
)
from hookscope.cli.pooling import PoolFlags
from hookscope.cli.signals import signals
from hookscope.cli.tap_flags import TapFlags
from hookscope.errors import UsageError

if TYPE_CHECKING:
    from hookscope.cli.running import Tally
    from hookscope.layers.probe import Probe
    from hookscope.output.records import Record
    from hookscope.run.capturing.taps import Tap


@dataclass(frozen=True)
class GridFlags:
    """How feature maps are drawn."""

    channels: Annotated[
        str | None,
        Option(
            "--channels",
            help="Only these, as 0,3,8-15.",
            metavar="LIST",
            rich_help_panel="Output",
        ),
    ] = None
    top: Annotated[
        int | None,
        Option(
            "--top",
            help="The K channels with the largest mean absolute activation.",
            metavar="K",
            min=1,
            rich_help_panel="Output",
        ),
    ] = None
    normalize: Annotated[
        Literal["channel", "layer"] | None,
        Option(
            "--normalize",
            help="Each channel over its own range, or all over one. Default: channel; layer for "
            "gradients.",
            rich_help_panel="Output",
        ),
    ] = None
    cmap: Annotated[
        str | None,
        Option(
            "--cmap",
            help="Any matplotlib colormap. Default: viridis; RdBu_r for gradients.",
            metavar="NAME",
            autocompletion=colormap_names,
            rich_help_panel="Output",
        ),
    ] = None
    cols: Annotated[
        int | None,
        Option("--cols", help="Tiles in a row.", metavar="N", min=1, rich_help_panel="Output"),
    ] = None
    no_annotate: Annotated[
        bool,
        Option("--no-annotate", help="Tiles without numbers and header.", rich_help_panel="Output"),
    ] = False
    reduce: Annotated[
        Literal["mean", "max", "norm"] | None,
        Option("--reduce", help="All channels as one map.", rich_help_panel="Output"),
    ] = None


def command(
    inputs: Annotated[
        list[str],
        Argument(
            help="Pictures, folders, quoted globs, or - for a list on stdin.", metavar="INPUT..."
        ),
    ],
    model: ModelName,
    flags: ModelFlags,
    preprocessing: PreprocessingFlags,
    layers: LayerFlags,
    taps: TapFlags,
    grid: GridFlags,
    pooling: PoolFlags,
    output: OutputFlags,
    run: RunFlags,
    talk: TalkFlags,
) -> int:
    """Write what flows through chosen layers as pictures: feature maps, gradients, attention.

    [bold]Examples[/]

      hookscope capture sample_images/chelsea.png -w none -l layer1.0.conv1

      hookscope capture sample_images -w none -l 'layer4.*.conv?' --top 16

      hookscope capture sample_images/coffee.png -w none -t Conv2d --save npy --json

      hookscope capture sample_images -w none -l layer4 --what gradient --class 281

      hookscope capture sample_images -w none -l 'layer?' --stats

    All layers come from one forward pass, which is left as soon as the last of
    them has run. Every channel has its own colour scale, and its number above;
    gradients share one, which is symmetric about zero.
    """
    console = Console.of_process(quiet=talk.quiet, verbose=talk.verbose)
    taps.check(save=output.save, channels=grid.channels, top=grid.top, reduce=grid.reduce)
    pooling.check(
        taps.what,
        stats=taps.stats,
        tensorboard=taps.tensorboard,
        channels=grid.channels,
        top=grid.top,
        reduce=grid.reduce,
    )
    named = bool(layers.layer or layers.type)
    if not named and taps.what != "attention":
        raise UsageError(
            "which layers? --layer and --type choose them",
            "`hookscope list-layers MODEL` shows their names.",
        )
    channels = parse_channels(grid.channels) if grid.channels is not None else None
    from hookscope.cli.running import Runner, share_of

    with signals() as caught, console.alone_on_stdout():
        share = share_of(console, inputs, output, run)
        from hookscope.layers.addresses import select
        from hookscope.layers.probe import probe
        from hookscope.models.opening import open_model
        from hookscope.output.store import Store
        from hookscope.render.palette import lut
        from hookscope.run.capturing.embedding import Embedding
        from hookscope.run.capturing.job import Capturing
        from hookscope.run.capturing.measuring import Measuring
        from hookscope.run.capturing.pictures import GridLook
        from hookscope.run.clock import Clock
        from hookscope.run.desk import Desk
        from hookscope.run.engine import engine_for
        from hookscope.run.unanswered import unanswered

        if grid.cmap is not None:
            lut(grid.cmap)
        clock = Clock()
        with clock.stage("model"):
            opened = open_model(model.model, **model_arguments(flags))
            if opened.account:
                console.note(opened.account.line())
            feed = preprocessing_of(preprocessing, opened.preprocessing)
            selections = select(opened.module, layers.layer or (), layers.type or ())
            seen = probe(opened.module, feed.input_size, want_default=False)
            tap = taps.tap(opened, selections, seen, flags.precision)
        look = GridLook(
            channels=channels,
            top=grid.top,
            normalize=grid.normalize,
            cmap=grid.cmap,
            cols=grid.cols,
            annotate=not grid.no_annotate,
            reduce=grid.reduce,
        )
        arguments = store_arguments(output, share)
        if taps.stats:
            arguments["dry_run"] = True  # a table leaves no file
        store = Store(output.out, **arguments)
        desk = Desk(store, opened, feed, "capture")
        log = taps.event_log(dry_run=output.dry_run)
        job: Capturing | Measuring | Embedding
        if pooling.pool:
            job = pooling.embedding(opened, feed, tap, seen, desk, clock, share, output)
        elif taps.stats:
            job = Measuring(opened, feed, tap, seen, desk, clock)
        else:
            job = Capturing(opened, feed, tap, seen, look, output.save, desk, clock, log)
        batch_size = 1 if _one_by_one(tap, seen) else run.batch_size
        engine = engine_for(job, opened, len(share.samples), batch_size, console.note)

        def afterwards(tally: Tally) -> list[Record]:
            if tally.pictures and len(tally.failures) >= tally.pictures:
                return []  # no picture came through, so nothing is known of the layers
            if taps.rollout:
                return []  # one result stands for all layers
            missing = unanswered(
                opened.module, tap.selections, seen, tally.fired | job.fired, tap.what
            )
            for selection, said in missing:
                if named and not selection.exact:
                    console.note(f"note: {selection.layer} {said}")
            return [desk.layer_failure(one, said) for one, said in missing if one.exact]

        gathering = job if isinstance(job, Embedding) else None
        runner = Runner(
            console, engine, store, output, run, lambda record: None, afterwards, gathering
        )
        try:
            code = runner.over(share, caught)
        finally:
            if log is not None:
                log.close()
        if isinstance(job, Measuring):
            from hookscope.cli.stats_table import print_statistics

            print_statistics(console, job, as_json=output.json)
        return code


def _one_by_one(tap: Tap, seen: Probe) -> bool:
    """Whether a batch would mix its pictures up: a detector gives a list with an item for each."""
    wanted = set(tap.expected)
    return any(info.pictures == "shared" for info in seen.tensors if info.address in wanted)


def parse_channels(text: str) -> tuple[int, ...]:
    """``"0,3,8-15"`` -> the numbers in the order given, each once. Raises ``UsageError``."""
    chosen: dict[int, None] = {}
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UsageError(f"--channels {text!r} is not a list of channels", "Such as 0,3,8-15.")
        start, end = int(first), int(last) if dash else int(first)
        if end < start or end - start > 1_000_000:
            raise UsageError(f"--channels {part.strip()}: the range is empty or absurd")
        chosen.update(dict.fromkeys(range(start, end + 1)))
    return tuple(chosen)
