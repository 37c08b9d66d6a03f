from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hookscope.layout import Layout
from hookscope.maps.statistics import RunningStatistics, Statistics, statistics

LAYOUTS = {"NCHW": (0, 1), "NHWC": (0, 3), "tokens": (0, 2), "vector": (0, 1)}
SHAPES = {"NCHW": (3, 5, 4, 2), "NHWC": (3, 4, 2, 5), "tokens": (3, 9, 5), "vector": (3, 5)}


def by_hand(values: np.ndarray, channel_axis: int | None) -> Statistics:
    """One picture's numbers by NumPy in float64."""
    finite = values[np.isfinite(values)].astype(np.float64)
    channels = None
    if channel_axis is not None:
        channels = np.moveaxis(values, channel_axis, 0).reshape(values.shape[channel_axis], -1)
    return Statistics(
        count=values.size,
        nonfinite=int((~np.isfinite(values)).sum()),
        min=float(finite.min()),
        max=float(finite.max()),
        mean=float(finite.mean()),
        std=float(finite.std()),
        zero_fraction=float((values == 0).mean()),
        norm=float(np.sqrt((finite**2).sum())),
        channels=None if channels is None else len(channels),
        dead_channels=None if channels is None else sum(bool((c == 0).all()) for c in channels),
        constant_channels=None
        if channels is None
        else sum(bool((c == c[0]).all()) and bool(np.isfinite(c).all()) for c in channels),
    )


def assert_same(one: Statistics, other: Statistics) -> None:
    for name, value in vars(one).items():
        assert value == pytest.approx(getattr(other, name), rel=1e-5, abs=1e-6), name


def sample(kind: str, seed: int = 0) -> torch.Tensor:
    tensor = torch.randn(SHAPES[kind], generator=torch.Generator().manual_seed(seed)).relu()
    by_channel = tensor.movedim(LAYOUTS[kind][1], 0)
    by_channel[1] = 0
    by_channel[2] = 0.25
    return tensor


@pytest.mark.parametrize("kind", LAYOUTS)
@pytest.mark.parametrize("broken", [False, True], ids=["finite", "with NaN and infinity"])
def test_each_picture_by_hand(kind, broken):
    tensor = sample(kind)
    if broken:
        tensor[1].view(-1)[1] = math.nan
        tensor[1].view(-1)[2] = -math.inf
    for picture, found in zip(tensor, statistics(tensor, Layout(kind)), strict=True):
        assert_same(found, by_hand(picture.numpy(), LAYOUTS[kind][1] - 1))


def test_a_layout_without_channels_has_none_to_count():
    (found,) = statistics(torch.randn(1, 2, 3, 4, 5), Layout("other"))
    assert (found.channels, found.dead_channels, found.constant_channels) == (None, None, None)
    assert found.count == 120


def test_nothing_finite_is_nan_and_not_a_crash():
    (found,) = statistics(torch.full((1, 2, 2, 2), math.nan), Layout("NCHW"))
    assert found.nonfinite == 8
    assert found.dead_channels == 0
    assert math.isnan(found.min)
    assert math.isnan(found.std)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64, torch.bool])
def test_other_types_are_counted_as_float32(dtype):
    tensor = (torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(1)) * 3).to(dtype)
    assert statistics(tensor, Layout("NCHW")) == statistics(tensor.float(), Layout("NCHW"))


def test_batch_axis_of_a_hidden_state():
    hidden = torch.randn(2, 5, 7)  # layers x batch x hidden
    found = statistics(hidden, Layout("other", batch_axis=1))
    assert len(found) == 5
    assert found[3].max == hidden[:, 3].max().item()


def test_large_means_lose_no_digits():
    tensor = 1e4 + torch.randn(1, 1, 64, 64, dtype=torch.float64)
    (found,) = statistics(tensor, Layout("NCHW"))
    assert found.std == pytest.approx(tensor.std(correction=0).item(), rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(cuts=st.lists(st.integers(1, 11), max_size=4), broken=st.booleans())
def test_streaming_equals_all_at_once(cuts, broken):
    tensor = torch.randn(12, 4, 3, 5, generator=torch.Generator().manual_seed(5)).relu()
    tensor[:, 1] = 0
    tensor[:11, 2] = 0  # fires in the last picture alone: not dead
    if broken:
        tensor[7, 3, 0, 0] = math.nan
    running, elsewhere = RunningStatistics(), RunningStatistics()
    edges = [0, *sorted(set(cuts)), 12]
    for turn, (start, end) in enumerate(itertools.pairwise(edges)):
        (running if turn % 2 == 0 else elsewhere).update(tensor[start:end], Layout("NCHW"))
    running.merge(elsewhere)
    assert_same(running.result(), by_hand(tensor.numpy(), 1))
    assert running.result().dead_channels == 1


def test_nothing_seen_yet():
    found = RunningStatistics().result()
    assert found.count == 0
    assert math.isnan(found.mean)


@pytest.mark.parametrize(
    ("kind", "shape", "channels"),
    [
        ("NCHW", (2, 0, 4, 4), 0),
        ("NCHW", (2, 5, 0, 4), 5),
        ("tokens", (2, 9, 0), 0),
        ("vector", (2, 0), 0),
        ("other", (2, 0), None),
    ],
)
def test_a_tensor_without_elements_has_no_numbers(
    kind: str, shape: tuple[int, ...], channels: int | None
) -> None:
    found = statistics(torch.empty(shape), Layout(kind))  # type: ignore[arg-type]
    assert len(found) == 2
    for one in found:
        numbers = (one.min, one.max, one.mean, one.std, one.norm, one.zero_fraction)
        assert all(math.isnan(number) for number in numbers)
        assert (one.count, one.nonfinite, one.channels) == (0, 0, channels)
        none = None if channels is None else 0
        assert (one.dead_channels, one.constant_channels) == (none, none)


def test_a_batch_of_nothing_changes_no_statistics() -> None:
    assert statistics(torch.empty(0, 5, 4, 2), Layout("NCHW")) == []
    running = RunningStatistics()
    for tensor in (torch.empty(0, 5, 4, 2), sample("NCHW"), torch.empty(2, 5, 0, 2)):
        running.update(tensor, Layout("NCHW"))
    alone = RunningStatistics()
    alone.update(sample("NCHW"), Layout("NCHW"))
    assert_same(running.result(), alone.result())


def test_a_sparse_tensor_has_the_numbers_of_the_dense_one() -> None:
    tensor = sample("NCHW")
    sparse = statistics(tensor.to_sparse(), Layout("NCHW"))
    assert sparse == statistics(tensor, Layout("NCHW"))
