"""How attention flows from the last layer back to the first."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hookscope.errors import ModelError


def rollout(attention: Sequence[Tensor], residual: float = 0.5) -> Tensor:
    """How much each token of the last layer draws on each of the first: batch x tokens x tokens.

    ``attention``: weights of consecutive layers, each batch x heads x tokens x tokens. The heads
    are averaged, the skip connection counts as ``residual`` of each token itself, and the layers
    are multiplied; rows sum to 1. Abnar and Zuidema, "Quantifying Attention Flow in
    Transformers", 2020. Raises ``ModelError`` where layers attend among different tokens.
    """
    shapes = {tuple(weights.shape) for weights in attention}
    if not shapes:
        raise ModelError("there are no attention weights to roll out")
    if len({shape[-2:] for shape in shapes}) > 1 or any(
        len(shape) != 4 or shape[-2] != shape[-1] for shape in shapes
    ):
        raise ModelError(
            "attention rollout needs layers that all attend among the same tokens",
            "Windowed attention (Swin, MaxViT) has other tokens in every layer: look at its "
            "layers one by one.",
        )
    first = attention[0]
    identity = torch.eye(first.shape[-1], dtype=first.dtype, device=first.device)
    flow = identity.expand(first.shape[0], -1, -1)
    for weights in attention:
        flow = (residual * identity + (1 - residual) * weights.mean(dim=1)) @ flow
    return flow
