from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from hookscope.render.overlay import heatmap_view, overlay
from hookscope.render.palette import lut
from hookscope.render.placement import Box, Field, Rectangle, fit_within, seen_pixels

RNG = np.random.default_rng(11)


def heat_of(size: tuple[int, int], heatmap: NDArray[np.float64], box: Box) -> NDArray[np.float64]:
    """The map at every pixel's centre by the definition, in float64, NaN where nothing was seen."""
    width, height = size
    left, top, right, bottom = box
    rows, cols = heatmap.shape
    x, y = np.arange(width) + 0.5, np.arange(height) + 0.5
    across = ((x - left) / (right - left) * cols - 0.5).clip(0, cols - 1)
    down = ((y - top) / (bottom - top) * rows - 0.5).clip(0, rows - 1)
    along_x = np.stack([np.interp(across, np.arange(cols), row) for row in heatmap])
    field = np.stack([np.interp(down, np.arange(rows), col) for col in along_x.T], axis=1)
    outside = np.logical_or.outer((y < top) | (y >= bottom), (x < left) | (x >= right))
    field[outside] = np.nan
    return field


BOXES: list[tuple[tuple[int, int], Box]] = [
    ((60, 40), (0.0, 0.0, 60.0, 40.0)),
    ((451, 300), (93.958, 18.75, 357.042, 281.25)),  # a centre crop, between pixels
    ((90, 200), (-20.0, 10.5, 110.0, 140.5)),  # wider than the picture: it was padded
    ((64, 48), (-100.0, -90.0, 300.0, 200.0)),
    ((50, 30), (0.0, 0.0, 30.0, 30.0)),
]


@pytest.mark.parametrize(("size", "box"), BOXES)
@pytest.mark.parametrize("shape", [(7, 7), (1, 1), (3, 9), (14, 10)])
def test_the_field_is_linear_between_cell_centres(
    size: tuple[int, int], box: Box, shape: tuple[int, int]
) -> None:
    heatmap = RNG.random(shape)
    expected = heat_of(size, heatmap, box)
    seen = seen_pixels(box, size)
    levels = np.asarray(Field(heatmap, box, (0.0, 1.0)).over(seen)).astype(float)
    part = expected[seen.top : seen.bottom, seen.left : seen.right]
    assert not np.isnan(part).any()
    assert np.isnan(expected).sum() == expected.size - part.size
    # One level for the rounding of the cells, one for that of the pixels.
    assert np.abs(levels - 255 * part).max() <= 2


def test_on_a_whole_picture_it_is_torchs_interpolation() -> None:
    heatmap = torch.rand(5, 8, dtype=torch.float64)
    oracle = torch.nn.functional.interpolate(
        heatmap[None, None], size=(60, 110), mode="bilinear", align_corners=False
    )[0, 0]
    field = Field(heatmap, (0, 0, 110, 60), (0.0, 1.0)).over(Rectangle(0, 0, 110, 60))
    assert np.abs(np.asarray(field) - 255 * oracle.numpy()).max() <= 2


@pytest.mark.parametrize("cell", [(0, 0), (0, 6), (2, 1), (5, 3), (6, 6)])
def test_a_hot_cell_lands_on_the_pixels_that_the_cell_saw(cell: tuple[int, int]) -> None:
    # 400 x 210, of which the network saw 56 x 28 blocks from (40, 7) on: no symmetry anywhere.
    picture = Image.new("RGB", (400, 210))
    box = (40.0, 7.0, 40.0 + 7 * 50, 7.0 + 7 * 28)
    heatmap = np.zeros((7, 7))
    heatmap[cell] = 1.0
    row, col = cell
    left, top = 40 + 50 * col, 7 + 28 * row
    red = np.asarray(overlay(picture, heatmap, box, cmap="gray", alpha=1.0))[:, :, 0].astype(int)
    inner = red[top + 7 : top + 21, left + 13 : left + 37]
    assert inner.min() > 110  # over a quarter cell from the centre, 0.56 is the least
    assert np.unravel_index(red.argmax(), red.shape)[0] in range(top, top + 28)
    assert np.unravel_index(red.argmax(), red.shape)[1] in range(left, left + 50)
    # More than a cell away from the hot one nothing is warm.
    away = red.copy()
    away[max(0, top - 28) : top + 56, max(0, left - 50) : left + 100] = 0
    assert away.max() == 0
    view = np.asarray(heatmap_view(heatmap, picture.size, box, cmap="gray").convert("L"))
    # Half a pixel off the cell's centre, either way: 253 (1 - 0.5/28 - 0.5/50) and rounding.
    assert view[top + 14, left + 25] >= 244


