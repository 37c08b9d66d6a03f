"""Random weights for a network: all of them, or those of the head that its scores come out of."""

from __future__ import annotations

import pytest
import torch
from torchvision import models

from hookscope.gradcam.evaluation import DRAWS
from hookscope.gradcam.question import Question, addresses_of
from hookscope.gradcam.scrambling import head_of, scrambled
from hookscope.hooks.dressing import dressed


@pytest.mark.parametrize(
    ("build", "head"),
    [
        (lambda: models.resnet18(num_classes=5), {"fc.weight", "fc.bias"}),
        (lambda: models.squeezenet1_1(num_classes=5), {"classifier.1.weight", "classifier.1.bias"}),
        (lambda: models.swin_t(num_classes=5), {"head.weight", "head.bias"}),
        (
            lambda: models.segmentation.fcn_resnet50(
                weights_backbone=None, num_classes=4, aux_loss=True
            ),
            {"classifier.4.weight", "classifier.4.bias"},
        ),
        (
            lambda: models.segmentation.lraspp_mobilenet_v3_large(
                weights_backbone=None, num_classes=4
            ),
            {
                f"classifier.{branch}_classifier.{kind}"
                for branch in ("low", "high")
                for kind in ("weight", "bias")
            },
        ),
        (
            lambda: models.detection.ssdlite320_mobilenet_v3_large(
                weights_backbone=None, num_classes=4, score_thresh=0.0
            ),
            {
                f"head.classification_head.module_list.{scale}.1.{kind}"
                for scale in range(6)
                for kind in ("weight", "bias")
            },
        ),
    ],
    ids=["resnet18", "squeezenet", "swin", "fcn", "lraspp", "ssdlite"],
)
def test_the_head_is_what_the_scores_come_out_of(build, head):
    torch.manual_seed(0)
    network = build().eval().requires_grad_(False)
    question = Question(addresses_of(network, [next(iter(dict(network.named_children())))]))
    found = head_of(network, torch.rand(2, 3, 64, 64), question)
    assert set(found) == head
    assert not any(parameter.requires_grad for parameter in network.parameters())


@pytest.mark.parametrize("name", ["mobilenet_v2", "densenet121", "vit_b_16", "resnet50"])
def test_what_flows_through_random_weights_neither_dies_nor_explodes(name):
    network = models.get_model(name).eval()
    x = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    for draw in range(DRAWS):
        with dressed(network, scrambled(network, draw)), torch.no_grad():
            logits = network(x)
        assert logits.isfinite().all()
        assert 1e-3 < logits.std() < 1e12
        assert not torch.allclose(logits[0], logits[1], rtol=1e-3)
