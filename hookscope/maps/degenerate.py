"""Maps that show nothing, recognised so that nobody reads them."""

from __future__ import annotations

import torch
from torch import Tensor


def verdict(heatmap: Tensor) -> str | None:
    """Why a map cannot be read: ``not finite``, ``all zero`` or ``constant``; None if it can.

    Constant: max - min is at most 1e-6 of the largest absolute value. No absolute threshold:
    maps of networks without trained weights may peak at 1e-15 and are still maps.
    """
    low, high = torch.aminmax(heatmap)
    least, most = low.item(), high.item()  # a NaN anywhere makes both NaN
    if not (abs(least) < float("inf") and abs(most) < float("inf")):
        return "not finite"
    largest = max(abs(least), abs(most))
    if largest == 0:
        return "all zero"
    if most - least <= 1e-6 * largest:
        return "constant"
    return None
