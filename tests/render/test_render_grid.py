from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from hookscope.errors import UsageError
from hookscope.render.arrange import Arrangement, arrange
from hookscope.render.grid import feature_grid
from hookscope.render.levels import FLAT, LEVELS, NOT_FINITE, PAPER, palette_bytes, quantise

RNG = np.random.default_rng(7)


def tiles(picture: Image.Image, plan: Arrangement, count: int) -> NDArray[np.uint8]:
    """The palette levels under each value, read off a grid drawn without annotation."""
    pixels = np.asarray(picture)
    assert pixels.shape == plan.size
    found = []
    for index in range(count):
        top, left = plan.corner(index)
        tile = pixels[top : top + plan.tile[0], left : left + plan.tile[1]]
        small = tile[:: plan.factor, :: plan.factor]
        # Enlarged by whole factors without smoothing: every value is one square.
        np.testing.assert_array_equal(np.kron(small, np.ones((plan.factor,) * 2, np.uint8)), tile)
        found.append(small)
    return np.stack(found)


@pytest.mark.parametrize("shape", [(64, 16, 16), (5, 7, 7), (3, 4, 31), (1, 90, 3), (2, 1, 1)])
def test_each_value_comes_back_within_half_a_level_of_its_channel(shape: tuple[int, ...]) -> None:
    maps = RNG.normal(3.0, 50.0, shape).astype(np.float32)
    picture = feature_grid(maps, annotate=False)
    levels = tiles(picture, arrange(*shape), shape[0]).astype(float)
    axes = None if shape[1:] == (1, 1) else (1, 2)
    low, high = maps.min(axes, keepdims=True), maps.max(axes, keepdims=True)
    back = low + levels / (LEVELS - 1) * (high - low)
    assert np.all(np.abs(back - maps) <= 0.501 * (high - low) / (LEVELS - 1))


def test_the_layers_range_keeps_channels_comparable() -> None:
    maps = np.stack([np.full((4, 4), 1.0), RNG.random((4, 4)), np.full((4, 4), 3.0)])
    levels = quantise(maps, "layer")
    low = maps.min()
    expected = np.rint((maps - low) / (3.0 - low) * (LEVELS - 1))
    assert np.abs(levels - expected).max() <= 1
    assert (levels[2] == LEVELS - 1).all()


@pytest.mark.parametrize("normalize", ["channel", "layer"])
def test_diverging_is_symmetric_and_zero_is_the_middle(normalize: str) -> None:
    maps = RNG.normal(0.0, 1e-9, (6, 5, 5))
    maps[0, 0, 0] = 0.0
    maps[1] = 0.0
    ours = quantise(maps, normalize, diverging=True).astype(int)  # type: ignore[arg-type]
    mirrored = quantise(-maps, normalize, diverging=True).astype(int)  # type: ignore[arg-type]
    middle = (LEVELS - 1) // 2
    assert ours[0, 0, 0] == middle
    assert (ours[1] == middle).all()
    assert np.abs(ours - middle + (mirrored - middle)).max() <= 1
    white = palette_bytes("RdBu_r")[3 * middle : 3 * middle + 3]
    assert min(white) > 240


@pytest.mark.parametrize("value", [0.0, 5.0, -1e30, 1e-30])
def test_a_constant_channel_is_flat_and_never_noise(value: float) -> None:
    noisy = np.full((9, 9), value, np.float32) * (1 + RNG.uniform(-2e-7, 2e-7, (9, 9)))
    maps = np.stack([noisy, RNG.random((9, 9))]).astype(np.float32)
    assert (quantise(maps)[0] == FLAT).all()
    assert len(np.unique(quantise(maps, "layer")[0])) == 1
    assert len(np.unique(quantise(maps, diverging=True)[0])) == 1


def test_a_map_that_peaks_at_the_smallest_numbers_is_a_map() -> None:
    ramp = np.arange(16.0).reshape(1, 4, 4)
    for scale in (3e-15, 1e-38, 1e-43):
        levels = quantise((ramp * scale).astype(np.float32))
        assert levels[0, 0, 0] == 0
        assert levels[0, 3, 3] == LEVELS - 1
        assert len(np.unique(levels)) >= 8


def test_the_widest_range_of_float32_does_not_overflow() -> None:
    maps = np.array([[[-3.4e38, 0.0, 3.4e38]]], np.float32)
    assert quantise(maps).ravel().tolist() == [0, (LEVELS - 1) // 2, LEVELS - 1]


def test_what_is_not_finite_is_shown_and_does_not_spoil_the_rest() -> None:
    clean = RNG.random((3, 6, 6)).astype(np.float32)
    maps = clean.copy()
    maps[0, 2, 3], maps[1, 0] = np.nan, np.inf
    maps[2] = -np.inf
    levels = quantise(maps)
    np.testing.assert_array_equal(levels == NOT_FINITE, ~np.isfinite(maps))
    masked = np.where(np.isfinite(maps[0]), maps[0], clean[0].min())
    agree = np.isfinite(maps[0])
    low, high = masked.min(), masked.max()
    expected = (maps[0][agree] - low) / (high - low) * (LEVELS - 1)
    assert np.abs(levels[0][agree] - expected).max() <= 0.51


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    maps = RNG.normal(size=(10, 8, 8))
    whole = quantise(maps)
    monkeypatch.setattr("hookscope.render.levels._CHUNK", 150)
    np.testing.assert_array_equal(quantise(maps), whole)


def test_channels_top_and_numbers() -> None:
    maps = np.stack([np.full((4, 4), 1.0) * scale for scale in (1, -9, 3, 5)])
    maps += RNG.random(maps.shape) * 0.1

    def chosen(**options: object) -> list[NDArray[np.uint8]]:
        picture = feature_grid(maps, annotate=False, cols=1, **options)  # type: ignore[arg-type]
        return list(tiles(picture, arrange(2, 4, 4, cols=1), 2))

    for found, channel in zip(chosen(channels=[3, 0]), (3, 0), strict=True):
        np.testing.assert_array_equal(found, quantise(maps[[channel]])[0])
    # The strongest first, by magnitude.
    for found, channel in zip(chosen(top=2), (1, 3), strict=True):
        np.testing.assert_array_equal(found, quantise(maps[[channel]])[0])
    for found, channel in zip(chosen(channels=[2, 0, 3], top=2), (3, 2), strict=True):
        np.testing.assert_array_equal(found, quantise(maps[[channel]])[0])
    numbered = feature_grid(maps[[3, 0]], numbers=[3, 0])
    assert numbered.tobytes() == feature_grid(maps, channels=[3, 0]).tobytes()
    assert numbered.tobytes() != feature_grid(maps[[3, 0]]).tobytes()


@pytest.mark.parametrize("channels", [[4], [-1], []])
def test_channels_that_are_not_there_are_named(channels: list[int]) -> None:
    with pytest.raises(UsageError, match=str(channels[0]) if channels else "no channel"):
        feature_grid(np.zeros((4, 2, 2)), channels=channels)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (7,), (0, 3, 3)])
