"""Trying a model out: forward passes of a stand-in, on shapes or on data."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from hookscope.layers.modules import named_layers, unwrap
from hookscope.layers.recording import Recording, record
from hookscope.layers.shapes_only import ShapesOnly
from hookscope.layers.signature import Size, example_inputs
from hookscope.layers.skeleton import Skeleton


@dataclass(frozen=True)
class Feed:
    """What a pass is fed: pictures of ``size``; ``kind`` counts ``example_inputs``."""

    size: Size
    batch: int = 1
    kind: int = 0


@dataclass(frozen=True)
class Trial:
    """One pass and what it was fed."""

    feed: Feed
    recording: Recording

    @property
    def complete(self) -> bool:
        return self.recording.failure is None


class StandIn:
    """A copy of ``model`` to run. ``with_data``: on its own numbers, else on meta tensors.

    The model itself, its hooks and the random state are as before after any run. The caller's
    inference mode does not reach in: its tensors count no in-place writes and have no graph.
    """

    @torch.inference_mode(False)
    def __init__(
        self, model: nn.Module, channels: int | None = None, *, with_data: bool = False
    ) -> None:
        self._model = unwrap(model)
        self._channels = channels
        self._with_data = with_data
        skeleton = Skeleton(model, with_data=with_data)
        self._root = skeleton.root
        found = {name: skeleton.of(layer) for name, layer in named_layers(model).items()}
        self._layers = {name: layer for name, layer in found.items() if layer is not None}

    def kinds(self, size: Size) -> int:
        """How many kinds of input the model may take."""
        return sum(1 for _ in example_inputs(self._model, size, channels=self._channels))

    @torch.inference_mode(False)
    def run(self, feed: Feed, *, traced: bool) -> Trial:
        device = _device_of(self._model) if self._with_data else torch.device("meta")
        candidates = example_inputs(
            self._model, feed.size, feed.batch, channels=self._channels, device=device
        )
        inputs = next(itertools.islice(candidates, feed.kind, None))
        if self._with_data:
            with _random_state_kept(device):
                return Trial(feed, record(self._root, self._layers, inputs, traced=traced))
        with ShapesOnly() as shapes:
            recording = record(
                self._root, self._layers, inputs, traced=traced, doubt=lambda: shapes.guessed
            )
        return Trial(feed, recording)


def first_that_runs(stand_in: StandIn, sizes: list[Size], *, traced: bool) -> Trial:
    """The first of ``sizes`` and of the kinds of input that the model runs through with.

    If none, the trial that came furthest at the first size.
    """
    failed: list[Trial] = []
    for size in sizes:
        for kind in range(stand_in.kinds(size)):
            trial = stand_in.run(Feed(size, kind=kind), traced=traced)
            if trial.complete:
                return trial
            failed.append(trial)
    return max(
        (trial for trial in failed if trial.feed.size == sizes[0]),
        key=lambda trial: len(trial.recording.order),
    )


def _device_of(model: nn.Module) -> torch.device:
    tensor = next(itertools.chain(model.parameters(), model.buffers()), None)
    return torch.device("cpu") if tensor is None else tensor.device


@contextlib.contextmanager
def _random_state_kept(device: torch.device) -> Iterator[None]:
    state = random.getstate()
    devices = [device] if device.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        random.setstate(state)
