"""Class names that a checkpoint carries under one of the keys that training scripts use."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from hookscope.models.checkpoint.leaves import items_of
from hookscope.models.checkpoint.numpy_pickles import PickledArray

_KEYS = (
    "class_to_idx",
    "label_to_idx",
    "idx_to_class",
    "idx_to_label",
    "id2label",
    "label2id",
    "class_names",
    "classes",
    "names",
    "categories",
    "labels",
)
_DEEPEST = 4


def class_names(tree: Any, count: int | None) -> tuple[str, ...] | None:
    """The names in ``tree``, or None where there are none that number the model's classes.

    ``count`` is the number of classes, None where it is not known.
    """
    for _, value in sorted(_values(tree, 0), key=lambda item: _KEYS.index(item[0])):
        names = _as_names(value)
        if names and count in (None, len(names)):
            return names
    return None


def _values(node: Any, depth: int) -> Iterable[tuple[str, Any]]:
    for key, value in items_of(node) or ():
        if isinstance(value, Tensor):
            continue
        if key.lower() in _KEYS:
            yield key.lower(), value
        elif depth < _DEEPEST and not isinstance(value, (list, tuple)):
            yield from _values(value, depth + 1)


def _as_names(value: Any) -> tuple[str, ...] | None:
    """Names from a list, from index -> name or from name -> index; JSON text is read first."""
    if isinstance(value, str) and value[:1] in "[{":
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if isinstance(value, (np.ndarray, PickledArray)):
        value = value.tolist()
    if isinstance(value, Mapping):
        pairs = list(value.items())
        if all(_is_index(key) for key, _ in pairs):
            pairs = [(name, int(key)) for key, name in pairs]
        if not all(_is_index(index) for _, index in pairs):
            return None
        by_index = {int(index): name for name, index in pairs}
        if sorted(by_index) != list(range(len(pairs))):
            return None
        value = [by_index[index] for index in range(len(pairs))]
    if isinstance(value, Sequence) and value and all(isinstance(name, str) for name in value):
        return None if isinstance(value, str) else tuple(value)
    return None


def _is_index(value: Any) -> bool:
    if isinstance(value, str):
        return value.isdecimal()
    return isinstance(value, int) or type(value).__module__ == "numpy"
