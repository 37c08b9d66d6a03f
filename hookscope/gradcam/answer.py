"""The maps of one batch, all of its pictures at once, on the device where the network is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from hookscope.layers.addresses import Address
from hookscope.layout import Layout

MapKey = tuple[int, str]
"""Which column of the classes, and which method."""


@dataclass(frozen=True)
class LayerMaps:
    """One layer's maps: for each class column and method N x h x w."""

    address: Address
    layout: Layout
    maps: Mapping[MapKey, Tensor]
    notes: Mapping[MapKey, str]


@dataclass(frozen=True)
class Answer:
    """``classes`` (-1: there is none), ``scores``, ``probabilities``: N x K; ``notes``: K of N.

    ``predicted``: N classes (-1: there is none); ``certainties``: their N probabilities.
    """

    classes: Tensor
    scores: Tensor
    probabilities: Tensor
    notes: Sequence[Sequence[str | None]]
    predicted: Tensor
    certainties: Tensor
    extents: Sequence[tuple[float, float]]
    layers: tuple[LayerMaps, ...]


def averaged(passes: Sequence[Sequence[LayerMaps]]) -> tuple[LayerMaps, ...]:
    """The mean of the same layers' maps over several passes, such as noised ones."""
    if len(passes) == 1:
        return tuple(passes[0])
    result = []
    for same in zip(*passes, strict=True):
        maps = {key: torch.stack([one.maps[key] for one in same]).mean(0) for key in same[0].maps}
        result.append(replace(same[0], maps=maps))
    return tuple(result)


def mirrored(layers: Sequence[LayerMaps]) -> list[LayerMaps]:
    """The maps of a mirrored picture, mirrored back."""
    return [
        replace(one, maps={key: value.flip(-1) for key, value in one.maps.items()})
        for one in layers
    ]


def fused(layers: Sequence[LayerMaps]) -> tuple[LayerMaps, ...]:
    """One map from those of several layers: each divided by its maximum, resized, averaged.

    Raw maps of different layers differ by orders of magnitude, so that a plain mean would be one
    layer's map. They are brought to the finest grid among them, bilinearly.
    """
    if len(layers) < 2:
        return tuple(layers)
    shapes = [next(iter(one.maps.values())).shape[1:] for one in layers]
    finest = (max(shape[0] for shape in shapes), max(shape[1] for shape in shapes))
    maps = {}
    for key in layers[0].maps:
        maps[key] = torch.stack([_scaled(one.maps[key], finest) for one in layers]).mean(0)
    notes: dict[MapKey, str] = {}
    for one in layers:
        for key, note in one.notes.items():
            notes[key] = f"{one.address}: {note}"
    name = "+".join(str(one.address) for one in layers)
    return (LayerMaps(Address(name, None, ()), Layout("NCHW"), maps, notes),)


def _scaled(maps: Tensor, size: tuple[int, int]) -> Tensor:
    peak = maps.amax((1, 2), keepdim=True)
    unit = maps / torch.where(peak > 0, peak, torch.ones_like(peak))
    resized = functional.interpolate(unit.unsqueeze(1), size, mode="bilinear", align_corners=False)
    return resized.squeeze(1)
