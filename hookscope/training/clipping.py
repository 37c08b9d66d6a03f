"""Clip gradients while they flow back, layer by layer."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from hookscope.errors import UsageError
from hookscope.hooks.handles import Handles
from hookscope.hooks.placing import Layers
from hookscope.training.backward import at_end_of_backward, running_backward
from hookscope.training.parameters import parameters_by_layer


def clip_gradients(
    model: nn.Module,
    max_value: float | None = None,
    max_norm: float | None = None,
    layers: Layers = "*",
) -> Handles:
    """Clips the gradients of parameters in every backward pass, until ``remove()``.

    >>> with clip_gradients(model, max_value=0.5):
    ...     loss.backward()

    ``max_value``: each value to [-max_value, max_value] in a tensor hook, as
    ``clip_grad_value_`` does afterwards; where gradients are accumulated, each backward pass by
    itself, and under ``DistributedDataParallel`` before they are averaged.
    ``max_norm``: each layer's gradient (all its parameters together) to this 2-norm at the end of
    the backward pass, as ``clip_grad_norm_`` does for one layer; after the average.
    ``layers``: names and patterns; a layer that is named exactly counts as one with all that is
    in it. Parameters frozen at this time are left alone.
    """
    if max_value is None and max_norm is None:
        raise UsageError("clip_gradients needs max_value or max_norm")
    for name, limit in (("max_value", max_value), ("max_norm", max_norm)):
        if limit is not None and not limit > 0:
            raise UsageError(f"{name}={limit} is not above 0")
    groups = parameters_by_layer(model, layers)
    handles = Handles()
    norms = _Norms(groups, max_norm) if max_norm is not None else None
    try:
        for parameter in {id(p): p for group in groups.values() for p in group}.values():
            if max_value is not None:
                handles.add(parameter.register_hook(lambda g: g.clamp(-max_value, max_value)))
            if norms is not None:
                handles.add(parameter.register_hook(norms.gradient_seen))
    except BaseException:
        handles.remove()
        raise
    return handles


class _Norms:
    """Clips each layer's norm once, at the end of a backward pass in which a gradient was seen."""

    def __init__(self, groups: dict[str, list[nn.Parameter]], max_norm: float) -> None:
        self._groups = groups
        self._max_norm = max_norm
        self._backward = -1

    def gradient_seen(self, gradient: Tensor) -> None:
        if self._backward != running_backward():
            self._backward = running_backward()
            at_end_of_backward(self._clip)

    def _clip(self) -> None:
        for parameters in self._groups.values():
            clip_grad_norm_(parameters, self._max_norm)
