"""What ``gradcam`` and ``explain`` give: which maps, in which order, and clear errors."""

from __future__ import annotations

import pytest
import torch
from small_network import Small, pictures, small
from torch import Tensor, nn

import hookscope
from hookscope.errors import LayerNotFoundError, ModelError, TargetError, UsageError
from hookscope.gradcam import explain, gradcam
from hookscope.layers.addresses import Address
from hookscope.layout import Layout
from hookscope.maps import cam


@pytest.fixture
def model() -> Small:
    return small()


@pytest.fixture
def x() -> Tensor:
    return pictures()


LAYERS = ["stem", "conv", "relu", "last"]


class TestGradcam:
    @pytest.mark.parametrize("method", cam.NAMES)
    def test_one_raw_map_a_picture(self, model, x, method):
        heatmaps = gradcam(model, x, "last", 2, method)
        assert heatmaps.shape == (3, 8, 12)
        assert heatmaps.dtype == torch.float32
        assert not heatmaps.requires_grad
        assert (heatmaps >= 0).all()
        assert (heatmaps > 0).any()

    @pytest.mark.parametrize("method", cam.NAMES)
    def test_batch_equals_its_members(self, model, x, method):
        together = gradcam(model, x, "conv", method=method)
        alone = torch.cat([gradcam(model, x[n : n + 1], "conv", method=method) for n in range(3)])
        torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-6)

    def test_the_predicted_class_is_the_default(self, model, x):
        predicted = model(x).argmax(1)
        assert torch.equal(gradcam(model, x, "last"), gradcam(model, x, "last", predicted))
        assert torch.equal(gradcam(model, x, "last"), gradcam(model, x, "last", predicted.tolist()))

    def test_the_last_call_is_the_default(self, model, x):
        assert torch.equal(gradcam(model, x, "relu", 1), gradcam(model, x, "relu@2", 1))
        assert not torch.equal(gradcam(model, x, "relu", 1), gradcam(model, x, "relu@1", 1))

    def test_no_layer_takes_the_one_that_list_layers_marks(self, model, x):
        (marked,) = (
            info.name for info in hookscope.list_layers(model, (16, 24)) if info.cam_default
        )
        assert torch.equal(gradcam(model, x, target=3), gradcam(model, x, marked, 3))

    def test_no_probe_runs_when_a_layer_is_named(self, model, x, monkeypatch):
        monkeypatch.setattr("hookscope.layers.probe.probe", None)
        gradcam(model, x, "last")

    def test_importable_as_function_whatever_was_imported_before(self, model, x):
        from hookscope import gradcam as public

        torch.testing.assert_close(public(model, x, "last"), gradcam(model, x, "last"))
        torch.testing.assert_close(hookscope.gradcam(model, x, "last"), gradcam(model, x, "last"))

    @pytest.mark.parametrize(
        ("arguments", "error", "words"),
        [
            ({"layer": "lasst"}, LayerNotFoundError, "last"),
            ({"layer": "head"}, ModelError, "no spatial output"),
            ({"layer": "relu@3"}, ModelError, "never runs"),
            ({"layer": "last", "target": 5}, TargetError, "0 to 4"),
            ({"layer": "last", "target": -1}, TargetError, "-1"),
            ({"layer": "last", "target": [0, 1, 9]}, TargetError, "9"),
            ({"layer": "last", "target": [0, 1]}, UsageError, "2 pictures"),
            ({"layer": "last", "target": 1.5}, UsageError, "class index"),
            ({"layer": "last", "method": "grad-cam"}, UsageError, "gradcam"),
            ({"layer": "last", "output_key": "logits"}, TargetError, "one tensor"),
        ],
    )
    def test_errors_say_what_and_what_then(self, model, x, arguments, error, words):
        with pytest.raises(error, match=words):
            gradcam(model, x, **arguments)

    @pytest.mark.parametrize("wrong", [torch.randn(3, 16, 24), torch.zeros(1, 3, 4, 4).long()])
    def test_pictures_are_a_batch_of_floats(self, model, wrong):
        with pytest.raises(UsageError, match="N x C x H x W"):
            gradcam(model, wrong, "last")


