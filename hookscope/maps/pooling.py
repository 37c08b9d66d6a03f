"""From a layer's output to one vector a picture: embeddings."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

from torch import Tensor

from hookscope.errors import UsageError, did_you_mean
from hookscope.layout import Layout


def pool(tensor: Tensor, how: str, layout: Layout) -> Tensor:
    """N x D of a batch: ``mean`` or ``max`` over space, ``cls`` or ``flatten``.

    For tokens, mean and max are over the patches and not over class or register tokens, and cls
    takes the first token. A vector is its own mean and maximum. What has no known layout is pooled
    over all axes behind the second, as N x C x anything. Raises ``UsageError`` where cls finds no
    class token, and for an unknown ``how``.
    """
    if how not in POOLINGS:
        raise UsageError(f"unknown pooling {how!r}", did_you_mean(how, POOLINGS))
    return POOLINGS[how](tensor.movedim(layout.batch_axis, 0), layout)


def _mean(tensor: Tensor, layout: Layout) -> Tensor:
    return _positions_last(tensor, layout).mean(2)


def _max(tensor: Tensor, layout: Layout) -> Tensor:
    return _positions_last(tensor, layout).amax(2)


def _cls(tensor: Tensor, layout: Layout) -> Tensor:
    if layout.kind != "tokens" or layout.prefix < 1:
        raise UsageError(
            f"there is no class token in an output of shape {tuple(tensor.shape)}",
            "cls is for transformers with one; mean and max work everywhere.",
        )
    return tensor[:, 0]


def _flatten(tensor: Tensor, layout: Layout) -> Tensor:
    return tensor.reshape(len(tensor), -1)


POOLINGS: MappingProxyType[str, Callable[[Tensor, Layout], Tensor]] = MappingProxyType(
    {"mean": _mean, "max": _max, "cls": _cls, "flatten": _flatten}
)


def _positions_last(tensor: Tensor, layout: Layout) -> Tensor:
    """N x C x positions."""
    if layout.kind == "tokens":
        return tensor[:, layout.prefix :].transpose(1, 2)
    if layout.kind == "NHWC":
        return tensor.movedim(3, 1).flatten(2)
    if tensor.dim() < 3:
        return tensor.reshape(len(tensor), -1, 1)
    return tensor.flatten(2)
