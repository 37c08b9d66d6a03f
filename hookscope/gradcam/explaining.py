"""The two ways to ask for heatmaps: a tensor for the API, a list of ``Heatmap`` for the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from hookscope.errors import ModelError, UsageError
from hookscope.gradcam.answer import Answer
from hookscope.gradcam.borrowing import borrowed
from hookscope.gradcam.heatmap import Heatmap
from hookscope.gradcam.passes import answer
from hookscope.gradcam.question import Question, addresses_of
from hookscope.layers.addresses import Address
from hookscope.layout import Layout

_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)


def gradcam(
    model: nn.Module,
    x: Tensor,
    layer: str | Address | nn.Module | None = None,
    target: int | Sequence[int] | Tensor | None = None,
    method: str = "gradcam",
    *,
    output_key: str | None = None,
    smooth: int = 0,
    flip: bool = False,
    seed: int = 0,
    batch_size: int = 16,
    progress: Callable[[int, int], None] | None = None,
) -> Tensor:
    """Raw heatmaps N x h x w of a batch ``x`` (N x C x H x W), one per picture, on its device.

        heatmaps = gradcam(model, x, layer="layer4", target=281)

    ``layer``: a name of ``list_layers``, with a call (``relu@1``, else the last one) and an item
    (``head[logits]``) if need be, or the module itself; None takes the layer that ``list_layers``
    marks, which costs a probe. ``target``: one class index for all pictures or one for each; None
    is each picture's predicted class. ``method``: gradcam, gradcam++, hirescam, xgradcam, layercam,
    eigencam, eigengradcam, scorecam or ablationcam. The maps are after the method's ReLU, before
    any scaling; a picture's map does not depend on the others. ``smooth``, ``flip``,
    ``seed``, ``batch_size`` and ``progress`` as in ``explain``.

    The model is evaluated in eval mode and left as it was. Raises ``LayerNotFoundError``,
    ``TargetError``, ``ModelError`` and ``UsageError``.
    """
    _check_pictures(x)
    layouts: dict[str, Layout] = {}
    if layer is None:
        layer, layouts = _default_layer(model, x)
    question = Question(
        addresses_of(model, [layer]),
        layouts,
        classes=_per_picture(target, x),
        methods=(method,),
        output_key=output_key,
        smooth=smooth,
        flip=flip,
        seed=seed,
        batch_size=batch_size,
        progress=progress,
    )
    with borrowed(model, x) as module:
        found = answer(module, x.detach(), question)
    return found.layers[-1].maps[0, method]


def explain(
    model: nn.Module,
    x: Tensor,
    *,
    layers: Sequence[Address | str | nn.Module],
    layouts: Mapping[str, Layout] | None = None,
    classes: Sequence[int] | Tensor | None = None,
    top_k: int | None = None,
    methods: Sequence[str] = ("gradcam",),
    output_key: str | None = None,
    multi_label: bool = False,
    background: int | None = None,
    fuse: bool = False,
    smooth: int = 0,
    flip: bool = False,
    seed: int = 0,
    batch_size: int = 16,
    precision: str = "fp32",
    progress: Callable[[int, int], None] | None = None,
) -> list[list[Heatmap]]:
    """Every heatmap of a batch: for each picture a list by layer and call, class, and method.

    ``layers``: addresses, names, patterns or modules, all from one forward pass; those that never
    run or give no map are left out, and ``ModelError`` is raised where none is left. ``layouts``:
    by ``str(address)`` or by layer name; what is missing is guessed from the shape. ``classes``:
    the same for all pictures, or a tensor N x K for each its own; None takes the ``top_k`` (one)
    predicted. ``multi_label``: probabilities are sigmoids. ``background``: a class that a
    segmentation network is not asked about unless it is named. ``fuse``: one map out of all the
    layers. ``smooth``: the mean over so many noised copies of the picture, drawn from ``seed``.
    ``flip``: the mean with the mirrored picture. ``batch_size``: of the passes that scorecam and,
    where a network cannot be resumed, ablationcam need; ``progress(done, total)`` counts their
    channels. ``precision``: autocast of the forward pass (fp32, bf16, fp16); maps are computed in
    fp32.

    Several threads may call this at once, each with its own replica of a model; replicas may share
    their parameters. The model is left as it was.
    """
    _check_pictures(x)
    question = Question(
        addresses_of(model, layers),
        layouts or {},
        classes=classes,
        top_k=1 if top_k is None else top_k,
        methods=tuple(dict.fromkeys(methods)),
        output_key=output_key,
        multi_label=multi_label,
        background=background,
        fuse=fuse,
        smooth=smooth,
        flip=flip,
        seed=seed,
        batch_size=batch_size,
        precision=precision,
        progress=progress,
    )
    with borrowed(model, x) as module:
        found = answer(module, x.detach(), question)
    return _heatmaps(found, question.methods)


def _heatmaps(found: Answer, methods: Sequence[str]) -> list[list[Heatmap]]:
    classes = found.classes.tolist()
    scores = found.scores.tolist()
    probabilities = found.probabilities.tolist()
    predicted, certainties = found.predicted.tolist(), found.certainties.tolist()
    columns = range(len(classes[0]))
    pictures: list[list[Heatmap]] = [[] for _ in classes]
    for layer in found.layers:
        keys = [(k, method) for k in columns for method in methods]
        # One transfer a layer: each would make the host wait for the device.
        maps = torch.stack([layer.maps[key] for key in keys]).float().cpu()
        for place, (k, method) in enumerate(keys):
            for n, heatmaps in enumerate(pictures):
                index = classes[n][k]
                if index < 0 and k > 0:
                    continue  # another picture of the batch has more classes
                notes = [found.notes[k][n], layer.notes.get((k, method))]
                heatmaps.append(
                    Heatmap(
                        layer.address,
                        method,
                        index if index >= 0 else None,
                        scores[n][k] if index >= 0 else None,
                        probabilities[n][k] if index >= 0 else None,
                        maps[place, n].clone(),
                        layer.layout,
                        next((note for note in notes if note), None),
                        found.extents[n],
                        (predicted[n], certainties[n]) if predicted[n] >= 0 else None,
                    )
                )
    return pictures


def _default_layer(model: nn.Module, x: Tensor) -> tuple[str, dict[str, Layout]]:
    # The probe is not needed where a layer is named, and costs more to import than to call.
    from hookscope.layers.probe import probe
    from hookscope.layers.signature import input_channels

    size = (x.shape[-2], x.shape[-1])
    found = probe(model, size, channels=x.shape[1])
    expected = input_channels(model)
    if found.problem is not None and x.shape[1] != expected:
        raise ModelError(
            f"the model reads pictures of {expected} channels, and these have {x.shape[1]}: "
            + found.problem
        )
    if found.cam_default is None:
        raise ModelError(
            "there is no layer to make a heatmap at by itself: "
            + (found.problem or "nothing spatial is on the way to the model's output"),
            "Name one: gradcam(model, x, layer=...); list_layers(model) shows them.",
        )
    layouts = {str(tensor.address): tensor.layout for tensor in found.tensors}
    return found.cam_default, layouts


def _per_picture(target: int | Sequence[int] | Tensor | None, x: Tensor) -> Tensor | None:
    if target is None:
        return None
    try:
        table = torch.as_tensor(target)
    except (TypeError, ValueError, RuntimeError):
        table = None
    if table is None or table.dtype not in _INTEGERS or table.dim() > 1:
        raise UsageError(
            f"target is one class index, or one for each picture, not {target!r:.60}",
            "A class is an integer counted from 0, not a name.",
        )
    return table.expand(len(x)) if table.dim() == 0 else table


def _check_pictures(x: Tensor) -> None:
    if x.dim() != 4 or len(x) == 0 or not x.is_floating_point():
        raise UsageError(
            f"expected pictures as floating-point N x C x H x W, got {x.dtype} {tuple(x.shape)}",
            "One picture is a batch of one: x.unsqueeze(0).",
        )
