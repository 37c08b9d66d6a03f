"""What GradientMonitor costs: a training step of ResNet-18 with it at every=10, over one without.

Run with ``python tests/benchmarks/bench_training.py``; at most 1.05 is the aim.
"""

from __future__ import annotations

import statistics
import time

import torch
from torch import nn
from torchvision import models

from hookscope.training import GradientMonitor

BLOCK = 10  # steps; one of them is recorded
ROUNDS = 8
BATCH, SIZE = 8, 96


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = models.resnet18(num_classes=10).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    pictures = torch.randn(BATCH, 3, SIZE, SIZE, device=device)
    classes = torch.randint(10, (BATCH,), device=device)

    def block() -> float:
        _wait(device)
        start = time.perf_counter()
        for _ in range(BLOCK):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(pictures), classes).backward()
            optimizer.step()
        _wait(device)
        return time.perf_counter() - start

    block()
    plain, watched = [], []
    for _ in range(ROUNDS):
        plain.append(block())
        with GradientMonitor(model, every=BLOCK) as monitor:
            watched.append(block())
    assert len(monitor.history().steps) == 1
    ratio = statistics.median(b / a for a, b in zip(plain, watched, strict=True))
    step = statistics.median(plain) / BLOCK
    print(
        f"GradientMonitor, every={BLOCK}: {ratio:.3f} x a training step of ResNet-18 "
        f"({step * 1000:.1f} ms, batch {BATCH} of {SIZE} x {SIZE}, {device})"
    )


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
