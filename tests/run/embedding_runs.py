"""Networks for ``capture --pool``, what a command gave, and matrices made by hand."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pictures import open_image

from hookscope.models.opening import open_model

NETS = """
    import torch
    from torch import nn


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.first = nn.Conv2d(3, 6, 5, stride=4)
            self.act = nn.ReLU(inplace=True)
            self.second = nn.Conv2d(6, 6, 3, padding=1)
            self.head = nn.Linear(6, 4)

        def forward(self, x):
            x = self.act(self.first(x))
            x = self.act(self.second(x))
            return self.head(x.mean((2, 3)))


    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(2)
            self.patches = nn.Conv2d(3, 8, 32, stride=32)
            self.first = nn.Parameter(torch.randn(1, 1, 8))
            self.block = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8))
            self.spare = nn.Linear(8, 8)
            self.windows = nn.Linear(8, 5)
            self.head = nn.Linear(8, 4)

        def forward(self, x):
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = torch.cat((self.first.expand(len(x), -1, -1), x), 1)
            x = self.block(x)
            self.windows(x[:, 1:].reshape(-1, 7, 8))
            return self.head(x[:, 0])


    def net():
        return Net()


    def tokens():
        return Tokens()
"""


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


def by_hand(nets: Path, photos: Path, net: str, layer: str) -> list[torch.Tensor]:
    """What a layer returned at each call, for each picture in natural order, one at a time."""
    opened, kept = open_model(f"{nets}:{net}"), []
    module = opened.module.get_submodule(layer)
    handle = module.register_forward_hook(lambda _, __, output: kept.append(output.clone()))
    with torch.no_grad():
        for path in sorted(photos.iterdir(), key=lambda path: int(path.stem[1:])):
            opened.module(opened.preprocessing(open_image(path))[0][None])
    handle.remove()
    return kept


def index_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def hidden(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.startswith(".")]
