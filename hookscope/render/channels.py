"""Which channels to draw, and all of them as one map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hookscope.errors import UsageError
from hookscope.render.arrays import as_array


def as_maps(tensor: Any) -> NDArray[Any]:
    """A tensor of one picture as C x H x W; a leading batch axis of one is dropped.

    Raises ``ValueError`` for any other shape.
    """
    maps = as_array(tensor)
    if maps.ndim == 2:
        maps = maps[None]
    if maps.ndim == 4 and len(maps) == 1:
        maps = maps[0]
    if maps.ndim != 3:
        raise ValueError(
            f"feature maps are channels x height x width, and this has the shape "
            f"{tuple(maps.shape)}: choose one picture of the batch"
        )
    if maps.size == 0:
        raise ValueError(f"there is nothing to draw in a tensor of shape {tuple(maps.shape)}")
    return maps


def choose_channels(
    maps: NDArray[Any], channels: Sequence[int] | None = None, top: int | None = None
) -> NDArray[np.intp]:
    """The indices of the channels to draw.

    ``channels``: these, in the order given. ``top``: of them the K with the largest mean
    magnitude, strongest first; values that are not finite do not count.
    Raises ``UsageError`` for a channel that is not there.
    """
    count = len(maps)
    chosen = np.arange(count) if channels is None else np.array(list(channels), np.intp)
    for index in chosen[(chosen < 0) | (chosen >= count)]:
        raise UsageError(
            f"there is no channel {index}: the layer has {count}",
            f"Channels are numbered from 0 to {count - 1}.",
        )
    if len(chosen) == 0 or (top is not None and top < 1):
        raise UsageError("no channel was chosen")
    if top is None:
        return chosen
    strength = np.array([_strength(maps[index]) for index in chosen])
    return chosen[np.argsort(-strength, kind="stable")[:top]]


def reduce_map(tensor: Any, how: Literal["mean", "max", "norm"]) -> NDArray[Any]:
    """All channels of C x H x W as one H x W map: mean, maximum or Euclidean norm of each place."""
    maps = as_maps(tensor)
    if how == "mean":
        return maps.mean(axis=0)
    if how == "max":
        return maps.max(axis=0)
    if how == "norm":
        return _norm(maps)
    raise UsageError(f"unknown reduction {how!r}", "Choose mean, max or norm.")


def _strength(channel: NDArray[Any]) -> float:
    magnitude = np.abs(channel)
    mean = float(magnitude.mean(dtype=np.float64))
    if np.isfinite(mean):
        return mean
    finite = magnitude[np.isfinite(magnitude)]
    return float(finite.mean(dtype=np.float64)) if finite.size else 0.0


def _norm(maps: NDArray[Any]) -> NDArray[Any]:
    # Squares of float32 overflow from 1e19 and vanish below 1e-23.
    return np.sqrt(np.square(maps, dtype=np.float64).sum(axis=0)).astype(maps.dtype)
