"""Attention weights of a forward pass, layer by layer or rolled out through all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor, nn

from hookscope.hooks.attention import AttentionCapture, attention_layers
from hookscope.hooks.results import Activation
from hookscope.hooks.rollout import rollout
from hookscope.layers.addresses import Address, Selection
from hookscope.layers.axes import Axes
from hookscope.layers.probe import Probe
from hookscope.layout import Layout
from hookscope.run.capturing.taps import Taken, called
from hookscope.run.forward import running


@dataclass(frozen=True)
class AttentionTap:
    """Weights of each layer, (windows x) heads x tokens x tokens; or, ``rolled_out``, how much
    each token of the last layer draws on each token of the first, tokens x tokens."""

    selections: Sequence[Selection]
    probe: Probe
    rolled_out: bool = False
    precision: str = "fp32"
    what: str = "attention"

    @classmethod
    def on(
        cls,
        model: nn.Module,
        selections: Sequence[Selection],
        probe: Probe,
        *,
        rolled_out: bool = False,
        precision: str = "fp32",
    ) -> AttentionTap:
        """The tap on the attention layers among ``selections``; on all where these are empty.

        Raises ``LayerNotFoundError`` where there is none.
        """
        layers = attention_layers(model, selections or "*")
        return cls(layers, probe, rolled_out, precision)

    @property
    def suffixes(self) -> tuple[str, ...]:
        return ("attention", "rollout") if self.rolled_out else ("attention",)

    @property
    def settings(self) -> Mapping[str, Any]:
        settings = {"what": self.what, "precision": self.precision, "rollout": self.rolled_out}
        if self.rolled_out:
            settings["layers"] = [str(address) for address in self._calls]
        return settings

    @property
    def expected(self) -> Sequence[Address]:
        return self._calls[-1:] if self.rolled_out else self._calls

    @cached_property
    def _calls(self) -> list[Address]:
        return [] if self.probe.problem else called(self.selections, self.probe)

    def axes(self, address: Address, tensor: Tensor, x: Tensor) -> Axes:
        return Axes(Layout("other"))

    def take(self, network: nn.Module, x: Tensor) -> Taken:
        with running(self.precision, x), AttentionCapture(network, self.selections) as capture:
            network(x)
        results = capture.results
        about: list[dict[str, Any]] = [{} for _ in x]
        if not self.rolled_out or not results:
            return Taken(results, about)
        # A pooling by attention asks with one query of its own: no step from tokens to tokens.
        through = [one for one in results if one.tensor.shape[-2] == one.tensor.shape[-1]]
        flow = rollout([one.tensor for one in through or results])
        last = through[-1]
        layers = [one.layer for one in through]
        return Taken(
            [Activation(last.layer, last.call, last.item, flow)],
            [{**one, "layers": layers} for one in about],
        )
