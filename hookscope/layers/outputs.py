"""The tensors inside whatever a module returned, each with the way to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

Item = tuple[int | str, ...]


def tensors_in(output: Any, item: Item = ()) -> Iterator[tuple[Item, Tensor]]:
    """Each tensor of ``output`` in order, with its item: ``()`` alone, ``(1, 0)``, ``("logits",)``.

    Tuples and lists count from 0, dicts go by key, dataclasses by field; what is no tensor and
    holds none is passed over.
    """
    if isinstance(output, Tensor):
        yield item, output
    elif isinstance(output, Mapping):
        for key, value in output.items():
            yield from tensors_in(value, (*item, key if isinstance(key, int) else str(key)))
    elif isinstance(output, (tuple, list)):
        for index, value in enumerate(output):
            yield from tensors_in(value, (*item, index))
    elif dataclasses.is_dataclass(output) and not isinstance(output, type):
        for field in dataclasses.fields(output):
            yield from tensors_in(getattr(output, field.name), (*item, field.name))
