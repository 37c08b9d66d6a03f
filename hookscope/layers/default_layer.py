"""The layer that a class-activation map takes when none is named, from structure alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from hookscope.layers.addresses import Address
from hookscope.layers.axes import Axes
from hookscope.layers.flow import Flow, flow
from hookscope.layers.outputs import tensors_in
from hookscope.layers.recording import Place, Recording, Value

# A map with fewer cells along a side says nothing about where.
SHORTEST_SIDE = 4

# Where a model returns several tensors, the one under such a key holds the scores.
_SCORE_KEYS = ("logits", "out", "scores")


def default_layer(recording: Recording, axes: Mapping[Address, Axes]) -> Address | None:
    """The last spatial tensor through which all of the score flows; None without any.

    ``recording`` is a traced pass. Where nothing lies on all paths, the last spatial tensor on
    any. No-ops, maps under 4 cells and token sequences of which only the class token is read
    further on do not count; where such a sequence was passed over, the module that reads the
    one before it (a transformer block's first norm) stands for it. A model that compares several
    pictures (optical flow) has none.
    """
    if len(recording.sources) > 1:
        return None
    candidates = [value for value in recording.values if _is_map(value, recording, axes)]
    stream = _flow_of(recording)
    if stream is None:
        return _outermost(recording, _last_tensor(candidates))
    on_path = [value for value in candidates if _position(value, stream) is not None]
    pool = [value for value in on_path if value.place in stream.cuts] or on_path
    lengths = {v.shape[1] for v in on_path if axes[recording.address(v)].layout.kind == "tokens"}
    reached = stream.reached(lengths)
    live = [value for value in pool if _node(value) in reached]
    if not live:
        return None
    winner = min(live, key=lambda value: _position(value, stream) or 0)
    nearer = any((_position(v, stream) or 0) < (_position(winner, stream) or 0) for v in pool)
    if nearer:
        reader = _first_reader(winner, [value for value in on_path if _node(value) in reached])
        if reader is not None:
            return recording.address(reader)
    return _outermost(recording, [value for value in live if value.place == winner.place])


def _is_map(value: Value, recording: Recording, axes: Mapping[Address, Axes]) -> bool:
    meaning = axes[recording.address(value)]
    if value.no_op or meaning.follows is False or not value.tensor.is_floating_point():
        return False
    kind, grid = meaning.layout.kind, meaning.layout.grid
    if kind == "tokens":
        return grid is not None and min(grid) >= SHORTEST_SIDE
    if kind == "NCHW":
        return min(value.shape[2:]) >= SHORTEST_SIDE
    return kind == "NHWC" and min(value.shape[1:3]) >= SHORTEST_SIDE


def _flow_of(recording: Recording) -> Flow | None:
    score = _score(recording.output)
    if score is None or score.grad_fn is None:
        return None
    return flow((score.grad_fn, score.output_nr), recording.sources)


def _score(output: Any) -> Tensor | None:
    """The tensor that holds the class scores: by its key, else the first matrix, else the first."""
    found = [(item, t) for item, t in tensors_in(output) if t.is_floating_point() and t.grad_fn]
    by_key = [t for item, t in found if item and item[-1] in _SCORE_KEYS]
    matrices = [t for _, t in found if t.dim() == 2]
    return next(iter((*by_key, *matrices, *(t for _, t in found))), None)


def _node(value: Value) -> Any:
    return None if value.place is None else value.place[0]


def _position(value: Value, stream: Flow) -> int | None:
    return stream.position.get(_node(value))


def _first_reader(winner: Value, values: Sequence[Value]) -> Value | None:
    """The first module that reads the winner directly and keeps its shape."""
    place: Place | None = winner.place
    return next((v for v in values if place in v.read and v.shape == winner.shape), None)


def _last_tensor(values: Sequence[Value]) -> list[Value]:
    return [value for value in values if value.tensor is values[-1].tensor]


def _outermost(recording: Recording, same: Sequence[Value]) -> Address | None:
    """Of several modules that returned one tensor, the last to finish encloses the others; one
    that returns it alone comes before one that returns it among others."""
    if not same:
        return None
    alone = [value for value in same if not value.item]
    return recording.address((alone or list(same))[-1])
