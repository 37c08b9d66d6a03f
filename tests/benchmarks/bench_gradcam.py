"""How much a heatmap costs: ratios to a plain forward pass, and to other libraries, in one run.

Run with ``python tests/benchmarks/bench_gradcam.py [--quick]``. Every row is measured in turn with
the forward pass that it is divided by, so that a busy machine disturbs both alike; the medians are
compared.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from torch import Tensor, nn
from torchvision import models

from hookscope.gradcam import explain, gradcam

GRADIENT_METHODS = ("gradcam", "gradcam++", "hirescam", "xgradcam", "layercam", "eigengradcam")
MODELS = {
    "resnet18": "layer4",
    "mobilenet_v2": "features",
    "swin_t": "norm",
    "vit_b_16": "encoder.layers.encoder_layer_11.ln_1",
}
Work = Callable[[], object]


def in_turn(works: dict[str, Work], rounds: int) -> dict[str, float]:
    """Median seconds of each, measured alternately."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(rounds + 1):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            if turn:  # the first round warms up
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def report(title: str, measured: dict[str, float], base: str, targets: dict[str, str]) -> None:
    print(f"\n{title}")
    for name, seconds in measured.items():
        ratio = seconds / measured[base]
        print(f"  {name:34} {seconds * 1000:9.1f} ms   {ratio:7.2f} x   {targets.get(name, '')}")


def forward(model: nn.Module, x: Tensor) -> Work:
    def work() -> None:
        with torch.inference_mode():
            model(x)

    return work


def captum_work(model: nn.Module, layer: str, x: Tensor) -> Work:
    from captum.attr import LayerGradCam

    explainer = LayerGradCam(model, model.get_submodule(layer))

    def work() -> None:
        with torch.no_grad():
            target = model(x).argmax(1)
        explainer.attribute(x, target=target, relu_attributions=True)

    return work


def torchcam_work(model: nn.Module, layer: str, x: Tensor) -> Work:
    from torchcam.methods import GradCAM

    def work() -> None:
        with GradCAM(model, layer) as explainer:
            scores = model(x)
            explainer(scores.argmax(1).tolist(), scores)

    return work


def peer_work(name: str, model: nn.Module, layer: str, x: Tensor) -> Work:
    import pytorch_grad_cam

    def work() -> None:
        method = getattr(pytorch_grad_cam, name)
        quiet = contextlib.redirect_stderr(io.StringIO())  # its progress bars
        with quiet, method(model=model, target_layers=[model.get_submodule(layer)]) as explainer:
            explainer(x, None)

    return work


def gradients(rounds: int, batch_size: int) -> None:
    for name, layer in MODELS.items():
        model = models.get_model(name).eval()
        if name == "vit_b_16":
            nn.init.normal_(model.heads.head.weight)
        x = torch.randn(batch_size, 3, 224, 224)
        works: dict[str, Work] = {"forward": forward(model, x)}
        for method in GRADIENT_METHODS:
            works[method] = lambda method=method, model=model, x=x, layer=layer: gradcam(
                model, x, layer, method=method
            )
        works["three classes"] = lambda model=model, x=x, layer=layer: explain(
            model, x, layers=[layer], top_k=3
        )
        if name == "resnet18":
            works["captum"] = captum_work(model, layer, x)
            works["torchcam"] = torchcam_work(model, layer, x)
            works["pytorch-grad-cam"] = peer_work("GradCAM", model, layer, x)
        targets = dict.fromkeys(GRADIENT_METHODS, "at most 1.25")
        targets |= {"gradcam": "at most 1.2", "three classes": "at most 1.6"}
        measured = in_turn(works, rounds)
        report(f"{name}, {layer}, batch of {batch_size}", measured, "forward", targets)


def perturbations(rounds: int, side: int) -> None:
    model = models.resnet18().eval()
    x = torch.randn(1, 3, side, side)
    for ours, theirs, target in (
        ("ablationcam", "AblationCAM", "at most 0.1"),
        ("scorecam", "ScoreCAM", "at most 1"),
    ):
        works: dict[str, Work] = {
            f"pytorch-grad-cam {theirs}": peer_work(theirs, model, "layer4", x),
            ours: lambda ours=ours: gradcam(model, x, "layer4", method=ours),
        }
        base = next(iter(works))
        report(f"resnet18, layer4, {side} x {side}", in_turn(works, rounds), base, {ours: target})


def wide(channels: int) -> nn.Module:
    """One convolution to so many 7 x 7 maps: they are all that grows."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, channels, 32, 32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(channels, 10),
    ).eval()


def peak_of_scorecam(channels: int) -> int:
    """Bytes that scorecam's process has at most beyond those before it began."""
    model, x = wide(channels), torch.randn(1, 3, 224, 224)
    with torch.inference_mode():
        model(x.expand(16, -1, -1, -1))  # what a plain batch of the same size takes
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    gradcam(model, x, "0", method="scorecam")
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024


def memory() -> None:
    print("\nscorecam, peak memory beyond a plain batch of 16 (must not grow with the channels)")
    for channels in (64, 512, 4096):
        command = [sys.executable, __file__, "--peak", str(channels)]
        peak = int(subprocess.run(command, capture_output=True, check=True).stdout)
        print(f"  {channels:5} channels {peak / 2**20:28.1f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds, small pictures")
    parser.add_argument("--peak", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak:
        print(peak_of_scorecam(arguments.peak))
        return
    quick = arguments.quick
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    gradients(5 if quick else 15, 1)
    if not quick:
        gradients(5, 16)
    memory()
    perturbations(1 if quick else 3, 64 if quick else 224)


if __name__ == "__main__":
    main()
