"""Where the axes of a layer's output are, and how to bring them to N x C x h x w."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

Kind = Literal["NCHW", "NHWC", "tokens", "vector", "other"]


@dataclass(frozen=True)
class Layout:
    """The meaning of a tensor's axes.

    ``kind``: ``NCHW`` and ``NHWC`` are spatial, ``tokens`` is N x T x C with ``prefix`` leading
    tokens (class, registers) before a grid of patches, ``vector`` is N x C, ``other`` the rest.
    ``grid``: patches high x wide where it is known for the input size that was probed.
    ``batch_axis``: 0 almost always; 1 for the hidden state of an LSTM.
    """

    kind: Kind
    prefix: int = 0
    grid: tuple[int, int] | None = None
    batch_axis: int = 0

    @property
    def spatial(self) -> bool:
        """Whether the tensor can be drawn as maps: NCHW, NHWC, or tokens that form a grid."""
        return self.kind in ("NCHW", "NHWC", "tokens")

    def grid_of(self, tokens: int, input_size: tuple[int, int]) -> tuple[int, int] | None:
        """The h x w of the patch grid among ``tokens`` (prefix included) for an input H x W.

        The probed grid where it fits, else the pair of factors nearest the input's aspect ratio.
        """
        patches = tokens - self.prefix
        if self.grid is not None and self.grid[0] * self.grid[1] == patches:
            return self.grid
        return _nearest_grid(patches, input_size)


def channels_first(tensor: Tensor, layout: Layout, input_size: tuple[int, int]) -> Tensor:
    """A view of a spatial ``tensor`` (batch axis first) as N x C x h x w.

    ``input_size`` is the H x W that the network was fed; it shapes the grid of tokens.
    Raises ``ValueError`` where the layout is not spatial or the tokens form no grid.
    """
    if layout.kind == "NCHW":
        return tensor
    if layout.kind == "NHWC":
        return tensor.permute(0, 3, 1, 2)
    if layout.kind == "tokens":
        grid = layout.grid_of(tensor.shape[1], input_size)
        if grid is not None:
            patches = tensor[:, layout.prefix :]
            return patches.transpose(1, 2).unflatten(2, grid)
    raise ValueError(f"a tensor of shape {tuple(tensor.shape)} ({layout.kind}) has no map")


def guess(shape: Sequence[int], input_size: tuple[int, int]) -> Layout:
    """The layout of one tensor from its shape alone (batch first), when no probe was run.

    A 4-D tensor is NHWC only where its middle axes fit the input's aspect ratio and its last
    two do not. A 3-D tensor is tokens where a grid of the input's aspect ratio and at most
    eight prefix tokens make up its length.
    """
    if len(shape) == 4:
        inner, outer = (shape[1], shape[2]), (shape[2], shape[3])
        if _fits(inner, input_size) and not _fits(outer, input_size):
            return Layout("NHWC")
        return Layout("NCHW")
    if len(shape) == 3:
        for prefix in range(9):
            grid = _nearest_grid(shape[1] - prefix, input_size)
            if grid is not None and min(grid) > 1 and _fits(grid, input_size):
                return Layout("tokens", prefix=prefix, grid=grid)
        return Layout("other")
    if len(shape) == 2:
        return Layout("vector")
    return Layout("other")


def _nearest_grid(patches: int, input_size: tuple[int, int]) -> tuple[int, int] | None:
    if patches < 1:
        return None
    aspect = input_size[0] / input_size[1]
    pairs = [(h, patches // h) for h in range(1, patches + 1) if patches % h == 0]
    return min(pairs, key=lambda pair: max(pair[0] / pair[1] / aspect, aspect * pair[1] / pair[0]))


def _fits(grid: tuple[int, int], input_size: tuple[int, int]) -> bool:
    """Whether one stride, up to the rounding of one cell, leads from the input to the grid."""
    height, width = grid
    stride = max(input_size[0] / height, input_size[1] / width)
    return (
        abs(input_size[0] / stride - height) <= 1 + 1e-6
        and abs(input_size[1] / stride - width) <= 1 + 1e-6
        and height <= input_size[0]
        and width <= input_size[1]
    )
