from __future__ import annotations

import pytest
import torch
from layer_networks import Fixed, Reader
from torch import nn
from torchvision.models import resnet18

from hookscope.layers.info import LayerInfo
from hookscope.layers.listing import count_parameters, describe, list_layers
from hookscope.layers.modules import named_layers


def rows(model: nn.Module, size: tuple[int, int] | None = None) -> dict[str, LayerInfo]:
    return {row.name: row for row in list_layers(model, size)}


def test_every_layer_comes_in_the_order_of_the_model_without_the_root() -> None:
    model = resnet18()
    names = [row.name for row in list_layers(model)]
    assert names == [name for name, _ in model.named_modules() if name]


def test_a_resnet_row_by_row() -> None:
    found = rows(resnet18())
    assert found["conv1"] == LayerInfo(
        "conv1", "Conv2d", 0, 9408, 9408, (1, 64, 112, 112), "NCHW", 1, False, False
    )
    assert found["layer1.0.relu"].calls == 2
    assert found["layer1.0.relu"].depth == 2
    assert found["layer4.1.bn2"].overwritten_in_place is True
    assert found["layer4"] == LayerInfo(
        "layer4", "Sequential", 0, 8393728, 8393728, (1, 512, 7, 7), "NCHW", 1, False, True
    )
    assert found["fc"].layout == "vector"
    assert [row.name for row in found.values() if row.cam_default] == ["layer4"]


def test_shapes_follow_the_input_size() -> None:
    assert rows(resnet18(), (64, 96))["layer4"].output_shape == (1, 512, 2, 3)


def test_several_outputs_are_a_list_of_shapes() -> None:
    lstm = rows(Reader(), (32, 64))["lstm"]
    assert lstm.output_shape == ((1, 16, 16), (1, 1, 16), (1, 1, 16))
    assert lstm.layout == "other"


def test_parameters_count_a_shared_tensor_once_and_frozen_ones_apart() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    model[0].bias.requires_grad_(False)
    both = rows(nn.Sequential(model))["0"]
    assert (both.parameters, both.trainable) == (16 + 4 + 4, 16 + 4)
    assert sum(parameter.numel() for parameter in model.parameters()) == both.parameters
    assert count_parameters(model) == (both.parameters, both.trainable)


def test_lazy_parameters_count_nothing_until_they_have_a_shape() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.LazyLinear(4))
    assert count_parameters(model) == (8, 8)
    model(torch.zeros(1, 3))
    assert count_parameters(model) == (8 + 12, 8 + 12)


def test_inference_mode_changes_nothing() -> None:
    model = resnet18()
    outside = list_layers(model, (64, 64))
    with torch.inference_mode():
        assert list_layers(model, (64, 64)) == outside


def test_what_never_runs_runs_zero_times() -> None:
    model = resnet18()
    model.unused = nn.Conv2d(3, 3, 1)
    row = rows(model)["unused"]
    assert (row.calls, row.output_shape, row.layout) == (0, None, None)
    assert row.overwritten_in_place is None


def test_the_unknown_is_none_where_no_pass_can_be_run() -> None:
    found = rows(Fixed(), (40, 40))
    assert found["second"].output_shape == (1, 16, 14, 14)
    assert (found["head"].calls, found["head"].output_shape) == (None, None)
    assert {row.cam_default for row in found.values()} == {None}


def test_without_a_probe_there_are_names_and_numbers() -> None:
    row = describe(Fixed(), None)[0]
    assert row == LayerInfo("first", "Conv2d", 0, 156, 156)
    assert row.cam_default is None


@pytest.mark.parametrize("wrap", [nn.DataParallel, lambda m: torch.compile(m, backend="eager")])
def test_wrappers_change_nothing(wrap: object) -> None:
    model = Fixed()
    assert list_layers(wrap(model)) == list_layers(model)


def test_an_exported_program_has_the_classes_it_was_made_from() -> None:
    program = torch.export.export(Fixed().eval(), (torch.zeros(1, 1, 32, 32),))
    found = rows(torch.export.unflatten(program), (32, 32))
    assert found["second"].type == "Conv2d"
    assert found["second"].output_shape == (1, 16, 10, 10)
    assert list(found) == list(named_layers(Fixed()))
