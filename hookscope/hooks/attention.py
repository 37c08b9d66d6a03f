"""Attention weights of a forward pass, and how they flow through the layers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from hookscope.errors import LayerNotFoundError, closest
from hookscope.hooks.around import Around
from hookscope.hooks.attention_weights import WeightsSeen
from hookscope.hooks.capturing import Capturing
from hookscope.hooks.passes import PassRecord, in_backward, rank_of
from hookscope.hooks.placing import Layers, place, selections
from hookscope.hooks.results import Activation, Activations
from hookscope.hooks.rollout import rollout
from hookscope.layers.addresses import Selection
from hookscope.layers.modules import class_name, named_layers, unwrap
from hookscope.layers.outputs import tensors_in


class AttentionCapture(Capturing):
    """Keeps the attention weights of each head: batch x heads x tokens x tokens.

    >>> with AttentionCapture(model) as capture:
    ...     model(x)
    >>> capture["blocks.11.attn"][0, head, 0]   # what the class token looks at
    >>> capture.rollout()

    Knows ``nn.MultiheadAttention``, which is made to compute its weights (the caller still gets
    what it asked for), and any module with "attention" in its class name that takes a softmax or
    calls fused attention: timm's, Swin's, MaxViT's. Attention within windows gives
    batch x windows x heads x tokens x tokens. Weights are those before dropout, except that
    ``nn.MultiheadAttention`` in training reports them after it.

    ``layers``: names and patterns; a container stands for the attention layers in it. Raises
    ``LayerNotFoundError`` where there is none, and ``ModelError`` as ``ActivationCapture`` does.
    """

    def __init__(self, model: nn.Module, layers: Layers = "*") -> None:
        self._placement = place(model, attention_layers(model, layers))
        self._record = PassRecord(self._placement)
        self._batch: int | None = None
        self._asked: list[tuple[bool, bool]] = []
        self._open = threading.local()
        self._place(self._placement)
        root = unwrap(model)
        self._handles.add(root.register_forward_pre_hook(self._see_batch, with_kwargs=True))

    @property
    def activations(self) -> Activations:
        return self._record.activations

    @property
    def results(self) -> list[Activation]:
        """The weights in the order in which they were computed."""
        return self._record.results

    def rollout(self, residual: float = 0.5) -> Tensor:
        """The ``rollout`` of all captured layers: batch x tokens x tokens."""
        return rollout([result.tensor for result in self.results], residual)

    def _begin(self, entered: str = "") -> None:
        self._record.begin(entered)

    def _register(self, layer: str, module: nn.Module) -> None:
        if isinstance(module, nn.MultiheadAttention):
            ask, take = self._asking, self._taking(layer)
            self._handles.add(module.register_forward_pre_hook(ask, with_kwargs=True))
            self._handles.add(module.register_forward_hook(take, always_call=True))
        else:
            self._handles.add(Around(module, self._watching(layer)))

    def _see_batch(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        self._batch = _batch_of(args, kwargs)

    def _asking(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # MultiheadAttention.forward(query, key, value, key_padding_mask, need_weights, attn_mask,
        # average_attn_weights, is_causal)
        asked = {"need_weights": True, "average_attn_weights": True, **kwargs}
        for position, name in ((4, "need_weights"), (6, "average_attn_weights")):
            if len(args) > position:
                asked[name] = args[position]
        self._asked.append((asked["need_weights"], asked["average_attn_weights"]))
        kwargs = {**kwargs, "need_weights": True, "average_attn_weights": False}
        if len(args) > 4:
            names = ("need_weights", "attn_mask", "average_attn_weights", "is_causal")
            kwargs = {**dict(zip(names, args[4:], strict=False)), **kwargs}
        return args[:4], kwargs

    def _taking(self, layer: str) -> Callable[..., Any]:
        def take(module: nn.Module, args: Any, output: Any) -> Any:
            needed, averaged = self._asked.pop() if self._asked else (True, False)
            if output is None:  # the layer raised
                return None
            result, weights = output
            batched = weights if weights.ndim == 4 else weights.unsqueeze(0)
            self._keep(layer, module, [batched.detach().clone()])
            if not needed:
                return result, None
            return result, weights.mean(dim=-3) if averaged else weights

        return take

    def _watching(self, layer: str) -> Callable[..., Any]:
        def call(module: nn.Module, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            seen: list[Tensor] = []
            with WeightsSeen(seen.append, self._open.__dict__.setdefault("contexts", [])):
                output = forward(*args, **kwargs)
            batch = self._batch or _batch_of(args, kwargs)
            self._keep(layer, module, [_by_picture(weights, batch) for weights in seen])
            return output

        return call

    def _keep(self, layer: str, module: nn.Module, matrices: Sequence[Tensor]) -> None:
        if in_backward() or not matrices:
            return
        rank = rank_of(module, matrices)
        call = self._record.next_call(rank, layer)
        for index, weights in enumerate(matrices):
            item = () if len(matrices) == 1 else (index,)
            if self._placement.wants(layer, call, item):
                self._record.slot(rank, layer, call, item)(weights)


def attention_layers(model: nn.Module, layers: Layers = "*") -> list[Selection]:
    """The attention layers among what ``layers`` selects, and inside it, each once.

    Raises ``LayerNotFoundError`` where the model has none there.
    """
    modules = named_layers(model)
    attention = [name for name in modules if _attends(modules[name])]
    found: dict[str, Selection] = {}
    for chosen in selections(model, layers):
        inside = [name for name in attention if name.startswith(f"{chosen.layer}.")]
        if chosen.layer in attention:
            found.setdefault(str(chosen), chosen)
        elif chosen.exact:
            for name in inside:
                found.setdefault(name, Selection(name, None, (), True, chosen.pattern))
            if not inside:
                near = ", ".join(closest(chosen.layer, attention))
                raise LayerNotFoundError(
                    f"there is no attention layer at {chosen.layer!r}",
                    f"Closest: {near}." if near else "This model has no attention layers.",
                )
    if not found:
        raise LayerNotFoundError(f"{type(unwrap(model)).__name__} has no attention layers there")
    return list(found.values())


def _attends(module: nn.Module) -> bool:
    if isinstance(module, nn.MultiheadAttention):
        return True
    name = class_name(module).lower()
    return "attention" in name or "attn" in name


def _batch_of(args: Any, kwargs: Any) -> int | None:
    first = next(tensors_in((args, kwargs)), None)
    return first[1].shape[0] if first and first[1].ndim else None


def _by_picture(weights: Tensor, batch: int | None) -> Tensor:
    """... x heads x T x S as batch x heads x T x S, with an axis of windows where there are any."""
    if weights.ndim == 3:
        return weights.unflatten(0, (batch, -1)) if _divides(batch, weights) else weights[:, None]
    weights = weights.flatten(0, -4)
    if _divides(batch, weights) and weights.shape[0] != batch:
        return weights.unflatten(0, (batch, -1))
    return weights


def _divides(batch: int | None, weights: Tensor) -> bool:
    return bool(batch) and weights.shape[0] % batch == 0  # type: ignore[operator]
