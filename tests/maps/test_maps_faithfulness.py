"""The numbers behind --evaluate, against scipy, torchvision, and cases that one can count."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import spearmanr

from hookscope.maps.faithfulness import (
    STEPS,
    area,
    average_drop,
    blurred,
    deletions,
    erased,
    insertions,
    over_picture,
    rank_correlation,
)

SEEDED = torch.Generator().manual_seed(3)


@pytest.mark.parametrize("ties", [False, True])
def test_rank_correlation_is_scipys(ties: bool) -> None:
    for _ in range(5):
        one, other = torch.rand(2, 7, 9, generator=SEEDED)
        if ties:
            one, other = (one * 6).round(), (other * 3).round()
        expected = spearmanr(one.flatten(), other.flatten()).statistic
        assert rank_correlation(one, other) == pytest.approx(expected, abs=1e-12)


def test_rank_correlation_at_its_ends_and_where_there_are_no_ranks() -> None:
    one = torch.rand(5, 5, generator=SEEDED)
    assert rank_correlation(one, one.exp()) == pytest.approx(1)
    assert rank_correlation(one, -one) == pytest.approx(-1)
    assert rank_correlation(one, torch.ones(5, 5)) is None
    assert rank_correlation(torch.full((5, 5), math.nan), one) is None


def test_the_average_drop_is_a_share_and_never_negative() -> None:
    assert average_drop(0.8, 0.2) == pytest.approx(0.75)
    assert average_drop(0.2, 0.8) == 0
    assert average_drop(0.0, 0.0) == 0


def test_the_area_of_a_line_and_of_a_step() -> None:
    assert area([0.0, 0.5, 1.0]) == 0.5
    assert area([1.0, 1.0, 0.0, 0.0]) == pytest.approx(0.5)
    assert area([0.3] * 17) == pytest.approx(0.3)


def test_weights_lie_where_the_map_lies() -> None:
    heatmap = torch.zeros(2, 4) - 3
    heatmap[1, 2] = 5
    weights = over_picture(heatmap, (20, 40))
    assert weights.shape == (20, 40)
    assert weights.min() == 0
    assert (weights.flatten().argmax().item() // 40, weights[-1].argmax().item()) >= (15, 24)
    assert weights.max() == pytest.approx(1, abs=0.06)  # a pixel's centre is beside the cell's
    # A model that pads its input has a map that reaches beyond the picture.
    beyond = over_picture(heatmap, (20, 20), (1.0, 2.0))
    assert torch.equal(beyond, weights[:, :20])


def test_the_hottest_pixels_go_first() -> None:
    picture = torch.ones(3, 4, 8)
    weights = torch.arange(32.0).view(4, 8)
    gone = erased(picture, weights, torch.zeros_like(picture), STEPS // 4)
    assert (gone[:, 3] == 0).all()
    assert (gone[:, :3] == 1).all()
    equal = erased(picture, torch.zeros(4, 8), torch.zeros_like(picture), STEPS // 4)
    assert (equal[:, 0] == 0).all()
    assert (equal[:, 1:] == 1).all()


def test_deletion_ends_with_nothing_and_insertion_starts_from_a_blur() -> None:
    picture = torch.rand(3, 24, 32, generator=SEEDED)
    weights = torch.rand(24, 32, generator=SEEDED)
    less, more = (
        [variant() for variant in variants(picture, weights)]
        for variants in (deletions, insertions)
    )
    assert len(less) == len(more) == STEPS
    assert (less[-1] == 0).all()
    assert torch.equal(more[0], blurred(picture))
    kept = [(variant != 0).all(0).sum().item() for variant in less]
    assert kept == [24 * 32 * (STEPS - step) // STEPS for step in range(1, STEPS + 1)]
    came = [(variant == picture).all(0).sum().item() for variant in more]
    assert came == [24 * 32 * step // STEPS for step in range(STEPS)]


def test_the_blur_keeps_the_mean_and_takes_pictures_of_any_size() -> None:
    flat = torch.full((3, 30, 30), 0.7)
    torch.testing.assert_close(blurred(flat), flat)
    noise = torch.rand(3, 64, 64, generator=SEEDED)
    assert blurred(noise).std() < noise.std() / 4
    assert blurred(torch.rand(1, 3, 40, generator=SEEDED)).shape == (1, 3, 40)
