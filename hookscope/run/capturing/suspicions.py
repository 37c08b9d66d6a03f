"""What in the statistics of layers deserves a second look, each in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hookscope.maps.statistics import Statistics

# A gradient's norm may fall by this from the last layer to the first, or rise by that, in a
# network that trains well: torchvision's at random initialisation fall by at most 5 times (VGG,
# ViT), and the deeper ones with batch norm rise by up to 220 (ResNet-50).
VANISHING = 100.0
EXPLODING = 1000.0


@dataclass(frozen=True)
class Measured:
    """A layer's numbers over some pictures, as judgement needs them."""

    name: str
    pictures: int
    numbers: Statistics

    @property
    def norm(self) -> float:
        """The root of the mean over the pictures of the squared 2-norm."""
        return self.numbers.norm / self.pictures**0.5

    @property
    def constant_channels(self) -> int | None:
        """None also where each channel has had one value only, which cannot vary."""
        numbers = self.numbers
        if not numbers.channels or numbers.count < 2 * numbers.channels:
            return None
        return numbers.constant_channels


def suspicions(what: str, layers: Sequence[Measured]) -> Mapping[str, list[str]]:
    """Layer -> sentences, for what was taken (``output``, ``gradient``...) in execution order."""
    found: dict[str, list[str]] = {layer.name: [] for layer in layers}
    backwards = what == "gradient"
    broken = [layer for layer in layers if layer.numbers.nonfinite]
    for layer in broken[::-1] if backwards else broken:
        first = layer is broken[-1 if backwards else 0]
        found[layer.name].append(
            f"{'the first layer' if first else 'also'} with values that are not finite: "
            f"{layer.numbers.nonfinite:,} of {layer.numbers.count:,}"
        )
    for layer in layers:
        sentence = _still_gradient(layer) if backwards else _still_channels(layer)
        if sentence:
            found[layer.name].append(sentence)
    if backwards and len(layers) > 1 and not broken:
        sentence = _flow(layers[0], layers[-1])
        if sentence:
            found[layers[0].name].append(sentence)
    return found


def _still_channels(layer: Measured) -> str | None:
    constant, numbers = layer.constant_channels, layer.numbers
    if not constant:
        return None
    dead = numbers.dead_channels or 0
    which = "all of them dead (always zero)" if dead == constant else f"{dead} of them always zero"
    return f"{constant:,} of {numbers.channels:,} channels are constant over {_pictures(layer)}" + (
        f", {which}" if dead else ""
    )


def _still_gradient(layer: Measured) -> str | None:
    # Channels are no sign here: the gradient of a mean is constant, that of a closed ReLU zero.
    zero = layer.numbers.min == layer.numbers.max == 0
    return "the gradient is zero everywhere" if zero else None


def _flow(first: Measured, last: Measured) -> str | None:
    if last.norm == 0:
        return None
    ratio = first.norm / last.norm
    way = f"from {last.name} ({last.norm:.3g}) to {first.name} ({first.norm:.3g})"
    if ratio * VANISHING < 1:
        times = f" by {1 / ratio:,.0f} times" if ratio else ""
        return f"the gradient vanishes: its norm falls{times} {way}"
    if ratio > EXPLODING:
        return f"the gradient explodes: its norm rises by {ratio:,.0f} times {way}"
    return None


def _pictures(layer: Measured) -> str:
    return "1 picture" if layer.pictures == 1 else f"{layer.pictures:,} pictures"