@pytest.mark.parametrize(("size", "box"), BOXES)
@pytest.mark.parametrize("dim", [0.5, 0.3, 1.0, 0.0])
def test_what_was_not_seen_keeps_its_colours_times_one_factor(
    size: tuple[int, int], box: Box, dim: float
) -> None:
    pixels = RNG.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    drawn = np.asarray(overlay(Image.fromarray(pixels), RNG.random((7, 7)), box, dim=dim))
    unseen = np.isnan(heat_of(size, np.zeros((7, 7)), box))
    assert drawn.shape == pixels.shape
    difference = np.abs(drawn[unseen].astype(float) - dim * pixels[unseen])
    assert difference.size == 0 or difference.max() <= 1


def test_without_weight_the_seen_part_is_the_picture_itself() -> None:
    pixels = RNG.integers(0, 256, (30, 50, 3), dtype=np.uint8)
    drawn = overlay(Image.fromarray(pixels), RNG.random((7, 7)), (0, 0, 50, 30), alpha=0.0)
    np.testing.assert_array_equal(np.asarray(drawn), pixels)


def test_the_hottest_place_has_the_last_colour_by_its_weight_and_the_coldest_the_picture() -> None:
    grey = Image.new("RGB", (100, 60), (120, 120, 120))
    heatmap = np.array([[0.0, 1.0]])
    drawn = np.asarray(overlay(grey, heatmap, (0, 0, 100, 60), alpha=0.6)).astype(float)
    hottest = 0.4 * 120 + 0.6 * lut("turbo", 256)[255]
    assert np.abs(drawn[30, 99] - hottest).max() <= 1.5
    coldest = drawn[30, 0]
    assert np.abs(coldest - 120).max() < 14
    shared = np.asarray(overlay(grey, heatmap, (0, 0, 100, 60), alpha=0.6, limits=(0.0, 10.0)))
    assert np.abs(shared.astype(int) - 120).max() < 20


def test_a_negative_map_a_tiny_one_and_a_shifted_one_look_the_same() -> None:
    picture = Image.fromarray(RNG.integers(0, 256, (40, 40, 3), dtype=np.uint8))
    heatmap = RNG.integers(0, 100, (5, 5)) / 128  # exact in every scale below
    plain = overlay(picture, heatmap, (0, 0, 40, 40))
    for changed in (heatmap * 2.0**-60, heatmap - 8, heatmap * 2.0**900):
        assert overlay(picture, changed, (0, 0, 40, 40)).tobytes() == plain.tobytes()


def test_a_flip_of_the_picture_and_the_map_flips_the_overlay() -> None:
    pixels = RNG.integers(0, 256, (70, 96, 3), dtype=np.uint8)
    heatmap = RNG.random((7, 6))
    drawn = np.asarray(overlay(Image.fromarray(pixels), heatmap, (8, 0, 88, 70)))
    flipped = overlay(
        Image.fromarray(np.ascontiguousarray(pixels[:, ::-1])), heatmap[:, ::-1], (8, 0, 88, 70)
    )
    assert np.abs(np.asarray(flipped)[:, ::-1].astype(int) - drawn).max() <= 2


def test_values_that_are_not_finite_count_as_the_lowest() -> None:
    picture = Image.new("RGB", (30, 30), (90, 90, 90))
    heatmap = RNG.random((3, 3)) + 1
    heatmap[0, 0] = 1.0
    broken = heatmap.copy()
    broken[0, 0] = np.nan
    calm = overlay(picture, heatmap, (0, 0, 30, 30), limits=(1.0, 2.0))
    assert overlay(picture, broken, (0, 0, 30, 30), limits=(1.0, 2.0)).tobytes() == calm.tobytes()
    overlay(picture, np.full((3, 3), np.nan), (0, 0, 30, 30))
    overlay(picture, np.full((3, 3), np.inf), (0, 0, 30, 30))


def test_bands_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    picture = Image.fromarray(RNG.integers(0, 256, (123, 77, 3), dtype=np.uint8))
    heatmap, box = RNG.random((7, 7)), (3.3, 4.4, 71.1, 120.2)
    whole = np.asarray(overlay(picture, heatmap, box)).astype(int)
    monkeypatch.setattr("hookscope.render.overlay._BAND", 200)
    # One level of 255, where the colormap is steep.
    assert np.abs(np.asarray(overlay(picture, heatmap, box)) - whole).max() <= 4


