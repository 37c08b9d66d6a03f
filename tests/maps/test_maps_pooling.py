from __future__ import annotations

import pytest
import torch

from hookscope.errors import UsageError
from hookscope.layout import Layout
from hookscope.maps.pooling import pool

TOKENS = Layout("tokens", prefix=2, grid=(2, 3))


def test_mean_and_max_are_the_same_in_every_layout():
    maps = torch.randn(4, 5, 2, 3)
    channels_last = maps.permute(0, 2, 3, 1)
    patches = maps.flatten(2).transpose(1, 2)
    tokens = torch.cat([torch.full((4, 2, 5), 1e6), patches], dim=1)
    for how, expected in (("mean", maps.mean((2, 3))), ("max", maps.amax((2, 3)))):
        torch.testing.assert_close(pool(maps, how, Layout("NCHW")), expected)
        torch.testing.assert_close(pool(channels_last, how, Layout("NHWC")), expected)
        torch.testing.assert_close(pool(tokens, how, TOKENS), expected)


def test_class_token_is_the_first():
    tokens = torch.randn(4, 8, 5)
    assert torch.equal(pool(tokens, "cls", TOKENS), tokens[:, 0])


@pytest.mark.parametrize("layout", [Layout("NCHW"), Layout("tokens", prefix=0)])
def test_no_class_token_is_said(layout):
    with pytest.raises(UsageError, match="no class token"):
        pool(torch.randn(2, 4, 4, 4), "cls", layout)


@pytest.mark.parametrize("how", ["mean", "max", "flatten"])
def test_a_vector_stays(how):
    vectors = torch.randn(3, 7)
    assert torch.equal(pool(vectors, how, Layout("vector")), vectors)


def test_flatten_keeps_every_value():
    maps = torch.randn(3, 4, 2, 2)
    assert torch.equal(pool(maps, "flatten", Layout("NCHW")), maps.reshape(3, 16))


def test_the_batch_axis_comes_first():
    hidden = torch.randn(2, 6, 5)
    assert pool(hidden, "flatten", Layout("other", batch_axis=1)).shape == (6, 10)


def test_unknown_pooling_is_named():
    with pytest.raises(UsageError, match="mean"):
        pool(torch.randn(1, 2), "meen", Layout("vector"))
