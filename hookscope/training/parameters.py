"""Which parameters belong to which layer."""

from __future__ import annotations

from torch import nn

from hookscope.hooks.placing import Layers, refuse_hookless, selections
from hookscope.layers.modules import named_layers, unwrap


def parameters_by_layer(model: nn.Module, layers: Layers) -> dict[str, list[nn.Parameter]]:
    """Each selected layer's parameters that are trained, in the model's order.

    A layer that is named exactly has all the parameters in it; one that a pattern matches has its
    own, and is left out where it has none. ``"*"`` covers every parameter of the model: those of
    the model itself stand under the name of its class.
    """
    refuse_hookless(model)
    found: dict[str, list[nn.Parameter]] = {}
    if layers == "*":
        found[type(unwrap(model)).__name__] = _trained(unwrap(model), recurse=False)
    modules = named_layers(model)
    for selection in selections(model, layers) if modules else ():
        found[selection.layer] = _trained(modules[selection.layer], recurse=selection.exact)
    return {layer: parameters for layer, parameters in found.items() if parameters}


def _trained(module: nn.Module, recurse: bool) -> list[nn.Parameter]:
    return [p for p in module.parameters(recurse=recurse) if p.requires_grad]
