"""Which preprocessing a network was trained with, from whoever knows it best."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from torch import nn

from hookscope.errors import ModelError
from hookscope.layers.fitting_size import fitting_size
from hookscope.layers.signature import fixed_input_size, input_channels
from hookscope.models.preprocess import Preprocessing, Size

_FRAMES = 16


def of_torchvision(transform: Any, meta: Mapping[str, Any] | None = None) -> Preprocessing:
    """The same as ``transform``, which is what ``weights.transforms()`` returned.

    A video preset becomes a clip of one picture repeated, each frame resized as the preset does.
    A detection preset leaves the size to the network; optical flow is one picture of the pair.
    """
    kind = type(transform).__name__
    if kind == "ObjectDetection":
        return Preprocessing(resize=None, crop=None, mean=None, std=None)
    if kind == "OpticalFlow":
        return Preprocessing(resize=None, crop=None, mean=(0.5,) * 3, std=(0.5,) * 3)
    if kind not in ("ImageClassification", "SemanticSegmentation", "VideoClassification"):
        raise ModelError(f"the preset {kind} of these weights is not known to hookscope")
    video = kind == "VideoClassification"
    return Preprocessing(
        resize=_shorter_side_or_both(transform.resize_size),
        crop=_both(getattr(transform, "crop_size", None)),
        mean=tuple(transform.mean),
        std=tuple(transform.std),
        interpolation=transform.interpolation.value,
        antialias=not video,
        frames=max(_FRAMES, (meta or {}).get("min_temporal_size", 0)) if video else None,
    )


def of_timm(config: Mapping[str, Any], channels: int) -> Preprocessing:
    """The evaluation transform of timm's data ``config``, for a network that takes ``channels``.

    Equal to timm's for the crop modes ``center`` and ``squash`` on square inputs. What is not
    square, and the rare mode ``border`` (fitted whole into a frame), is stretched instead.
    """
    _, height, width = config["input_size"]
    size = (height, width)
    larger = math.floor(height / config["crop_pct"]), math.floor(width / config["crop_pct"])
    plain = Preprocessing(
        mean=_for_channels(config["mean"], channels),
        std=_for_channels(config["std"], channels),
        interpolation=config["interpolation"],
        channels=channels,
    )
    if config["crop_mode"] == "squash":
        return dataclasses.replace(plain, resize=larger, crop=size)
    if config["crop_mode"] == "border" or height != width:
        return dataclasses.replace(plain, resize=size, crop=None)
    return dataclasses.replace(plain, resize=larger[0], crop=size)


def of_model(model: nn.Module, base: Preprocessing | None = None) -> Preprocessing:
    """For a network without a preset of its own: ``base``, as far as the network can take it.

    Its fixed input size and its number of input channels win; grey is not normalised.
    """
    channels, size = input_channels(model), fixed_input_size(model)
    return adapted(base or Preprocessing(), channels, size)


def of_unknown(model: nn.Module) -> Preprocessing:
    """For a network of which nothing is known: ImageNet's, at the size that a pass runs at."""
    return adapted(Preprocessing(), input_channels(model), fitting_size(model))


def adapted(base: Preprocessing, channels: int, size: Size | None) -> Preprocessing:
    """``base`` for a network of ``channels`` that takes only ``size`` (``None``: any size)."""
    if size is not None and size != base.input_size:
        base = base.for_input(size)
    if channels != base.channels:
        base = dataclasses.replace(base, channels=channels, mean=None, std=None)
    return base


def _shorter_side_or_both(size: list[int] | None) -> int | Size | None:
    if size is None or len(size) == 1:
        return size[0] if size else None
    return size[0], size[1]


def _both(size: list[int] | None) -> Size | None:
    return (size[0], size[-1]) if size else None


def _for_channels(numbers: tuple[float, ...], channels: int) -> tuple[float, ...] | None:
    """Grey gets the mean of the three: timm sums the first convolution's weights for it."""
    if channels == 1:
        return (sum(numbers) / len(numbers),)
    return tuple(float(number) for number in numbers) if len(numbers) == channels else None
