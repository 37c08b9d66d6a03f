"""Attention weights as they arise inside a module, fused or not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_SOFTMAX: set[Any] = {
    torch.softmax,
    torch.special.softmax,
    torch.Tensor.softmax,
    functional.softmax,
    torch.ops.aten.softmax.int,
    torch.ops.aten._softmax.default,
}
_FUSED: set[Any] = {
    functional.scaled_dot_product_attention,
    torch.ops.aten.scaled_dot_product_attention.default,
}


class WeightsSeen(TorchFunctionMode):
    """Gives ``keep`` a copy of each attention matrix that is computed inside the context, unless
    another one was opened in it since: ``contexts`` are those that are open.

    A matrix is the result of a softmax over the last of three or more axes. Fused attention never
    makes one, so there it is computed from the queries and keys beside it; the fused result, and
    so the network's output, stays what it is.
    """

    def __init__(self, keep: Callable[[Tensor], None], contexts: list[WeightsSeen]) -> None:
        super().__init__()
        self._keep = keep
        self._contexts = contexts

    def __enter__(self) -> WeightsSeen:
        self._contexts.append(self)
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._contexts.remove(self)
        super().__exit__(*error)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if self._contexts[-1] is not self:
            return result
        if func in _FUSED:
            with torch.no_grad():
                self._keep(fused_weights(*args, **kwargs))
        elif func in _SOFTMAX and isinstance(result, Tensor) and result.ndim >= 3:
            axis = args[1] if len(args) > 1 else kwargs.get("dim")
            if axis in (-1, result.ndim - 1):
                self._keep(result.detach().clone())
        return result


def fused_weights(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(query key^T scale + mask), before dropout, as scaled dot-product attention has it.

    query ... x heads x T x d, key ... x heads x S x d -> ... x heads x T x S, in float32 where the
    inputs are of half precision. Vaswani et al., "Attention Is All You Need", 2017, eq. 1.
    """
    query, key = query.detach(), key.detach()
    if query.dtype in (torch.float16, torch.bfloat16):
        query, key = query.float(), key.float()
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], dim=-3)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = query @ key.transpose(-2, -1) * factor
    if is_causal:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~allowed, -math.inf)
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, -math.inf)
        else:
            scores = scores + attn_mask.detach()
    return scores.softmax(-1)
