"""What is taken of a forward pass: outputs, inputs, gradients, attention; one class each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

from torch import Tensor, nn

from hookscope.hooks.activations import ActivationCapture
from hookscope.hooks.results import Activation
from hookscope.layers.addresses import Address, Selection, chosen
from hookscope.layers.axes import Axes
from hookscope.layers.probe import Probe
from hookscope.run.capturing.apart import AxesKnown
from hookscope.run.forward import running


@dataclass(frozen=True)
class Taken:
    """What one batch left: tensors in execution order, and fields of each picture's records."""

    results: Sequence[Activation]
    about: Sequence[dict[str, Any]]


class Tap(Protocol):
    """A way to run the network on a batch and bring something back from its layers."""

    @property
    def what(self) -> str:
        """``output``, ``input``, ``gradient`` or ``attention``."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """What stands behind the sample in the names of files."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """What of the question changes the result."""

    @property
    def selections(self) -> Sequence[Selection]:
        """The layers that were asked for."""

    @property
    def expected(self) -> Sequence[Address]:
        """What a pass will bring, as far as the probe can tell; empty where it cannot."""

    def take(self, network: nn.Module, x: Tensor) -> Taken:
        """One pass. Raises ``PictureError`` where the network cannot run on ``x``."""

    def axes(self, address: Address, tensor: Tensor, x: Tensor) -> Axes:
        """What the axes of a result mean."""


@dataclass(frozen=True)
class ActivationTap:
    """Outputs or inputs by hooks on all layers, and no step further than the last of them."""

    what: Literal["output", "input"]
    selections: Sequence[Selection]
    probe: Probe
    precision: str = "fp32"

    @property
    def suffixes(self) -> tuple[str, ...]:
        return () if self.what == "output" else (self.what,)

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"what": self.what, "precision": self.precision}

    def take(
        self, network: nn.Module, x: Tensor, keep: Callable[[Activation], Tensor] | None = None
    ) -> Taken:
        with (
            running(self.precision, x),
            ActivationCapture(
                network,
                addresses_of(self.selections),
                what=self.what,
                keep=keep,
                stop_after=self._stop_after,
            ) as capture,
        ):
            capture.run(x)
        return Taken(capture.results, [{} for _ in x])

    def axes(self, address: Address, tensor: Tensor, x: Tensor) -> Axes:
        if self.what == "output":
            return self._axes_known.of_output(address, tensor, x)
        return self._axes_known.of_any(tensor, x)

    @cached_property
    def expected(self) -> Sequence[Address]:
        if not self._stop_after:
            return []
        if self.what == "output":
            return chosen(self.selections, [info.address for info in self.probe.tensors])[0]
        return called(self.selections, self.probe)

    @cached_property
    def _stop_after(self) -> dict[str, int]:
        """When the pass can be left; never where some layer is not known to run."""
        wanted = {selection.layer for selection in self.selections}
        calls = {layer: self.probe.calls.get(layer, 0) for layer in wanted}
        return {} if self.probe.problem or not all(calls.values()) else calls

    @cached_property
    def _axes_known(self) -> AxesKnown:
        return AxesKnown(self.probe)


def addresses_of(selections: Sequence[Selection]) -> list[Address]:
    return [Address(one.layer, one.call, one.item) for one in selections]


def called(selections: Sequence[Selection], probe: Probe) -> list[Address]:
    """Every call of the selected layers, in execution order, with the item that was asked for."""
    found: dict[Address, None] = {}
    # As calls end, not as they begin: who asks compares names, and not their order.
    for layer, call in probe.order:
        for one in selections:
            if one.layer == layer and one.call in (None, call):
                often = probe.calls[layer] > 1
                found[Address(layer, call if often else None, one.item)] = None
    return list(found)
