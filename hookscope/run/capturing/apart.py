"""What a batch left at a layer, taken apart into its pictures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from hookscope.hooks.results import Activation
from hookscope.layers.addresses import Address
from hookscope.layers.axes import Axes, Pictures
from hookscope.layers.probe import Probe
from hookscope.layout import Layout, guess
from hookscope.maps.statistics import Statistics, statistics

Size = tuple[int, int]


@dataclass(frozen=True)
class FeatureMaps:
    """What one picture made of one call of one layer: a tensor without batch axis, on the host.

    ``about``: what else its record says, such as the class whose gradient this is.
    """

    address: Address
    call: int
    tensor: Tensor
    layout: Layout
    statistics: Statistics
    input_size: Size
    about: Mapping[str, Any] = field(default_factory=dict)


class AxesKnown:
    """What the axes of tensors mean, as far as a probe of the model tells."""

    def __init__(self, probe: Probe) -> None:
        self._calls = probe.calls
        self._by_address = {
            str(info.address): Axes(info.layout, info.pictures) for info in probe.tensors
        }
        self._by_shape: dict[tuple[int, ...], list[Axes]] = defaultdict(list)
        for info in probe.tensors:
            self._by_shape[info.shape].append(Axes(info.layout, info.pictures))

    def address(self, activation: Activation) -> Address:
        """Its name, with a call only where the layer runs more than once."""
        often = self._calls.get(activation.layer, 1) > 1 or activation.call > 1
        return Address(activation.layer, activation.call if often else None, activation.item)

    def of_output(self, address: Address, tensor: Tensor, x: Tensor) -> Axes:
        """Of what a layer returned for the batch ``x``."""
        return self._by_address.get(str(address)) or Axes(guess(tensor.shape, input_size(x)))

    def of_any(self, tensor: Tensor, x: Tensor) -> Axes:
        """Of what flowed into a layer: what has the same shape came out of another one."""
        for shape, pictures, axis in _shapes_of_one(tensor.shape, len(x)):
            fitting = [
                axes
                for axes in self._by_shape.get(shape, ())
                if axes.pictures == pictures and axes.layout.batch_axis == axis
            ]
            if fitting and len({axes.layout.kind for axes in fitting}) == 1:
                return fitting[0]
        return Axes(guess(tensor.shape, input_size(x)))


def input_size(x: Tensor) -> Size:
    return x.shape[-2], x.shape[-1]


def by_picture(tensor: Tensor, axes: Axes, count: int) -> tuple[Tensor, Layout]:
    """A batch's tensor with ``count`` pictures along its first axis, and its layout as such."""
    layout = axes.layout
    if axes.pictures == "axis" and tensor.shape[layout.batch_axis :][:1] == (count,):
        return tensor.movedim(layout.batch_axis, 0), replace(layout, batch_axis=0)
    if axes.pictures == "folded" and tensor.dim() and tensor.shape[0] % count == 0:
        return tensor.unflatten(0, (count, -1)), Layout("other")
    return tensor.expand(count, *tensor.shape), Layout("other")


def taken_apart(
    activation: Activation, address: Address, axes: Axes, x: Tensor, about: Sequence[dict[str, Any]]
) -> Iterator[FeatureMaps]:
    """One layer's tensor of the batch ``x``, apart: on the host, with its true numbers."""
    tensor = activation.tensor
    dense = tensor if tensor.layout == torch.strided else tensor.to_dense()
    parts, layout = by_picture(dense, axes, len(x))
    each = statistics(parts, layout)
    for part, numbers, more in zip(parts.cpu(), each, about, strict=True):
        yield FeatureMaps(address, activation.call, part, layout, numbers, input_size(x), more)


def _shapes_of_one(
    shape: Sequence[int], count: int
) -> Iterator[tuple[tuple[int, ...], Pictures, int]]:
    """The shapes that a tensor of ``count`` pictures may have with one, and where they lie."""
    for axis, side in enumerate(shape):
        if side == count:
            yield (*shape[:axis], 1, *shape[axis + 1 :]), "axis", axis
    if shape and shape[0] % count == 0:
        yield (shape[0] // count, *shape[1:]), "folded", 0
