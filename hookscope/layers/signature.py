"""What a model wants to be fed, read off its modules: channels, size, and the kind of input."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hookscope.layers.modules import unwrap

Size = tuple[int, int]
Inputs = tuple[Any, ...]

# Clips of 16 frames suit every video model of torchvision (MViT takes no other length).
FRAMES = 16
WORDS = 16


def input_channels(model: nn.Module) -> int:
    """The channels of the picture: what the first convolution reads, 3 where there is none."""
    convolution = _first(model, _reads_pictures)
    if convolution is not None:
        return _channels_of(convolution)
    side = _flat_picture(model)
    return side[0] if side else 3


def fixed_input_size(model: nn.Module) -> Size | None:
    """The only H x W that the model takes, where its structure says so; None where it does not.

    Known are torchvision's and timm's transformers, models with an ``image_size`` or ``img_size``
    of their own, and those that flatten the picture into a linear layer. A convolutional model
    with a linear layer of fixed size shows only when it runs: ``probe`` finds its size.
    """
    model = unwrap(model)
    embedding = getattr(model, "patch_embed", None)
    if getattr(embedding, "strict_img_size", True) is False:
        return None
    configuration = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", None)
    if isinstance(configuration, dict):
        if not configuration.get("fixed_input_size"):
            return None
        return _size(getattr(embedding, "img_size", None)) or _size(configuration["input_size"])
    for holder in (model, embedding, getattr(model, "config", None)):
        for name in ("image_size", "img_size"):
            size = _size(getattr(holder, name, None))
            if size is not None:
                return size
    if type(model).__name__ == "MaxVit":
        return _size([4 * side for side in model.blocks[0].grid_size])  # type: ignore
    flat = _flat_picture(model)
    return (flat[1], flat[1]) if flat else None


def example_inputs(
    model: nn.Module,
    size: Size,
    batch: int = 1,
    *,
    channels: int | None = None,
    device: torch.device | str = "meta",
) -> Iterator[Inputs]:
    """Inputs that the model may take, as positional arguments, the likeliest first.

    Pictures N x C x H x W in [0, 1]; a list of C x H x W for detection, N x C x T x H x W for
    video, as many pictures as ``forward`` asks for; last the vectors, sequences or words that a
    first layer of another kind reads.
    """
    model = unwrap(model)
    count = channels or input_channels(model)

    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)

    def grey(*shape: int) -> Tensor:
        return torch.full(shape, 0.5, device=device, dtype=dtype)

    if type(getattr(model, "transform", None)).__name__ == "GeneralizedRCNNTransform":
        yield ([grey(count, *size) for _ in range(batch)],)
        return
    first = _first(model, _reads_anything)
    rank = _picture_rank(first)
    shapes = {
        3: (batch, count, 64 * size[1]),
        4: (batch, count, *size),
        5: (batch, count, FRAMES, *size),
    }
    yield tuple(grey(*shapes[rank]) for _ in range(_required_arguments(model)))
    if isinstance(first, nn.Embedding):
        yield (torch.zeros(batch, WORDS, dtype=torch.long, device=device),)
    elif isinstance(first, nn.RNNBase):
        shape = (batch, WORDS) if first.batch_first else (WORDS, batch)
        yield (grey(*shape, first.input_size),)
    elif isinstance(first, nn.Linear):
        yield (grey(batch, first.in_features),)
        yield (grey(batch, WORDS, first.in_features),)
    if rank == 4 and count != 3 and channels is None:
        yield (grey(batch, 3, *size),)


def _first(model: nn.Module, wanted: Callable[[nn.Module], bool]) -> nn.Module | None:
    return next((module for module in model.modules() if wanted(module)), None)


def _reads_pictures(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    has_kernel = isinstance(weight, Tensor) and _rank(weight) >= 4
    return isinstance(getattr(module, "in_channels", None), int) or has_kernel


def _reads_anything(module: nn.Module) -> bool:
    return _reads_pictures(module) or isinstance(module, (nn.Linear, nn.RNNBase, nn.Embedding))


def _rank(weight: Tensor) -> int:
    return 0 if nn.parameter.is_lazy(weight) else weight.dim()


def _channels_of(convolution: nn.Module) -> int:
    declared = getattr(convolution, "in_channels", None)
    # A lazy convolution declares 0 until it has seen its first picture.
    if isinstance(declared, int):
        return declared or 3
    weight = convolution.weight
    return int(weight.shape[1])  # type: ignore[index]


def _picture_rank(first: nn.Module | None) -> int:
    """How many axes the input has: 4 for pictures, 5 for video, 3 for sound."""
    kernel = getattr(first, "kernel_size", None)
    if isinstance(kernel, Sequence) and first is not None and _reads_pictures(first):
        return {1: 3, 2: 4, 3: 5}.get(len(kernel), 4)
    return 4


def _required_arguments(model: nn.Module) -> int:
    """How many arguments ``forward`` cannot do without: two for optical flow or twin networks."""
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):
        return 1
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [p for p in parameters if p.kind in kinds and p.default is p.empty]
    return max(1, len(required))


def _flat_picture(model: nn.Module) -> tuple[int, int] | None:
    """Channels and side of the square picture that a first linear layer reads as one vector."""
    first = _first(model, _reads_anything)
    if not isinstance(first, nn.Linear):
        return None
    for channels in (1, 3):
        side = math.isqrt(first.in_features // channels)
        if side >= 8 and channels * side * side == first.in_features:
            return channels, side
    return None


def _size(value: Any) -> Size | None:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value, value
    if isinstance(value, (tuple, list)) and len(value) >= 2:
        height, width = value[-2:]
        if isinstance(height, int) and isinstance(width, int):
            return height, width
    return None
