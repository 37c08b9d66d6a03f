"""The two methods that ask the network again for every channel: ScoreCAM and AblationCAM.

Both weigh channels by scores; who runs the network is the caller's affair.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from hookscope.layout import Layout


def score_weights(scores: Tensor) -> Tensor:
    """softmax over the channels (the last axis) of the scores on masked pictures.

    Wang et al. 2020, Score-CAM, equation 8.
    """
    return scores.softmax(-1)


def ablation_weights(score: Tensor, without: Tensor) -> Tensor:
    """(y - y without channel k) / abs(y). Desai and Ramaswamy 2020, Ablation-CAM, equation 3.

    With abs, a channel whose removal lowers the score counts positively whatever the score's
    sign. A score of exactly zero is taken as 1: the map then has the right shape, not its scale.
    """
    size = score.abs()
    return (score - without) / torch.where(size > 0, size, torch.ones_like(size))


def masks(channels: Tensor, size: tuple[int, int]) -> Tensor:
    """Channels of one picture's activations (B x h x w) as masks B x 1 x H x W within [0, 1].

    Upsampled bilinearly, cell centres on the centres of the pixels they cover, then min-max
    scaled; a constant channel masks everything.
    """
    spatial = channels.unsqueeze(1)
    large = functional.interpolate(spatial, size, mode="bilinear", align_corners=False)
    low = large.amin((2, 3), keepdim=True)
    spread = large.amax((2, 3), keepdim=True) - low
    return (large - low) / torch.where(spread > 0, spread, torch.ones_like(spread))


def without_channels(layout: Layout, channels: Sequence[int | None]) -> Callable[[Tensor], Tensor]:
    """Makes of one picture's output a batch in which row i lacks channel i (None: lacks none).

    A channel is set to zero in all positions, class token included. An output that has as many
    rows as there are variants is taken row by row.
    """
    batch_axis = layout.batch_axis
    channel_axis = {"NCHW": 1, "NHWC": 3, "tokens": 2}[layout.kind]
    pairs = [(row, channel) for row, channel in enumerate(channels) if channel is not None]

    def variants(output: Tensor) -> Tensor:
        rows = output.movedim(batch_axis, 0)
        rows = rows.expand(len(channels), *rows.shape[1:]).clone()
        by_channel = rows.movedim(channel_axis, 1)
        where, what = zip(*pairs, strict=True) if pairs else ((), ())
        by_channel[list(where), list(what)] = 0
        return rows.movedim(0, batch_axis)

    return variants
