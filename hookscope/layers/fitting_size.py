"""Which input size a model takes, where it takes one only and does not say which."""

from __future__ import annotations

from torch import nn

from hookscope.layers.signature import Size, fixed_input_size
from hookscope.layers.trial import StandIn, first_that_runs

USUAL_SIZE = (224, 224)
# Sides to try; the commonest first.
SIDES = (32, 28, 64, 96, 128, 299, 256, 384, 48, 112, 160, 192, 512)


def fitting_size(model: nn.Module, usual: Size = USUAL_SIZE) -> Size:
    """The H x W to feed: ``usual``, unless ``model`` takes another only.

    Its fixed size where its structure says one; else, where a pass at ``usual`` fails (a linear
    layer behind unpooled maps), the first of the usual sizes that it runs through with.
    """
    trial = first_that_runs(StandIn(model), likely_sizes(model, usual), traced=False)
    return trial.feed.size


def likely_sizes(model: nn.Module, usual: Size = USUAL_SIZE) -> list[Size]:
    """The sizes to try, the likeliest first; one alone where the structure settles it."""
    fixed = fixed_input_size(model)
    return [fixed] if fixed else [usual, *((side, side) for side in SIDES)]
