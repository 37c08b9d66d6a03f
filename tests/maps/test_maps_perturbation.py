from __future__ import annotations

import pytest
import torch

from hookscope.layout import Layout
from hookscope.maps.perturbation import ablation_weights, masks, score_weights, without_channels


def test_score_weights_sum_to_one():
    weights = score_weights(torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]))
    torch.testing.assert_close(weights.sum(1), torch.ones(2))
    assert weights[0].argmax() == 2


@pytest.mark.parametrize("score", [4.0, -4.0])
def test_a_channel_that_helps_counts_positively_whatever_the_sign(score):
    clean = torch.tensor([[score]])
    without = torch.tensor([[score - 1, score, score + 2]])
    expected = torch.tensor([[0.25, 0.0, -0.5]])
    torch.testing.assert_close(ablation_weights(clean, without), expected)


def test_a_score_of_zero_gives_no_nan():
    weights = ablation_weights(torch.zeros(1, 1), torch.tensor([[0.5, -0.5]]))
    assert weights.tolist() == [[-0.5, 0.5]]


def test_masks_span_zero_to_one_and_constants_mask_everything():
    channels = torch.randn(3, 3, 5)
    channels[1] = 4.2
    found = masks(channels, (12, 20))
    assert found.shape == (3, 1, 12, 20)
    assert found[[0, 2]].amin((1, 2, 3)).tolist() == [0, 0]
    assert found[[0, 2]].amax((1, 2, 3)).tolist() == [1, 1]
    assert not found[1].any()


def test_a_mask_lies_over_the_pixels_of_its_cell():
    cell = torch.zeros(1, 4, 6)
    cell[0, 1, 4] = 1
    mask = masks(cell, (32, 48))[0, 0]
    rows, columns = (mask == mask.max()).nonzero().float().mean(0).tolist()
    assert (rows, columns) == (8 + 3.5, 32 + 3.5)


@pytest.mark.parametrize(
    ("shape", "layout", "axis"),
    [
        ((1, 5, 3, 4), Layout("NCHW"), 1),
        ((1, 3, 4, 5), Layout("NHWC"), 3),
        ((1, 13, 5), Layout("tokens", prefix=1), 2),
        ((13, 1, 5), Layout("tokens", prefix=1, batch_axis=1), 2),
    ],
)
def test_each_row_lacks_its_channel(shape, layout, axis):
    output = torch.randn(shape)
    before = output.clone()
    rows = without_channels(layout, [None, 4, 0])(output).movedim(layout.batch_axis, 0)
    single = output.movedim(layout.batch_axis, 0)[0]
    assert torch.equal(rows[0], single)
    for row, channel in ((1, 4), (2, 0)):
        expected = single.clone()
        expected.select(axis - 1, channel).zero_()
        assert torch.equal(rows[row], expected)
    assert torch.equal(output, before)
