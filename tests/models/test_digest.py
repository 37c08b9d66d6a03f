"""The digest of the weights: the same for the same, another for anything else."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from hookscope.models.digest import weights_digest


def network() -> nn.Module:
    torch.manual_seed(0)
    # 3000 x 512 numbers: several whole blocks of the digest and a rest.
    return nn.Sequential(nn.Linear(512, 3000), nn.BatchNorm1d(3000), nn.Linear(7, 3))


REFERENCE = weights_digest(network())


def test_equal_weights_have_equal_digests_wherever_they_lie() -> None:
    model = network()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(state, assign=True)
    assert weights_digest(model) == REFERENCE
    for parameter in model.parameters():
        parameter.data = parameter.data.t().contiguous().t()
    assert weights_digest(model) == REFERENCE


def test_an_unaligned_view_has_the_digest_of_its_copy() -> None:
    model, twin = nn.Module(), nn.Module()
    numbers = torch.randn(9000)
    model.register_buffer("x", numbers[1:])
    twin.register_buffer("x", numbers[1:].clone())
    assert weights_digest(model) == weights_digest(twin)


@settings(max_examples=25)
@given(data=st.data())
def test_any_one_changed_weight_changes_it(data: st.DataObject) -> None:
    model = network()
    name, value = data.draw(st.sampled_from(list(model.state_dict().items())))
    flat = value.view(-1)
    flat[data.draw(st.integers(0, flat.numel() - 1))] += 1
    assert weights_digest(model) != REFERENCE, name


@settings(max_examples=25)
@given(pair=st.tuples(st.integers(0, 2999), st.integers(0, 2999)).filter(lambda p: p[0] != p[1]))
def test_swapped_filters_change_it(pair: tuple[int, int]) -> None:
    model = network()
    weight = model[0].weight.data
    weight[list(pair)] = weight[list(reversed(pair))]
    assert weights_digest(model) != REFERENCE


def test_names_shapes_and_precision_count() -> None:
    digests = {REFERENCE}
    digests.add(
        weights_digest(nn.Sequential(*network().children(), nn.Identity(), nn.Linear(1, 1)))
    )
    digests.add(weights_digest(nn.ModuleDict({"a": network()})))
    digests.add(weights_digest(network().half()))
    reshaped = network()
    reshaped[0].weight.data = reshaped[0].weight.data.view(512, 3000)
    digests.add(weights_digest(reshaped))
    assert len(digests) == 5


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.int8, torch.bfloat16, torch.complex64, torch.float8_e4m3fn]
)
def test_every_dtype_and_scalars_have_one(dtype: torch.dtype) -> None:
    model = nn.Module()
    model.register_buffer("x", torch.ones(3, 5).to(dtype))
    model.register_buffer("scalar", torch.ones(()).to(dtype))
    before = weights_digest(model)
    model.x.fill_(0)
    assert weights_digest(model) != before


# torch announces the end of quantised tensors; torchvision's quantised models still hold them.
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_quantised_weights_count() -> None:
    def quantised(factor: float) -> nn.Module:
        model = nn.Module()
        values = torch.linspace(-1, 1, 64) * factor
        model.register_buffer("x", torch.quantize_per_tensor(values, 0.01, 0, torch.qint8))
        return model

    assert weights_digest(quantised(1)) == weights_digest(quantised(1))
    assert weights_digest(quantised(1)) != weights_digest(quantised(0.5))