def test_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="shape"):
        feature_grid(np.zeros(shape))


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.bool]
)
def test_tensors_of_any_kind(dtype: torch.dtype) -> None:
    values = torch.arange(12).reshape(3, 2, 2) % 2
    expected = feature_grid(values.float().numpy())
    assert feature_grid(values.to(dtype)).tobytes() == expected.tobytes()
    graph = values.float().requires_grad_() * 1.0
    assert feature_grid(graph[None]).tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("shape", "narrow", "wide"),
    [
        ((64, 112, 112), 900, 1300),
        ((512, 7, 7), 1000, 2000),
        ((2048, 7, 7), 1000, 2500),
        ((2048, 1, 1), 1000, 2500),
        ((1, 7, 7), 400, 600),
        ((64, 4, 128), 800, 2000),
        ((32, 300, 20), 500, 2000),
    ],
)
def test_the_picture_has_a_sensible_size(shape: tuple[int, ...], narrow: int, wide: int) -> None:
    maps = np.zeros(shape, np.float32)
    maps[:, 0, 0] = np.arange(len(maps))
    picture = feature_grid(maps, header="net · layer · shape · picture")
    assert narrow <= picture.width <= wide
    assert 0.5 <= picture.width / picture.height <= 2.2


def test_maps_too_large_for_one_picture_are_thinned_and_that_is_said() -> None:
    plan = arrange(64, 3000, 2000)
    assert plan.factor == 1
    assert plan.shrink == 3
    assert plan.size[0] * plan.size[1] < Image.MAX_IMAGE_PIXELS  # type: ignore[operator]


def test_columns_are_obeyed_and_many_or_few_fit() -> None:
    assert arrange(10, 8, 8, cols=3).rows == 4
    assert arrange(2, 8, 8, cols=5).cols == 2
    with pytest.raises(UsageError, match="column"):
        feature_grid(np.zeros((2, 3, 3)), cols=0)
    for count in (1, 2, 3, 7, 64, 97, 512, 1280):
        plan = arrange(count, 14, 14)
        assert (plan.rows - 1) * plan.cols < count <= plan.rows * plan.cols


def ink(picture: Image.Image, area: tuple[int, int, int, int]) -> int:
    left, top, right, bottom = area
    return int((np.asarray(picture)[top:bottom, left:right] > PAPER).sum())


def test_every_tile_has_its_number_above_it_and_nothing_written_into_it() -> None:
    for count, side in ((12, 1), (12, 7), (3, 112), (1100, 2)):
        maps = np.zeros((count, side, side), np.float32)
        maps[:, 0, 0] = 1 + np.arange(count)
        picture = feature_grid(maps)
        names = [str(index) for index in range(count)]
        plan = arrange(count, side, side, captions=names)
        pixels = np.asarray(picture)
        body_top = pixels.shape[0] - plan.size[0] - 10
        for index in (0, count // 2, count - 1):
            top, left = plan.corner(index)
            top, left = top + body_top, left + 10
            tile = pixels[top : top + plan.tile[0], left : left + plan.tile[1]]
            assert tile.max() <= FLAT
            area = (left, top - plan.caption, left + plan.cell[1] - 2, top)
            assert ink(picture, area) >= 8 * len(names[index])
            # Letters end before the neighbour's begin.
            assert ink(picture, (area[2], area[1], area[2] + 2, area[3])) == 0


def test_a_header_is_never_wider_than_its_picture_nor_silently_cut() -> None:
    maps = RNG.random((2, 5, 5))
    plain = feature_grid(maps)
    for words in ("short", "word " * 400, "x" * 5000, "line\nbreak\ttab", "Ωmega · фото · 漢字"):
        picture = feature_grid(maps, header=words)
        assert picture.width <= max(plain.width, 440)
        assert picture.height <= plain.height + 80
        assert ink(picture, (0, 0, picture.width, picture.height - plain.height)) > 0
        rim = np.asarray(picture)[:, -10:]
        assert (rim == PAPER).all()


def test_an_h_x_w_tensor_is_one_map_without_a_number() -> None:
    field = RNG.random((6, 9))
    picture = feature_grid(field)
    assert ink(picture, (0, 0, *picture.size)) == 0
    assert ink(feature_grid(field[None]), (0, 0, *picture.size)) > 0


def test_same_input_same_bytes() -> None:
    maps = RNG.random((8, 9, 9))
    assert feature_grid(maps, header="a").tobytes() == feature_grid(maps, header="a").tobytes()
