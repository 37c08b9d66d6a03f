"""What the axes of a tensor mean, from how its shape answers to the input's.

A forward pass with one picture is compared with one of two pictures of another size (the axes
that move are the spatial ones, the one that is 2 is the batch) and, where the model takes one
size only, with two pictures of the same size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hookscope.layout import Layout, guess

Shape = tuple[int, ...]
Size = tuple[int, int]
Pictures = Literal["axis", "folded", "shared"]

# Class, distillation and register tokens; no model in use has more.
MOST_PREFIX_TOKENS = 8
# The other size has this many times the height and the width; where that were a square, so many.
# The width grows more in both, and the area alike.
TALLER, WIDER = 2, 6
INSTEAD = 3, 4


@dataclass(frozen=True)
class Axes:
    """``layout`` with the batch axis taken to the front.

    ``pictures``: ``axis`` where the tensor has a batch axis, ``folded`` where the pictures lie
    one after another along axis 0 (windows of Swin), ``shared`` where it is one for all pictures.
    ``follows``: whether the spatial axes follow the input's size; None where that is not known.
    """

    layout: Layout
    pictures: Pictures = "axis"
    follows: bool | None = None


def other_size(size: Size) -> Size:
    """A size to compare with: larger, so that every layer still fits, and never square."""
    height, width = size
    if TALLER * height == WIDER * width:
        return INSTEAD[0] * height, INSTEAD[1] * width
    return TALLER * height, WIDER * width


def axes_of(
    shape: Shape,
    other: Shape | None,
    doubled: Shape | None,
    size: Size,
    grids: Sequence[Size],
) -> Axes:
    """The meaning of the axes of one tensor.

    ``shape``: with one picture of ``size``; ``other``: with two of ``other_size(size)``;
    ``doubled``: with two of ``size``; None where that pass did not come so far. ``grids``: the
    h x w of spatial tensors before this one, for token sequences at a fixed size.
    """
    if other is not None and len(other) != len(shape):
        other = None
    if doubled is not None and len(doubled) != len(shape):
        doubled = None
    reference = doubled or other
    if reference is None:
        return Axes(guess(shape, size)) if shape[:1] == (1,) else Axes(Layout("other"), "shared")
    batch = next((i for i, n in enumerate(shape) if n == 1 and reference[i] == 2), None)
    if batch is None:
        folded = bool(shape) and reference[0] == 2 * shape[0]
        return Axes(Layout("other"), "folded" if folded else "shared")
    inner = _without(shape, batch)
    moved = None if other is None else _without(other, batch)
    layout, follows = _layout(inner, moved, size, grids)
    return Axes(
        Layout(layout.kind, prefix=layout.prefix, grid=layout.grid, batch_axis=batch),
        follows=follows,
    )


def _without(shape: Shape, axis: int) -> Shape:
    return shape[:axis] + shape[axis + 1 :]


def _layout(
    inner: Shape, moved: Shape | None, size: Size, grids: Sequence[Size]
) -> tuple[Layout, bool | None]:
    if len(inner) == 1:
        return Layout("vector"), None
    if len(inner) == 2:
        if moved is not None and moved != inner:
            return _moving_tokens(inner, moved, size), True
        return _fixed_tokens(inner, grids), None
    if len(inner) == 3:
        if moved is not None and moved != inner:
            return _moving_map(inner, moved), True
        return _fixed_map(inner, size, constant=moved is not None), None if moved is None else False
    return Layout("other"), None


def _moving_map(inner: Shape, moved: Shape) -> Layout:
    moving = [axis for axis in range(3) if inner[axis] != moved[axis]]
    for kind, spatial in (("NCHW", [1, 2]), ("NHWC", [0, 1])):
        still = [axis for axis in spatial if axis not in moving]
        if not set(moving) <= set(spatial) or any(inner[axis] != 1 for axis in still):
            continue
        a, b = spatial
        # Tokens against tokens move too, but stay square; a transposed map grows the other way.
        if still or (moved[a] != moved[b] and moved[a] * inner[b] < moved[b] * inner[a]):
            return Layout(kind)  # type: ignore[arg-type]
    return Layout("other")


def _fixed_map(inner: Shape, size: Size, *, constant: bool) -> Layout:
    """A map at the only size there is: square like the input, or behind an adaptive pooling."""
    for kind, (height, width) in (("NCHW", inner[1:]), ("NHWC", inner[:2])):
        small = height == width and (constant or height <= 8)
        patches = size[0] % height == 0 and height * size[1] == width * size[0]
        if small or patches:
            return Layout(kind)  # type: ignore[arg-type]
    return Layout("other")


def _moving_tokens(inner: Shape, moved: Shape, size: Size) -> Layout:
    """prefix + patches tokens became prefix + 12 x patches: two equations, two unknowns."""
    if inner[1] != moved[1]:
        return Layout("other")
    patches, rest = divmod(moved[0] - inner[0], TALLER * WIDER - 1)
    prefix = inner[0] - patches
    if rest or patches < 4 or not 0 <= prefix <= MOST_PREFIX_TOKENS:
        return Layout("other")
    layout = Layout("tokens", prefix=prefix)
    grid = layout.grid_of(inner[0], size)
    # Frames times patches, or the cells of several maps in a row, are not the picture's patches.
    if grid is None or not _one_stride(grid, size):
        return Layout("other")
    return Layout("tokens", prefix=prefix, grid=grid)


def _one_stride(grid: Size, size: Size) -> bool:
    """Whether whole steps of one length lead from the input to the grid, with padding or not."""
    height, width = size
    nearest = height // grid[0]
    return any(
        grid in ((height // step, width // step), (-(-height // step), -(-width // step)))
        for step in range(max(1, nearest - 1), nearest + 2)
    )


def _fixed_tokens(inner: Shape, grids: Sequence[Size]) -> Layout:
    fitting = [
        (inner[0] - height * width, (height, width))
        for height, width in _with_halves(grids)
        if 0 <= inner[0] - height * width <= MOST_PREFIX_TOKENS
    ]
    if not fitting:
        return Layout("other")
    prefix, grid = min(fitting)
    return Layout("tokens", prefix=prefix, grid=grid)


def _with_halves(grids: Sequence[Size]) -> set[Size]:
    """The grids that a sequence may be: a transformer may halve its own as it goes deeper."""
    found: set[Size] = set()
    for height, width in set(grids):
        while min(height, width) > 3:
            found.add((height, width))
            height, width = (height + 1) // 2, (width + 1) // 2
    return found
