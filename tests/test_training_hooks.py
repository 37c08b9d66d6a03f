"""Clipping equals torch's own, bad inputs stop at their layer, and a student learns from hints."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from hookscope import ActivationCapture, HookscopeError
from hookscope.errors import LayerNotFoundError, UsageError
from hookscope.training import BadInputError, check_inputs, clip_gradients


class Tokens(nn.Module):
    """A parameter of the model's own beside those of its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.position = nn.Parameter(torch.randn(1, 8))
        self.block = nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Linear(8, 8))
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(x + self.position))


def backward(model: nn.Module, x: Tensor) -> list[Tensor]:
    model.zero_grad()
    (model(x) ** 2).sum().backward()
    return [parameter.grad for parameter in model.parameters()]


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return Tokens()


@pytest.fixture
def x() -> Tensor:
    return torch.randn(16, 8)


def test_clipped_values_equal_clip_grad_value(model: nn.Module, x: Tensor) -> None:
    with clip_gradients(model, max_value=0.5):
        ours = backward(model, x)
    plain = backward(model, x)
    assert min(gradient.abs().max() for gradient in plain) > 0.5
    clip_grad_value_(model.parameters(), 0.5)
    assert all(torch.equal(a, p.grad) for a, p in zip(ours, model.parameters(), strict=True))


def test_clipped_norms_equal_clip_grad_norm_of_each_layer(model: nn.Module, x: Tensor) -> None:
    with clip_gradients(model, max_norm=0.7):
        ours = [gradient.clone() for gradient in backward(model, x)]
        again = backward(model, x)
    assert all(torch.equal(a, b) for a, b in zip(ours, again, strict=True))
    backward(model, x)
    for group in ([model.position], *(list(m.parameters()) for m in (*model.block, model.head))):
        if group:
            clip_grad_norm_(group, 0.7)
    assert all(torch.equal(a, p.grad) for a, p in zip(ours, model.parameters(), strict=True))
    for layer in (model.block[0], model.block[2], model.head):
        assert torch.cat([p.grad.flatten() for p in layer.parameters()]).norm() <= 0.7 + 1e-5


def test_only_the_chosen_layers_are_clipped(model: nn.Module, x: Tensor) -> None:
    plain = [gradient.clone() for gradient in backward(model, x)]
    with clip_gradients(model, max_norm=0.1, layers="block"):
        clipped = backward(model, x)
    names = [name for name, _ in model.named_parameters()]
    for name, ours, theirs in zip(names, clipped, plain, strict=True):
        assert torch.equal(ours, theirs) is not name.startswith("block")
    block = torch.cat([p.grad.flatten() for p in model.block.parameters()])
    assert block.norm().item() == pytest.approx(0.1, rel=1e-4)
    with pytest.raises(LayerNotFoundError, match="block"):
        clip_gradients(model, max_value=1.0, layers="blocks")


def test_clipping_ends_with_its_block_and_goes_on_after_a_failed_backward_pass(
    model: nn.Module, x: Tensor
) -> None:
    def boom(gradient: Tensor) -> None:
        raise ValueError("boom")

    with clip_gradients(model, max_value=0.5, max_norm=0.1) as handles:
        output = model(x)
        model.block.register_forward_hook(lambda m, args, out: out.register_hook(boom) and None)
        with pytest.raises(ValueError, match="boom"):
            backward(model, x)
        model.block._forward_hooks.clear()
        backward(model, x)
        assert model.head.weight.grad.norm() < 0.11
    assert len(handles) == 0
    assert all(not p._backward_hooks for p in model.parameters())
    output.sum().backward()
    assert backward(model, x)[-2].norm() > 0.11


@pytest.mark.parametrize("limits", [{}, {"max_value": 0}, {"max_norm": -1.0}])
def test_limits_must_be_given_and_positive(model: nn.Module, limits: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="max_"):
        clip_gradients(model, **limits)
    assert all(not p._backward_hooks for p in model.parameters())


@pytest.mark.parametrize(
    ("limits", "spoil", "fault"),
    [
        ({}, float("nan"), r"not finite: 1 of 128 values, the first at \[2, 3\]"),
        ({}, float("inf"), "not finite"),
        ({"high": 5}, 7.0, "its largest value is 7, above 5"),
        ({"low": -5}, -7.0, "its smallest value is -7, below -5"),
        ({"predicate": lambda t: t.abs().max() < 6}, 6.5, "<lambda> is not true of it"),
    ],
)
def test_a_bad_input_stops_at_its_layer(
    model: nn.Module, x: Tensor, limits: dict[str, Any], spoil: float, fault: str
) -> None:
    x = x.clamp(-4, 4)
    nn.init.zeros_(model.position)
    with check_inputs(model, "block.0", **limits):
        model(x)
        x[2, 3] = spoil
        with pytest.raises(BadInputError, match=r"'block.0', input of shape \(16, 8\)") as refusal:
            model(x)
        assert refusal.match(fault)
        assert isinstance(refusal.value, ValueError)
        assert isinstance(refusal.value, HookscopeError)
    model(x)
    assert all(not m._forward_pre_hooks for m in model.modules())


def test_a_check_can_allow_what_is_not_finite_and_look_at_keywords() -> None:
    class Masked(nn.Module):
        def forward(self, x: Tensor, *, mask: Tensor) -> Tensor:
            return x.masked_fill(mask, 0)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.masked = Masked()

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return self.masked(x, mask=mask)

    model = Model()
    x = torch.tensor([1.0, float("inf")])
    with check_inputs(model, "masked", finite=False):
        model(x, torch.tensor([False, True]))
    handles = check_inputs(model, "*", predicate=lambda t: t.dtype != torch.bool, finite=False)
    with handles, pytest.raises(BadInputError, match=r"input\[mask\]"):
        model(x, torch.tensor([False, True]))


def test_a_student_learns_from_the_hints_of_a_teacher() -> None:
    """FitNets (Romero et al., 2015): the student's layer, through a regressor, follows a layer of
    the teacher's."""
    torch.manual_seed(0)
    teacher = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(True), nn.Conv2d(16, 16, 3), nn.ReLU(True))
    student = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(True), nn.Conv2d(4, 8, 3), nn.ReLU(True))
    teacher.requires_grad_(False)
    regressor = nn.Conv2d(8, 16, 1)
    optimizer = torch.optim.Adam([*student.parameters(), *regressor.parameters()], lr=0.01)
    pictures = torch.randn(8, 3, 12, 12)
    losses = []
    with (
        ActivationCapture(teacher, "2") as hint,
        ActivationCapture(student, "2", detach=False) as guided,
    ):
        for _ in range(60):
            with torch.no_grad():
                teacher(pictures)
            student(pictures)
            loss = nn.functional.mse_loss(regressor(guided["2"]), hint["2"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[-1] < 0.35 * losses[0]
    assert student[0].weight.grad.abs().sum() > 0, "the loss reaches what lies before the layer"
