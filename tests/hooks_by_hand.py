"""Hooks as one writes them without hookscope, on a small network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn


class Net(nn.Module):
    """A network whose ReLU overwrites what its convolution returned."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.relu = nn.ReLU(inplace=True)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.relu(self.conv(x)).mean((2, 3)))


def conv_by_hand(model: nn.Module, x: Tensor) -> Tensor:
    kept = []
    handle = model.conv.register_forward_hook(lambda m, args, output: kept.append(output.clone()))
    try:
        model(x)
    finally:
        handle.remove()
    return kept[-1].detach()


def gradient_by_hand(model: nn.Module, x: Tensor, score: Callable[[Tensor], Tensor]) -> Tensor:
    kept: list[Tensor] = []

    def keep(module: nn.Module, args: Any, output: Tensor) -> None:
        output.register_hook(lambda gradient: kept.append(gradient.clone()))

    handle = model.conv.register_forward_hook(keep)
    try:
        score(model(x)).backward()
    finally:
        handle.remove()
    model.zero_grad()
    return kept[-1]
