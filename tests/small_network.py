"""A network for tests that is small and has what goes wrong in large ones."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class Small(nn.Module):
    """Two stages of which the second reuses its ReLU; what leaves the head is the caller's."""

    def __init__(self, leave: Callable[[Tensor], object] = lambda logits: logits) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1), nn.BatchNorm2d(6), nn.ReLU(True))
        self.conv = nn.Conv2d(6, 8, 3, 1, 1)
        self.relu = nn.ReLU(inplace=True)
        self.drop = nn.Dropout(0.5)
        self.last = nn.Conv2d(8, 8, 3, 1, 1)
        self.head = nn.Linear(8 * 12, 5)
        self._leave = leave

    def forward(self, x: Tensor) -> object:
        x = self.relu(self.conv(self.stem(x)))
        x = self.relu(self.last(self.drop(x)))
        x = nn.functional.adaptive_avg_pool2d(x, (3, 4))
        return self._leave(self.head(x.flatten(1)))


def small(leave: Callable[[Tensor], object] = lambda logits: logits) -> Small:
    torch.manual_seed(0)
    return Small(leave).eval()


def pictures() -> Tensor:
    """Three that are not square."""
    return torch.randn(3, 3, 16, 24, generator=torch.Generator().manual_seed(8))
