"""torchvision's families in a size that a test can afford, and what is asked of all of them."""

from __future__ import annotations

import torch
from torch import nn
from torchvision import models


def small_resnet() -> nn.Module:
    return models.ResNet(models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=7)


def small_vgg() -> nn.Module:
    """The convolutions with their in-place ReLUs, under a head of one layer."""
    with torch.device("meta"):
        model = models.VGG(nn.Identity(), init_weights=False)
    model.features = models.vgg.make_layers([8, "M", 16, 16, "M"])
    model.classifier = nn.Linear(16 * 7 * 7, 7)
    return model


def small_densenet() -> nn.Module:
    return models.DenseNet(8, (2, 2), 16, num_classes=7)


def small_vit() -> nn.Module:
    model = models.VisionTransformer(32, 8, 2, 4, 32, 64, num_classes=7)
    nn.init.normal_(model.heads.head.weight)  # torchvision's is zero, and so all gradients
    return model


def small_swin() -> nn.Module:
    return models.SwinTransformer(
        [4, 4], 32, [2, 2], [2, 4], [4, 4], num_classes=7, stochastic_depth_prob=0.0
    )


NETWORKS = {
    "resnet": small_resnet,
    "vgg": small_vgg,
    "densenet": small_densenet,
    "vit": small_vit,
    "swin": small_swin,
}


def hooks_on(model: nn.Module) -> int:
    """How many hooks of any kind hang on the modules of a model."""
    return sum(
        len(module._forward_hooks)
        + len(module._forward_pre_hooks)
        + len(module._backward_hooks)
        + len(module._backward_pre_hooks)
        for module in model.modules()
    )