@settings(max_examples=60, deadline=None)
@given(
    width=st.integers(1, 60),
    height=st.integers(1, 60),
    rows=st.integers(1, 30),
    cols=st.integers(1, 30),
    edges=st.tuples(*[st.floats(-0.6, 0.4)] * 2, *[st.floats(0.6, 1.6)] * 2),
)
def test_any_geometry_is_drawn(
    width: int, height: int, rows: int, cols: int, edges: tuple[float, float, float, float]
) -> None:
    left, top, right, bottom = edges
    box = (left * width, top * height, right * width, bottom * height)
    heatmap = np.arange(rows * cols, dtype=float).reshape(rows, cols)
    picture = Image.new("RGB", (width, height), (10, 20, 30))
    assert overlay(picture, heatmap, box).size == (width, height)
    assert heatmap_view(heatmap, (width, height), box).size == (width, height)


def test_grey_pictures_and_the_pictures_of_the_caller_are_left_alone() -> None:
    for mode in ("L", "RGB", "P"):
        picture = Image.new(mode, (20, 10), 100 if mode != "RGB" else (100, 100, 100))
        before = picture.tobytes()
        drawn = overlay(picture, np.eye(3), (2, 0, 18, 10))
        assert drawn.mode == "RGB"
        assert picture.tobytes() == before


def test_the_view_alone_is_lossless_and_lies_where_the_overlay_does() -> None:
    heatmap, size, box = RNG.random((7, 5)), (80, 60), (10.0, 5.0, 70.0, 55.0)
    view = heatmap_view(heatmap, size, box, limits=(0.0, 1.0))
    assert view.mode == "P"
    expected = heat_of(size, heatmap, box)
    levels = np.asarray(view).astype(float)
    seen = ~np.isnan(expected)
    assert np.abs(levels[seen] - 253 * expected[seen]).max() <= 2
    assert (levels[~seen] == 254).all()


def test_a_note_can_be_read_and_no_heat_is_drawn(chelsea: Path) -> None:
    picture = Image.open(chelsea).convert("RGB")
    box = (0.0, 0.0, 451.0, 300.0)
    drawn = np.asarray(overlay(picture, np.zeros((7, 7)), box, note="all zero"))
    same = (drawn == np.asarray(picture)).all(axis=(1, 2))
    banner = 300 - int(same.sum())
    assert same[: 300 - banner].all()
    assert 15 <= banner <= 60
    strip = drawn[300 - banner :]
    assert (strip > 200).all(axis=2).mean() > 0.01  # letters
    assert (strip < 60).all(axis=2).mean() > 0.6  # on dark ground
    other = overlay(picture, np.zeros((7, 7)), box, note="not finite")
    assert other.tobytes() != drawn.tobytes()
    view = heatmap_view(np.zeros((7, 7)), (451, 300), box, note="all zero")
    assert (np.asarray(view)[-banner:] == strip).mean() > 0.99


@pytest.mark.parametrize("size", [(8, 8), (1, 1), (3, 200), (200, 6), (40, 40), (5000, 20)])
def test_a_note_in_a_tiny_picture_still_marks_it(size: tuple[int, int]) -> None:
    picture = Image.new("RGB", size, (100, 150, 100))
    drawn = overlay(picture, np.zeros((7, 7)), (0, 0, *size), note="all zero")
    assert drawn.size == size
    assert drawn.tobytes() != picture.tobytes()


def test_shrinking_keeps_the_box_on_the_same_things() -> None:
    picture = Image.new("RGB", (1000, 333))
    shrunk, box = fit_within(picture, (100.0, 33.3, 900.0, 299.7), 250)
    assert shrunk.size == (250, 83)
    assert box == pytest.approx((25.0, 33.3 * 83 / 333, 225.0, 299.7 * 83 / 333))
    same, unchanged = fit_within(picture, (0.0, 0.0, 5.0, 5.0), 1000)
    assert same is picture
    assert unchanged == (0.0, 0.0, 5.0, 5.0)
    assert fit_within(Image.new("L", (4000, 1)), (0, 0, 4000, 1), 10)[0].size == (10, 1)


def test_what_is_not_a_map_is_refused() -> None:
    picture = Image.new("RGB", (9, 9))
    for shape in ((3,), (1, 3, 3), (0, 3)):
        with pytest.raises(ValueError, match="height x width"):
            overlay(picture, np.zeros(shape), (0, 0, 9, 9))
    with pytest.raises(ValueError, match="no pixel"):
        overlay(picture, np.zeros((3, 3)), (5, 0, 5, 9))
