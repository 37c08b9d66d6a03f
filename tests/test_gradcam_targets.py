"""Heatmaps of whatever a network was trained for: logits, one logit, pixels, boxes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from small_network import Small, pictures, small
from torch import Tensor, nn

from hookscope.gradcam import explain, gradcam
from hookscope.maps import cam


@pytest.fixture
def model() -> Small:
    return small()


@pytest.fixture
def x() -> Tensor:
    return pictures()


@dataclass
class Result:
    loss: float
    logits: Tensor


class TestTargets:
    @pytest.mark.parametrize(
        ("leave", "key"),
        [
            (lambda logits: {"aux": -logits, "logits": logits}, None),
            (lambda logits: (torch.zeros(()), logits), None),
            (lambda logits: Result(0.0, logits), None),
            (lambda logits: {"a": -logits, "b": logits}, "b"),
            (lambda logits: [-logits, logits], "1"),
        ],
    )
    def test_scores_anywhere_give_the_same_map(self, x, leave, key):
        wrapped = gradcam(small(leave), x, "last", 2, output_key=key)
        torch.testing.assert_close(wrapped, gradcam(small(), x, "last", 2))

    @pytest.mark.parametrize("method", ["gradcam", "ablationcam", "scorecam"])
    def test_one_logit_negates_for_class_0(self, x, method):
        both = small(lambda logits: torch.stack([-logits[:, 0], logits[:, 0]], 1))
        for shape in ((-1, 1), (-1,)):
            one = small(lambda logits, shape=shape: logits[:, 0].reshape(shape))
            for index in (0, 1):
                torch.testing.assert_close(
                    gradcam(one, x, "last", index, method),
                    gradcam(both, x, "last", index, method),
                )
            found = [h[0].class_index for h in explain(one, x, layers=["last"])]
            assert found == both(x).argmax(1).tolist()

    def test_multi_label_probability(self, model, x):
        found = explain(model, x, layers=["last"], classes=[0, 3], multi_label=True)
        expected = model(x)[:, [0, 3]].sigmoid()
        for n, heatmaps in enumerate(found):
            assert [h.probability for h in heatmaps] == pytest.approx(expected[n].tolist())

    @pytest.mark.parametrize("method", cam.NAMES)
    def test_segmentation(self, x, method):
        class Segmenter(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.body = nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1), nn.ReLU(True))
                self.classifier = nn.Conv2d(6, 3, 1)

            def forward(self, x: Tensor) -> dict[str, Tensor]:
                low = self.classifier(self.body(x))
                size = (x.shape[2], x.shape[3])
                return {"out": nn.functional.interpolate(low, size, mode="bilinear")}

        torch.manual_seed(1)
        model = Segmenter().eval()
        heatmaps = gradcam(model, x, "body", method=method)
        assert heatmaps.shape == (3, 8, 12)
        alone = torch.cat([gradcam(model, x[n : n + 1], "body", method=method) for n in range(3)])
        torch.testing.assert_close(heatmaps, alone, rtol=1e-4, atol=1e-5)
        if method == "gradcam":
            body = model.body(x).detach().requires_grad_()
            low = nn.functional.interpolate(model.classifier(body), (16, 24), mode="bilinear")
            for n in range(3):
                index = low[n].argmax(0).flatten().bincount().argmax()
                score = low[n, index][low[n].argmax(0) == index].sum()
                (gradient,) = torch.autograd.grad(score, body, retain_graph=True)
                expected = cam.gradcam(body.detach()[n : n + 1], gradient[n : n + 1])
                torch.testing.assert_close(heatmaps[n : n + 1], expected)

    def test_a_class_that_no_pixel_has_is_noted(self, x):
        net = nn.Sequential(nn.Conv2d(3, 4, 3, 1, 1), nn.Conv2d(4, 3, 1))
        nn.init.constant_(net[1].bias, 0)
        net[1].bias.data[1] = -1e3
        (found,) = explain(net, x[:1], layers=["0"], classes=[1])[0]
        assert "no pixel" in found.note

    def test_detection(self):
        from torchvision.models.detection import FasterRCNN
        from torchvision.models.detection.rpn import AnchorGenerator

        torch.manual_seed(3)
        backbone = nn.Sequential(nn.Conv2d(3, 8, 7, 8, 3), nn.ReLU(True), nn.Conv2d(8, 8, 3, 2, 1))
        backbone.out_channels = 8
        model = FasterRCNN(
            backbone,
            num_classes=3,
            min_size=64,
            max_size=80,
            rpn_anchor_generator=AnchorGenerator(((16, 32),), ((1.0,),)),
            rpn_post_nms_top_n_test=20,
            box_detections_per_img=5,
        ).eval()
        pictures = torch.rand(2, 3, 48, 60)
        detected = model(list(pictures))
        for n, heatmaps in enumerate(explain(model, pictures, layers=["backbone.1", "backbone"])):
            first = heatmaps[0]
            assert first.class_index == detected[n]["labels"][0]
            assert first.score == pytest.approx(detected[n]["scores"][0].item(), rel=1e-4)
            assert first.map.shape == (8, 12)
            assert first.degenerate is None
            # 48 x 60 becomes 64 x 80 and is padded to 64 x 96.
            assert first.extent == (1.0, pytest.approx(96 / 80))
        model.roi_heads.score_thresh = 1.1
        (nothing,) = explain(model, pictures, layers=["backbone"])[0]
        assert nothing.note == "nothing detected"
        assert (nothing.class_index, nothing.score, nothing.probability) == (None, None, None)
        assert nothing.degenerate == "all zero"
        (nothing,) = explain(model, pictures, layers=["backbone"], classes=[2])[1]
        assert nothing.note == "no detection of class 2"
        assert nothing.map.shape == (4, 6)
        assert not gradcam(model, pictures, "backbone", method="scorecam").any()
