"""Grid of feature maps plus PNG file: hookscope, a matplotlib subplot a channel, torchvision.

Ratios of times measured one after the other in the same process; nothing is gated on seconds.
Run: python tests/benchmarks/bench_grid.py
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor
from torchvision.utils import make_grid, save_image

from hookscope.render.encode import save_png
from hookscope.render.grid import feature_grid

HEADER = "resnet18 · layer1.0.conv1 · 64×56×56 · picture.jpg"


def ours(maps: Tensor, file: Path) -> None:
    save_png(feature_grid(maps, header=HEADER), file, {"hookscope": "{}"})


def subplots(maps: Tensor, file: Path) -> None:
    side = int(len(maps) ** 0.5 + 0.999)
    figure = Figure(figsize=(side, side))
    FigureCanvasAgg(figure)
    for axes in figure.subplots(side, side).flat:
        axes.axis("off")
    for index, one in enumerate(maps):
        axes = figure.axes[index]
        axes.imshow(one.numpy(), cmap="viridis")
        axes.set_title(str(index), fontsize=6)
    figure.savefig(file)


def torchvision_grid(maps: Tensor, file: Path) -> None:
    side = int(len(maps) ** 0.5 + 0.999)
    save_image(make_grid(maps[:, None], nrow=side, normalize=True, scale_each=True), file)


def seconds(draw: Callable[[Tensor, Path], None], maps: Tensor, times: int) -> float:
    """The best of ``times`` runs: what else the machine does can only add."""
    with tempfile.TemporaryDirectory() as folder:
        taken = []
        for _ in range(times):
            start = time.perf_counter()
            draw(maps, Path(folder, "grid.png"))
            taken.append(time.perf_counter() - start)
    return min(taken)


def main() -> None:
    torch.manual_seed(0)
    seconds(subplots, torch.rand(4, 8, 8), 1)  # its imports and font cache are not counted
    print("grid + PNG            hookscope   subplots (ratio, wanted)   make_grid (ratio, wanted)")
    for shape, wanted in (((64, 112, 112), "5"), ((512, 7, 7), "-")):
        maps = torch.randn(shape).relu_()
        fast = seconds(ours, maps, 7)
        slow, tiles = seconds(subplots, maps, 1), seconds(torchvision_grid, maps, 5)
        name = "x".join(map(str, shape))
        print(
            f"{name:20} {fast * 1e3:8.1f} ms {slow:9.2f} s ({slow / fast:5.0f}x, 100)"
            f" {tiles * 1e3:13.1f} ms ({tiles / fast:4.1f}x, {wanted})"
        )


if __name__ == "__main__":
    main()
