"""The same question asked again, of other weights or of another network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from hookscope.gradcam.heatmap import Heatmap

Key = tuple[str, int | None, str]
"""Layer with its call, class and method: what a heatmap is about, whatever the weights."""


def key_of(heatmap: Heatmap) -> Key:
    return str(heatmap.address), heatmap.class_index, heatmap.method


def by_key(heatmaps: Iterable[Heatmap]) -> dict[Key, Heatmap]:
    """One picture's heatmaps, to be found by what they are about."""
    return {key_of(heatmap): heatmap for heatmap in heatmaps}


def classes_of(found: Sequence[Sequence[Heatmap]]) -> Tensor:
    """The classes N x K that the heatmaps of N pictures are about.

    Where a picture has fewer than another one, or none, its row is filled up with its first class,
    or with class 0.
    """
    rows = [list(dict.fromkeys(one.class_index or 0 for one in row)) for row in found]
    most = max(map(len, rows))
    return torch.tensor([row + row[:1] * (most - len(row)) for row in rows])
