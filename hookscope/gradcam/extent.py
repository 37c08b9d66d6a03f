"""How far a map reaches beyond the network's input, where a model pads its input by itself."""

from __future__ import annotations

from torch import Tensor, nn


def extents(model: nn.Module, x: Tensor) -> list[tuple[float, float]]:
    """For each picture the map's height and width in units of the input's.

    torchvision's detection models resize the pictures and pad them, below and to the right, to a
    multiple of 32, all within their own ``GeneralizedRCNNTransform``.
    """
    for part in model.children():
        if any(base.__name__ == "GeneralizedRCNNTransform" for base in type(part).__mro__):
            images, _ = part(list(x))
            height, width = images.tensors.shape[-2:]
            return [(height / h, width / w) for h, w in images.image_sizes]
    return [(1.0, 1.0)] * len(x)
