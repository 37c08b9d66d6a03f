"""Preprocessing equals the presets, and its geometry says where the input lies."""

from __future__ import annotations

import json

import numpy as np
import pytest
import timm
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from timm.data import create_transform, resolve_data_config
from torchvision import models
from torchvision.transforms import functional

from hookscope.errors import ModelError, PictureError, UsageError
from hookscope.models import presets
from hookscope.models.preprocess import Preprocessing, parse_numbers, parse_size
from hookscope.models.torchvision_source import TorchvisionSource

# Landscape, portrait, smaller than any crop (so padded), and odd differences to the crop.
SIZES = [(301, 200), (217, 333), (37, 53), (640, 259)]


def noise(size: tuple[int, int], mode: str = "RGB") -> Image.Image:
    generator = np.random.default_rng(sum(size))
    small = generator.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(small).convert(mode)


def distinct_presets() -> dict[str, models.WeightsEnum]:
    entries = [
        entry
        for name in models.list_models()
        for entry in TorchvisionSource.named(name, {}).entries.values()
    ]
    return {f"{entry.transforms()!r}": entry for entry in entries}


@pytest.mark.parametrize("entry", distinct_presets().values(), ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_equals_the_preset_of_the_weights(entry: models.WeightsEnum, size: tuple[int, int]) -> None:
    picture, transform = noise(size), entry.transforms()
    tensor, geometry = presets.of_torchvision(transform, entry.meta)(picture)
    if type(transform).__name__ == "OpticalFlow":
        expected, _ = transform(picture, picture)
    elif type(transform).__name__ == "VideoClassification":
        frame = functional.pil_to_tensor(picture)
        expected = transform(torch.stack([frame] * tensor.shape[1]))
    else:
        expected = transform(picture)
    assert tensor.dtype == torch.float32
    assert torch.equal(tensor, expected)
    assert geometry.picture == (size[1], size[0])


@pytest.mark.parametrize(
    "name",
    ["resnet18.a1_in1k", "vit_base_patch16_siglip_224.webli", "convnext_tiny.in12k", "resnet50"],
)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_equals_the_evaluation_transform_of_timm(name: str, size: tuple[int, int]) -> None:
    config = resolve_data_config(pretrained_cfg=timm.models.get_pretrained_cfg(name).to_dict())
    picture = noise(size)
    tensor, _ = presets.of_timm(config, 3)(picture)
    assert torch.equal(tensor, create_transform(**config)(picture))


def test_grey_networks_get_the_picture_in_grey() -> None:
    picture = noise((40, 30))
    tensor, _ = Preprocessing(None, None, (0.5,), (0.25,), channels=1)(picture)
    grey = functional.to_tensor(picture.convert("L"))
    assert tensor.shape == (1, 30, 40)
    assert torch.equal(tensor, functional.normalize(grey, [0.5], [0.25]))


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "CMYK"])
def test_any_mode_is_converted(mode: str) -> None:
    picture = noise((40, 30), mode)
    expected, _ = Preprocessing()(picture.convert("RGB"))
    assert torch.equal(Preprocessing()(picture)[0], expected)


def test_a_network_of_five_channels_is_refused() -> None:
    with pytest.raises(ModelError, match="5 channels"):
        Preprocessing(channels=5)(noise((40, 30)))


def test_a_strip_that_would_fill_the_memory_is_refused() -> None:
    with pytest.raises(PictureError, match="too long"):
        Preprocessing()(Image.new("RGB", (1, 60_000)))


