"""Captured gradients equal full backward hooks where those work, and autograd where they do not."""

from __future__ import annotations

import copy
from collections import defaultdict
from typing import Any

import pytest
import torch
from hook_networks import NETWORKS, hooks_on, small_densenet, small_vgg
from torch import Tensor, nn
from torchvision import models

from hookscope import GradientCapture, LayerNotFoundError
from hookscope.errors import UsageError
from hookscope.hooks.results import Activations
from hookscope.layers.modules import named_layers

Gradients = dict[str, list[tuple[Tensor | None, ...]]]


def weighted(scores: Tensor) -> Tensor:
    return (scores * torch.arange(1.0, 1 + scores.shape[1], dtype=scores.dtype)).sum()


def without_in_place_operations(model: nn.Module) -> nn.Module:
    """The same network for full backward hooks, which in-place operations make raise."""

    def forward(block: Any, x: Tensor) -> Tensor:
        identity = x if block.downsample is None else block.downsample(x)
        inner = block.bn2(block.conv2(block.relu(block.bn1(block.conv1(x)))))
        return block.relu(inner + identity)

    model = copy.deepcopy(model)
    for module in model.modules():
        if hasattr(module, "inplace"):
            module.inplace = False
        if isinstance(module, models.resnet.BasicBlock):
            module.forward = forward.__get__(module)
    return model


def full_backward_hooks(model: nn.Module, x: Tensor) -> tuple[Gradients, Gradients]:
    """Gradients at the outputs and inputs of all layers, a tuple a call, first call first."""
    outputs, inputs = defaultdict(list), defaultdict(list)
    for name, module in named_layers(model).items():

        def keep(module: nn.Module, at_input: Any, at_output: Any, name: str = name) -> None:
            inputs[name].insert(0, at_input)
            outputs[name].insert(0, at_output)

        module.register_full_backward_hook(keep)
    weighted(model(x)).backward()
    return outputs, inputs


def compare(ours: Activations, theirs: Gradients) -> int:
    compared = 0
    for layer, calls in theirs.items():
        for call, gradients in enumerate(calls, 1):
            for index, gradient in enumerate(gradients):
                if gradient is not None:
                    name = f"{layer}@{call}[{index}]"
                    found = ours[name if name in ours else f"{layer}@{call}"]
                    assert torch.allclose(found, gradient, atol=1e-12), name
                    compared += 1
    return compared


@pytest.mark.parametrize("network", ["resnet", "vgg", "vit", "swin"])
def test_gradients_equal_those_of_full_backward_hooks(network: str) -> None:
    torch.manual_seed(0)
    model = NETWORKS[network]().double().eval()
    x = torch.randn(2, 3, 32, 32, dtype=torch.double)
    with GradientCapture(model, "*", "both") as capture:
        weighted(model(x.clone().requires_grad_())).backward()
    assert hooks_on(model) == 0
    oracle = without_in_place_operations(model)
    outputs, inputs = full_backward_hooks(oracle, x.clone().requires_grad_())
    assert compare(capture.outputs, outputs) >= len(outputs) > 5
    assert compare(capture.inputs, inputs) >= len(outputs) > 5


@pytest.mark.parametrize("build", [small_vgg, small_densenet])
def test_where_full_backward_hooks_raise_the_gradient_is_right(build: Any) -> None:
    torch.manual_seed(0)
    model = build().double().eval()
    x = torch.randn(1, 3, 64, 64, dtype=torch.double)
    broken = copy.deepcopy(model)
    with pytest.raises(RuntimeError, match="BackwardHookFunction"):
        full_backward_hooks(broken, x)

    with GradientCapture(model, "features") as capture:
        score = model(x)[0, 3]
        score.backward()
    # By differences: a step along the gradient raises the score by its square norm.
    gradient, step = capture["features"], 1e-6

    def shifted(sign: float) -> float:
        handle = model.features.register_forward_hook(lambda m, a, y: y + sign * step * gradient)
        with torch.no_grad():
            result = model(x)[0, 3].item()
        handle.remove()
        return result

    slope = (shifted(1) - shifted(-1)) / (2 * step)
    assert slope == pytest.approx(gradient.square().sum().item(), rel=1e-6)


def test_parameter_gradients_and_the_output_do_not_change() -> None:
    torch.manual_seed(0)
    for build in NETWORKS.values():
        model = build().double().eval()
        x = torch.randn(2, 3, 32, 32, dtype=torch.double)
        plain = model(x)
        weighted(plain).backward()
        expected = [parameter.grad for parameter in model.parameters()]
        model.zero_grad(set_to_none=True)
        with GradientCapture(model, "*", "both"):
            output = model(x)
            weighted(output).backward()
        assert torch.allclose(output, plain, rtol=0, atol=1e-12)
        for parameter, gradient in zip(model.parameters(), expected, strict=True):
            assert torch.allclose(parameter.grad, gradient, rtol=1e-9, atol=1e-9)


