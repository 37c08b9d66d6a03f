"""What a command costs before and around its work: whole processes, as ratios in one run."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SAMPLE = Path(__file__).parents[2] / "sample_images" / "chelsea.png"
ROUNDS = 7


def seconds(arguments: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(arguments, check=True, capture_output=True)
    return time.perf_counter() - start


def ratio(command: list[str], peer: list[str]) -> tuple[float, float]:
    """Medians over interleaved rounds: seconds of ``command``, and its ratio to ``peer``."""
    seconds(command), seconds(peer)
    pairs = [(seconds(command), seconds(peer)) for _ in range(ROUNDS)]
    return (
        statistics.median(mine for mine, _ in pairs),
        statistics.median(mine / other for mine, other in pairs),
    )


def main() -> None:
    hookscope = [sys.executable, "-m", "hookscope"]
    shell = [sys.executable, "-c", "import typer, rich"]
    torch = [sys.executable, "-c", "import torch, torchvision"]
    with tempfile.TemporaryDirectory() as out:
        one = [*hookscope, "gradcam", str(SAMPLE), "-m", "mobilenet_v2", "-w", "IMAGENET1K_V1"]
        rows = [
            ("--help", [*hookscope, "--help"], shell, "import typer, rich", 2.5),
            ("--version", [*hookscope, "--version"], shell, "import typer, rich", 2.5),
            ("gradcam --help", [*hookscope, "gradcam", "--help"], shell, "import typer, rich", 5.0),
            ("gradcam PICTURE", [*one, "-o", out], torch, "import torch, torchvision", 1.3),
        ]
        for name, command, peer, peer_name, wanted in rows:
            took, times = ratio(command, peer)
            print(f"{name:16} {took:6.2f} s  {times:5.2f} x {peer_name}  (at most {wanted} wanted)")


if __name__ == "__main__":
    main()
