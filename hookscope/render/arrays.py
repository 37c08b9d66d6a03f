"""From whatever holds numbers, a torch tensor on any device included, to a NumPy array."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def as_array(values: Any) -> NDArray[Any]:
    """``values`` as float32 or float64, on the host; a view where that needs no copy.

    Tensors are recognised by what they can do, so that drawing needs no torch. Complex numbers
    become their magnitudes.
    """
    if hasattr(values, "detach"):
        values = values.detach()
        if str(values.layout) != "torch.strided":
            values = values.to_dense()
        if getattr(values, "is_quantized", False):
            values = values.dequantize()
        if values.is_complex():
            values = values.abs()
        # NumPy knows no bfloat16 and no float8.
        if str(values.dtype) not in ("torch.float32", "torch.float64"):
            values = values.float()
        values = values.cpu().resolve_neg().numpy()
    array = np.asarray(values)
    if np.iscomplexobj(array):
        array = np.abs(array)
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float32)
    return array


def finite_limits(array: NDArray[Any]) -> tuple[float, float] | None:
    """The lowest and highest finite value, or None where there is none."""
    if array.size == 0:
        return None
    low, high = float(array.min()), float(array.max())
    if np.isfinite(low) and np.isfinite(high):
        return low, high
    finite = array[np.isfinite(array)]
    return (float(finite.min()), float(finite.max())) if finite.size else None


def is_flat(low: Any, high: Any) -> Any:
    """Whether the range is empty but for rounding: at most 1e-6 of the largest magnitude.

    Relative, never absolute: maps that peak at 3e-15 are still maps. Works on arrays as well.
    """
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    return high - low <= 1e-6 * np.maximum(np.abs(low), np.abs(high))
