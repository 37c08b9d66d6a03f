"""Maps averaged over the mirror, over noise and over layers."""

from __future__ import annotations

import pytest
import torch
from small_network import Small, pictures, small
from torch import Tensor, nn

from hookscope.gradcam import explain, gradcam
from hookscope.gradcam.noise import noised


@pytest.fixture
def model() -> Small:
    return small()


@pytest.fixture
def x() -> Tensor:
    return pictures()


def test_flip_commutes_with_the_mirror(model, x):
    found = gradcam(model, x, "last", 2, flip=True)
    torch.testing.assert_close(gradcam(model, x.flip(-1), "last", 2, flip=True), found.flip(-1))
    by_hand = (gradcam(model, x, "last", 2) + gradcam(model, x.flip(-1), "last", 2).flip(-1)) / 2
    torch.testing.assert_close(found, by_hand)


def test_flip_keeps_the_class_of_the_picture_as_it_is(model, x):
    found = explain(model, x, layers=["last"], flip=True)
    assert [h[0].class_index for h in found] == model(x).argmax(1).tolist()
    assert [h[0].score for h in found] == pytest.approx(model(x).amax(1).tolist())


def test_smooth_is_seeded_and_independent_of_the_batch(model, x):
    state = torch.get_rng_state()
    found = gradcam(model, x, "last", 2, smooth=3, seed=5)
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(found, gradcam(model, x, "last", 2, smooth=3, seed=5))
    assert not torch.equal(found, gradcam(model, x, "last", 2, smooth=3, seed=6))
    alone = gradcam(model, x[1:2], "last", 2, smooth=3, seed=5)
    torch.testing.assert_close(found[1:2], alone, rtol=1e-4, atol=1e-6)


def test_smooth_is_the_mean_over_noised_pictures(model, x):
    noise = noised(x, 0, 0) - x
    spread = x.amax((1, 2, 3)) - x.amin((1, 2, 3))
    torch.testing.assert_close(
        noise.std((1, 2, 3)) / spread, torch.full((3,), 0.15), rtol=0.05, atol=0
    )
    by_hand = torch.stack([gradcam(model, noised(x, 0, k), "last", 2) for k in range(3)])
    torch.testing.assert_close(gradcam(model, x, "last", 2, smooth=3), by_hand.mean(0))


def test_fuse_is_the_mean_of_the_layers_on_one_scale(model, x):
    (fused,) = explain(model, x, layers=["last", "conv"], classes=[1], fuse=True)[0]
    one, other = explain(model, x, layers=["last", "conv"], classes=[1])[0]
    torch.testing.assert_close(
        fused.map, (one.map / one.map.max() + other.map / other.map.max()) / 2
    )
    assert fused.layer == "conv+last"
    assert fused.call is None


def test_fuse_brings_maps_to_the_finest_grid(x):
    pooled = nn.Sequential(nn.Conv2d(3, 4, 3, 1, 1), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3, 2))
    model = nn.Sequential(pooled, nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    (fused,) = explain(model, x, layers=["0.2", "0.0"], classes=[1], fuse=True)[0]
    assert fused.map.shape == (16, 24)
    assert 0 <= fused.map.min() <= fused.map.max() <= 1
