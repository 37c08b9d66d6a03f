"""A layer's output in numbers: of each picture alone, and of many pictures as they stream by."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hookscope.layout import Layout

_CHANNEL_AXES = {"NCHW": 1, "NHWC": 3, "tokens": 2, "vector": 1}


@dataclass(frozen=True)
class Statistics:
    """Numbers over the finite values; NaN where there are none, as in a tensor without elements.

    ``std`` divides by the count (NumPy's default). ``zero_fraction`` is a share of all values.
    ``norm`` is the square root of the sum of squares. A channel is dead where every value is
    zero, constant where all are the same (dead ones too); both are None where the layout has no
    channel axis.
    """

    count: int
    nonfinite: int
    min: float
    max: float
    mean: float
    std: float
    zero_fraction: float
    norm: float
    channels: int | None
    dead_channels: int | None
    constant_channels: int | None


class RunningStatistics:
    """Statistics of everything that was ever given, in memory for one batch.

        running = RunningStatistics()
        running.update(activations, layout)
        running.result().dead_channels      # channels that never fired

    ``merge`` joins what another one has seen, as from another thread. Moments are kept in float64
    and joined by Chan, Golub and LeVeque's update, which loses no digits to large means.
    """

    def __init__(self) -> None:
        self._total = _Sums()
        self._low: Tensor | None = None
        self._high: Tensor | None = None

    def update(self, tensor: Tensor, layout: Layout) -> None:
        """Takes one batch in. The number of channels must stay the same."""
        rows = _Rows.of(tensor, layout)
        for sums in rows.sums:
            self._total = self._total.joined(sums)
        if rows.low is not None and rows.high is not None and rows.sums:
            self._widen(rows.low.amin(0), rows.high.amax(0))

    def merge(self, other: RunningStatistics) -> None:
        self._total = self._total.joined(other._total)
        if other._low is not None and other._high is not None:
            self._widen(other._low, other._high)

    def result(self) -> Statistics:
        return self._total.statistics(self._low, self._high)

    def _widen(self, low: Tensor, high: Tensor) -> None:
        self._low = low if self._low is None else torch.minimum(self._low, low)
        self._high = high if self._high is None else torch.maximum(self._high, high)


def statistics(tensor: Tensor, layout: Layout) -> list[Statistics]:
    """One ``Statistics`` a picture of a batch (batch axis as the layout says)."""
    rows = _Rows.of(tensor, layout)
    if rows.low is None or rows.high is None:
        return [sums.statistics(None, None) for sums in rows.sums]
    return [
        sums.statistics(low, high)
        for sums, low, high in zip(rows.sums, rows.low, rows.high, strict=True)
    ]


@dataclass(frozen=True)
class _Sums:
    """What can be joined: counts, extremes, mean and the sum of squared deviations."""

    count: int = 0
    nonfinite: int = 0
    zeros: int = 0
    low: float = math.inf
    high: float = -math.inf
    mean: float = 0.0
    deviation: float = 0.0

    @property
    def finite(self) -> int:
        return self.count - self.nonfinite

    def joined(self, other: _Sums) -> _Sums:
        together = self.finite + other.finite
        share = other.finite / together if together else 0.0
        gap = other.mean - self.mean
        return _Sums(
            self.count + other.count,
            self.nonfinite + other.nonfinite,
            self.zeros + other.zeros,
            min(self.low, other.low),
            max(self.high, other.high),
            self.mean + gap * share,
            self.deviation + other.deviation + gap * gap * self.finite * share,
        )

    def statistics(self, low: Tensor | None, high: Tensor | None) -> Statistics:
        """``low`` and ``high``: the extremes of each channel, infinite where it was not finite."""
        some = self.finite > 0
        dead = constant = channels = None
        if low is not None and high is not None:
            same = low == high
            channels, constant = len(low), int(same.sum())
            dead = int((same & (low == 0)).sum())
        return Statistics(
            self.count,
            self.nonfinite,
            self.low if some else math.nan,
            self.high if some else math.nan,
            self.mean if some else math.nan,
            math.sqrt(self.deviation / self.finite) if some else math.nan,
            self.zeros / self.count if self.count else math.nan,
            math.sqrt(self.deviation + self.finite * self.mean**2) if some else math.nan,
            channels,
            dead,
            constant,
        )


@dataclass(frozen=True)
class _Rows:
    """The sums of each picture, and N x C extremes of its channels on the CPU."""

    sums: list[_Sums]
    low: Tensor | None
    high: Tensor | None

    @classmethod
    def of(cls, tensor: Tensor, layout: Layout) -> _Rows:
        values = tensor.detach()
        if values.layout != torch.strided:
            values = values.to_dense()
        values = values.movedim(layout.batch_axis, 0)
        if values.dtype not in (torch.float32, torch.float64):
            values = values.float()
        channel_axis = _CHANNEL_AXES.get(layout.kind)
        if channel_axis is None or values.dim() <= channel_axis:
            parts = values.flatten(1).unsqueeze(1) if values.dim() > 1 else values[:, None, None]
        else:
            parts = values.movedim(channel_axis, 1)
            parts = parts.unsqueeze(2) if parts.dim() == 2 else parts
        if parts.numel() == 0:
            return cls._without_values(parts, channel_axis is not None)
        inner = tuple(range(2, parts.dim()))
        low, high = parts.amin(inner), parts.amax(inner)
        # The extremes are not finite exactly where some value is not: no look at each of them.
        if bool((low.isfinite() & high.isfinite()).all()):
            mean = parts.mean(tuple(range(1, parts.dim())))
            numbers = [_zeros(parts), low.amin(1), high.amax(1), mean, _variances(parts, mean)]
            sums = _sums(parts[0].numel(), [0] * len(parts), numbers)
        else:
            sums, low, high = _finite_part(parts, inner)
        if channel_axis is None:
            return cls(sums, None, None)
        return cls(sums, low.cpu(), high.cpu())

    @classmethod
    def _without_values(cls, parts: Tensor, by_channel: bool) -> _Rows:
        """Channels in which nothing is: neither dead nor constant, and no bound to others."""
        sums = [_Sums()] * len(parts)
        if not by_channel:
            return cls(sums, None, None)
        low = torch.full(parts.shape[:2], math.inf, dtype=parts.dtype)
        return cls(sums, low, -low)


def _finite_part(parts: Tensor, inner: tuple[int, ...]) -> tuple[list[_Sums], Tensor, Tensor]:
    """The same over the finite values alone; a channel with others has infinite extremes."""
    finite = parts.isfinite()
    axes = tuple(range(1, parts.dim()))
    kept = parts.masked_fill(~finite, 0)
    some = finite.sum(axes).clamp(min=1)
    mean = kept.sum(axes) / some
    centred = (kept - mean.view(-1, *[1] * len(axes))).masked_fill(~finite, 0)
    low = parts.masked_fill(~finite, math.inf).amin(inner)
    high = parts.masked_fill(~finite, -math.inf).amax(inner)
    numbers = [
        (parts == 0).sum(axes),
        low.amin(1),
        high.amax(1),
        mean,
        centred.square().sum(axes) / some,
    ]
    broken = (~finite).sum(axes).tolist()
    sums = _sums(parts[0].numel(), broken, numbers)
    whole = finite.all(2) if len(inner) == 1 else finite.flatten(2).all(2)
    return sums, low.masked_fill(~whole, -math.inf), high.masked_fill(~whole, math.inf)


def _zeros(parts: Tensor) -> Tensor:
    """How many values of each picture are zero."""
    if parts.device.type == "cpu":
        # Measured on 64x112x112: torch needs 1.4 ms a picture, this 0.2.
        return torch.tensor([np.count_nonzero(part == 0) for part in parts.numpy()])
    return (parts == 0).flatten(1).sum(1)


def _variances(parts: Tensor, mean: Tensor) -> Tensor:
    """Two passes: ten times faster than ``torch.var``, and as safe with large means."""
    rows = [
        torch.linalg.vector_norm(part - centre) for part, centre in zip(parts, mean, strict=True)
    ]
    return torch.stack(rows).square() / parts[0].numel()


def _sums(count: int, nonfinite: list[int], numbers: list[Tensor]) -> list[_Sums]:
    """From N of each: zeros, minimum, maximum, mean, variance; one transfer for all of them."""
    table = torch.stack([number.double() for number in numbers], dim=1).tolist()
    return [
        _Sums(count, broken, int(zeros), low, high, mean, variance * (count - broken))
        for broken, (zeros, low, high, mean, variance) in zip(nonfinite, table, strict=True)
    ]
