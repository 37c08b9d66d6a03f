"""The numbers of an evaluation equal those of torch-cam's metrics."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torchcam.metrics import ClassificationMetric, DeletionInsertionMetric
from torchvision import models

from hookscope.gradcam import Heatmap, explain
from hookscope.gradcam.evaluation import Evaluator
from hookscope.gradcam.question import Question, addresses_of
from hookscope.maps.faithfulness import blurred


@dataclass
class Given:
    """A map instead of a method, for torch-cam's metrics: they would explain the probability."""

    model: nn.Module
    heatmap: Tensor

    def __call__(self, *args: object, **kwargs: object) -> list[Tensor]:
        low, high = torch.aminmax(self.heatmap)
        return [(self.heatmap[None] - low) / (high - low)]

    def fuse_cams(self, cams: list[Tensor]) -> Tensor:
        return cams[0]

    def _hooks_off(self) -> nullcontext[None]:
        return nullcontext()


def test_the_numbers_are_torchcams():
    torch.manual_seed(0)
    network = models.resnet18(num_classes=7).eval()
    x = torch.randn(3, 3, 64, 96, generator=torch.Generator().manual_seed(1))

    def at_layer2(network: nn.Module, x: Tensor, classes: Tensor) -> list[list[Heatmap]]:
        return explain(network, x, layers=["layer2"], classes=classes)

    asked = [4, 0, 2]
    found = at_layer2(network, x, torch.tensor(asked)[:, None])
    judge = Evaluator(at_layer2, Question(addresses_of(network, ["layer2"])))
    drops = []
    for n, (one,) in enumerate(judge.evaluations(network, x, found)):
        extractor, picture = Given(network, found[n][0].map), x[n : n + 1]
        chances = partial(torch.softmax, dim=-1)
        confidence = ClassificationMetric(extractor, chances)
        deletion = DeletionInsertionMetric(extractor, chances, steps=16)
        insertion = DeletionInsertionMetric(
            extractor, chances, steps=16, baseline=lambda x: blurred(x[0])[None]
        )
        for metric in (confidence, deletion, insertion):
            metric.update(picture, asked[n])
        drops.append(confidence.summary()["avg_drop"])
        assert one.average_drop == pytest.approx(drops[-1], abs=2e-6)
        assert one.increase == bool(confidence.summary()["conf_increase"])
        assert one.deletion_auc == pytest.approx(deletion.summary()["deletion_auc"], abs=2e-6)
        assert one.insertion_auc == pytest.approx(insertion.summary()["insertion_auc"], abs=2e-6)
    assert max(drops) > 0.001