class TestExplain:
    def test_order_is_layer_and_call_then_class_then_method(self, model, x):
        found = explain(
            model, x, layers=["relu", "stem"], classes=[4, 1], methods=["layercam", "gradcam"]
        )
        assert len(found) == 3
        for heatmaps in found:
            rows = [(str(h.address), h.class_index, h.method) for h in heatmaps]
            assert rows == [
                (layer, index, method)
                for layer in ("stem", "relu@1", "relu@2")
                for index in (4, 1)
                for method in ("layercam", "gradcam")
            ]
        assert (found[0][4].layer, found[0][4].call) == ("relu", 1)

    def test_equals_gradcam_one_by_one(self, model, x):
        found = explain(model, x, layers=LAYERS, classes=[0, 3], methods=cam.NAMES)
        for n, heatmaps in enumerate(found):
            for heatmap in heatmaps:
                alone = gradcam(
                    model, x[n : n + 1], heatmap.address, heatmap.class_index, heatmap.method
                )
                torch.testing.assert_close(heatmap.map, alone[0], rtol=1e-4, atol=1e-6)
                assert heatmap.map.is_contiguous()
                assert heatmap.map.untyped_storage().nbytes() == heatmap.map.nbytes

    def test_scores_and_probabilities_by_rank(self, model, x):
        logits = model(x)
        for n, heatmaps in enumerate(explain(model, x, layers=["last"], top_k=3)):
            best = logits[n].topk(3)
            assert [h.class_index for h in heatmaps] == best.indices.tolist()
            assert [h.score for h in heatmaps] == pytest.approx(best.values.tolist())
            chances = logits[n].softmax(0)[best.indices].tolist()
            assert [h.probability for h in heatmaps] == pytest.approx(chances)

    def test_more_ranks_than_classes(self, model, x):
        assert len(explain(model, x, layers=["last"], top_k=99)[0]) == 5

    def test_each_picture_its_own_classes(self, model, x):
        table = torch.tensor([[0, 1], [2, 3], [4, 0]])
        found = explain(model, x, layers=["last"], classes=table)
        assert [[h.class_index for h in heatmaps] for heatmaps in found] == table.tolist()

    def test_layers_without_a_map_are_left_out(self, model, x):
        found = explain(model, x, layers=["*"])
        assert [str(h.address) for h in found[0]] == [
            "stem.0", "stem.1", "stem.2", "stem", "conv", "relu@1", "drop", "last", "relu@2",
        ]  # fmt: skip

    def test_a_layer_the_score_does_not_need_is_zero_and_said(self, x):
        class Aside(Small):
            def forward(self, x: Tensor) -> object:
                self.last(self.conv(self.stem(x)))
                return super().forward(x)

        model = Aside().eval()
        first, second = explain(model, x, layers=["last"], classes=[1])[0]
        assert "does not depend" in first.note
        assert first.degenerate == "all zero"
        assert second.note is None
        assert second.degenerate is None

    def test_layout_from_the_probe_wins_over_the_guess(self, x):
        class Turned(Small):
            """Channels last, on a map as wide as it has channels."""

            def forward(self, x: Tensor) -> Tensor:
                return self.head(self.turn(self.conv(self.stem(x))).mean((1, 2)))

        class Turn(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                return x.permute(0, 2, 3, 1)

        model = Turned()
        model.turn, model.head = Turn(), nn.Linear(8, 5)
        model.eval()
        pictures = torch.randn(2, 3, 16, 16)
        plain = gradcam(model, pictures, "conv", 1)
        layouts = {"turn": Layout("NHWC")}
        (found,) = explain(model, pictures, layers=["turn"], layouts=layouts, classes=[1])[0]
        torch.testing.assert_close(found.map, plain[0])

    def test_progress_counts_every_channel_once(self, model, x):
        told: list[tuple[int, int]] = []
        explain(
            model,
            x,
            layers=["stem", "last"],
            classes=[0],
            methods=["scorecam", "gradcam", "ablationcam"],
            flip=True,
            batch_size=4,
            progress=lambda done, total: told.append((done, total)),
        )
        total = 3 * (6 + 8) * 2 * 2  # pictures, channels, methods, flips
        assert {one for _, one in told} == {total}
        assert [done for done, _ in told] == sorted({done for done, _ in told})
        assert told[-1][0] == total

    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            ({"methods": ["nothing"]}, "unknown method"),
            ({"precision": "fp8"}, "bf16"),
            ({"top_k": 0}, "top_k"),
            ({"smooth": -1}, "smooth"),
            ({"batch_size": 0}, "batch_size"),
        ],
    )
    def test_settings_are_checked(self, model, x, settings, words):
        with pytest.raises(UsageError, match=words):
            explain(model, x, layers=["last"], **settings)


def test_address_objects_are_accepted(model, x):
    assert torch.equal(gradcam(model, x, Address("relu", 1), 1), gradcam(model, x, "relu@1", 1))


def test_modules_are_accepted(model, x):
    assert torch.equal(gradcam(model, x, model.conv, 1), gradcam(model, x, "conv", 1))
    assert torch.equal(gradcam(model, x, model.stem, 1), gradcam(model, x, "stem", 1))
    with pytest.raises(LayerNotFoundError, match="Conv2d is no layer of the model"):
        gradcam(model, x, nn.Conv2d(3, 3, 3), 1)


def test_the_default_layer_in_inference_mode(model, x):
    outside = gradcam(model, x, target=1)
    with torch.inference_mode():
        inside = gradcam(model, x, target=1)
    assert torch.equal(inside, outside)


def test_channels_that_do_not_fit_are_named(model):
    with pytest.raises(ModelError, match=r"reads pictures of 3 channels, and these have 4: the"):
        gradcam(model, torch.rand(2, 4, 16, 24))


@pytest.mark.parametrize("target", ["cat", ["cat", "dog", "cat"], 1.5, True, object()])
def test_a_target_is_a_class_index(model, x, target):
    with pytest.raises(UsageError, match="one class index") as caught:
        gradcam(model, x, "conv", target)
    assert "integer" in caught.value.hint
