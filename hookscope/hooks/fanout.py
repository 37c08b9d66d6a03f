"""A forward pass that goes on from one layer with many variants of its output.

The picture runs once, as a batch of one, up to the layer; there the hook makes a batch of variants
of the output, and everything above runs on that batch. Nothing below the layer is repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from hookscope.hooks.cut import layer_named
from hookscope.hooks.handles import Handles
from hookscope.hooks.onward import replaced
from hookscope.layers.addresses import Address
from hookscope.layers.modules import unwrap


def resumed(
    model: nn.Module, x: Tensor, address: Address, variants: Callable[[Tensor], Tensor]
) -> Any:
    """What the model returns for ``x`` when ``variants`` replaces the tensor at ``address``.

        resumed(model, x[:1], Address("layer4"), lambda output: output.repeat(8, 1, 1, 1))

    The address names one tensor: an item where the layer returns several, a call (else the
    first) where it runs several times. Whether a network bears a batch that grows on the way is
    its own affair: a sum with an earlier tensor broadcasts, a concatenation raises.
    """
    module = unwrap(model)
    layer = layer_named(module, address.layer)
    calls = 0
    wanted_item = [str(part) for part in address.item]

    def hook(module: nn.Module, inputs: Any, output: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls != (address.call or 1):
            return None
        return replaced(
            output,
            lambda item, tensor: (
                variants(tensor) if [str(part) for part in item] == wanted_item else tensor
            ),
        )

    with Handles() as handles:
        handles.add(layer.register_forward_hook(hook))
        return module(x)
