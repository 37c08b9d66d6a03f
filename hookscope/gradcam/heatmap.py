"""What an explanation is made of: one map for one picture, layer, class and method."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from hookscope.layers.addresses import Address
from hookscope.layout import Layout
from hookscope.maps.degenerate import verdict


@dataclass(frozen=True)
class Heatmap:
    """One picture's map at the layer's own resolution, after the method's ReLU, before scaling.

    ``map``: h x w, float32, on the CPU. ``score`` is the logit (a detection's confidence), and
    ``probability`` what becomes of it; both of the clean picture, also with smooth and flip.
    ``class_index`` and both are None where a detection network found nothing. ``note`` says what
    a reader has to know. ``extent``: the map's height and width in units of the network's input,
    (1, 1) unless the model itself pads its input, as detection models do. ``predicted``: the class
    that the network itself would name, and its probability; None where it found nothing.
    """

    address: Address
    method: str
    class_index: int | None
    score: float | None
    probability: float | None
    map: Tensor
    layout: Layout
    note: str | None = None
    extent: tuple[float, float] = (1.0, 1.0)
    predicted: tuple[int, float] | None = None

    @property
    def layer(self) -> str:
        """The layer with its item but without its call, as ``lstm[0]``."""
        return str(Address(self.address.layer, None, self.address.item))

    @property
    def call(self) -> int | None:
        """Which of the layer's calls, counted from 1; None where it ran once."""
        return self.address.call

    @property
    def degenerate(self) -> str | None:
        """Why the map cannot be read, or None."""
        return verdict(self.map)
