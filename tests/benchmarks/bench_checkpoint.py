"""Opening a big state dict, against mapping the file and one forward pass; time and memory."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torchvision

MODELS = ("resnet152", "vit_l_16")
ROUNDS = 5

# Each measurement is a process of its own, so that its peak of memory is its own too.
_COMMON = """
import gc, json, resource, statistics, sys, time, torch, torchvision
name, path, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
gc.freeze()
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
x = torch.zeros(1, 3, 224, 224)
"""
_OURS = """
from hookscope.models.opening import open_model
open_model("resnet18", weights="none")
before = peak()
times = []
for _ in range(rounds):
    start = time.perf_counter()
    module = open_model(name, checkpoint=path).module
    opened = peak() - before
    times.append(time.perf_counter() - start)
print(json.dumps([statistics.median(times), opened]))
"""
_LIMIT = """
with torch.inference_mode():
    model = torchvision.models.get_model(name, weights=None).eval()
    model(x)
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        torch.load(path, mmap=True, weights_only=True)
        model(x)
        times.append(time.perf_counter() - start)
print(json.dumps([statistics.median(times), 0]))
"""


def measured(script: str, name: str, path: Path) -> tuple[float, int]:
    command = [sys.executable, "-c", _COMMON + script, name, str(path), str(ROUNDS)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, extra = json.loads(done.stdout)
    return seconds, extra


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in MODELS:
            path = Path(folder) / f"{name}.pth"
            torch.save(torchvision.models.get_model(name, weights=None).state_dict(), path)
            ours, extra = measured(_OURS, name, path)
            limit, _ = measured(_LIMIT, name, path)
            size = path.stat().st_size
            print(
                f"{name:10} open {ours:.2f} s, mapping + one forward pass {limit:.2f} s: "
                f"{ours / limit:.2f} (wanted: at most 1.3); "
                f"memory {extra / size:.2f} of the file (wanted: at most 1.3)"
            )


if __name__ == "__main__":
    main()
