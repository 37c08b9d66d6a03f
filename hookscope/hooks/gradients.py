"""Gradients at layers, without the full backward hooks that in-place operations break."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from hookscope.errors import UsageError
from hookscope.hooks.capturing import Capturing
from hookscope.hooks.onward import inputs_of, replaced, replaced_inputs
from hookscope.hooks.passes import PassRecord, in_backward, rank_of
from hookscope.hooks.placing import Layers, place
from hookscope.hooks.results import Activations
from hookscope.layers.outputs import Item, tensors_in


class GradientCapture(Capturing):
    """Keeps the gradient of a loss at what layers return, at what they are given, or at both.

    >>> with GradientCapture(model, ["layer4", "fc"]) as capture:
    ...     model(x)[:, 281].sum().backward()
    >>> capture["layer4"].shape

    The values are those of ``register_full_backward_hook`` where that works; here in-place
    operations (VGG, DenseNet), dict outputs and keyword arguments do no harm. An input's gradient
    is that which flows through this layer alone. It registers at once; ``remove()`` and leaving
    the block take the hooks away. A new forward pass replaces the results, and so does a second
    backward pass through the same graph.

    ``what``: ``"output"``, ``"input"`` or ``"both"``; ``capture[name]`` is the output's gradient,
    or the input's where only that was asked for; ``outputs`` and ``inputs`` have both.
    ``detach=False`` keeps the graph of gradients (``create_graph=True``).

    Where a layer's tensor requires no gradient (frozen parameters), the graph begins there: no
    parameter changes for it. Under ``torch.no_grad`` there is nothing to capture. With a gradient
    scaler the values are scaled as it scales the loss.

    Raises ``LayerNotFoundError`` and ``ModelError`` as ``ActivationCapture`` does.
    """

    def __init__(
        self,
        model: nn.Module,
        layers: Layers,
        what: Literal["output", "input", "both"] = "output",
        *,
        detach: bool = True,
    ) -> None:
        if what not in ("output", "input", "both"):
            raise UsageError(f"what={what!r} is none of 'output', 'input' and 'both'")
        self._what = what
        self._detach = detach
        self._placement = place(model, layers)
        self._records = {
            "output": PassRecord(self._placement),
            "input": PassRecord(self._placement),
        }
        self._given: dict[int, _Given] = {}
        self._place(self._placement)

    @property
    def outputs(self) -> Activations:
        """Gradients at what the layers returned, by name."""
        return self._records["output"].activations

    @property
    def inputs(self) -> Activations:
        """Gradients at what the layers were given, by name."""
        return self._records["input"].activations

    @property
    def gradients(self) -> Activations:
        """``inputs`` where only these were asked for, else ``outputs``."""
        return self.inputs if self._what == "input" else self.outputs

    @property
    def activations(self) -> Activations:
        """``gradients`` under the name that every capture has for its results."""
        return self.gradients

    def remove(self) -> None:
        """Take the hooks away, as often as it is called; the results stay."""
        super().remove()
        self._given.clear()

    def _begin(self, entered: str = "") -> None:
        self._given.clear()
        for record in self._records.values():
            record.begin(entered)

    def _register(self, layer: str, module: nn.Module) -> None:
        enter, leave = self._entering(layer), self._leaving(layer)
        self._handles.add(module.register_forward_pre_hook(enter, with_kwargs=True))
        self._handles.add(module.register_forward_hook(leave, with_kwargs=True))

    def _entering(self, layer: str) -> Callable[..., Any]:
        def enter(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if in_backward():
                return None
            fill = self._filler("input", layer, module, (args, kwargs))
            onward: dict[Item, Tensor] = {}
            for item, tensor in tensors_in(inputs_of(args, kwargs)):
                put = fill(item, tensor)
                if put is not None:
                    onward[item] = _watched_copy(tensor, put)
                handed = onward.get(item, tensor)
                self._given[id(handed)] = _Given(tensor, handed, handed._version)
            if not onward:
                return None
            return replaced_inputs(args, kwargs, lambda item, tensor: onward.get(item, tensor))

        return enter

    def _leaving(self, layer: str) -> Callable[..., Any]:
        def leave(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
            if in_backward():
                return None
            ids = {id(tensor) for _, tensor in tensors_in((args, kwargs))}
            given = {key: self._given.pop(key) for key in ids if key in self._given}
            overwritten = {key: pair.settled() for key, pair in given.items() if pair.changed}
            fill = self._filler("output", layer, module, output)
            onward: dict[Item, Tensor] = {}
            for item, tensor in tensors_in(output):
                handed = overwritten.get(id(tensor), tensor)
                put = fill(item, tensor)
                if put is not None:
                    # A result of the layer's own is watched as it is. One that others hold too
                    # (an input, a view) would mix their gradients in, so a copy goes onward; but
                    # what the layer wrote into in place is what all others go on with.
                    shared = id(tensor) in ids and id(tensor) not in overwritten
                    if shared or handed.is_leaf or handed._base is not None:
                        handed = _watched_copy(handed, put)
                    else:
                        handed.register_hook(put)
                if handed is not tensor:
                    onward[item] = handed
            return replaced(output, lambda item, t: onward.get(item, t)) if onward else None

        return leave

    def _filler(
        self, kind: Literal["output", "input"], layer: str, module: nn.Module, value: Any
    ) -> Callable[[Item, Tensor], Callable[[Tensor], None] | None]:
        """For the tensors of one call: where their gradient goes, None where it is not wanted."""
        record = self._records[kind]
        rank = rank_of(module, value)
        call = record.next_call(rank, layer)
        wanted = self._what in (kind, "both") and torch.is_grad_enabled()

        def fill(item: Item, tensor: Tensor) -> Callable[[Tensor], None] | None:
            differentiable = tensor.is_floating_point() or tensor.is_complex()
            if not (wanted and differentiable and self._placement.wants(layer, call, item)):
                return None
            put = record.slot(rank, layer, call, item)
            return lambda gradient: put((gradient.detach() if self._detach else gradient).clone())

        return fill


@dataclass(frozen=True)
class _Given:
    """A tensor that a layer was to get, what it got in its place, and how new that was then."""

    original: Tensor
    handed: Tensor
    version: int

    @property
    def changed(self) -> bool:
        return self.handed._version != self.version

    def settled(self) -> Tensor:
        """The original, with what the layer wrote into the copy that it was handed."""
        if self.handed is not self.original:
            self.original.copy_(self.handed)
        return self.original


def _watched_copy(tensor: Tensor, put: Callable[[Tensor], None]) -> Tensor:
    """A copy whose gradient is ``put``; its graph begins here where ``tensor`` has none."""
    if not tensor.requires_grad:
        tensor = tensor.detach().clone().requires_grad_()
    copy = tensor.clone()
    copy.register_hook(put)
    return copy
