"""The cut gives autograd's own gradients, leaves nothing behind, and builds no graph below."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hookscope.errors import LayerNotFoundError
from hookscope.hooks.cut import Cut
from hookscope.layers.addresses import Address


class Inplace(nn.Module):
    """Each output is overwritten by the next layer; one ReLU runs twice; a residual is added."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)
        self.second = nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.relu(self.norm(self.conv(x)))
        out = self.second(first)
        out += first
        return self.head(self.relu(out).mean((2, 3)))


class Pair(nn.Module):
    """Returns a dict with a tuple in it, of which only one tensor is a float."""

    def forward(self, x: torch.Tensor) -> dict[str, object]:
        return {"maps": (x * 2, x.argmax(1)), "skip": None, "rest": [x + 1]}


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.pair(x)
        return (found["maps"][0].square() + found["rest"][0] * 3).sum((1, 2, 3))


@pytest.fixture
def model() -> Inplace:
    torch.manual_seed(0)
    return Inplace().eval()


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(2, 3, 6, 8, generator=torch.Generator().manual_seed(1))


def run(model: nn.Module, x: torch.Tensor, *layers: str, **settings) -> tuple[Cut, torch.Tensor]:
    cut = Cut(model, [Address(layer) for layer in layers], **settings)
    with torch.no_grad():
        return cut, cut.run(x)


def by_autograd(model: Inplace, x: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Values of conv, norm, relu@1, second, relu@2 and their gradients, written out in full."""
    conv = model.conv(x)
    norm = model.norm(conv)
    first = norm.relu()
    second = model.second(first)
    last = (second + first).relu()
    score = model.head(last.mean((2, 3)))[:, 2].sum()
    values = [conv, norm, first, second, last]
    return [value.detach() for value in values], list(torch.autograd.grad(score, values))


def test_values_and_gradients_under_in_place_operations(model, x):
    cut, output = run(model, x, "conv", "norm", "relu", "second")
    gradients = cut.gradients(output[:, 2].sum())
    values, expected = by_autograd(model, x)
    addresses = [str(held.address) for held in cut.held]
    assert addresses == ["conv", "norm", "relu@1", "second", "relu@2"]
    for held, gradient, value, wanted in zip(cut.held, gradients, values, expected, strict=True):
        torch.testing.assert_close(held.tensor.detach(), value)
        torch.testing.assert_close(gradient, wanted)


def test_nothing_below_the_first_layer_is_in_the_graph(model, x):
    cut, output = run(model, x, "second")
    leaf = cut.held[0].tensor
    assert leaf.is_leaf
    seen, todo = set(), [output.grad_fn]
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        todo.extend(parent for parent, _ in node.next_functions)
    parameters = {node.variable for node in seen if hasattr(node, "variable")}
    assert any(parameter is model.head.weight for parameter in parameters)
    assert not any(parameter is model.conv.weight for parameter in parameters)
    assert not any(parameter is model.second.weight for parameter in parameters)


def test_a_later_layer_is_held_in_the_graph_and_not_cut(model, x):
    cut, _ = run(model, x, "norm", "second")
    first, later = cut.held
    assert first.tensor.is_leaf
    assert not later.tensor.is_leaf


def test_one_call_of_several(model, x):
    cut = Cut(model, [Address("relu", 2)])
    with torch.no_grad():
        output = cut.run(x)
    assert [str(held.address) for held in cut.held] == ["relu@2"]
    torch.testing.assert_close(cut.gradients(output[:, 2].sum())[0], by_autograd(model, x)[1][-1])


def test_several_scores_of_one_pass(model, x):
    cut, output = run(model, x, "norm")
    together = cut.gradients(output[:, 1].sum() + output[:, 3].sum(), keep_graph=True)[0]
    one = cut.gradients(output[:, 1].sum(), keep_graph=True)[0]
    other = cut.gradients(output[:, 3].sum(), scale=8.0)[0]
    torch.testing.assert_close(one + other / 8, together)


def test_items_of_a_structured_output(x):
    model = Branches()
    cut, output = run(model, x, "pair")
    assert [held.address.item for held in cut.held] == [("maps", 0), ("rest", 0)]
    squared, plain = cut.gradients(output.sum())
    torch.testing.assert_close(squared, 4 * x)
    torch.testing.assert_close(plain, torch.full_like(x, 3.0))
    chosen = Cut(model, [Address("pair", None, ("rest",))])
    with torch.no_grad():
        chosen.run(x)
    assert [str(held.address) for held in chosen.held] == ["pair[rest][0]"]


def test_frozen_parameters_and_their_gradients_stay(model, x):
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    cut, output = run(model, x, "norm")
    assert cut.gradients(output[:, 2].sum())[0] is not None
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_no_gradient_reaches_the_parameters(model, x):
    cut, output = run(model, x, "norm")
    cut.gradients(output[:, 2].sum())
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("fails", [False, True])
def test_hooks_and_grad_mode_are_as_before(model, x, fails):
    cut = Cut(model, [Address("norm"), Address("relu")])
    pictures = torch.randn(2, 9, 6, 8) if fails else x
    with torch.no_grad():
        if fails:
            with pytest.raises(RuntimeError):
                cut.run(pictures)
        else:
            cut.run(pictures)
        assert not torch.is_grad_enabled()
    assert not any(module._forward_hooks for module in model.modules())
    assert torch.is_grad_enabled()


def test_other_hooks_are_left_and_count(model, x):
    handle = model.norm.register_forward_hook(lambda module, inputs, output: output * 2)
    cut, _ = run(model, x, "norm")
    assert len(model.norm._forward_hooks) == 1
    handle.remove()
    torch.testing.assert_close(cut.held[0].tensor.detach(), by_autograd(model, x)[0][1] * 2)


def test_without_gradients_it_only_copies(model, x):
    cut, output = run(model, x, "norm", gradients=False)
    assert not output.requires_grad
    torch.testing.assert_close(cut.held[0].tensor, by_autograd(model, x)[0][1])
    assert cut.gradients(output.sum()) == [None]


def test_a_layer_that_the_score_does_not_need_has_no_gradient(x):
    class Aside(Inplace):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.second(self.conv(x)[:, :4])
            return self.head(self.norm(self.conv(x)).mean((2, 3)))

    cut, output = run(Aside().eval(), x, "second", "norm")
    aside, used = cut.gradients(output[:, 0].sum())
    assert aside is None
    assert used is not None


def test_unknown_layer_names_the_closest(model, x):
    cut = Cut(model, [Address("secnd")])
    with pytest.raises(LayerNotFoundError, match="second"):
        cut.run(x)
    assert not any(module._forward_hooks for module in model.modules())


def test_frozen_backbone_that_switches_gradients_off(x):
    class Frozen(Inplace):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                first = self.relu(self.norm(self.conv(x)))
            return self.head(self.second(first).mean((2, 3)))

    torch.manual_seed(0)
    model = Frozen().eval()
    cut = Cut(model, [Address("norm")])
    with torch.no_grad():
        assert not cut.run(x).requires_grad
        output = cut.run(x, whole_graph=True)
    found = cut.gradients(output[:, 2].sum())[0]
    norm = model.norm(model.conv(x)).detach().requires_grad_()
    score = model.head(model.second(norm.relu()).mean((2, 3)))[:, 2].sum()
    torch.testing.assert_close(found, torch.autograd.grad(score, norm)[0])
