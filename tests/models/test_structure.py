"""Building without initialisation: nothing random is drawn, nothing constant is lost."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import init
from torchvision import models

from hookscope.models.structure import replaced, without_initialisation

CONSTANT = {"constant_", "ones_", "zeros_", "eye_", "dirac_"}
PUBLIC = [name for name in dir(init) if name.endswith("_") and not name.startswith("_")]
RANDOM = [name for name in PUBLIC if name not in CONSTANT]


@pytest.mark.parametrize("name", RANDOM)
def test_random_initialisers_leave_the_tensor_as_it_is(name: str) -> None:
    tensor = torch.full((4, 4), 7.0)
    with without_initialisation():
        returned = getattr(init, name)(tensor, **({"sparsity": 0.1} if name == "sparse_" else {}))
    assert returned is tensor
    assert (tensor == 7).all()


@pytest.mark.parametrize("taken_before", [init.xavier_uniform_, init.normal_, init.trunc_normal_])
def test_a_reference_taken_before_the_block_draws_nothing_either(
    taken_before: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    tensor = torch.full((4, 4), 7.0)
    with without_initialisation():
        taken_before(tensor)
    assert (tensor == 7).all()


def test_constants_are_still_set() -> None:
    with without_initialisation():
        norm = nn.BatchNorm2d(3)
        bias = init.constant_(torch.empty(3), 0.5)
    assert (norm.weight == 1).all()
    assert (norm.running_var == 1).all()
    assert (bias == 0.5).all()


def test_initialisers_are_back_after_an_exception() -> None:
    before = dict(vars(init))

    def fail_inside() -> None:
        with without_initialisation(), without_initialisation():
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fail_inside()
    assert vars(init) == before


def test_garbage_is_collected_again_afterwards() -> None:
    with without_initialisation(), without_initialisation():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_the_random_state_is_as_before() -> None:
    torch.manual_seed(3)
    expected = torch.rand(5)
    torch.manual_seed(3)
    with without_initialisation():
        torch.rand(100)
        models.resnet18()
    assert torch.equal(torch.rand(5), expected)


@pytest.mark.parametrize("name", ["resnet18", "regnet_y_400mf", "swin_t", "mobilenet_v3_small"])
def test_a_loaded_state_dict_gives_the_ordinary_network(name: str) -> None:
    ordinary = models.get_model(name).eval()
    with without_initialisation():
        ours = models.get_model(name).eval()
    ours.load_state_dict(ordinary.state_dict(), assign=True)
    x = torch.rand(1, 3, 64, 64)
    assert torch.equal(ours(x), ordinary(x))


def test_replaced_puts_the_value_back() -> None:
    class Owner:
        value = 1

    with replaced(Owner, "value", 2):
        assert Owner.value == 2
    assert Owner.value == 1
