"""Other tensors in a network for a while: its modules stay where they are, hooks and all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor, nn

Dress = Mapping[str, Tensor]
"""Tensors by the names of ``named_parameters`` and ``named_buffers``."""


@contextmanager
def dressed(model: nn.Module, dress: Dress) -> Iterator[nn.Module]:
    """``model`` with the tensors of ``dress`` in the places of its own, which come back after.

    Nothing is copied, so that replicas that share their parameters can be dressed one at a time
    while others run. Names that the model does not have are left aside.
    """
    before: list[tuple[nn.Module, str, Tensor]] = []
    try:
        for name, tensor in dress.items():
            path, _, own = name.rpartition(".")
            module = model.get_submodule(path)
            present = module._parameters.get(own, module._buffers.get(own))
            if present is not None:
                before.append((module, own, present))
                # Through setattr, because recurrent layers keep a list of their weights too.
                setattr(module, own, tensor)
        yield model
    finally:
        for module, own, tensor in reversed(before):
            setattr(module, own, tensor)


def state(model: nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers of a network, as a dress for others of its kind."""
    return {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }
