"""Copies of a model's modules that share its tensors, so that threads can hook them apart."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from types import FunctionType
from typing import Any

from torch import nn


def replicas(model: nn.Module, count: int) -> list[nn.Module]:
    """``model`` and ``count - 1`` copies of its module tree over the same parameters and buffers.

    A model that cannot be copied is given alone: a user's network may hold a lock or a file, or
    functions that would go on calling the modules of the original.
    """
    if count < 2 or _is_exported(model) or _called_by_functions(model):
        return [model]
    copies = [model]
    for _ in range(count - 1):
        shared = {id(tensor): tensor for tensor in chain(model.parameters(), model.buffers())}
        try:
            copies.append(copy.deepcopy(model, shared))
        except Exception:  # whatever a user's class answers with
            return [model]
    return copies


def _is_exported(model: nn.Module) -> bool:
    """Programs keep examples without data in their graphs, which refuse to be copied."""
    return type(model).__module__.startswith("torch.export")


def _called_by_functions(model: nn.Module) -> bool:
    """Whether some function that the model keeps holds modules of it in its closure: a copy of
    the model would keep that very function, and so call the original's modules."""
    modules = set(model.modules())
    return any(
        isinstance(held, nn.Module) and held in modules
        for module in modules
        for function in _functions(vars(module))
        for held in _enclosed(function)
    )


def _functions(value: Any, depth: int = 4) -> Iterator[FunctionType]:
    if isinstance(value, FunctionType):
        yield value
    elif isinstance(value, functools.partial):
        yield from _functions((value.func, value.args, value.keywords), depth)
    elif depth and isinstance(value, dict):
        for item in value.values():
            yield from _functions(item, depth - 1)
    elif depth and isinstance(value, (list, tuple)):
        for item in value:
            yield from _functions(item, depth - 1)


def _enclosed(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # a name that was never bound
            yield cell.cell_contents
