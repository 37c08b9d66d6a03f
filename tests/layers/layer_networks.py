"""Small networks, each odd in one way that real ones are."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Fixed(nn.Module):
    """A linear layer behind unpooled maps: grey pictures of 32 x 32 alone."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 6, 5)
        self.second = nn.Conv2d(6, 16, 5)
        self.head = nn.Linear(16 * 5 * 5, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(self.first(x).relu(), 2)
        x = functional.max_pool2d(self.second(x).relu(), 2)
        return self.head(x.flatten(1))


class Reader(nn.Module):
    """Reads a picture from left to right; a dict comes out, and a nested tuple inside."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=4, padding=1)
        self.lstm = nn.LSTM(8, 16, batch_first=True)
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        columns = self.stem(x).mean(2).transpose(1, 2)
        sequence, (hidden, _) = self.lstm(columns)
        return {"logits": self.head(hidden[-1]), "sequence": sequence}


class Forked(nn.Module):
    """Takes a way that depends on the numbers in the picture."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.bright = nn.Conv2d(4, 4, 3)
        self.dark = nn.Conv2d(4, 4, 5)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        branch = self.bright if x.mean() > 0.25 else self.dark
        return self.head(branch(self.stem(x)).mean((2, 3)))


class Remembering(nn.Module):
    """Writes into everything within reach: a list, a counter, an object, other modules."""

    class Cache:
        def __init__(self) -> None:
            self.last: Tensor | None = None

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.cache = self.Cache()
        self.seen: list[Tensor] = []
        self.count = 0

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        self.steps += 1
        x = self.norm(self.conv(x))
        self.seen.append(x)
        self.cache.last = x
        self.norm.remembered = x
        x -= x.mean()
        return x


class Block(nn.Module):
    """A transformer block as in ViT."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class Tokens(nn.Module):
    """A ViT for any size: ``prefix`` tokens before the patches, read by ``pool``."""

    def __init__(self, prefix: int, pool: str, depth: int = 2) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 8, stride=8)
        self.extra = nn.Parameter(torch.zeros(1, prefix, 8))
        self.blocks = nn.Sequential(*[Block(8) for _ in range(depth)])
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 5)
        self.pool = pool

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.extra.expand(len(x), -1, -1), x], 1)
        x = self.norm(self.blocks(x))
        return self.head(x[:, 0] if self.pool == "class" else x.mean(1))
