"""From a picture to the network's input, and the geometry that leads back to the picture."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from hookscope.errors import ModelError, PictureError, UsageError

Size = tuple[int, int]

_FILTERS = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "nearest": Image.Resampling.NEAREST,
}
_MODES = {1: "L", 3: "RGB"}
_MOST_PIXELS = 1 << 28


@dataclass(frozen=True)
class Geometry:
    """Where a network's input lies on the picture it was made from; sizes are (height, width).

    ``picture`` was resized to ``resized``; of that, ``crop`` = (top, left, height, width) is the
    input. A crop that reaches beyond the resized picture was padded with black.
    """

    picture: Size
    resized: Size
    crop: tuple[int, int, int, int]

    @property
    def seen(self) -> tuple[float, float, float, float]:
        """(left, top, right, bottom) of the input in picture pixels; beyond it where padded."""
        top, left, height, width = self.crop
        down = self.picture[0] / self.resized[0]
        across = self.picture[1] / self.resized[1]
        return left * across, top * down, (left + width) * across, (top + height) * down


@dataclass(frozen=True)
class Preprocessing:
    """What happens to a picture before the network: convert, resize, centre crop, normalise.

    ``resize``: the new shorter side, a (height, width) to stretch to, or ``None``.
    ``crop``: (height, width) cut from the centre, padded with black where the picture is smaller.
    ``mean`` and ``std``: one number a channel, on the scale 0 to 1; ``None``: not normalised.
    ``interpolation``: ``bilinear``, ``bicubic`` or ``nearest``. ``antialias=False`` resizes the
    tensor without low-pass filter, as torchvision's video presets do; Pillow always filters.
    ``channels``: 3 (RGB) or 1 (grey). ``frames``: a clip of that many times the same picture.
    """

    resize: int | Size | None = 256
    crop: Size | None = (224, 224)
    mean: tuple[float, ...] | None = (0.485, 0.456, 0.406)
    std: tuple[float, ...] | None = (0.229, 0.224, 0.225)
    interpolation: str = "bilinear"
    antialias: bool = True
    channels: int = 3
    frames: int | None = None

    @property
    def input_size(self) -> Size | None:
        """(height, width) of the input; a square where only the shorter side is fixed."""
        if self.crop is not None:
            return self.crop
        if isinstance(self.resize, int):
            return self.resize, self.resize
        return self.resize

    def override(self, **changes: Any) -> Preprocessing:
        """The same with these fields changed; sizes as ``parse_size`` gives them.

        Raises ``UsageError`` where the numbers do not go with the network's channels.
        """
        if isinstance(changes.get("crop"), int):
            changes["crop"] = (changes["crop"], changes["crop"])
        interpolation = changes.get("interpolation", self.interpolation)
        if interpolation not in _FILTERS:
            raise UsageError(
                f"--interpolation {interpolation!r} is unknown", f"One of {', '.join(_FILTERS)}."
            )
        for field in ("mean", "std"):
            numbers = changes.get(field)
            if numbers is not None and len(numbers) != self.channels:
                raise UsageError(
                    f"--{field} has {len(numbers)} numbers, the model {self.channels} channels"
                )
            if field == "std" and numbers is not None and min(numbers) <= 0:
                raise UsageError("--std is divided by: its numbers are above 0")
        changed = dataclasses.replace(self, **changes)
        if (changed.mean is None) != (changed.std is None):
            ones, zeros = (1.0,) * self.channels, (0.0,) * self.channels
            changed = dataclasses.replace(
                changed, mean=changed.mean or zeros, std=changed.std or ones
            )
        return changed

    def for_input(self, size: Size) -> Preprocessing:
        """The same for a network that takes only ``size``, (height, width).

        A square keeps the margin between resize and crop; anything else is stretched, since a
        crop of another shape than the picture's would hide most of it.
        """
        height, width = size
        if height != width:
            return dataclasses.replace(self, resize=size, crop=None)
        if self.resize is None or self.crop is None:
            return dataclasses.replace(self, resize=height, crop=size)
        scale = height / self.crop[0]
        if isinstance(self.resize, int):
            resize: int | Size = round(self.resize * scale)
        else:
            resize = round(self.resize[0] * scale), round(self.resize[1] * scale)
        return dataclasses.replace(self, resize=resize, crop=size)

    def record(self) -> dict[str, Any]:
        """The fields as JSON: lists for tuples."""
        return {
            field.name: list(value) if isinstance(value, tuple) else value
            for field in dataclasses.fields(self)
            for value in [getattr(self, field.name)]
        }

    def geometry(self, picture: Size) -> Geometry:
        """What ``__call__`` does to a picture of (height, width).

        Raises ``PictureError`` for a strip so long that resizing it would fill the memory.
        """
        resized = _resized(picture, self.resize)
        if self.crop is None:
            return Geometry(picture, resized, (0, 0, *resized))
        top, left = (_offset(*pair) for pair in zip(resized, self.crop, strict=True))
        return Geometry(picture, resized, (top, left, *self.crop))

    def __call__(self, picture: Image.Image) -> tuple[Tensor, Geometry]:
        """The picture as a float32 tensor (channels, height, width), and how it lies on it.

        Equal, bit for bit, to torchvision's presets on the same picture in RGB. With ``frames``
        the tensor is (channels, frames, height, width). Raises ``ModelError`` where the network
        takes neither grey nor RGB.
        """
        if self.channels not in _MODES:
            raise ModelError(
                f"the model takes {self.channels} channels; a picture has 3, or 1 in grey"
            )
        geometry = self.geometry((picture.height, picture.width))
        converted = picture.convert(_MODES[self.channels])
        top, left, height, width = geometry.crop
        if self.antialias:
            resized = _resize(converted, geometry.resized, self.interpolation)
            pixels = _pixels(resized.crop((left, top, left + width, top + height)))
        else:
            resized_pixels = _resize_without_filter(
                _pixels(converted), geometry.resized, self.interpolation
            )
            pixels = _crop(resized_pixels, geometry.crop)
        return self._normalise(pixels), geometry

    def _normalise(self, pixels: Tensor) -> Tensor:
        tensor = pixels.to(torch.float32, memory_format=torch.contiguous_format).div_(255)
        if self.mean is not None and self.std is not None:
            tensor.sub_(torch.tensor(self.mean).view(-1, 1, 1))
            tensor.div_(torch.tensor(self.std).view(-1, 1, 1))
        if self.frames is not None:
            return tensor.unsqueeze(1).expand(-1, self.frames, -1, -1)
        return tensor


def parse_size(text: str) -> int | Size | None:
    """``"256"`` -> 256, ``"480x640"`` -> (480, 640), ``"none"`` -> ``None``, or ``UsageError``."""
    if text.strip().casefold() == "none":
        return None
    sides = text.strip().casefold().split("x")
    if len(sides) > 2 or not all(side.isdecimal() and int(side) > 0 for side in sides):
        raise UsageError(f"{text!r} is not a size", "A size is N, HEIGHTxWIDTH or none.")
    numbers = [int(side) for side in sides]
    return numbers[0] if len(numbers) == 1 else (numbers[0], numbers[1])


def parse_numbers(text: str) -> tuple[float, ...]:
    """``"0.5,0.5,0.5"`` -> (0.5, 0.5, 0.5); ``UsageError`` for anything else."""
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or not all(np.isfinite(numbers)):
        raise UsageError(f"{text!r} is not a list of numbers", "For example: 0.485,0.456,0.406")
    return numbers


def _resized(picture: Size, resize: int | Size | None) -> Size:
    if resize is None:
        return picture
    if not isinstance(resize, int):
        return resize
    height, width = picture
    if height <= width:
        resized = resize, int(resize * width / height)
    else:
        resized = int(resize * height / width), resize
    if resized[0] * resized[1] > _MOST_PIXELS:
        raise PictureError(
            f"the picture is too long for its width: {width}x{height} would be resized to "
            f"{resized[1]}x{resized[0]}",
            "Cut it, or stretch it with --resize HxW.",
        )
    return resized


def _offset(side: int, crop: int) -> int:
    """Where a centred crop begins; as torchvision rounds, half to even, and padding down."""
    return round((side - crop) / 2) if side >= crop else -((crop - side) // 2)


def _resize(picture: Image.Image, size: Size, interpolation: str) -> Image.Image:
    height, width = size
    if picture.size == (width, height):
        return picture
    return picture.resize((width, height), _FILTERS[interpolation])


def _resize_without_filter(pixels: Tensor, size: Size, interpolation: str) -> Tensor:
    from torchvision.transforms import InterpolationMode, functional

    mode = InterpolationMode(interpolation)
    return functional.resize(pixels, list(size), interpolation=mode, antialias=False)


def _crop(pixels: Tensor, crop: Sequence[int]) -> Tensor:
    from torchvision.transforms import functional

    return functional.crop(pixels, *crop)


def _pixels(picture: Image.Image) -> Tensor:
    array = np.array(picture)
    return torch.from_numpy(array if array.ndim == 3 else array[..., None]).permute(2, 0, 1)
