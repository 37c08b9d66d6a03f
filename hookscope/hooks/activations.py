"""Feature maps: copies of what layers return, or are given, taken while the model runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from hookscope.errors import LayerNotFoundError, UsageError, did_you_mean
from hookscope.hooks.capturing import Capturing
from hookscope.hooks.copying import Copying
from hookscope.hooks.onward import inputs_of, replaced
from hookscope.hooks.passes import PassRecord, in_backward, rank_of
from hookscope.hooks.placing import Layers, place
from hookscope.hooks.results import Activation, Activations
from hookscope.layers.outputs import Item, tensors_in


class _SeenEnough(Exception):
    """Leaves a forward pass; the ``run`` of the ``owner`` catches it."""

    def __init__(self, owner: ActivationCapture) -> None:
        super().__init__()
        # An attribute, because torch.fx rewrites the arguments of exceptions that pass by.
        self.owner = owner


class ActivationCapture(Capturing):
    """Keeps what layers return, safe from whatever happens to it later.

    >>> with ActivationCapture(model, ["layer1.0.conv1", "layer4", "layer1.0.relu@1"]) as capture:
    ...     model(x)
    >>> capture["layer4"].shape

    It registers at once and works without ``with`` too: ``remove()`` takes its hooks away. A new
    forward pass replaces the results of the last. For the names, see ``Activations``.

    ``layers``: names, addresses (``relu@1``, ``lstm[1][0]``), patterns (``layer4.*``) and modules
    (``model.layer4``).
    ``what``: ``"output"``, or ``"input"``: what the layer was given, before it can change it.
    ``detach=False`` keeps the graph. A kept output is then on the way to the loss (a copy of it
    goes onward), so that ``torch.autograd.grad(loss, capture["layer4"])`` works.
    ``channels``: only these are copied, along ``channel_axis[layer]``, 1 where it is not given.
    ``device``: where the copies go; by default they stay where they were made.
    ``keep``: gets the live ``Activation`` inside the hook and returns the tensor to keep in its
    place, a pooled one say; the rest is not copied.
    ``stop_after``: layer -> calls, for ``run``.

    Raises ``LayerNotFoundError`` (a ``KeyError``) for an unknown layer, and ``ModelError`` for a
    model that takes no hooks.
    """

    def __init__(
        self,
        model: nn.Module,
        layers: Layers,
        *,
        what: Literal["output", "input"] = "output",
        detach: bool = True,
        channels: Sequence[int] | None = None,
        channel_axis: Mapping[str, int] | None = None,
        device: torch.device | str | None = None,
        keep: Callable[[Activation], Tensor] | None = None,
        stop_after: Mapping[str, int] | None = None,
    ) -> None:
        if what not in ("output", "input"):
            raise UsageError(f"what={what!r} is neither 'output' nor 'input'")
        self._model = model
        self._copying = Copying(
            detach=detach,
            channels=None if channels is None else tuple(channels),
            channel_axis=channel_axis or {},
            device=None if device is None else torch.device(device),
            keep=keep,
        )
        self._placement = place(model, layers)
        self._record = PassRecord(self._placement)
        self._stop_after = dict(stop_after or {})
        for layer in self._stop_after:
            if layer not in self._placement:
                raise LayerNotFoundError(
                    f"stop_after: {layer!r} is not captured", did_you_mean(layer, self._placement)
                )
        self._leaving_early = False
        self._what = what
        self._place(self._placement)

    @property
    def activations(self) -> Activations:
        return self._record.activations

    @property
    def results(self) -> list[Activation]:
        """The results of the last forward pass, in the order in which the hooks fired."""
        return self._record.results

    def run(self, *inputs: Any, **kwargs: Any) -> Any:
        """One forward pass, left as soon as every layer of ``stop_after`` has run that often.

        Returns what the model returned, or None where it was left early.
        """
        self._leaving_early = bool(self._stop_after)
        try:
            return self._model(*inputs, **kwargs)
        except _SeenEnough as stop:
            if stop.owner is not self:
                raise
            return None
        finally:
            self._leaving_early = False

    def _begin(self, entered: str = "") -> None:
        self._record.begin(entered)

    def _register(self, layer: str, module: nn.Module) -> None:
        if self._what == "output":
            self._handles.add(module.register_forward_hook(self._output_hook(layer)))
        else:
            hook = self._input_hook(layer)
            self._handles.add(module.register_forward_pre_hook(hook, with_kwargs=True))

    def _output_hook(self, layer: str) -> Callable[..., Any]:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
            if in_backward():
                return None
            onward = self._take(layer, module, output)
            return replaced(output, lambda item, t: onward.get(item, t)) if onward else None

        return hook

    def _input_hook(self, layer: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if not in_backward():
                self._take(layer, module, inputs_of(args, kwargs))

        return hook

    def _take(self, layer: str, module: nn.Module, value: Any) -> dict[Item, Tensor]:
        """Keeps what is wanted of ``value``; returns copies to hand on in the place of outputs
        that were kept with their graph."""
        rank = rank_of(module, value)
        call = self._record.next_call(rank, layer)
        onward: dict[Item, Tensor] = {}
        for item, tensor in tensors_in(value):
            if self._placement.wants(layer, call, item):
                kept = self._copying(Activation(layer, call, item, tensor))
                self._record.slot(rank, layer, call, item)(kept)
                if self._copying.whole and kept.requires_grad and kept.device == tensor.device:
                    onward[item] = kept.clone()
        # DataParallel cannot carry an exception out of one of several copies: they run to the end.
        if self._leaving_early and rank == 0 and self._seen_enough():
            raise _SeenEnough(self)
        return onward

    def _seen_enough(self) -> bool:
        return all(self._record.calls(0, name) >= n for name, n in self._stop_after.items())