@pytest.mark.parametrize("entry", list(distinct_presets().values())[::5], ids=str)
@pytest.mark.parametrize("size", [(301, 200), (217, 333)], ids=str)
def test_a_marked_block_lies_where_the_geometry_says(
    entry: models.WeightsEnum, size: tuple[int, int]
) -> None:
    width, height = size
    box = (width // 2 + 10, height // 2 - 30, width // 2 + 50, height // 2 + 10)
    picture = Image.new("RGB", size)
    picture.paste((255, 255, 255), box)
    preprocessing = presets.of_torchvision(entry.transforms(), entry.meta)
    tensor, geometry = preprocessing.override(mean=None, std=None)(picture)
    bright = (tensor if tensor.dim() == 3 else tensor[:, 0])[0] > 0.5
    left, top, right, bottom = geometry.seen
    rows, columns = bright.shape
    down, across = (bottom - top) / rows, (right - left) / columns
    ys, xs = (bright.any(axis).nonzero().squeeze(1) for axis in (1, 0))
    found = (
        left + xs.min() * across,
        top + ys.min() * down,
        left + (xs.max() + 1) * across,
        top + (ys.max() + 1) * down,
    )
    for corner, expected, step in zip(found, box, (across, down) * 2, strict=True):
        assert abs(corner - expected) <= max(1.0, step)


@given(
    size=st.tuples(st.integers(5, 90), st.integers(5, 90)),
    resize=st.none() | st.integers(4, 60) | st.tuples(st.integers(4, 60), st.integers(4, 60)),
    crop=st.none() | st.tuples(st.integers(1, 80), st.integers(1, 80)),
)
def test_seen_matches_a_picture_that_holds_its_own_coordinates(
    size: tuple[int, int],
    resize: int | tuple[int, int] | None,
    crop: tuple[int, int] | None,
) -> None:
    """Where the picture's colour is its column (or row), the input's centre says what it sees."""
    width, height = size
    ramp = np.zeros((height, width, 3), dtype=np.uint8)
    ramp[..., 0] = np.arange(width) * 2 + 40
    ramp[..., 1] = (np.arange(height) * 2 + 40)[:, None]
    preprocessing = Preprocessing(resize, crop, None, None)
    tensor, geometry = preprocessing(Image.fromarray(ramp))
    left, top, right, bottom = geometry.seen
    rows, columns = tensor.shape[1:]
    y, x = rows // 2, columns // 2
    seen_x = left + (x + 0.5) * (right - left) / columns
    seen_y = top + (y + 0.5) * (bottom - top) / rows
    column, row = (tensor[:2, y, x] * 255 - 40) / 2
    # At the picture's border the filter has nothing beyond to mix in, hence the tolerance.
    assert abs(column + 0.5 - seen_x) <= 0.6 + width / max(geometry.resized[1], 1) / 2
    assert abs(row + 0.5 - seen_y) <= 0.6 + height / max(geometry.resized[0], 1) / 2


def test_padding_reaches_beyond_the_picture() -> None:
    geometry = Preprocessing(None, (10, 20)).geometry((4, 20))
    assert geometry.crop == (-3, 0, 10, 20)
    assert geometry.seen == (0.0, -3.0, 20.0, 7.0)


def test_override_changes_only_what_is_given() -> None:
    changed = Preprocessing().override(resize=None, crop=100)
    assert (changed.resize, changed.crop, changed.mean) == (None, (100, 100), Preprocessing().mean)
    assert changed.input_size == (100, 100)


def test_override_completes_mean_and_std() -> None:
    bare = Preprocessing(None, None, None, None)
    assert bare.override(mean=(0.5,) * 3).std == (1.0,) * 3
    assert bare.override(std=(0.5,) * 3).mean == (0.0,) * 3


@pytest.mark.parametrize("changes", [{"mean": (0.5,)}, {"std": (1.0,) * 4}, {"std": (0.0,) * 3}])
def test_override_refuses_numbers_that_do_not_fit(changes: dict[str, tuple[float, ...]]) -> None:
    with pytest.raises(UsageError, match=r"--(mean|std)"):
        Preprocessing().override(**changes)


def test_override_refuses_an_unknown_interpolation() -> None:
    with pytest.raises(UsageError, match="lanczos"):
        Preprocessing().override(interpolation="lanczos")


def test_a_fixed_size_keeps_the_margin_and_stretches_what_is_not_square() -> None:
    assert Preprocessing().for_input((384, 384)).resize == 439
    assert Preprocessing().for_input((384, 384)).input_size == (384, 384)
    stretched = Preprocessing().for_input((32, 64))
    assert (stretched.resize, stretched.crop) == ((32, 64), None)


def test_the_record_is_json() -> None:
    record = Preprocessing(frames=16).record()
    assert json.loads(json.dumps(record)) == record
    assert record["crop"] == [224, 224]


@pytest.mark.parametrize(
    ("text", "size"), [("256", 256), ("480x640", (480, 640)), (" 8X9 ", (8, 9)), ("none", None)]
)
def test_parse_size(text: str, size: object) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "3x", "1x2x3", "big", "1.5", "²"])
def test_parse_size_refuses(text: str) -> None:
    with pytest.raises(UsageError, match="not a size"):
        parse_size(text)


def test_parse_numbers() -> None:
    assert parse_numbers("0.5, 1,2e-1") == (0.5, 1.0, 0.2)


@pytest.mark.parametrize("text", ["", "a", "1,,2", "nan", "inf,1,1"])
def test_parse_numbers_refuses(text: str) -> None:
    with pytest.raises(UsageError, match="list of numbers"):
        parse_numbers(text)
