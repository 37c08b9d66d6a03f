"""A network of a few numbers, and a source of it as ``hookscope.models.source`` has them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

CLASSES = 5


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.bn = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.conv(x)).relu()


class TinyNet(nn.Module):
    """Two stages and a head: 18 tensors."""

    def __init__(self, num_classes: int = CLASSES) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3)
        self.stages = nn.Sequential(Block(4), Block(4))
        self.head = nn.Linear(4, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stages(self.stem(x)).mean((2, 3)))


@dataclass(frozen=True)
class Source:
    """A ModelSource of any constructor; ``built`` counts what it was asked for."""

    make: Callable[..., nn.Module] = TinyNet
    name: str = "tinynet"
    kind: str = "factory"
    classes: int | None = CLASSES
    variants: tuple[str, ...] = ("num_classes",)
    built: list[dict[str, Any]] = field(default_factory=list)

    def takes(self, argument: str) -> bool:
        return argument in self.variants

    def build(self, *, num_classes: int | None = None, aux_heads: bool | None = None) -> nn.Module:
        self.built.append({"num_classes": num_classes, "aux_heads": aux_heads})
        given = {"num_classes": num_classes, "aux_heads": aux_heads}
        return self.make(
            **{key: value for key, value in given.items() if self.takes(key) and value is not None}
        )


def trained(model: nn.Module) -> nn.Module:
    """The model in eval mode, no two numbers alike and no statistics as a constructor leaves."""
    generator = torch.Generator().manual_seed(7)
    for tensor in model.state_dict().values():
        if tensor.is_floating_point():
            tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.1)
        else:
            tensor.fill_(3)
    return model.eval()
