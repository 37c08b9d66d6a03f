"""Stop at the layer that is given what it should not be given, not ten layers later."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from hookscope.errors import HookscopeError
from hookscope.hooks.compiled import Uncompiled
from hookscope.hooks.handles import Handles
from hookscope.hooks.onward import inputs_of
from hookscope.hooks.placing import Layers, place
from hookscope.layers.addresses import item_text
from hookscope.layers.outputs import tensors_in


class BadInputError(HookscopeError, ValueError):
    """A layer was given a tensor that ``check_inputs`` forbids."""


def check_inputs(
    model: nn.Module,
    layer: Layers,
    predicate: Callable[[Tensor], Any] | None = None,
    *,
    low: float | None = None,
    high: float | None = None,
    finite: bool = True,
) -> Handles:
    """Checks every tensor that a layer is given, before it runs.

    >>> with check_inputs(model, "conv1", low=-3, high=3):
    ...     train(model)

    ``layer``: a name, or several, or patterns. A tensor passes where all its values are finite
    (unless ``finite=False``) and lie in [``low``, ``high``], and ``predicate(tensor)`` is true.
    Otherwise ``BadInputError`` (a ``ValueError``) names the layer and what is wrong. The checks
    last until ``remove()``, or the end of the block.
    """
    handles = Handles()
    try:
        handles.add(Uncompiled(model))
        for name, module in place(model, layer).modules.items():

            def check(module: nn.Module, args: Any, kwargs: Any, name: str = name) -> None:
                for item, tensor in tensors_in(inputs_of(args, kwargs)):
                    for fault in _faults(tensor, predicate, low, high, finite):
                        given = f"input{item_text(item)} of shape {tuple(tensor.shape)}"
                        raise BadInputError(f"layer {name!r}, {given}: {fault}")

            handles.add(module.register_forward_pre_hook(check, with_kwargs=True))
    except BaseException:
        handles.remove()
        raise
    return handles


def _faults(
    tensor: Tensor,
    predicate: Callable[[Tensor], Any] | None,
    low: float | None,
    high: float | None,
    finite: bool,
) -> Iterator[str]:
    values = tensor.detach()
    if finite and (values.is_floating_point() or values.is_complex()):
        wrong = ~torch.isfinite(values)
        if wrong.any():
            first = [int(index) for index in wrong.nonzero()[0]]
            count = f"{int(wrong.sum())} of {wrong.numel()} values"
            yield f"not finite: {count}, the first at {first}"
    if values.numel() and low is not None and not (smallest := values.min().item()) >= low:
        yield f"its smallest value is {smallest:.6g}, below {low:g}"
    if values.numel() and high is not None and not (largest := values.max().item()) <= high:
        yield f"its largest value is {largest:.6g}, above {high:g}"
    if predicate is not None and not predicate(values):
        yield f"{getattr(predicate, '__name__', 'the predicate')} is not true of it"
