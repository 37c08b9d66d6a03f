"""``list_layers``: every layer of a model with its shape, size and part in the forward pass."""

from __future__ import annotations

import torch
from torch import nn

from hookscope.layers.info import LayerInfo
from hookscope.layers.modules import class_name, named_layers
from hookscope.layers.probe import Probe, TensorInfo, probe


def list_layers(model: nn.Module, input_size: tuple[int, int] | None = None) -> list[LayerInfo]:
    """The layers of ``model`` in ``named_modules`` order, without the root.

    Shapes are those for one picture of ``input_size`` (H, W), by default the model's own size or
    224 x 224. They come from a pass on tensors without data, which takes milliseconds and leaves
    the model as it is; what could not be found out is None.

        >>> [layer.name for layer in list_layers(model) if layer.cam_default]
        ['layer4']
    """
    return describe(model, probe(model, input_size))


def describe(model: nn.Module, found: Probe | None) -> list[LayerInfo]:
    """``list_layers`` from a probe that was run already, or without shapes where there is none."""
    tensors: dict[str, list[TensorInfo]] = {}
    for info in found.tensors if found else ():
        tensors.setdefault(info.address.layer, []).append(info)
    default = found.cam_default if found else None
    return [
        _row(name, module, tensors.get(name, []), found, default)
        for name, module in named_layers(model).items()
    ]


def count_parameters(module: nn.Module) -> tuple[int, int]:
    """How many numbers the parameters of ``module`` hold, and how many of these are trainable.

    A shared tensor counts once; a lazy parameter, which has no shape yet, counts nothing.
    """
    parameters = list(module.parameters())
    trainable = [parameter for parameter in parameters if parameter.requires_grad]
    return sum(map(_count, parameters)), sum(map(_count, trainable))


def _row(
    name: str,
    module: nn.Module,
    tensors: list[TensorInfo],
    found: Probe | None,
    default: str | None,
) -> LayerInfo:
    parameters, trainable = count_parameters(module)
    calls = found.calls.get(name) if found else None
    # Nothing can be seen of TorchScript parts, which take no hooks.
    visible = not isinstance(module, torch.jit.ScriptModule)
    if found and calls is None and found.problem is None and visible:
        calls = 0
    last = [info for info in tensors if info.address.call in (None, calls)]
    shapes = tuple(info.shape for info in last)
    kinds = {info.layout.kind for info in last}
    return LayerInfo(
        name=name,
        type=class_name(module),
        depth=name.count("."),
        parameters=parameters,
        trainable=trainable,
        output_shape=shapes[0] if len(last) == 1 and not last[0].address.item else shapes or None,
        layout=kinds.pop() if len(kinds) == 1 else "other" if kinds else None,
        calls=calls,
        overwritten_in_place=any(info.overwritten for info in tensors) if tensors else None,
        cam_default=any(str(info.address) == default for info in tensors)
        if found and found.problem is None
        else None,
    )


def _count(parameter: nn.Parameter) -> int:
    return 0 if nn.parameter.is_lazy(parameter) else parameter.numel()
