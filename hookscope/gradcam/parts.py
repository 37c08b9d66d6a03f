"""Many questions to a network, a batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

Item = TypeVar("Item")

REFUSALS = (RuntimeError, ValueError, AssertionError)  # too little memory is a RuntimeError


class Parts:
    """Batches of at most ``many`` items; smaller ones from where one was refused, for want of
    memory or by a program that was exported for one picture. ``told`` hears how many are done."""

    def __init__(self, many: int, told: Callable[[int], None] = lambda count: None) -> None:
        self._many = many
        self._told = told

    def over(self, items: Sequence[Item], scored: Callable[[Sequence[Item]], Tensor]) -> Tensor:
        """``scored`` of each batch, joined along the last axis."""
        found: list[Tensor] = []
        start = 0
        while start < len(items):
            some = items[start : start + self._many]
            try:
                found.append(scored(some))
            except REFUSALS:
                if len(some) == 1:
                    raise
                self._many = len(some) // 2
                continue
            start += len(some)
            self._told(len(some))
        return torch.cat(found, dim=-1)
