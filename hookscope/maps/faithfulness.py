"""What a map's marking is worth, and how much two maps have in common: numbers from tensors.

Average drop and increase in confidence: Chattopadhay et al., "Grad-CAM++", 2018, section 5.1.
Deletion and insertion: Petsiuk et al., "RISE", 2018, section 4.2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

STEPS = 16
"""Parts in which a picture is taken away, or brought back."""

_BLUR = 11, 5.0  # kernel and standard deviation in pixels, as in RISE


def over_picture(
    heatmap: Tensor, size: tuple[int, int], extent: tuple[float, float] = (1.0, 1.0)
) -> Tensor:
    """An h x w map as H x W weights within [0, 1]: min-max scaled, then enlarged bilinearly.

    ``extent``: the map's height and width in units of the picture's; what lies beyond is cut off.
    """
    low, high = torch.aminmax(heatmap)
    share = (heatmap - low) / (high - low)
    full = [max(side, round(side * part)) for side, part in zip(size, extent, strict=True)]
    large = functional.interpolate(share[None, None], full, mode="bilinear", align_corners=False)
    return large[0, 0, : size[0], : size[1]]


def average_drop(before: float, after: float) -> float:
    """The share of its confidence that a class loses: 0 where it loses none, 1 where it loses all.

    ``before``: its probability on the picture; ``after``: on the picture times the map, where only
    what the map marks is left. The average is that over many pictures.
    """
    return max(0.0, before - after) / before if before > 0 else 0.0


def erased(picture: Tensor, weights: Tensor, blank: Tensor, step: int) -> Tensor:
    """``picture`` (C x H x W) with the hottest ``step`` of ``STEPS`` parts replaced by ``blank``.

    ``weights``: H x W. Of equally hot pixels the first in reading order goes first.
    """
    count = -(-weights.numel() * step // STEPS)
    hottest = weights.flatten().argsort(descending=True, stable=True)[:count]
    gone = torch.zeros(weights.numel(), dtype=torch.bool, device=weights.device)
    gone[hottest] = True
    return torch.where(gone.view(weights.shape), blank, picture)


def deletions(picture: Tensor, weights: Tensor) -> list[Callable[[], Tensor]]:
    """``STEPS`` pictures: the hottest pixels turn to zero, part by part, until none is left.

    A network's input is normalised, so that zero is the mean colour.
    """
    blank = torch.zeros_like(picture)
    return [_erased(picture, weights, blank, step) for step in range(1, STEPS + 1)]


def insertions(picture: Tensor, weights: Tensor) -> list[Callable[[], Tensor]]:
    """``STEPS`` pictures: a blurred one, into which the hottest pixels come, and not yet all."""
    soft = blurred(picture)
    return [_erased(soft, weights, picture, step) for step in range(STEPS)]


def blurred(picture: Tensor) -> Tensor:
    """``picture`` (C x H x W) through a Gaussian of 11 x 11 pixels, standard deviation 5."""
    from torchvision.transforms.v2.functional import gaussian_blur

    kernel, deviation = _BLUR
    shorter = min(picture.shape[-2:])
    odd = min(kernel, 2 * shorter - 1)  # the picture is mirrored at its edges, once
    return gaussian_blur(picture, [odd, odd], [deviation, deviation])


def area(curve: Sequence[float]) -> float:
    """The area under a curve over [0, 1] by trapezoids, its points at equal distances."""
    return (sum(curve) - (curve[0] + curve[-1]) / 2) / (len(curve) - 1)


def rank_correlation(one: Tensor, other: Tensor) -> float | None:
    """Spearman's rank correlation of two maps of one shape, -1 to 1; equal values share a rank.

    None where either is constant or not finite: then there are no ranks to compare.
    """
    ranks = torch.stack([_ranks(one), _ranks(other)])
    ranks -= ranks.mean(1, keepdim=True)
    size = ranks.square().sum(1).prod().sqrt()
    finite = bool(one.isfinite().all() and other.isfinite().all())
    if not finite or size == 0:
        return None
    return float(((ranks[0] * ranks[1]).sum() / size).clamp(-1, 1))


def _erased(picture: Tensor, weights: Tensor, blank: Tensor, step: int) -> Callable[[], Tensor]:
    return lambda: erased(picture, weights, blank, step)


def _ranks(values: Tensor) -> Tensor:
    _, place, counts = torch.unique(values.flatten(), return_inverse=True, return_counts=True)
    last = counts.cumsum(0).double()
    return (last - (counts - 1) / 2)[place]
