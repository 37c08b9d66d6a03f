"""Other tensors in a network for a while, and its own ones back."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hookscope.hooks.dressing import dressed, state


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.two = nn.Linear(4, 4)
        self.two.weight = self.one.weight
        self.lstm = nn.LSTM(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(self.two(self.norm(self.one(x))))[0]


def network(seed: int) -> Tied:
    torch.manual_seed(seed)
    made = Tied().eval()
    made.norm.running_mean += seed
    return made


def test_a_network_in_the_tensors_of_another_gives_the_others_output() -> None:
    first, second = network(1), network(2)
    x = torch.rand(3, 4)
    own, theirs = first(x), second(x)
    before = state(first)
    with dressed(first, state(second)) as model:
        assert model is first
        assert torch.equal(first(x), theirs)
    assert torch.equal(first(x), own)
    after = state(first)
    assert before.keys() == after.keys()
    assert all(after[name] is before[name] for name in before)
    assert first.two.weight is first.one.weight


def test_own_tensors_come_back_after_an_exception_and_unknown_names_are_left_aside() -> None:
    model = network(1)
    before = state(model)
    with pytest.raises(RuntimeError, match="on the way"), dressed(model, state(network(2))):
        raise RuntimeError("on the way")
    assert all(state(model)[name] is tensor for name, tensor in before.items())
    with dressed(model, {"one.spare": torch.zeros(1)}):
        assert not hasattr(model.one, "spare")


def test_modules_that_share_parameters_are_dressed_apart() -> None:
    model = network(1)
    twin = Tied().eval()
    for name, tensor in state(model).items():
        path, _, own = name.rpartition(".")
        setattr(twin.get_submodule(path), own, tensor)
    x = torch.rand(3, 4)
    own = twin(x)
    with dressed(model, state(network(2))):
        assert torch.equal(twin(x), own)
        assert not torch.equal(model(x), own)
