"""The tensors in a checkpoint, however deep, each with the whole path that leads to it."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hookscope.models.checkpoint.numpy_pickles import PickledArray
from hookscope.models.checkpoint.restricted import Inert

_DEEPEST = 32


@dataclass(frozen=True)
class Leaf:
    """A tensor, and the dot-separated parts of its path.

    The first ``outer`` parts are keys of enclosing dictionaries, the others are its own key's:
    ``{"model": {"layer1.0.weight": t}}`` gives ``("model", "layer1", "0", "weight")`` and 1.
    ``array`` says that it is a NumPy array in the file.
    """

    parts: tuple[str, ...]
    outer: int
    tensor: Tensor
    array: bool = False

    @property
    def holder(self) -> tuple[str, ...]:
        return self.parts[: self.outer]


@dataclass(frozen=True)
class Found:
    """All leaves, and the module versions that state dicts carry, by the path of the dict."""

    leaves: tuple[Leaf, ...]
    versions: Mapping[tuple[str, ...], Mapping[str, Any]]


def find_leaves(tree: Any) -> Found:
    """Every tensor in mappings, sequences, modules and namespaces inside one another."""
    leaves: list[Leaf] = []
    versions: dict[tuple[str, ...], Mapping[str, Any]] = {}
    for path, key, value, holder in _walk(tree, (), frozenset()):
        tensor = _as_tensor(value)
        if tensor is not None:
            parts = (*path, *key.split("."))
            leaves.append(Leaf(parts, len(path), tensor, array=not isinstance(value, Tensor)))
            known = getattr(holder, "_metadata", None)
            if isinstance(known, Mapping):
                versions.setdefault(path, known)
    return Found(tuple(leaves), versions)


def items_of(node: Any) -> Iterable[tuple[str, Any]] | None:
    """What a node of a checkpoint holds, by name, or None where it holds nothing by name."""
    if isinstance(node, nn.Module):
        return node.state_dict().items()
    if isinstance(node, Mapping):
        return [(str(key), value) for key, value in node.items()]
    if isinstance(node, (Inert, Namespace, SimpleNamespace)):
        return vars(node).items()
    if isinstance(node, (list, tuple)):
        return [(str(index), value) for index, value in enumerate(node)]
    return None


def _walk(
    node: Any, path: tuple[str, ...], above: frozenset[int]
) -> Iterator[tuple[tuple[str, ...], str, Any, Any]]:
    if id(node) in above or len(path) > _DEEPEST:
        return
    holder = node.state_dict() if isinstance(node, nn.Module) else node
    for key, value in items_of(holder) or ():
        if isinstance(value, (Tensor, np.ndarray, PickledArray)):
            yield path, key, value, holder
        else:
            yield from _walk(value, (*path, *key.split(".")), above | {id(node)})


def _as_tensor(value: Any) -> Tensor | None:
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, PickledArray):
        value = value.real
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and value.dtype.itemsize <= 8:
        native = value.astype(value.dtype.newbyteorder("="), copy=True)
        return torch.from_numpy(native)
    return None
