"""The layer for CAM, on the architectures that people use and on built cases."""

from __future__ import annotations

import warnings

import pytest
import timm
import torch
from layer_networks import Tokens
from torch import Tensor, nn
from torch.nn import functional as F

from hookscope.layers.probe import probe
from hookscope.models.structure import without_initialisation


def timm_model(name: str) -> nn.Module:
    with without_initialisation(), warnings.catch_warnings():
        # timm warns of its own deprecated imports.
        warnings.simplefilter("ignore")
        return timm.create_model(name, pretrained=False)


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("resnet18", "layer4"),
        ("convnext_atto", "stages"),
        ("vit_tiny_patch16_224", "blocks.11.norm1"),
        ("deit_tiny_patch16_224", "blocks.11.norm1"),
        ("deit_tiny_distilled_patch16_224", "blocks.11.norm1"),
        ("vit_small_patch14_reg4_dinov2", "blocks.11.norm1"),
        ("vit_base_patch16_siglip_gap_224", "norm"),
        ("swin_tiny_patch4_window7_224", "norm"),
        ("mixer_s32_224", "norm"),
        ("efficientnet_b0", "bn2"),
        ("regnetx_002", "s4"),
        ("maxvit_tiny_tf_224", "stages"),
        ("coatnet_rmlp_nano_rw_224", "norm"),
    ],
)
def test_families_of_timm(name: str, layer: str) -> None:
    found = probe(timm_model(name))
    assert found.problem is None
    assert found.cam_default == layer


class Net(nn.Module):
    """``stem`` and ``body`` by convolution, read out by ``top``."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(inplace=True))
        self.body = nn.Sequential(nn.Conv2d(4, 4, 3, stride=2, padding=1), nn.BatchNorm2d(4))
        self.drop = nn.Dropout()
        self.flat = nn.Flatten()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> object:
        return self.top(self.drop(self.body(self.stem(x))))

    def top(self, x: Tensor) -> object:
        return self.head(self.flat(self.pool(x)))


def default(model: nn.Module, size: tuple[int, int] = (32, 32)) -> str | None:
    return probe(model, size).cam_default


def test_the_outermost_of_one_value_and_no_no_op() -> None:
    assert default(Net()) == "body"


def test_a_layer_written_over_in_place_still_counts() -> None:
    class Over(Net):
        def top(self, x: Tensor) -> object:
            return super().top(F.relu(x, inplace=True))

    assert default(Over()) == "body"


def test_maps_under_four_cells_do_not_count() -> None:
    assert default(Net(), (8, 32)) == "body"
    assert default(Net(), (6, 32)) == "stem"
    assert default(Net(), (3, 3)) is None


def test_a_pooling_of_fixed_size_is_no_map_of_the_picture() -> None:
    class Pooled(Net):
        def __init__(self) -> None:
            super().__init__()
            self.pool = nn.AdaptiveAvgPool2d(5)
            self.head = nn.Linear(100, 3)

    assert default(Pooled()) == "body"


def test_what_a_shortcut_goes_round_is_no_cut() -> None:
    class Shortcut(Net):
        def forward(self, x: Tensor) -> object:
            x = self.stem(x)
            y = self.body(x)
            return self.head(torch.cat([x.mean((2, 3))[:, :2], y.mean((2, 3))[:, :2]], 1))

    assert default(Shortcut()) == "stem"


def test_one_of_two_ways_where_nothing_lies_on_both() -> None:
    class Ways(Net):
        def __init__(self) -> None:
            super().__init__()
            self.other = nn.Conv2d(3, 4, 3)

        def forward(self, x: Tensor) -> object:
            return self.head(self.stem(x).mean((2, 3)) + self.other(x).mean((2, 3)))

    assert default(Ways()) in ("stem", "other")


def test_the_call_is_named_where_a_module_runs_twice() -> None:
    class Twice(Net):
        def __init__(self) -> None:
            super().__init__()
            self.again = nn.Conv2d(4, 4, 3, padding=1)

        def forward(self, x: Tensor) -> object:
            return super().top(self.again(self.again(self.stem(x))))

    assert default(Twice()) == "again@2"


@pytest.mark.parametrize(
    "wrap",
    [
        lambda s: {"aux": s[:, :1], "logits": s},
        lambda s: (s.new_ones(3), s),
        lambda s: [{"boxes": s.detach(), "scores": s}],
    ],
)
def test_the_scores_are_found_in_what_is_returned(wrap: object) -> None:
    class Wrapped(Net):
        def top(self, x: Tensor) -> object:
            return wrap(super().top(x))

    assert default(Wrapped()) == "body"


def test_without_a_graph_the_last_map_is_taken() -> None:
    class Detached(Net):
        def top(self, x: Tensor) -> object:
            return super().top(x.detach())

    assert default(Detached()) == "body"


def test_weights_and_training_mode_have_no_say() -> None:
    model = Net().train()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    model.requires_grad_(False)
    assert default(model) == "body"


def test_a_class_token_is_read_before_the_last_attention() -> None:
    assert default(Tokens(1, "class")) == "blocks.1.norm1"
    assert default(Tokens(5, "class", depth=3), (32, 64)) == "blocks.2.norm1"


def test_tokens_that_are_averaged_count_to_the_end() -> None:
    assert default(Tokens(1, "mean")) == "norm"


def test_a_comparison_of_pictures_has_none() -> None:
    class Pair(Net):
        def forward(self, x: Tensor, y: Tensor) -> object:
            return super().forward(x - y)

    assert default(Pair()) is None
