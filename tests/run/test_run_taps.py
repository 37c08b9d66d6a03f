"""Taps equal what autograd and hand-made hooks give, on networks that write in place."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hooks.hook_networks import NETWORKS, hooks_on, small_swin, small_vgg
from torch import Tensor, nn
from torch.nn import functional

from hookscope.errors import TargetError
from hookscope.layers.addresses import select
from hookscope.layers.outputs import tensors_in
from hookscope.layers.probe import probe
from hookscope.maps.detection import DetectionBoard
from hookscope.maps.segmentation import SegmentationBoard
from hookscope.maps.targets import BinaryBoard
from hookscope.models.labels import Labels
from hookscope.run.capturing.gradients import GradientTap, Target, cross_entropy
from hookscope.run.capturing.taps import ActivationTap


def pictures(count: int = 2) -> Tensor:
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def gradient_tap(model: nn.Module, *layers: str, target: Target | None = None) -> GradientTap:
    seen = probe(model, (32, 32), want_default=False)
    return GradientTap(select(model, layers or ["*"]), seen, target or Target(3), Labels())


def by_autograd(model: nn.Module, x: Tensor, loss: Any) -> dict[Any, Tensor]:
    """(layer, call, item) -> gradient, of the same network without in-place operations."""
    for module in model.modules():
        if hasattr(module, "inplace"):
            module.inplace = False
    outputs: dict[Any, Tensor] = {}
    calls: dict[str, int] = {}

    def keeping(name: str) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            calls[name] = calls.get(name, 0) + 1
            for item, tensor in tensors_in(output):
                tensor.retain_grad()
                outputs[name, calls[name], item] = tensor

        return hook

    hooks = [
        module.register_forward_hook(keeping(name))
        for name, module in model.named_modules()
        if name
    ]
    loss(model(x.clone().requires_grad_())).backward()
    for hook in hooks:
        hook.remove()
    return {key: tensor.grad for key, tensor in outputs.items() if tensor.grad is not None}


LOSSES: dict[str | None, Any] = {
    None: lambda logits: logits[:, 3].sum(),
    "cross-entropy": lambda logits: functional.cross_entropy(
        logits, torch.tensor([3, 3]), reduction="sum"
    ),
}


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("family", ["resnet", "vgg", "vit", "swin"])
def test_gradients_of_all_layers_equal_autograd_in_one_pass_each_way(family, loss, monkeypatch):
    torch.manual_seed(0)
    model = NETWORKS[family]().eval().requires_grad_(False)
    x, hooks = pictures(), hooks_on(model)
    passes: list[str] = []
    original = torch.autograd.grad

    def backward(*args: Any, **kwargs: Any) -> Any:
        passes.append("backward")
        return original(*args, **kwargs)

    counting = model.register_forward_hook(lambda *_: passes.append("forward"))
    with monkeypatch.context() as patch:
        patch.setattr(torch.autograd, "grad", backward)
        taken = gradient_tap(model, target=Target(3, loss)).take(model, x)
    counting.remove()
    assert passes == ["forward", "backward"]
    assert hooks_on(model) == hooks

    expected = by_autograd(model.requires_grad_(True), x, LOSSES[loss])
    found = {(one.layer, one.call, one.item): one.tensor for one in taken.results}
    assert len(found) > 10
    assert set(found) == set(expected)
    for key, gradient in expected.items():
        scale = float(gradient.abs().max())
        assert scale > 0, key
        torch.testing.assert_close(found[key], gradient, rtol=1e-4, atol=1e-5 * scale, msg=str(key))


@torch.no_grad()
def test_without_a_class_it_is_each_pictures_predicted_one():
    torch.manual_seed(0)
    model = NETWORKS["resnet"]().eval()
    x = pictures(6)
    logits = model(x)
    taken = gradient_tap(model, "layer4", target=Target()).take(model, x)
    assert [one["class_index"] for one in taken.about] == logits.argmax(1).tolist()
    assert [one["score"] for one in taken.about] == pytest.approx(logits.amax(1).tolist(), abs=1e-5)
    each = [gradient_tap(model, "layer4", target=Target()).take(model, one[None]) for one in x]
    alone = torch.cat([one.results[0].tensor for one in each])
    torch.testing.assert_close(taken.results[0].tensor, alone)


def test_a_layer_that_the_target_does_not_depend_on_has_a_zero_gradient():
    class TwoHeads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.first = nn.Conv2d(3, 4, 3), nn.Linear(4, 5)
            self.second = nn.Linear(4, 5)

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            features = self.body(x).mean((2, 3))
            return {"logits": self.first(features), "other": self.second(features)}

    model = TwoHeads().eval()
    results = gradient_tap(model).take(model, pictures()).results
    still = {one.layer for one in results if not one.tensor.any()}
    assert still == {"second"}
    taken = gradient_tap(model, target=Target(3, output_key="other")).take(model, pictures())
    assert {one.layer for one in taken.results if not one.tensor.any()} == {"first"}


def test_a_backbone_that_runs_without_gradients_still_has_them():
    class Frozen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, 5)

        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                features = self.body(x)
            return self.head(features.mean((2, 3)))

    model = Frozen().eval()
    (result,) = gradient_tap(model, "body").take(model, pictures()).results
    expected = (model.head.weight[3] / 30**2).view(1, 4, 1, 1).expand(2, 4, 30, 30)
    torch.testing.assert_close(result.tensor, expected.detach())


@torch.no_grad()
@pytest.mark.parametrize("family", ["vgg", "resnet", "swin"])
def test_inputs_are_what_layers_were_given_before_they_change_it(family):
    torch.manual_seed(0)
    model = NETWORKS[family]().eval()
    x = pictures()
    given: dict[Any, Tensor] = {}
    calls: dict[str, int] = {}

    def keeping(name: str) -> Any:
        def hook(module: nn.Module, args: Any) -> None:
            calls[name] = calls.get(name, 0) + 1
            given[name, calls[name]] = args[0].clone()

        return hook

    hooks = [
        module.register_forward_pre_hook(keeping(name))
        for name, module in model.named_modules()
        if name
    ]
    model(x)
    for hook in hooks:
        hook.remove()
    seen = probe(model, (32, 32), want_default=False)
    tap = ActivationTap("input", select(model, ["*"]), seen)
    found = {(one.layer, one.call): one.tensor for one in tap.take(model, x).results}
    assert set(found) == set(given)
    assert all(torch.equal(found[key], given[key]) for key in given)


@torch.no_grad()
def test_the_input_of_an_inplace_relu_still_has_its_negative_values():
    model = small_vgg().eval()
    seen = probe(model, (32, 32), want_default=False)
    tap = ActivationTap("input", select(model, [], ["ReLU"]), seen)
    results = tap.take(model, pictures()).results
    assert len(results) == 3
    assert all(one.tensor.min() < 0 for one in results)


@torch.no_grad()
def test_the_axes_of_an_input_are_those_of_the_output_that_it_was():
    model, x = small_swin().eval(), pictures(3)
    seen = probe(model, (32, 32), want_default=False)
    tap = ActivationTap("input", select(model, ["features.1.0.attn", "features.0.0"]), seen)
    kinds = {}
    for one, address in zip(tap.take(model, x).results, tap.expected, strict=True):
        kinds[one.layer] = tap.axes(address, one.tensor, x).layout.kind
    assert kinds == {"features.0.0": "NCHW", "features.1.0.attn": "NHWC"}


def test_cross_entropy_of_other_kinds_of_scores():
    logit, classes = torch.tensor([0.3, -2.0]), torch.tensor([1, 0])
    torch.testing.assert_close(
        cross_entropy(BinaryBoard(logit), classes),
        functional.binary_cross_entropy_with_logits(logit, classes.float(), reduction="none"),
    )
    pixels = torch.randn(2, 4, 3, 5)
    expected = [-pixels[n].log_softmax(0)[c].mean() for n, c in enumerate(classes)]
    torch.testing.assert_close(
        cross_entropy(SegmentationBoard(pixels), classes), torch.stack(expected)
    )
    one = torch.randn(2, 1, 3, 5)
    signed = torch.stack([one[0, 0], -one[1, 0]])
    torch.testing.assert_close(
        cross_entropy(SegmentationBoard(one), classes), -functional.logsigmoid(signed).mean((1, 2))
    )
    found = {"boxes": torch.zeros(1, 4), "scores": torch.ones(1), "labels": torch.ones(1).long()}
    with pytest.raises(TargetError, match="cross-entropy"):
        cross_entropy(DetectionBoard.of([found]), torch.tensor([1]))
