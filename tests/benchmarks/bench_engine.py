"""Pictures a second through whole commands, against what the cores allow and against peers.

Every contender runs in a process of its own over the same photographs, one after the other, the
best of several rounds; only ratios are compared with what is wanted, and nothing fails on them.

Run: python tests/benchmarks/bench_engine.py [--pictures 300] [--rounds 3] [--smoke]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
CONTENDERS = Path(__file__).parent / "engine_contenders.py"
PEERS_TAKE = 100  # pictures: peers are slow, and their rate is the same for more
MODELS = {"mobilenet_v2": "IMAGENET1K_V1", "resnet18": "none"}


@dataclass(frozen=True)
class Measured:
    """Of the best round."""

    rate: float
    """Pictures a second, the building of the network included."""
    peak: float
    """MB."""


@dataclass(frozen=True)
class Wanted:
    """``ours`` should be ``at_least`` times as fast as ``other``."""

    ours: str
    other: str
    at_least: float
    says: str


RATIOS = (
    Wanted("gradcam", "limit", 0.85, "gradcam, of what the cores allow"),
    Wanted("gradcam", "grad-cam", 4.0, "gradcam, pytorch-grad-cam in a loop"),
    Wanted("gradcam-jpg", "grad-cam", 5.0, "gradcam --format jpg, the same loop"),
    Wanted("pool", "limit-no-files", 0.9, "capture --pool mean, of what the cores allow"),
    Wanted("pool", "extractor", 1.7, "capture --pool mean, feature extractor in a DataLoader"),
    Wanted("early", "limit-no-files", 1.0, "capture of an early layer, bare forward pass"),
)


def photographs(folder: Path, count: int) -> None:
    """JPEGs of the size that photographs in ImageNet have, no two alike."""
    from PIL import Image, ImageEnhance

    folder.mkdir()
    originals = [
        Image.open(path).convert("RGB") for path in sorted(ROOT.glob("sample_images/*.??g"))
    ]
    draw = random.Random(0)
    for number in range(count):
        picture = originals[number % len(originals)].resize((560, 420))
        left, top = draw.randrange(60), draw.randrange(45)
        picture = picture.crop((left, top, left + 500, top + 375))
        if draw.random() < 0.5:
            picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        picture = ImageEnhance.Brightness(picture).enhance(0.6 + 0.8 * draw.random())
        picture.save(folder / f"photo{number}.jpg", quality=90)


def measure(contender: str, model: str, folder: Path, pictures: int) -> Measured:
    """One run in a process of its own."""
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, str(CONTENDERS), contender, model, MODELS[model]]
        command += [str(folder), str(pictures), out]
        environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise SystemExit(f"{contender} failed:\n{ran.stderr}")
    found = json.loads(ran.stdout.splitlines()[-1])
    return Measured(found["pictures"] / found["seconds"], found["peak"])


def speed(model: str, folder: Path, pictures: int, rounds: int) -> None:
    names = dict.fromkeys(name for wanted in RATIOS for name in (wanted.ours, wanted.other))
    best: dict[str, Measured] = {}
    for _ in range(rounds):
        for name in names:
            take = min(pictures, PEERS_TAKE) if name in ("grad-cam", "extractor") else pictures
            found = measure(name, model, folder, take)
            if name not in best or found.rate > best[name].rate:
                best[name] = found
    print(f"\n{model}, {pictures} pictures          pictures/s    peak MB")
    for name, found in best.items():
        print(f"  {name:32} {found.rate:8.1f} {found.peak:10.0f}")
    print("  ratio                                 found     wanted")
    for wanted in RATIOS:
        ratio = best[wanted.ours].rate / best[wanted.other].rate
        mark = "" if ratio >= wanted.at_least else "   <--"
        print(f"  {wanted.says:56} {ratio:5.2f} {wanted.at_least:6.2f}{mark}")


def memory(model: str, folder: Path, few: int, many: int) -> None:
    print(f"\npeak memory, {many} pictures over {few} ({model}; wanted: at most 1.05)")
    for name in ("gradcam", "pool"):
        less = measure(name, model, folder, few).peak
        more = measure(name, model, folder, many).peak
        print(f"  {name:10} {more:.0f} / {less:.0f} MB = {more / less:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pictures", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--memory", type=int, nargs=2, default=(100, 3000), metavar=("FEW", "MANY"))
    parser.add_argument("--smoke", action="store_true", help="whether it runs; no more than that")
    options = parser.parse_args()
    if options.smoke:
        options.pictures, options.rounds, options.memory = 8, 1, (8, 16)
        options.models = options.models[:1]
        print("smoke: the ratios of so few pictures mean nothing")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "photos")
        photographs(folder, max(options.pictures, *options.memory))
        for model in options.models:
            speed(model, folder, options.pictures, options.rounds)
        memory(options.models[0], folder, *options.memory)


if __name__ == "__main__":
    main()
