"""Only what was asked for is copied, and the graph is kept or left alone as asked."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hook_networks import hooks_on, small_swin, small_vgg
from torch import Tensor, nn
from torchvision import models

from hookscope import ActivationCapture
from hookscope.errors import UsageError
from hookscope.layers.outputs import tensors_in


@dataclass
class Result:
    scores: Tensor
    boxes: list[Tensor]
    note: str = "no tensor"


class Make(nn.Module):
    def __init__(self, make: Any) -> None:
        super().__init__()
        self.make = make

    def forward(self, x: Tensor) -> Any:
        return self.make(x)


def test_only_the_wanted_channels_are_copied() -> None:
    model = models.resnet18().eval()
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad(), ActivationCapture(model, ["conv1"]) as whole:
        model(x)
    with torch.no_grad(), ActivationCapture(model, ["conv1"], channels=[5, 0]) as some:
        model(x)
    assert torch.equal(some["conv1"], whole["conv1"][:, [5, 0]])
    assert some["conv1"].untyped_storage().nbytes() == 2 * 2 * 32 * 32 * 4
    capture = ActivationCapture(model, "conv1", channels=[64])
    with capture, pytest.raises(UsageError, match="conv1 has no channel 64"):
        model(x)
    assert hooks_on(model) == 0


def test_channels_of_other_layouts_are_on_the_axis_that_is_given() -> None:
    model = small_swin().eval()
    x = torch.randn(1, 3, 32, 32)
    with torch.no_grad(), ActivationCapture(model, "features.1") as whole:
        model(x)
    axes = {"features.1": -1}
    with (
        torch.no_grad(),
        ActivationCapture(model, "features.1", channels=[3], channel_axis=axes) as one,
    ):
        model(x)
    assert torch.equal(one["features.1"], whole["features.1"][..., [3]])


def test_keep_gets_the_live_tensor_and_its_result_is_safe() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(inplace=True))
    x = torch.randn(2, 3, 5, 5)
    with ActivationCapture(model, "0") as whole:
        model(x)
    with ActivationCapture(model, "0", keep=lambda live: live.tensor.mean((2, 3))) as pooled:
        model(x)
    assert torch.equal(pooled["0"], whole["0"].mean((2, 3)))
    assert not pooled["0"].requires_grad
    with ActivationCapture(model, "0", keep=lambda live: live.tensor[:, :2]) as view:
        model(x)
    assert torch.equal(view["0"], whole["0"][:, :2])


def test_detached_copies_are_no_part_of_the_graph_and_change_no_gradient() -> None:
    torch.manual_seed(0)
    model = small_vgg().eval()
    x = torch.randn(1, 3, 32, 32)
    model(x).sum().backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    for detach in (True, False):
        model.zero_grad()
        with ActivationCapture(model, "*", detach=detach) as capture:
            model(x).sum().backward()
        assert all(tensor.requires_grad is not detach for tensor in capture.activations.values())
        for parameter, gradient in zip(model.parameters(), expected, strict=True):
            assert torch.equal(parameter.grad, gradient)


def test_undetached_outputs_are_on_the_way_to_the_loss() -> None:
    torch.manual_seed(0)
    model = small_vgg().double().eval()
    x = torch.randn(1, 3, 32, 32, dtype=torch.double)
    convolutions = [name for name, m in model.named_modules() if isinstance(m, nn.Conv2d)]
    with ActivationCapture(model, convolutions, detach=False) as capture:
        score = model(x)[0, 1]
    gradients = torch.autograd.grad(score, list(capture.activations.values()))
    # Independent: feed each convolution's output, as a leaf, to the rest of the network.
    for name, gradient in zip(convolutions, gradients, strict=True):
        index = int(name.split(".")[1])
        leaf = capture[name].detach().clone().requires_grad_()
        rest = model.features[index + 1 :](leaf.clone())
        rest = model.classifier(torch.flatten(model.avgpool(rest), 1))
        assert torch.allclose(torch.autograd.grad(rest[0, 1], leaf)[0], gradient, atol=1e-12)


def test_a_structure_keeps_its_class_when_its_tensors_go_onward_as_copies() -> None:
    weight = nn.Parameter(torch.ones(3))
    for make in (
        lambda x: Result(x * weight, [x * weight]),
        lambda x: torch.max(x * weight, dim=0),
        lambda x: OrderedDict(a=x * weight, b=2),
        lambda x: [x * weight, (x * weight,)],
    ):
        model = Make(lambda x: x)
        model.head = Make(make)
        model.make = model.head
        x = torch.ones(2, 3)
        plain = model(x)
        with ActivationCapture(model, "head", detach=False) as capture:
            output = model(x)
        assert type(output) is type(plain)
        loss = sum(tensor.sum() for _, tensor in tensors_in(output) if tensor.requires_grad)
        kept = [tensor for tensor in capture.activations.values() if tensor.requires_grad]
        assert all((g == 1).all() for g in torch.autograd.grad(loss, kept))


def test_half_precision_under_autocast_is_kept_as_it_is() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True))
    with ActivationCapture(model, "0") as capture, torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(torch.randn(2, 3))
    assert capture["0"].dtype is output.dtype is torch.bfloat16
