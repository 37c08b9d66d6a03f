"""Which modules a user's names mean, and whether hooks on them would fire at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import nn

from hookscope.errors import LayerNotFoundError, ModelError
from hookscope.layers.addresses import Address, Selection, select
from hookscope.layers.modules import named_layers, other_names, unwrap
from hookscope.layers.outputs import Item

Layer = str | Address | Selection | nn.Module
Layers = Layer | Iterable[Layer]


@dataclass(frozen=True)
class Placement:
    """The layers that were chosen, in the model's order, and what is wanted of each.

    ``tree``: all layers of the model by name.
    """

    model: nn.Module
    tree: Mapping[str, nn.Module]
    selections: Mapping[str, tuple[Selection, ...]]

    def __iter__(self) -> Iterator[str]:
        return iter(self.selections)

    def __contains__(self, layer: object) -> bool:
        return layer in self.selections

    @property
    def modules(self) -> dict[str, nn.Module]:
        """The chosen layers."""
        return {layer: self.tree[layer] for layer in self.selections}

    def wants(self, layer: str, call: int, item: Item) -> bool:
        address = Address(layer, call, item)
        return any(selection.covers(address) for selection in self.selections[layer])

    def named(self, name: str) -> str | None:
        """The chosen layer that goes by ``name``, None where there is none."""
        if name in self.selections:
            return name
        other = self._other_names.get(name)
        return other if other in self.selections else None

    @cached_property
    def _other_names(self) -> dict[str, str]:
        return other_names(self.model)


def place(model: nn.Module, layers: Layers) -> Placement:
    """The ``selections`` of ``layers``, with their modules."""
    tree = named_layers(model)
    chosen: dict[str, tuple[Selection, ...]] = {}
    for selection in _selections(model, tree, layers):
        chosen[selection.layer] = (*chosen.get(selection.layer, ()), selection)
    return Placement(model, tree, chosen)


def selections(model: nn.Module, layers: Layers) -> list[Selection]:
    """What names, patterns (``layer4.*``), addresses (``relu@1``) and modules of the model itself
    (``model.layer4``) choose, in the model's order.

    Raises ``LayerNotFoundError`` for what matches nothing or is no part of the model, and
    ``ModelError`` where the model takes no hooks: TorchScript, and programs that run without
    their modules.
    """
    return _selections(model, named_layers(model), layers)


def _selections(model: nn.Module, tree: Mapping[str, nn.Module], layers: Layers) -> list[Selection]:
    refuse_hookless(model)
    # A Sequential could be iterated over too, but is one layer.
    asked = [layers] if isinstance(layers, (str, Address, Selection, nn.Module)) else list(layers)
    chosen: list[Selection] = []
    patterns: list[str] = []
    for given in asked:
        one = _name_of(tree, given) if isinstance(given, nn.Module) else given
        # What is known already needs no search, which takes its time on a large model.
        layer = one if isinstance(one, str) else one.layer
        if layer not in tree:
            patterns.append(one.pattern if isinstance(one, Selection) else str(one))
        elif isinstance(one, Selection):
            chosen.append(one)
        elif isinstance(one, Address):
            chosen.append(Selection(layer, one.call, one.item, True, str(one)))
        else:
            chosen.append(Selection(layer, None, (), True, one))
    if patterns:
        chosen += select(unwrap(model), patterns)
    order = {layer: position for position, layer in enumerate(tree)}
    chosen.sort(key=lambda selection: order[selection.layer])
    for selection in chosen:
        if isinstance(tree[selection.layer], torch.jit.ScriptModule):
            raise ModelError(
                f"layer {selection.layer!r} is TorchScript, whose modules take no hooks"
            )
    return chosen


def _name_of(tree: Mapping[str, nn.Module], module: nn.Module) -> str:
    inner = unwrap(module)
    for name, layer in tree.items():
        if layer is module or layer is inner:
            return name
    raise LayerNotFoundError(
        f"this {type(inner).__name__} is no layer of the model",
        "A layer is a module inside the very model that runs, not a copy of it and not the "
        "whole model.",
    )


def refuse_hookless(model: nn.Module) -> None:
    """Raises ``ModelError`` where no hook on any part of ``model`` would ever fire."""
    root = unwrap(model)
    if isinstance(root, torch.jit.ScriptModule):
        raise ModelError(
            "this model is TorchScript, whose modules take no hooks",
            "Build the network from its source and load this file's state dict into it.",
        )
    if isinstance(root, torch.fx.GraphModule) and not _runs_modules(root):
        raise ModelError(
            "this program runs as one graph without its modules, so hooks on them never fire",
            "Take the model of torch.export.unflatten(program), not that of program.module().",
        )


def _runs_modules(root: torch.fx.GraphModule) -> bool:
    called = {str(node.target) for node in root.graph.nodes if node.op == "call_module"}
    # The module of an exported program calls one that checks its inputs, and no other.
    return any(not name.startswith("_guards") for name in called) or not list(root.children())
