"""Every torchvision classifier gives a map worth looking at, at the layer it picks by itself."""

from __future__ import annotations

import os

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torchvision import models

from hookscope.gradcam import gradcam
from hookscope.maps.degenerate import verdict
from hookscope.models.structure import without_initialisation

GIANTS = {
    *(f"vgg{depth}{norm}" for depth in (11, 13, 16, 19) for norm in ("", "_bn")),
    *("regnet_y_32gf", "regnet_y_128gf", "regnet_x_32gf", "resnext101_64x4d", "resnext101_32x8d"),
    *("wide_resnet101_2", "convnext_large", "efficientnet_v2_l", "efficientnet_b7"),
    *("vit_l_16", "vit_l_32", "vit_h_14"),
} - {"vgg11", "vgg11_bn"}
NAMES = models.list_models(module=models)

needs_time = pytest.mark.skipif(
    os.environ.get("HOOKSCOPE_GIANTS") != "1", reason="a giant: set HOOKSCOPE_GIANTS=1"
)


def drawn(name: str) -> nn.Module:
    """The model with weights of a variance that carries signals through, drawn fast."""
    settings = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    with without_initialisation():
        model = models.get_model(name, weights=None, **settings).eval()
    generator = torch.Generator().manual_seed(0)
    bank = torch.randn(2**20 + 7, generator=generator)  # a length that no layer's size divides
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                repeats = -(-parameter.numel() // len(bank))
                values = bank.repeat(repeats)[: parameter.numel()].view_as(parameter)
                parameter.copy_(values * (2 / parameter[0].numel()) ** 0.5)
        for module in model.modules():
            for own, tensor in module.named_parameters(recurse=False):
                if tensor.dim() == 1:
                    tensor.fill_(1.0 if own == "weight" else 0.0)
    return model


def picture(size: int) -> Tensor:
    coarse = torch.randn(1, 3, 9, 9, generator=torch.Generator().manual_seed(1))
    return functional.interpolate(coarse, (size, size), mode="bicubic")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.giants, needs_time] if name in GIANTS else [])
        for name in NAMES
    ],
)
def test_default_map(name):
    size = 299 if name == "inception_v3" else 224
    (heatmap,) = gradcam(drawn(name), picture(size))
    assert min(heatmap.shape) >= 6
    assert verdict(heatmap) is None


def test_none_is_missing():
    assert len(NAMES) >= 80
    assert set(NAMES) >= GIANTS
