"""The contenders of bench_engine.py: one of them, once, in this process.

Run: python engine_contenders.py CONTENDER MODEL WEIGHTS FOLDER PICTURES OUT
Prints a line of JSON: the seconds from after the imports to the last file, and the peak memory.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import itertools
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import torchvision
from PIL import Image
from torch import Tensor, nn

CORES = len(os.sched_getaffinity(0))
BATCH = 4
EARLY = {"mobilenet_v2": "features.1", "resnet18": "layer1.0.conv1"}
LAST = {"mobilenet_v2": "features", "resnet18": "layer4"}


def network(model: str, weights: str) -> tuple[nn.Module, Callable[[Image.Image], Tensor]]:
    torch.manual_seed(0)
    entries = torchvision.models.get_model_weights(model)
    entry = None if weights == "none" else entries[weights]
    built = torchvision.models.get_model(model, weights=entry).eval()
    return built, (entry or entries.DEFAULT).transforms()


def limit(files: list[Path], out: Path, model: str, weights: str, *, encode: bool) -> None:
    """What the cores allow: whole chains side by side, and nothing that is not needed."""
    built, preset = network(model, weights)

    def chain(batch: tuple[Path, ...]) -> None:
        pictures = [Image.open(path).convert("RGB") for path in batch]
        with torch.inference_mode():
            built(torch.stack([preset(picture) for picture in pictures]))
        for path, picture in zip(batch, pictures, strict=True) if encode else ():
            picture.save(out / f"{path.stem}.png", compress_level=1, compress_type=3)

    with ThreadPoolExecutor(CORES, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        list(pool.map(chain, _batches(files)))


def grad_cam(files: list[Path], out: Path, model: str, weights: str) -> None:
    """pytorch-grad-cam as its README shows it, and OpenCV's PNG writer, the fastest for it."""
    import cv2
    import numpy as np
    from pytorch_grad_cam import GradCAM
    from pytorch_grad_cam.utils.image import show_cam_on_image

    built, preset = network(model, weights)
    cam = GradCAM(model=built, target_layers=[built.get_submodule(LAST[model])])
    for path in files:
        picture = Image.open(path).convert("RGB")
        heat = cam(input_tensor=preset(picture)[None], targets=None)[0]
        scene = np.asarray(picture, dtype=np.float32) / 255
        heat = cv2.resize(heat, picture.size)
        drawn = show_cam_on_image(scene, heat, use_rgb=True)
        cv2.imwrite(str(out / f"{path.stem}.png"), cv2.cvtColor(drawn, cv2.COLOR_RGB2BGR))


class Photographs(torch.utils.data.Dataset[Tensor]):
    def __init__(self, files: list[Path], preset: Callable[[Image.Image], Tensor]) -> None:
        self.files, self.preset = files, preset

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Tensor:
        return self.preset(Image.open(self.files[index]).convert("RGB"))


def extractor(files: list[Path], out: Path, model: str, weights: str) -> None:
    """torchvision's feature extractor and as many loading processes as there are cores."""
    import numpy as np
    from torchvision.models.feature_extraction import create_feature_extractor

    built, preset = network(model, weights)
    taker = create_feature_extractor(built, {LAST[model]: "maps"})
    loader = torch.utils.data.DataLoader(
        Photographs(files, preset), batch_size=32, num_workers=CORES
    )
    with torch.inference_mode():
        rows = [taker(batch)["maps"].mean((2, 3)) for batch in loader]
    np.save(out / "maps.npy", torch.cat(rows).numpy())


def ours(files: list[Path], out: Path, model: str, weights: str, *command: str) -> None:
    from hookscope.cli.app import run

    flags = ["-m", model, "-w", weights, "-o", str(out), "-q"]
    given = "\n".join(map(str, files))
    sys.stdin = io.TextIOWrapper(io.BytesIO(given.encode()))
    with contextlib.redirect_stdout(io.StringIO()):
        code = run([*command, *flags, "-"])
    assert code == 0


def _batches(files: list[Path]) -> Iterator[tuple[Path, ...]]:
    waiting = iter(files)
    while batch := tuple(itertools.islice(waiting, BATCH)):
        yield batch


def _import_ours() -> None:
    """So that nobody pays for imports while the clock runs."""
    from hookscope.cli.app import run

    with contextlib.redirect_stdout(io.StringIO()):
        run(["--version"])
    for name in ("capturing.job", "capturing.embedding", "engine", "explaining.job"):
        importlib.import_module(f"hookscope.run.{name}")


def main() -> None:
    contender, model, weights, folder, pictures, out = sys.argv[1:]
    files = sorted(Path(folder).iterdir(), key=lambda path: int(path.stem[5:]))[: int(pictures)]
    arguments = files, Path(out), model, weights
    contenders: dict[str, Callable[[], None]] = {
        "limit": lambda: limit(*arguments, encode=True),
        "limit-no-files": lambda: limit(*arguments, encode=False),
        "grad-cam": lambda: grad_cam(*arguments),
        "extractor": lambda: extractor(*arguments),
        "gradcam": lambda: ours(*arguments, "gradcam"),
        "gradcam-jpg": lambda: ours(*arguments, "gradcam", "--format", "jpg"),
        "pool": lambda: ours(*arguments, "capture", "--pool", "mean", "-l", LAST[model]),
        "early": lambda: ours(*arguments, "capture", "-l", EARLY[model]),
    }
    _import_ours()
    if contender == "grad-cam":
        import pytorch_grad_cam  # noqa: F401
    start, used = time.perf_counter(), time.process_time()
    contenders[contender]()
    seconds, cpu = time.perf_counter() - start, time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"pictures": len(files), "seconds": seconds, "cpu": cpu, "peak": peak}))


if __name__ == "__main__":
    main()
