from __future__ import annotations

import pytest
import timm
import torch
from layer_networks import Fixed
from torch import nn
from torchvision import models

from hookscope.layers.fitting_size import fitting_size
from hookscope.layers.signature import example_inputs, fixed_input_size, input_channels


def test_channels_are_those_of_the_first_convolution() -> None:
    assert input_channels(nn.Sequential(nn.BatchNorm2d(7), nn.Conv2d(7, 3, 1))) == 7
    assert input_channels(nn.DataParallel(Fixed())) == 1
    assert input_channels(nn.Sequential(nn.LazyConv2d(4, 1))) == 3
    assert input_channels(nn.Identity()) == 3
    assert input_channels(nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 10))) == 1


@pytest.mark.parametrize(
    ("model", "size"),
    [
        (models.VisionTransformer(64, 8, 1, 2, 16, 16), (64, 64)),
        (timm.create_model("vit_tiny_patch16_224", img_size=(96, 160)), (96, 160)),
        (timm.create_model("vit_tiny_patch16_224", dynamic_img_size=True), None),
        (timm.create_model("resnet18"), None),
        (models.resnet18(), None),
        (nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10)), (32, 32)),
        (nn.Sequential(nn.Linear(17, 10)), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_fixed_sizes_are_read_off_the_structure(
    model: nn.Module, size: tuple[int, int] | None
) -> None:
    assert fixed_input_size(model) == size


def test_maxvit_takes_the_size_it_was_built_for() -> None:
    model = models.MaxVit((96, 96), 8, 3, [8, 8], [1, 1], 8, 0.0)
    size = fixed_input_size(model)
    assert size == (96, 96)
    assert model.eval()(torch.zeros(1, 3, *size)).shape == (1, 1000)


def test_the_size_of_a_flattening_network_is_found_by_trying() -> None:
    assert fitting_size(Fixed()) == (32, 32)
    assert fitting_size(models.resnet18()) == (224, 224)
    assert fitting_size(models.resnet18(), (64, 96)) == (64, 96)


def shapes(model: nn.Module, batch: int = 2) -> list[object]:
    def shape(part: object) -> object:
        return tuple(part.shape) if isinstance(part, torch.Tensor) else [shape(p) for p in part]

    return [tuple(shape(part) for part in feed) for feed in example_inputs(model, (8, 12), batch)]


class Twins(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)

    def forward(self, left: torch.Tensor, right: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return self.conv(left) - self.conv(right) * scale


def test_inputs_follow_the_first_layer_and_the_arguments() -> None:
    assert shapes(nn.Conv2d(3, 4, 1)) == [((2, 3, 8, 12),)]
    assert shapes(nn.Conv3d(3, 4, 1)) == [((2, 3, 16, 8, 12),)]
    assert shapes(Twins()) == [((2, 3, 8, 12), (2, 3, 8, 12))]
    assert ((2, 5),) in shapes(nn.Linear(5, 4))
    assert ((16, 2, 5),) in shapes(nn.LSTM(5, 4))
    assert ((2, 16),) in shapes(nn.Embedding(5, 4))


def test_detection_is_fed_a_list_of_pictures() -> None:
    model = models.get_model("ssdlite320_mobilenet_v3_large", weights=None, weights_backbone=None)
    assert shapes(model) == [([(3, 8, 12), (3, 8, 12)],)]
