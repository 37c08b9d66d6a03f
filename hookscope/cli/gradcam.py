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
from hookscope.cli.questions import (
    asked_of,
    count_classes,
    layers_of,
    look_of,
    methods_of,
    rival_of,
    truths_of,
)
from hookscope.cli.signals import signals
from hookscope.cli.trust_flags import TrustFlags
from hookscope.errors import UsageError

if TYPE_CHECKING:
    from hookscope.cli.running import Tally
    from hookscope.layers.probe import Probe
    from hookscope.models.opening import OpenedModel
    from hookscope.output.records import Record
    from hookscope.run.explaining.truth import Truths
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
    trust: TrustFlags,
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
        from hookscope.models.opening import open_model
        from hookscope.output.store import Store
        from hookscope.run.clock import Clock
        from hookscope.run.desk import Desk
        from hookscope.run.engine import engine_for
        from hookscope.run.explaining.asking import Asking
        from hookscope.run.explaining.extremes import on_one_scale
        from hookscope.run.explaining.files import HeatFiles
        from hookscope.run.explaining.job import Explaining
        from hookscope.run.explaining.summary import Summary
        from hookscope.run.unanswered import unanswered

        methods, drawn = methods_of(question, trust), look_of(look, trust)
        clock = Clock()
        with clock.stage("model"):
            opened = open_model(model.model, **model_arguments(flags))
            if opened.account:
                console.note(opened.account.line())
            feed = preprocessing_of(preprocessing, opened.preprocessing)
            seen = probe(opened.module, feed.input_size)
            addresses, missing = layers_of(layers, opened, seen)
            truths, opened = truths_of(trust, share, opened, seen)
            _tell_odd(console, opened, seen, truths)
            rival = rival_of(trust, model.model, flags, opened, console)
        # Several pictures have a bar of their own.
        steps = console.counter("channels") if len(share.samples) == 1 else None
        asking = Asking(
            opened,
            addresses,
            {str(info.address): info.layout for info in seen.tensors},
            asked_of(question, methods, flags, opened, seen),
            evaluate=trust.evaluate or bool(trust.compare),
            rival=rival,
            truths=truths,
            progress=steps,
        )
        store = Store(output.out, **store_arguments(output, share))
        desk = Desk(store, opened, feed, "gradcam")
        files = HeatFiles(
            desk, opened.labels, drawn, methods, output.save, rival.name if rival else None
        )
        foreseeable = not question.fuse and seen.problem is None
        job = Explaining(opened, feed, asking, drawn, files, desk, clock, foreseeable)

        def engine_of(job: Job) -> Engine:
            return engine_for(job, opened, len(share.samples), run.batch_size, console.note)

        if look.scale == "shared":
            job = on_one_scale(job, engine_of, share.samples)
        engine, summary = engine_of(job), Summary()

        last = ""

        def describe(record: Record) -> str | None:
            nonlocal last
            summary.add(record)
            before, last = last, _sentence(record) or ""
            return last if last != before else None  # another method says the same

        def afterwards(tally: Tally) -> list[Record]:
            said = unanswered(opened.module, missing, seen, tally.fired)
            for selection, sentence in said:
                if not selection.exact:
                    console.note(f"note: {selection.layer} {sentence}")
            return [desk.layer_failure(one, sentence) for one, sentence in said if one.exact]

        runner = Runner(
            console, engine, store, output, run, describe, afterwards, summary=summary.sentences
        )
        return runner.over(share, caught)


def _tell_odd(console: Console, opened: OpenedModel, seen: Probe, truths: Truths | None) -> None:
    classes = count_classes(seen)
    if classes and opened.labels and len(opened.labels) != classes:
        console.note(f"note: {len(opened.labels)} class names for a model of {classes} classes")
    if truths and truths.note:
        console.note(f"note: {truths.note}")


def _sentence(record: Record) -> str | None:
    """What stderr says of one heatmap."""
    if record["status"] in ("error", "skipped"):
        return None
    image = one_line(record["image"])
    if record["class_index"] is None:
        return f"{image}: {record['reason']}"
    index, name = record["class_index"], record["class_name"]
    said = f"{image}: " + (f"{one_line(name)} ({index})" if name else f"class {index}")
    chance = record["probability"]
    if chance is not None and isfinite(chance):
        said += f" {chance:.2f}"
    if record["status"] == "degenerate":
        return f"{said}, but the map is {record['reason']}"
    return f"{said} ({record['reason']})" if record["reason"] else said
