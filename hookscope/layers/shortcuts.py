"""The shapes that the commonest operators make, without asking torch.

Each answer is None where it does not know, and torch is asked after all: it also finds the words
for what does not fit together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def _same(x: Tensor) -> Tensor:
    """``torch.empty_like``, which takes 80 us on meta tensors, in 3."""
    if x.is_contiguous() or 0 in x.stride():
        return torch.empty(x.shape, dtype=x.dtype, device="meta")
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")


def _like(x: Tensor, *_: Any, **__: Any) -> Tensor | None:
    """Elementwise on one tensor of floating point."""
    return _same(x) if x.is_meta and x.is_floating_point() else None


def _like_wider(x: Any, y: Any, **_: Any) -> Tensor | None:
    """Elementwise on two, where one of them has the shape and dtype of the result."""
    if _covers(x, y):
        return _same(x)
    return _same(y) if _covers(y, x) else None


def _in_place(x: Tensor, *_: Any, **__: Any) -> Tensor | None:
    return x if x.is_meta else None


def _in_place_first(x: Tensor, y: Any, **_: Any) -> Tensor | None:
    return x if _covers(x, y) else None


def _covers(x: Any, y: Any) -> bool:
    if not (isinstance(x, Tensor) and x.is_meta and x.is_floating_point()):
        return False
    if not isinstance(y, Tensor):
        return isinstance(y, (int, float)) and not isinstance(y, bool)
    if y.shape == x.shape:
        return y.dtype == x.dtype
    if y.dtype != x.dtype or y.dim() > x.dim():
        return False
    tail = x.shape[x.dim() - y.dim() :]
    return all(b in (a, 1) for a, b in zip(tail, y.shape, strict=True))


def _mean(x: Tensor, dims: Sequence[int] | None, keep: bool = False, **_: Any) -> Tensor | None:
    if not dims or not x.is_floating_point() or x.dim() == 0:
        return None
    gone = {dim % x.dim() for dim in dims}
    shape = [1 if axis in gone else size for axis, size in enumerate(x.shape)]
    if not keep:
        shape = [size for axis, size in enumerate(x.shape) if axis not in gone]
    return torch.empty(shape, dtype=x.dtype, device="meta")


def _cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor | None:
    first = tensors[0]
    axis = dim % first.dim() if first.dim() else 0
    shape = list(first.shape)
    for other in tensors[1:]:
        if other.dim() != len(shape) or other.dtype != first.dtype:
            return None
        if any(
            a != b for i, (a, b) in enumerate(zip(shape, other.shape, strict=True)) if i != axis
        ):
            return None
        shape[axis] += other.shape[axis]
    return torch.empty(shape, dtype=first.dtype, device="meta") if shape else None


def _convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor | None:
    if transposed or x.dim() != weight.dim() or x.shape[1] != weight.shape[1] * groups:
        return None
    if x.dtype != weight.dtype:
        return None
    shape = [
        (size + 2 * pad - gap * (kernel - 1) - 1) // step + 1
        for size, kernel, step, pad, gap in zip(
            x.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True
        )
    ]
    if min(shape) < 1:
        return None
    return torch.empty((x.shape[0], weight.shape[0], *shape), dtype=x.dtype, device="meta")


def _batch_norm(x: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    nothing = torch.empty(0, device="meta")
    return _same(x), nothing, nothing


def _layer_norm(
    x: Tensor, normalized: Sequence[int], *_: Any
) -> tuple[Tensor, Tensor, Tensor] | None:
    kept = x.dim() - len(normalized)
    if kept < 0 or tuple(x.shape[kept:]) != tuple(normalized):
        return None
    moments = torch.empty((*x.shape[:kept], *[1] * len(normalized)), device="meta")
    return torch.empty(x.shape, dtype=x.dtype, device="meta"), moments, moments


def _matrix_product(a: Tensor, b: Tensor) -> Tensor | None:
    if a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2] or a.dtype != b.dtype:
        return None
    return torch.empty((*a.shape[:-1], b.shape[-1]), dtype=a.dtype, device="meta")


def _add_matrix_product(bias: Tensor, a: Tensor, b: Tensor, **_: Any) -> Tensor | None:
    return _matrix_product(a, b) if bias.shape[-1] in (1, b.shape[-1]) else None


_ELEMENTWISE = (
    "relu", "gelu", "silu", "sigmoid", "tanh", "hardswish", "hardsigmoid", "hardtanh",
    "leaky_relu", "elu", "mish", "exp", "sqrt", "rsqrt", "neg",
)  # fmt: skip
_ARITHMETIC = ("add", "sub", "mul", "div")

SHORTCUTS: dict[Any, Callable[..., Any]] = {
    **{getattr(aten, name).default: _like for name in _ELEMENTWISE},
    **{
        getattr(aten, f"{name}_").default: _in_place
        for name in _ELEMENTWISE
        if hasattr(aten, f"{name}_")
    },
    **{getattr(aten, name).Tensor: _like_wider for name in _ARITHMETIC},
    **{getattr(aten, f"{name}_").Tensor: _in_place_first for name in _ARITHMETIC},
    aten.mean.dim: _mean,
    aten.cat.default: _cat,
    aten.convolution.default: _convolution,
    aten.native_batch_norm.default: _batch_norm,
    aten.native_layer_norm.default: _layer_norm,
    aten.mm.default: _matrix_product,
    aten.bmm.default: _matrix_product,
    aten.addmm.default: _add_matrix_product,
}
