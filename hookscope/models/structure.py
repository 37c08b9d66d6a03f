"""Building a network for its structure, not for random numbers that are about to be replaced."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn import init

# The private twins are what a reference taken before (``from torch.nn.init import ...``) ends in.
_RANDOM = (
    "uniform_",
    "normal_",
    "trunc_normal_",
    "xavier_uniform_",
    "xavier_normal_",
    "kaiming_uniform_",
    "kaiming_normal_",
    "orthogonal_",
    "sparse_",
    "_no_grad_uniform_",
    "_no_grad_normal_",
    "_no_grad_trunc_normal_",
)
_RANDOM_IN_TIMM = ("_trunc_normal_",)


@contextmanager
def without_initialisation() -> Iterator[None]:
    """A block in which modules are made without drawing their random initial values.

    Constants (biases, norms) and everything a constructor computes are as ever; what would have
    been random is whatever the memory held, and memory never touched costs nothing. Load all of
    those parameters before running the model. The CPU's random state is put back on leaving.
    """
    with ExitStack() as patches:
        patches.callback(torch.set_rng_state, torch.get_rng_state())
        if gc.isenabled():
            # Thousands of new objects set off searches of torch's whole heap, 0.3 s each.
            gc.disable()
            patches.callback(gc.enable)
        _leave_untouched(patches, init, _RANDOM)
        timm_init = sys.modules.get("timm.layers.weight_init")
        if timm_init is not None:
            _leave_untouched(patches, timm_init, _RANDOM_IN_TIMM)
        yield


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """A block in which ``owner.name`` is ``value``."""
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


def _leave_untouched(patches: ExitStack, module: ModuleType, names: tuple[str, ...]) -> None:
    for name in names:
        if hasattr(module, name):
            patches.enter_context(replaced(module, name, _untouched))


def _untouched(tensor: Tensor, *_: Any, **__: Any) -> Tensor:
    return tensor
