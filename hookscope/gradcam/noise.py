"""Noised copies of a batch, for maps averaged in the manner of SmoothGrad."""

from __future__ import annotations

import torch
from torch import Tensor

NOISE_SHARE = 0.15
"""Standard deviation as a share of a picture's range; Smilkov et al. 2017 find 0.1 to 0.2 best."""


def noised(x: Tensor, seed: int, variant: int) -> Tensor:
    """``x`` (N x C x H x W) with Gaussian noise, scaled by each picture's own range.

    The noise depends on the seed, the variant and the picture's shape alone, and is drawn on the
    CPU: a picture gets the same in every batch and on every device, and no global random state
    moves.
    """
    generator = torch.Generator().manual_seed(seed * 1_000_003 + variant)
    noise = torch.randn(x.shape[1:], generator=generator).to(x)
    spread = x.amax((1, 2, 3), keepdim=True) - x.amin((1, 2, 3), keepdim=True)
    return x + noise * spread * NOISE_SHARE
