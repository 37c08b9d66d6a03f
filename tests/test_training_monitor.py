"""The gradient monitor's norms are those that autograd gives, and its verdicts fit the networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torchvision import models

from hookscope import GradientCapture
from hookscope.errors import UsageError
from hookscope.training import GradientMonitor


def convolutions() -> nn.Module:
    """In-place ReLUs, batch norm, and one module that runs twice."""
    relu = nn.ReLU(inplace=True)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), relu, nn.Conv2d(4, 5, 3), relu, nn.Flatten(),
        nn.Linear(5 * 4 * 4, 3),
    )  # fmt: skip


def deep(depth: int, activation: type[nn.Module], gain: float) -> nn.Module:
    layers: list[nn.Module] = []
    for _ in range(depth):
        linear = nn.Linear(32, 32)
        nn.init.normal_(linear.weight, 0, gain / 32**0.5)
        layers += [linear, activation()]
    return nn.Sequential(*layers, nn.Linear(32, 5))


def backward(model: nn.Module, x: Tensor) -> None:
    scores = model(x)
    classes = torch.arange(len(x)) % scores.shape[1]
    nn.functional.cross_entropy(scores, classes).backward()


def test_norms_equal_those_of_the_gradients() -> None:
    torch.manual_seed(0)
    model = convolutions()
    owners = [
        name
        for name, m in model.named_modules()
        if next(m.parameters(recurse=False), None) is not None
    ]
    with GradientMonitor(model) as monitor, GradientCapture(model, owners) as capture:
        expected: dict[str, list[list[float]]] = {"parameters": [], "outputs": []}
        for _ in range(3):
            model.zero_grad()
            backward(model, torch.randn(2, 3, 8, 8))
            layers = [model.get_submodule(name) for name in owners]
            expected["parameters"].append(
                [
                    torch.cat([p.grad.flatten() for p in m.parameters()]).norm().item()
                    for m in layers
                ]
            )
            expected["outputs"].append([capture[name].norm().item() for name in owners])
    history = monitor.history()
    assert history.layers == tuple(owners)
    assert history.steps.tolist() == [0, 1, 2]
    assert np.allclose(history.parameters, expected["parameters"], rtol=1e-5)
    assert np.allclose(history.outputs, expected["outputs"], rtol=1e-5)
    assert monitor.verdict()


def test_training_is_the_same_with_a_monitor() -> None:
    def trained(watch: bool) -> list[Tensor]:
        torch.manual_seed(0)
        model = convolutions()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        monitor = GradientMonitor(model, every=2) if watch else None
        for _ in range(5):
            optimizer.zero_grad()
            backward(model, torch.randn(2, 3, 8, 8))
            optimizer.step()
        if monitor is not None:
            assert monitor.history().steps.tolist() == [0, 2, 4]
            monitor.remove()
            monitor.remove()
            assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())
            assert all(not p._backward_hooks for p in model.parameters())
        return list(model.parameters())

    assert all(torch.equal(a, b) for a, b in zip(trained(True), trained(False), strict=True))


def test_nothing_is_recorded_after_the_block_nor_without_gradients() -> None:
    model = convolutions()
    x = torch.randn(2, 3, 8, 8)
    with GradientMonitor(model) as monitor:
        with torch.no_grad():
            model(x)
        scores = model(x)
    scores.sum().backward()
    backward(model, x)
    assert len(monitor.history().steps) == 0
    assert monitor.verdict().kind == "no data"


def test_a_backward_pass_that_failed_does_not_disturb_the_next() -> None:
    model = convolutions()
    x = torch.randn(2, 3, 8, 8)

    class Bomb(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Tensor:
            raise ValueError("boom")

    with GradientMonitor(model) as monitor:
        handle = model[0].register_forward_hook(lambda module, args, output: Bomb.apply(output))
        with pytest.raises(ValueError, match="boom"):
            backward(model, x)
        handle.remove()
        backward(model, x)
        backward(model, x)
    history = monitor.history()
    assert history.steps.tolist()[-2:] == [1, 2]
    assert not np.isnan(history.parameters[-2:]).any()


def test_layers_named_exactly_have_all_that_is_in_them() -> None:
    model = models.resnet18(num_classes=5)
    with GradientMonitor(model, ["layer4", "fc", "layer3.0.conv?"]) as monitor:
        backward(model, torch.randn(2, 3, 32, 32))
    history = monitor.history()
    assert history.layers == ("layer3.0.conv1", "layer3.0.conv2", "layer4", "fc")
    total = sum(p.grad.square().sum() for p in model.layer4.parameters()).sqrt()
    assert history.parameters[0, 2] == pytest.approx(total.item(), rel=1e-5)


@pytest.mark.parametrize(
    ("depth", "activation", "gain", "kind"),
    [
        (12, nn.Sigmoid, 1.0, "vanishing"),
        (12, nn.ReLU, 5.0, "exploding"),
        (12, nn.ReLU, 2**0.5, "healthy"),
        (12, nn.Tanh, 1.0, "healthy"),
    ],
)
def test_verdicts_on_deep_networks(
    depth: int, activation: type[nn.Module], gain: float, kind: str
) -> None:
    torch.manual_seed(0)
    model = deep(depth, activation, gain)
    with GradientMonitor(model) as monitor:
        for _ in range(3):
            backward(model, torch.randn(16, 32))
    verdict = monitor.verdict()
    assert verdict.kind == kind, verdict.message
    assert bool(verdict) is (kind == "healthy")
    assert "from 24 (" in verdict.message
    assert "to 0 (" in verdict.message


@pytest.mark.parametrize(
    "build",
    [
        lambda: models.resnet18(num_classes=5),
        lambda: models.mobilenet_v2(num_classes=5),
        lambda: models.DenseNet(8, (2, 2), 16, num_classes=5),
    ],
)
def test_ordinary_networks_are_healthy_at_their_initialisation(build: Any) -> None:
    torch.manual_seed(0)
    model = build()
    with GradientMonitor(model) as monitor:
        backward(model, torch.randn(4, 3, 64, 64))
    assert monitor.verdict(), monitor.verdict().message


def test_the_first_layer_that_is_not_finite_is_named() -> None:
    model = deep(4, nn.ReLU, 1.0)
    with GradientMonitor(model) as monitor:
        backward(model, torch.randn(4, 32))
        model[4].weight.data[0, 0] = float("nan")
        backward(model, torch.randn(4, 32))
    verdict = monitor.verdict()
    assert verdict.kind == "not finite"
    assert "step 1" in verdict.message
    monitor.clear()
    assert monitor.verdict().kind == "no data"


def test_a_frozen_layer_has_no_column_and_an_unused_one_no_number() -> None:
    model = deep(3, nn.ReLU, 1.0)
    model.unused = nn.Linear(2, 2)
    model.forward = lambda x: nn.Sequential(*list(model.children())[:-1])(x)
    model[0].requires_grad_(False)
    with GradientMonitor(model) as monitor:
        backward(model, torch.randn(4, 32))
    history = monitor.history()
    assert history.layers == ("2", "4", "6", "unused")
    assert np.isnan(history.parameters[0]).tolist() == [False, False, False, True]


def test_the_plot_is_a_figure_of_all_layers() -> None:
    model = deep(3, nn.ReLU, 1.0)
    with GradientMonitor(model) as monitor:
        monitor.plot()
        for _ in range(2):
            backward(model, torch.randn(4, 32))
    axes = monitor.plot().axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "2", "4", "6"]
    first, last = (line.get_ydata() for line in axes.get_lines())
    assert np.allclose(first, monitor.history().outputs[0])
    assert np.allclose(last, monitor.history().outputs[1])
    assert axes.get_yscale() == "log"


def test_tensorboard_reads_the_norms_back(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    model = deep(2, nn.ReLU, 1.0)
    with (
        SummaryWriter(str(tmp_path)) as writer,
        GradientMonitor(model, every=2, writer=writer) as monitor,
    ):
        for _ in range(4):
            backward(model, torch.randn(4, 32))
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    scalars = events.Scalars("gradients/2")
    assert [scalar.step for scalar in scalars] == [0, 2]
    column = monitor.history().layers.index("2")
    written = [scalar.value for scalar in scalars]
    assert np.allclose(written, monitor.history().parameters[:, column])
    assert len(events.Scalars("gradients at outputs/0")) == 2


def test_compiled_models_stay_compiled_and_only_parameters_are_watched() -> None:
    torch.manual_seed(0)
    model = deep(2, nn.ReLU, 1.0)
    x = torch.randn(4, 32)
    compiled = torch.compile(model, backend="aot_eager")
    with GradientMonitor(model) as plain:
        backward(model, x)
    model.zero_grad()
    with GradientMonitor(compiled) as monitor:
        backward(compiled, x)
    assert all(not module._forward_hooks for module in compiled.modules())
    assert np.allclose(monitor.history().parameters, plain.history().parameters, rtol=1e-4)
    assert np.isnan(monitor.history().outputs).all()
    assert monitor.verdict().kind == plain.verdict().kind


def test_mixed_precision_on_the_cpu() -> None:
    torch.manual_seed(0)
    model = deep(3, nn.ReLU, 2**0.5)
    x = torch.randn(8, 32)
    with GradientMonitor(model) as exact:
        backward(model, x)
    with GradientMonitor(model) as monitor, torch.autocast("cpu", dtype=torch.bfloat16):
        backward(model, x)
    history = monitor.history()
    assert history.parameters.dtype == np.float32
    assert np.allclose(history.parameters, exact.history().parameters, rtol=0.1)
    assert np.allclose(history.outputs, exact.history().outputs, rtol=0.1)


def test_every_must_be_a_whole_number_above_zero() -> None:
    with pytest.raises(UsageError, match="every=0"):
        GradientMonitor(convolutions(), every=0)
