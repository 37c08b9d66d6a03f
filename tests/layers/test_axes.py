from __future__ import annotations

import pytest

from hookscope.layers.axes import TALLER, WIDER, axes_of, other_size
from hookscope.layout import Layout

SIZE = (64, 96)


def test_the_other_size_is_never_square() -> None:
    assert other_size((224, 224)) == (224 * TALLER, 224 * WIDER)
    for size in ((224, 224), (300, 100), (100, 300), (96, 32)):
        height, width = other_size(size)
        assert height != width
        assert height * size[1] < width * size[0]
        assert height * width == TALLER * WIDER * size[0] * size[1]


def moving(*axes: int | str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes at both sizes from a size an axis: N, H/8, W/8, or what stays."""
    other = other_size(SIZE)
    first = {"N": 1, "H": SIZE[0] // 8, "W": SIZE[1] // 8, "T": 96}
    second = {"N": 2, "H": other[0] // 8, "W": other[1] // 8, "T": 96 * TALLER * WIDER}

    def shape(sizes: dict[str, int]) -> tuple[int, ...]:
        return tuple(axis if isinstance(axis, int) else sizes[axis] for axis in axes)

    return shape(first), shape(second)


@pytest.mark.parametrize(
    ("axes", "layout"),
    [
        (("N", 5, "H", "W"), Layout("NCHW")),
        (("N", "H", "W", 5), Layout("NHWC")),
        (("N", 5, "W", "H"), Layout("other")),
        (("N", 5, 6, "W"), Layout("other")),
        (("N", 5, 1, "W"), Layout("NCHW")),
        (("N", 12, "T", "T"), Layout("other")),
        (("N", 12, "T", 5), Layout("other")),
        (("N", "T", 5), Layout("tokens", 0, (8, 12))),
        (("N", 5, "T"), Layout("other")),
        (("N", "W", 5), Layout("other")),
        (("N", 5), Layout("vector")),
        (("N",), Layout("other")),
        (("N", 2, 5, "H", "W"), Layout("other")),
        ((3, "N", 5), Layout("other", batch_axis=1)),
        (("T", "N", 5), Layout("tokens", 0, (8, 12), batch_axis=1)),
        (("N", 5, 1, 1), Layout("NCHW")),
        (("N", 5, 7, 7), Layout("NCHW")),
        (("N", 7, 7, 5), Layout("NHWC")),
        (("N", 12, 100, 64), Layout("other")),
    ],
)
def test_the_axes_that_move_are_the_spatial_ones(
    axes: tuple[int | str, ...], layout: Layout
) -> None:
    first, second = moving(*axes)
    found = axes_of(first, second, None, SIZE, [])
    assert found.layout == layout
    assert found.pictures == "axis"


@pytest.mark.parametrize("prefix", [1, 2, 5])
def test_two_lengths_give_the_prefix(prefix: int) -> None:
    first, second = (1, 96 + prefix, 7), (2, 96 * TALLER * WIDER + prefix, 7)
    found = axes_of(first, second, None, SIZE, [])
    assert found.layout == Layout("tokens", prefix, (8, 12))
    assert found.follows


def test_a_length_that_is_no_grid_of_the_input_is_no_map() -> None:
    # Eight frames of patches, and the boxes of all levels of a detector.
    for length in (96 * 8, 96 + 24 + 6):
        other = length * TALLER * WIDER
        assert axes_of((1, length, 7), (2, other, 7), None, SIZE, []).layout.kind == "other"


def test_maps_that_do_not_follow_the_input_are_told() -> None:
    assert axes_of((1, 5, 8, 12), (2, 5, 16, 72), None, SIZE, []).follows is True
    assert axes_of((1, 5, 6, 6), (2, 5, 6, 6), None, SIZE, []).follows is False
    assert axes_of((1, 5, 8, 8), None, (2, 5, 8, 8), (64, 64), []).follows is None


@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ((1, 768, 14, 14), Layout("NCHW")),
        ((1, 14, 14, 768), Layout("NHWC")),
        ((1, 14, 14, 14), Layout("NCHW")),
        ((1, 197, 768), Layout("tokens", 1, (14, 14))),
        ((1, 201, 768), Layout("tokens", 5, (14, 14))),
        ((1, 49, 768), Layout("tokens", 0, (7, 7))),
        ((1, 768, 384), Layout("other")),
        ((1, 12, 197, 197), Layout("other")),
        ((1, 12, 197, 64), Layout("other")),
        ((1, 64, 49, 32), Layout("other")),
    ],
)
def test_at_a_fixed_size_squares_and_known_grids_tell(
    shape: tuple[int, ...], layout: Layout
) -> None:
    doubled = (2, *shape[1:])
    assert axes_of(shape, None, doubled, (224, 224), [(14, 14)]).layout == layout


def test_a_fixed_size_need_not_be_square() -> None:
    doubled = (2, 768, 6, 10)
    assert axes_of((1, 768, 6, 10), None, doubled, (96, 160), []).layout == Layout("NCHW")


def test_how_the_pictures_of_a_batch_lie() -> None:
    assert axes_of((64, 49, 96), None, (128, 49, 96), SIZE, []).pictures == "folded"
    assert axes_of((1, 15, 15, 3), None, (1, 15, 15, 3), SIZE, []).pictures == "shared"
    assert axes_of((), None, (), SIZE, []).pictures == "shared"


def test_without_a_second_pass_the_shape_is_a_guess() -> None:
    assert axes_of((1, 5, 8, 12), None, None, SIZE, []).layout == Layout("NCHW")
    assert axes_of((1, 8, 12, 5), None, None, SIZE, []).layout == Layout("NHWC")
    assert axes_of((4, 5), None, None, SIZE, []).layout == Layout("other")
