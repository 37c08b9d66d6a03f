"""A network trained here and now on drawn shapes in clutter, whose places are known.

``trained()`` takes about half a minute once a test run; ``scenes`` draws fresh pictures. A heatmap
that says why this network sees a triangle must point at the triangle.
"""

from __future__ import annotations

import atexit
import functools
import math
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor, nn
from torch.nn import functional

SIDE = 64
SHAPES = ("disc", "square", "triangle", "cross")
LAYER = "features"
SEED = 20240


Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Scene:
    """A picture and, by class, the box (left, top, right, bottom) of each shape in it."""

    picture: Image.Image
    boxes: dict[int, Box]


class ShapeNetwork(nn.Module):
    """Four convolutions, a mean over space, one logit for each shape (multi-label)."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *_stage(3, 16, 5, stride=2),
            *_stage(16, 32, 3, stride=2),
            *_stage(32, 48, 3),
            *_stage(48, 48, 3),
        )
        self.head = nn.Linear(48, len(SHAPES))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).mean((2, 3)))


def _stage(inputs: int, outputs: int, size: int, stride: int = 1) -> list[nn.Module]:
    return [
        nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    ]


def scenes(count: int, seed: int, shapes: int | None = 2) -> list[Scene]:
    """Pictures with so many different shapes each; None draws one or two."""
    random = np.random.default_rng(seed)
    return [_scene(random, shapes or int(random.integers(1, 3))) for _ in range(count)]


def batch(drawn: Sequence[Scene]) -> Tensor:
    """N x 3 x 64 x 64 within [-1, 1]."""
    pixels = np.stack([np.asarray(scene.picture) for scene in drawn])
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 127.5 - 1


def labels(drawn: Sequence[Scene]) -> Tensor:
    table = torch.zeros(len(drawn), len(SHAPES))
    for row, scene in enumerate(drawn):
        table[row, list(scene.boxes)] = 1
    return table


@functools.cache
def trained() -> ShapeNetwork:
    """The network in eval mode, the same in every process of one test run."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None:
        return _train()
    # Several test processes share one training: the first to make the lock does it.
    file = Path(tempfile.gettempdir()) / f"hookscope-shapes-{run}.pt"
    try:
        file.with_suffix(".lock").touch(exist_ok=False)
    except FileExistsError:
        while not file.exists():
            time.sleep(0.2)
        network = ShapeNetwork()
        network.load_state_dict(torch.load(file, weights_only=True))
        return network.eval()
    network = _train()
    partial = file.with_suffix(".part")
    torch.save(network.state_dict(), partial)
    partial.replace(file)
    # Test processes end together, so nobody waits for the file any more.
    atexit.register(file.unlink, missing_ok=True)
    atexit.register(file.with_suffix(".lock").unlink, missing_ok=True)
    return network


def untrained() -> ShapeNetwork:
    """The same network with random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(SEED + 1)
        return ShapeNetwork().eval()


def _train(pictures: int = 2400, epochs: int = 6, batch_size: int = 32) -> ShapeNetwork:
    drawn = scenes(pictures, SEED, shapes=None)
    x, y = batch(drawn), labels(drawn)
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        network = ShapeNetwork()
        optimizer = torch.optim.Adam(network.parameters())
        steps = epochs * pictures // batch_size
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=steps)
        for _ in range(epochs):
            for rows in torch.randperm(pictures).split(batch_size):
                loss = functional.binary_cross_entropy_with_logits(network(x[rows]), y[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
    return network.eval()


def _scene(random: np.random.Generator, shapes: int) -> Scene:
    base = random.integers(30, 110, 3)
    noise = random.normal(0, 12, (SIDE, SIDE, 3))
    picture = Image.fromarray((base + noise).clip(0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(picture)
    for _ in range(12):
        start = random.uniform(0, SIDE, 2)
        end = start + random.uniform(-20, 20, 2)
        colour = tuple(int(value) for value in random.integers(0, 256, 3))
        draw.line([*start, *end], fill=colour, width=int(random.integers(1, 3)))
    kinds = random.choice(len(SHAPES), shapes, replace=False)
    boxes = _places(random, shapes)
    for kind, box in zip(kinds, boxes, strict=True):
        _draw_shape(draw, random, SHAPES[kind], box, base)
    return Scene(picture, {int(kind): box for kind, box in zip(kinds, boxes, strict=True)})


def _places(random: np.random.Generator, count: int) -> list[Box]:
    """Boxes that do not touch, drawn again together until that is so."""
    while True:
        radii = random.uniform(8, 11, count)
        centres = [random.uniform(radius + 1, SIDE - radius - 1, 2) for radius in radii]
        apart = all(
            np.abs(centres[i] - centres[k]).max() > radii[i] + radii[k] + 2
            for i in range(count)
            for k in range(i)
        )
        if apart:
            return [
                (float(x - r), float(y - r), float(x + r), float(y + r))
                for (x, y), r in zip(centres, radii, strict=True)
            ]


def _draw_shape(
    draw: ImageDraw.ImageDraw,
    random: np.random.Generator,
    shape: str,
    box: Box,
    base: np.ndarray,
) -> None:
    colour = tuple(int(value) for value in base + random.integers(70, 140, 3))
    x, y, radius = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2, (box[2] - box[0]) / 2
    if shape == "disc":
        draw.ellipse([x - radius, y - radius, x + radius, y + radius], fill=colour)
    elif shape == "square":
        side = radius * 0.85
        draw.rectangle([x - side, y - side, x + side, y + side], fill=colour)
    elif shape == "triangle":
        turn = random.uniform(0, 2 * math.pi)
        angles = [turn + k * 2 * math.pi / 3 for k in range(3)]
        points = [(x + radius * math.cos(a), y + radius * math.sin(a)) for a in angles]
        draw.polygon(points, fill=colour)
    else:
        arm = radius * 0.3
        draw.rectangle([x - radius, y - arm, x + radius, y + arm], fill=colour)
        draw.rectangle([x - arm, y - radius, x + arm, y + radius], fill=colour)
