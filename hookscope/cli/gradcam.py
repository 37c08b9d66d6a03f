"""``hookscope gradcam``: what a class score hangs on, as heat over the picture."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Annotated

from typer import Argument

from hookscope.cli.console import Console, one_line
from hookscope.cli.heat_flags import OverlayFlags, QuestionFlags
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
from hookscope.cli.signals import signals
from hookscope.errors import ModelError, UsageError

if TYPE_CHECKING:
    from hookscope.cli.running import Tally
    from hookscope.layers.addresses import Address, Selection
    from hookscope.layers.probe import Probe
    from hookscope.models.opening import OpenedModel
    from hookscope.output.records import Record
    from hookscope.run.pipeline import Engine, Job


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
    question: QuestionFlags,
    look: OverlayFlags,
    output: OutputFlags,
    run: RunFlags,
    talk: TalkFlags,
) -> int:
    """Write class-activation heatmaps over the pictures that they explain.

    [bold]Examples[/]

      hookscope gradcam sample_images/chelsea.png -m mobilenet_v2 -w IMAGENET1K_V1

      hookscope gradcam sample_images -w none --top-k 3 --json

      hookscope gradcam sample_images/coffee.png -w none --class 504 --save npy

    Without --layer it takes the last layer through which all of the class score
    flows, without --class the predicted class. Crop and resize are undone: the
    heat lies on the pixels that the network saw, and the others are dimmed.
    """
    console = Console.of_process(quiet=talk.quiet, verbose=talk.verbose)
    if question.class_ and question.top_k:
        raise UsageError("--class and --top-k exclude each other", "Name classes, or a number.")
    from hookscope.cli.running import Runner, share_of

    with signals() as caught, console.alone_on_stdout():
        share = share_of(console, inputs, output, run)
        from hookscope.layers.probe import probe
        from hookscope.maps.cam import check_method
        from hookscope.models.opening import open_model
        from hookscope.output.store import Store
        from hookscope.render.palette import lut
        from hookscope.run.clock import Clock
        from hookscope.run.desk import Desk
        from hookscope.run.engine import engine_for
        from hookscope.run.explaining import Asked, Explaining
        from hookscope.run.heat_pictures import Look
        from hookscope.run.unanswered import unanswered

        lut(look.cmap)
        methods = tuple(dict.fromkeys(question.method or ("gradcam",)))
        for method in methods:
            check_method(method)
        clock = Clock()
        with clock.stage("model"):
            opened = open_model(model.model, **model_arguments(flags))
            if opened.account:
                console.note(opened.account.line())
            feed = preprocessing_of(preprocessing, opened.preprocessing)
            seen = probe(opened.module, feed.input_size)
            addresses, missing = _layers(layers, opened, seen)
            classes = _count_classes(seen)
            if classes and opened.labels and len(opened.labels) != classes:
                console.note(
                    f"note: {len(opened.labels)} class names for a model of {classes} classes"
                )
        asked = Asked(
            classes=_classes(question.class_, opened, seen),
            top_k=question.top_k,
            methods=methods,
            fuse=question.fuse,
            smooth=question.smooth,
            flip=question.flip,
            output_key=question.output_key,
            seed=flags.seed,
            precision=flags.precision,
        )
        views = tuple(view.value for view in look.view or ())
        drawn = Look(
            views=views or ("overlay",),
            format=look.format,
            figure=look.figure,
            alpha=look.alpha,
            cmap=look.cmap,
            max_side=look.max_side,
        )
        store = Store(output.out, **store_arguments(output, share))
        desk = Desk(store, opened, feed, "gradcam")
        # Several pictures have a bar of their own.
        steps = console.counter("channels") if len(share.samples) == 1 else None
        job = Explaining(
            opened, feed, addresses, seen, asked, drawn, output.save, desk, clock, steps
        )

        def engine_of(job: Job) -> Engine:
            return engine_for(job, opened, len(share.samples), run.batch_size, console.note)

        if look.scale == "shared":
            job = job.on_one_scale(engine_of, share.samples)
        engine = engine_of(job)

        def afterwards(tally: Tally) -> list[Record]:
            said = unanswered(opened.module, missing, seen, tally.fired)
            for selection, sentence in said:
                if not selection.exact:
                    console.note(f"note: {selection.layer} {sentence}")
            return [desk.layer_failure(one, sentence) for one, sentence in said if one.exact]

        runner = Runner(console, engine, store, output, run, _sentence, afterwards)
        return runner.over(share, caught)


def _layers(
    flags: LayerFlags, opened: OpenedModel, seen: Probe
) -> tuple[list[Address], list[Selection]]:
    """The layers to explain, and the selections that the probe saw nothing of."""
    from hookscope.layers.addresses import chosen, select

    if not flags.layer and not flags.type:
        if seen.cam_default is None:
            raise ModelError(
                "no layer of this model can be chosen by itself for a heatmap"
                + (f": {seen.problem}" if seen.problem else ""),
                "Name one with --layer; `hookscope list-layers` shows them.",
            )
        return _addresses(select(opened.module, [seen.cam_default])), []
    selections = select(opened.module, flags.layer or (), flags.type or ())
    if seen.problem:
        return _addresses(selections), []
    taken, missing = chosen(selections, [info.address for info in seen.tensors])
    flat = {info.address: info for info in seen.tensors if not info.layout.spatial}
    for address in taken:
        if address in flat and any(one.exact and one.covers(address) for one in selections):
            shape = "x".join(str(side) for side in flat[address].shape)
            raise ModelError(
                f"layer {address} has no map: its output is {shape}, not channels over a height "
                "and a width",
                f"{seen.cam_default} has one." if seen.cam_default else "",
            )
    spatial = [address for address in taken if address not in flat]
    if not spatial and not missing:
        raise ModelError("no output of the chosen layers is channels over a height and a width")
    return spatial, missing


def _addresses(selections: list[Selection]) -> list[Address]:
    from hookscope.layers.addresses import Address

    return [Address(one.layer, one.call, one.item) for one in selections]


def _classes(texts: list[str] | None, opened: OpenedModel, seen: Probe) -> tuple[int, ...] | None:
    if not texts:
        return None
    # Where nothing tells, the network itself refuses what it does not have.
    count = _count_classes(seen) or len(opened.labels) or 1 << 30
    return tuple(dict.fromkeys(opened.labels.find(text, count) for text in texts))


def _count_classes(seen: Probe) -> int | None:
    if len(seen.output) == 1 and len(seen.output[0]) == 2:
        return max(2, seen.output[0][1])  # one logit tells two classes apart
    return None


def _sentence(record: Record) -> str | None:
    """What stderr says of one heatmap."""
    if record["status"] in ("error", "skipped"):
        return None
    image = one_line(record["image"])
    if record["class_index"] is None:
        return f"{image}: {record['reason']}"
    index, name = record["class_index"], record["class_name"]
    said = f"{image}: " + (f"{name} ({index})" if name else f"class {index}")
    chance = record["probability"]
    if chance is not None and isfinite(chance):
        said += f" {chance:.2f}"
    if record["status"] == "degenerate":
        return f"{said}, but the map is {record['reason']}"
    return f"{said} ({record['reason']})" if record["reason"] else said
