"""Hand other tensors on in place of those that a module was given, or returned."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from hookscope.layers.outputs import Item, tensors_in


def replaced(output: Any, replace: Callable[[Item, Tensor], Tensor], item: Item = ()) -> Any:
    """``output`` with ``replace(item, tensor)`` in the place of each of its tensors.

    Tuples (named ones too), lists, dicts and dataclasses are made anew, of the same class; what
    holds no tensor is handed on as it is. Items are those of ``tensors_in``.
    """
    if isinstance(output, Tensor):
        return replace(item, output)
    if next(tensors_in(output), None) is None:
        return output
    if isinstance(output, Mapping):
        changed: Any = copy.copy(output)
        for key, value in output.items():
            part = key if isinstance(key, int) else str(key)
            changed[key] = replaced(value, replace, (*item, part))
        return changed
    if isinstance(output, (tuple, list)):
        parts = [replaced(value, replace, (*item, index)) for index, value in enumerate(output)]
        if hasattr(output, "_make"):
            return output._make(parts)
        return type(output)(parts)
    changed = copy.copy(output)
    for field in dataclasses.fields(output):
        value = replaced(getattr(output, field.name), replace, (*item, field.name))
        object.__setattr__(changed, field.name, value)
    return changed


def inputs_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """What a module was given as one value: its only argument, or a dict by position and name."""
    return args[0] if _alone(args, kwargs) else {**dict(enumerate(args)), **kwargs}


def replaced_inputs(
    args: tuple[Any, ...], kwargs: dict[str, Any], replace: Callable[[Item, Tensor], Tensor]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """``args`` and ``kwargs`` with other tensors in them; items are those of ``inputs_of``."""
    skip = 1 if _alone(args, kwargs) else 0
    return (
        replaced(args, lambda item, tensor: replace(item[skip:], tensor)),
        replaced(kwargs, replace),
    )


def _alone(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    return len(args) == 1 and next(tensors_in(kwargs), None) is None
