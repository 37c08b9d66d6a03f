"""A user's model is borrowed for an explanation, and given back as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from hookscope.hooks.compiled import Uncompiled
from hookscope.layers.modules import unwrap


@contextmanager
def borrowed(model: nn.Module, x: Tensor) -> Iterator[nn.Module]:
    """The model inside its wrappers, in eval mode, with no grad mode of the caller's in the way.

    A class score means something in eval mode only, where no picture changes another one's
    numbers. Every module's training flag and the random state are put back, whatever happens.
    """
    module = unwrap(model)
    training = [part for part in module.modules() if part.training]
    devices = [x.device] if x.device.type == "cuda" else []
    with ExitStack() as stack:
        # Tensors made in inference mode can never be part of a graph.
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch.random.fork_rng(devices))
        stack.callback(Uncompiled(module).remove)
        try:
            for part in training:
                part.training = False
            yield module
        finally:
            for part in training:
                part.training = True
