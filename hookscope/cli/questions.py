"""From the flags of ``gradcam`` to what is asked of the network."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hookscope.cli.console import Console
from hookscope.cli.heat_flags import OverlayFlags, QuestionFlags
from hookscope.cli.opening import model_arguments
from hookscope.cli.options import LayerFlags, ModelFlags
from hookscope.cli.trust_flags import TrustFlags
from hookscope.errors import ModelError, UsageError

if TYPE_CHECKING:
    from hookscope.cli.running import Share
    from hookscope.layers.addresses import Address, Selection
    from hookscope.layers.probe import Probe
    from hookscope.models.opening import OpenedModel
    from hookscope.run.explaining.asking import Asked
    from hookscope.run.explaining.pictures import Look
    from hookscope.run.explaining.truth import Truths
    from hookscope.run.explaining.versus import Rival


def methods_of(question: QuestionFlags, trust: TrustFlags) -> tuple[str, ...]:
    """Those of --method and --compare; an unknown one is a ``UsageError``."""
    from hookscope.maps.cam import check_method

    methods = tuple(dict.fromkeys([*(question.method or ("gradcam",)), *(trust.compare or ())]))
    for method in methods:
        check_method(method)
    return methods


def look_of(flags: OverlayFlags, trust: TrustFlags) -> Look:
    """How the answer is drawn; a colormap that is unknown is a ``UsageError``."""
    from hookscope.render.palette import lut
    from hookscope.run.explaining.pictures import Look

    lut(flags.cmap)
    views = tuple(view.value for view in flags.view or ())
    return Look(
        views=views or (("sheet",) if trust.compare else ("overlay",)),
        format=flags.format,
        figure=flags.figure,
        alpha=flags.alpha,
        cmap=flags.cmap,
        max_side=flags.max_side,
    )


def asked_of(
    question: QuestionFlags,
    methods: tuple[str, ...],
    flags: ModelFlags,
    opened: OpenedModel,
    seen: Probe,
) -> Asked:
    """The settings of all heatmaps; a class that the model does not have is a ``TargetError``."""
    from hookscope.run.explaining.asking import Asked

    # Where nothing tells, the network itself refuses what it does not have.
    count = count_classes(seen) or len(opened.labels) or 1 << 30
    indices = [opened.labels.find(text, count) for text in question.class_ or ()]
    return Asked(
        classes=tuple(dict.fromkeys(indices)) or None,
        top_k=question.top_k,
        methods=methods,
        fuse=question.fuse,
        smooth=question.smooth,
        flip=question.flip,
        output_key=question.output_key,
        seed=flags.seed,
        precision=flags.precision,
    )


def layers_of(
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


def truths_of(
    trust: TrustFlags, share: Share, opened: OpenedModel, seen: Probe
) -> tuple[Truths | None, OpenedModel]:
    """What --truth says, and the model with the class names that it may have brought."""
    if trust.truth is None:
        return None, opened
    from hookscope.output.names import settle
    from hookscope.run.explaining.truth import read_truths

    everyone = settle(share.everyone)  # folders give the same classes to every shard
    truths = read_truths(trust.truth, everyone, opened.labels, count_classes(seen))
    return truths, replace(opened, labels=truths.labels)


def rival_of(
    trust: TrustFlags, spec: str, flags: ModelFlags, opened: OpenedModel, console: Console
) -> Rival | None:
    """The checkpoint of --versus, opened in the way of the first."""
    file = trust.versus
    if file is None:
        return None
    from hookscope.models.opening import open_model
    from hookscope.run.explaining.versus import Rival

    second = open_model(spec, **{**model_arguments(flags), "weights": None, "checkpoint": file})
    if second.account:
        console.note(f"--versus: {second.account.line()}")
    if second.digest == opened.digest:
        raise UsageError("--versus has the very weights of the first", "Name another checkpoint.")
    first, name = flags.checkpoint.stem if flags.checkpoint else opened.file_name, file.stem
    if name == first:
        name = f"{file.resolve().parent.name}-{name}"
    return Rival.of(opened, second, (first, name))


def count_classes(seen: Probe) -> int | None:
    """The number of classes, where the shape of the output tells it."""
    if len(seen.output) == 1 and len(seen.output[0]) == 2:
        return max(2, seen.output[0][1])  # one logit tells two classes apart
    return None


def _addresses(selections: list[Selection]) -> list[Address]:
    from hookscope.layers.addresses import Address

    return [Address(one.layer, one.call, one.item) for one in selections]