def test_an_input_shared_with_a_skip_connection_counts_this_layer_alone() -> None:
    class Skip(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.same = nn.Identity()
            self.twice = nn.Linear(1, 1, bias=False)
            nn.init.constant_(self.twice.weight, 2.0)

        def forward(self, x: Tensor) -> Tensor:
            return x * 10 + 3 * self.same(x) + self.twice(x)

    model = Skip()
    with GradientCapture(model, "*", "both") as capture:
        model(torch.ones(1, 1, requires_grad=True) * 1).sum().backward()
    assert capture.inputs["same"].item() == 3
    assert capture.outputs["same"].item() == 3
    assert capture.inputs["twice"].item() == 2
    assert capture.outputs["twice"].item() == 1


@pytest.mark.parametrize("what", ["output", "input", "both"])
def test_a_layer_called_for_its_effect_on_its_input(what: Any) -> None:
    class Statement(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(3, 3)
            self.relu = nn.ReLU(inplace=True)
            self.last = nn.Linear(3, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            self.relu(x)
            return self.last(x)

    torch.manual_seed(0)
    model = Statement()
    x = torch.randn(5, 3)
    plain = model(x)
    hidden = model.first(x)
    at_output = model.last.weight.expand(5, 3)
    with GradientCapture(model, "relu", what) as capture:
        output = model(x)
        output.sum().backward()
    assert torch.equal(output, plain)
    if what != "input":
        assert torch.allclose(capture.outputs["relu"], at_output)
    if what != "output":
        assert torch.allclose(capture.inputs["relu"], at_output * (hidden > 0))


def test_calls_and_items_are_named_as_activations_are() -> None:
    model = models.resnet18(num_classes=3).eval()
    with GradientCapture(model, ["layer1.0.relu", "layer4"]) as capture:
        model(torch.randn(1, 3, 64, 64)).sum().backward()
    assert list(capture) == ["layer1.0.relu@1", "layer1.0.relu@2", "layer4"]
    assert torch.equal(capture["layer1.0.relu"], capture["layer1.0.relu@2"])
    lstm = nn.Sequential(nn.LSTM(3, 4))
    with GradientCapture(lstm, "0") as capture:
        output, (hidden, _) = lstm(torch.randn(5, 2, 3))
        (output.sum() + 2 * hidden.sum()).backward()
    assert list(capture) == ["0[0]", "0[1][0]"]
    assert (capture["0[0]"] == 1).all()
    assert (capture["0[1][0]"] == 2).all()


def test_frozen_models_are_explained_without_touching_a_parameter() -> None:
    torch.manual_seed(0)
    model = small_vgg().eval()
    x = torch.randn(1, 3, 32, 32)
    with GradientCapture(model, "features.*", "both") as expected:
        model(x).sum().backward()
    frozen = copy.deepcopy(model).requires_grad_(False)
    frozen.zero_grad()
    with GradientCapture(frozen, "features.*", "both") as capture:
        frozen(x).sum().backward()
    assert list(capture) == list(expected)
    for name in expected:
        assert torch.allclose(capture[name], expected[name], atol=1e-6)
    assert all(not p.requires_grad and p.grad is None for p in frozen.parameters())
    assert capture.inputs["features.0"].shape == x.shape
    assert not x.requires_grad


def test_without_a_gradient_there_is_none() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    capture = GradientCapture(model, "0", "both")
    with torch.no_grad():
        model(torch.randn(1, 3))
    assert len(capture) == 0
    with pytest.raises(LayerNotFoundError, match="'0'"):
        capture["0"]
    model(torch.randn(1, 3)).sum().backward()
    first = capture["0"]
    model(torch.randn(1, 3))
    assert len(capture) == 0, "a new pass replaces the last"
    assert first.shape == (1, 2)
    capture.remove()
    capture.remove()
    assert hooks_on(model) == 0


def test_the_last_of_several_backward_passes_counts_and_its_graph_can_be_kept() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Tanh())
    with GradientCapture(model, "0", detach=False) as capture:
        output = model(torch.randn(1, 3))
        output[0, 0].backward(retain_graph=True)
        assert capture["0"][0, 1] == 0
        torch.autograd.grad(output[0, 1], model[0].weight, create_graph=True)
    assert capture["0"][0, 0] == 0
    assert capture["0"].requires_grad


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_hooks_are_gone_after_an_exception(error: type[BaseException]) -> None:
    model = nn.Sequential(nn.Linear(3, 2))
    with pytest.raises(error), GradientCapture(model, "0", "both"):
        raise error("in the block")
    assert hooks_on(model) == 0


def test_a_registration_that_fails_half_way_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("no hooks here")

    monkeypatch.setattr(model[1], "register_forward_pre_hook", refuse)
    with pytest.raises(RuntimeError, match="no hooks here"):
        GradientCapture(model, ["0", "1"])
    assert hooks_on(model) == 0
    with pytest.raises(UsageError, match="'outputs'"):
        GradientCapture(model, "0", "outputs")  # type: ignore[arg-type]


def test_gradients_under_autocast_have_the_type_of_the_tensor() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))
    x = torch.randn(2, 3)
    with GradientCapture(model, "0") as capture:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            scores = model(x)
        scores.float().sum().backward()
    assert capture["0"].dtype is torch.bfloat16
    with GradientCapture(model, "0") as exact:
        model(x).sum().backward()
    assert torch.allclose(capture["0"].float(), exact["0"], atol=0.02)
