from __future__ import annotations

import pytest
import torch
from torch import nn

from hookscope.errors import LayerNotFoundError
from hookscope.hooks.fanout import resumed
from hookscope.layers.addresses import Address


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.low = nn.Conv2d(3, 4, 3)
        self.relu = nn.ReLU(inplace=True)
        self.high = nn.Conv2d(4, 4, 3)
        self.head = nn.Linear(4, 2)
        self.rows: list[int] = []
        self.low.register_forward_hook(lambda m, i, o: self.rows.append(len(o)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.relu(self.high(self.relu(self.low(x)))).mean((2, 3)))


@pytest.fixture
def model() -> Network:
    torch.manual_seed(0)
    return Network().eval()


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(1, 3, 8, 9, generator=torch.Generator().manual_seed(1))


def scaled(output: torch.Tensor) -> torch.Tensor:
    return output * torch.arange(5.0)[:, None, None, None]


def test_everything_above_runs_on_the_variants_and_below_once(model, x):
    with torch.no_grad():
        found = resumed(model, x, Address("high"), scaled)
        variants = scaled(model.high(model.low(x).relu()))
        torch.testing.assert_close(found, model.head(variants.relu().mean((2, 3))))
    assert model.rows == [1, 1]


def test_the_second_call_of_a_layer(model, x):
    with torch.no_grad():
        found = resumed(model, x, Address("relu", 2), scaled)
        last = model.high(model.low(x).relu()).relu()
        torch.testing.assert_close(found, model.head(scaled(last).mean((2, 3))))


def test_one_item_of_a_tuple(x):
    class Split(nn.Module):
        def forward(self, x):
            return x + 1, {"b": x * 2}

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.split = Split()

        def forward(self, x):
            one, other = self.split(x)
            return (one + other["b"]).sum((1, 2, 3))

    found = resumed(Outer(), x, Address("split", None, (1, "b")), scaled)
    torch.testing.assert_close(found, (x + 1 + scaled(x * 2)).sum((1, 2, 3)))


def test_hooks_are_gone_even_when_the_network_cannot_bear_it(model, x):
    def broken(output: torch.Tensor) -> torch.Tensor:
        return output[:, :2]

    with pytest.raises(RuntimeError):
        resumed(model, x, Address("low"), broken)
    assert len(model.low._forward_hooks) == 1  # the test's own
    assert not model.high._forward_hooks


def test_unknown_layer(model, x):
    with pytest.raises(LayerNotFoundError, match="high"):
        resumed(model, x, Address("hi"), scaled)
