"""Putting a checkpoint's tensors into a model: mapped if possible, in its own precision."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from hookscope.errors import CheckpointError
from hookscope.layers.modules import unwrap
from hookscope.models.checkpoint.fit import Wanted


def set_tensors(
    model: nn.Module,
    tensors: Mapping[str, Tensor],
    versions: Mapping[str, Any] | None,
    wanted: Wanted,
    *,
    assign: bool,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Load ``tensors`` into ``model``; returns the names it still lacks, and those it left.

    The model's own ways of reading older files are honoured (``versions`` are the file's).
    ``assign`` takes the tensors themselves instead of copies. Precision, sharing between names
    and ``requires_grad`` stay the model's. Raises ``CheckpointError``.
    """
    module = unwrap(model)
    precisions = {name: each.dtype for name, each in _tensors(module)}
    ready = {name: _ready(name, each, precisions.get(name)) for name, each in tensors.items()}
    for names in wanted.tied:
        last = next((ready[name] for name in reversed(names) if name in ready), None)
        if last is not None:
            ready.update(dict.fromkeys(names, last))
    shared = [[_place(module, name) for name in names] for names in wanted.tied]
    missing, left = _load(module, ready, versions, assign=assign)
    for places in shared:
        (owner, name), *others = places
        for other, other_name in others:
            setattr(other, other_name, getattr(owner, name))
    for name, each in _tensors(module):
        if each.dtype != precisions.get(name, each.dtype):
            each.data = each.data.to(precisions[name])
    return tuple(name for name in missing if name not in wanted.spared), tuple(left)


def _load(
    module: nn.Module, ready: Mapping[str, Tensor], versions: Mapping[str, Any] | None, assign: bool
) -> tuple[list[str], list[str]]:
    """``load_state_dict``, with the versions of the file, with none, or with the model's own.

    A module that changed its names once needs to be told; MNASNet refuses to guess.
    """
    own = getattr(module.state_dict(), "_metadata", None)
    problem: Exception | None = None
    for known in (versions, None, own):
        state = OrderedDict(ready)
        if known is not None:
            # A copy: loading writes into it.
            state._metadata = {name: dict(notes) for name, notes in known.items()}  # type: ignore[attr-defined]
        try:
            result = nn.Module.load_state_dict(module, state, strict=False, assign=assign)
        except (RuntimeError, ValueError, AssertionError, KeyError) as error:
            problem = problem or error
        else:
            return result.missing_keys, result.unexpected_keys
    lines = str(problem).strip().splitlines()
    raise CheckpointError(f"the model does not take the checkpoint: {lines[-1].strip()}")


def _ready(name: str, tensor: Tensor, precision: torch.dtype | None) -> Tensor:
    if precision is None:
        return tensor
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    whole_numbers = tensor.is_quantized or not tensor.dtype.is_floating_point
    if precision.is_floating_point and whole_numbers and tensor.numel() > 1:
        raise CheckpointError(
            f"{name} is {tensor.dtype} in the file: quantized weights do not go into a "
            "floating-point model",
            "Take the file from before quantization.",
        )
    return tensor.to(precision).contiguous()


def _tensors(module: nn.Module) -> Iterable[tuple[str, Tensor]]:
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


def _place(module: nn.Module, name: str) -> tuple[nn.Module, str]:
    owner, _, own_name = name.rpartition(".")
    return module.get_submodule(owner), own_name
