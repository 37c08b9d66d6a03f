"""What is kept of a live tensor: all of it, some channels, or what a function makes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from hookscope.errors import UsageError
from hookscope.hooks.results import Activation
from hookscope.layers.addresses import item_text


@dataclass(frozen=True)
class Copying:
    """How an ``Activation`` that the model still owns becomes a tensor of our own.

    ``channels`` are taken along ``channel_axis``, looked up by ``lstm[1]`` and then by ``lstm``,
    1 where neither is there. ``keep`` replaces the tensor by what it returns. ``device`` None
    leaves the copy where the tensor is.
    """

    detach: bool = True
    channels: tuple[int, ...] | None = None
    channel_axis: Mapping[str, int] = field(default_factory=dict)
    device: torch.device | None = None
    keep: Callable[[Activation], Tensor] | None = None

    @property
    def whole(self) -> bool:
        """Whether the tensor is kept as it is, graph included."""
        return not self.detach and self.channels is None and self.keep is None

    def __call__(self, live: Activation) -> Tensor:
        """A tensor that no later operation of the model can change."""
        if self.detach:
            live = Activation(live.layer, live.call, live.item, live.tensor.detach())
        kept = live.tensor if self.keep is None else self.keep(live)
        if self.detach:
            kept = kept.detach()
        if self.channels is not None:
            kept = self._selected(live, kept)
        device = kept.device if self.device is None else self.device
        return kept.to(device, copy=_same_memory(kept, live.tensor))

    def _selected(self, live: Activation, tensor: Tensor) -> Tensor:
        name = live.layer + item_text(live.item)
        axis = self.channel_axis.get(name, self.channel_axis.get(live.layer, 1))
        if tensor.ndim < 2 or not -tensor.ndim <= axis < tensor.ndim:
            raise UsageError(f"{name} has the shape {tuple(tensor.shape)}, which has no channels")
        count = tensor.shape[axis]
        for channel in self.channels or ():
            if not 0 <= channel < count:
                raise UsageError(
                    f"{name} has no channel {channel}: it has {count}, numbered from 0"
                )
        return tensor.index_select(axis, torch.tensor(self.channels, device=tensor.device))


def _same_memory(one: Tensor, other: Tensor) -> bool:
    if one is other:
        return True
    try:
        return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):  # sparse tensors have no storage to compare
        return True
