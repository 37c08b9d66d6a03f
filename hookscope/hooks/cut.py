"""Gradients at a layer for the price of the network above it: the graph is cut at the layer.

A forward hook takes the layer's output, makes it a leaf that asks for gradients, and hands a
clone of it onward. Nothing before the layer builds a graph, parameters may be frozen, and a
backward pass runs only what lies above. A layer that comes after another chosen one is not cut
again: it requires gradients already, and is held where it is in the graph.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hookscope.errors import LayerNotFoundError, did_you_mean
from hookscope.hooks.handles import Handles
from hookscope.hooks.onward import replaced
from hookscope.layers.addresses import Address
from hookscope.layers.modules import named_layers, unwrap
from hookscope.layers.outputs import Item


@dataclass(frozen=True)
class Held:
    """One tensor that a layer gave: a copy that later in-place operations do not reach."""

    address: Address
    tensor: Tensor


class Cut:
    """Runs a model and holds the outputs of some layers, where a score can be differentiated.

        cut = Cut(model, [Address("layer4", None, ())])
        output = cut.run(x)
        (gradient,) = cut.gradients(output[:, 281].sum())

    An address without a call stands for every call, one without an item for every tensor.
    ``gradients=False`` only copies. The model has no hook left after ``run``; it is run as it is,
    in the grad mode that the cut needs, and in no other way changed.
    """

    def __init__(
        self, model: nn.Module, addresses: Iterable[Address], *, gradients: bool = True
    ) -> None:
        self._model = unwrap(model)
        self._wanted: dict[str, list[Address]] = defaultdict(list)
        for address in addresses:
            self._wanted[address.layer].append(address)
        self.differentiates = gradients
        self._calls: Counter[str] = Counter()
        self._seen: list[tuple[str, int, Item, Tensor]] = []

    def run(self, *inputs: Any, whole_graph: bool = False) -> Any:
        """One forward pass; what an earlier one held is let go.

        ``whole_graph`` records the graph from the input on, for models that switch gradients off
        by themselves on the way; it costs what the cut saves.
        """
        self._calls.clear()
        self._seen.clear()
        modules = {name: layer_named(self._model, name) for name in self._wanted}
        with Handles() as handles, torch.set_grad_enabled(self.differentiates and whole_graph):
            for name, module in modules.items():
                handles.add(module.register_forward_hook(self._hook(name)))
            # The hooks switch gradients on for the rest of the pass; leaving the context puts the
            # caller's mode back.
            return self._model(*inputs)

    @property
    def held(self) -> list[Held]:
        """What the layers gave, in execution order; the call is None where a layer ran once."""
        return [
            Held(Address(name, call if self._calls[name] > 1 else None, item), tensor)
            for name, call, item, tensor in self._seen
        ]

    def gradients(
        self, score: Tensor, *, keep_graph: bool = False, scale: float = 1.0
    ) -> list[Tensor | None]:
        """d(scale * score)/d(tensor) for each held tensor; None where the score does not depend.

        ``keep_graph``: another score of the same forward pass follows. ``scale`` lifts gradients
        out of the range where half precision turns them to zero.
        """
        tensors = [tensor for _, _, _, tensor in self._seen]
        if not tensors or not score.requires_grad:
            return [None] * len(tensors)
        start = None if scale == 1.0 else torch.full_like(score, scale)
        return list(
            torch.autograd.grad(
                score, tensors, grad_outputs=start, retain_graph=keep_graph, allow_unused=True
            )
        )

    def _hook(self, name: str) -> Callable[[nn.Module, Any, Any], Any]:
        def hook(module: nn.Module, inputs: Any, output: Any) -> Any:
            self._calls[name] += 1
            call = self._calls[name]
            wanted = [address for address in self._wanted[name] if address.call in (None, call)]
            if not wanted:
                return None

            def visit(item: Item, tensor: Tensor) -> Tensor:
                if tensor.is_floating_point() and any(_reaches(one.item, item) for one in wanted):
                    return self._hold(name, call, item, tensor)
                return tensor

            return replaced(output, visit)

        return hook

    def _hold(self, name: str, call: int, item: Item, tensor: Tensor) -> Tensor:
        # Two copies: other holders of the output (a residual's input behind an identity) may
        # change it in place, and so may the modules that the clone is handed to.
        if not self.differentiates:
            self._seen.append((name, call, item, tensor.clone()))
            return tensor
        torch.set_grad_enabled(True)
        if tensor.requires_grad:
            kept = tensor.clone()
        else:
            kept = tensor.detach().clone().requires_grad_()
        self._seen.append((name, call, item, kept))
        return kept.clone()


def layer_named(model: nn.Module, name: str) -> nn.Module:
    """The module of that name; raises ``LayerNotFoundError`` with the closest names."""
    try:
        # Walking the whole tree for its names costs a twentieth of a small network's pass.
        module = model.get_submodule(name)
    except AttributeError:
        module = model
    if module is model or type(module).__name__ == "OptimizedModule":
        modules = named_layers(model)
        if name not in modules:
            raise LayerNotFoundError(
                f"the model has no layer {name!r}", did_you_mean(name, modules)
            )
        module = modules[name]
    return module


def _reaches(wanted: Item, item: Item) -> bool:
    # As texts: a pattern cannot tell the key "0" of a dict from the index 0.
    return [str(part) for part in item[: len(wanted)]] == [str(part) for part in wanted]
