"""One forward pass: when it begins, how often each layer ran in it, and what was taken."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from hookscope.hooks.handles import Handles
from hookscope.hooks.placing import Placement
from hookscope.hooks.results import Activation, Activations, merged
from hookscope.layers.modules import unwrap
from hookscope.layers.outputs import Item, tensors_in


class PassRecord:
    """The tensors taken at the placed layers during the last forward pass, in hook order.

    A new pass starts a new record; names that were looked up in an old one stay as they were.
    """

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self.begin()

    def begin(self, entered: str = "") -> None:
        """A pass begins at the module ``entered``: what lies below it is forgotten."""
        if not entered:
            self._taken: dict[tuple[int, str, int, Item], Tensor | None] = {}
            self._calls: Counter[tuple[int, str]] = Counter()
            return
        below = {name for name in self._placement if f"{name}.".startswith(f"{entered}.")}
        self._taken = {key: kept for key, kept in self._taken.items() if key[1] not in below}
        self._calls = Counter({key: n for key, n in self._calls.items() if key[1] not in below})

    def next_call(self, rank: int, layer: str) -> int:
        self._calls[rank, layer] += 1
        return self._calls[rank, layer]

    def calls(self, rank: int, layer: str) -> int:
        return self._calls[rank, layer]

    def slot(self, rank: int, layer: str, call: int, item: Item) -> Callable[[Tensor], None]:
        """A place in the order of results, to be filled now or in the backward pass."""
        taken, key = self._taken, (rank, layer, call, item)
        taken[key] = None

        def fill(tensor: Tensor) -> None:
            taken[key] = tensor

        return fill

    @property
    def results(self) -> list[Activation]:
        return merged(
            (key[0], Activation(*key[1:], tensor))
            for key, tensor in self._taken.items()
            if tensor is not None
        )

    @property
    def activations(self) -> Activations:
        calls: dict[str, int] = {}
        for (_, layer), count in self._calls.items():
            calls[layer] = max(count, calls.get(layer, 0))
        return Activations(self.results, self._placement, calls)


def watch_passes(placement: Placement, handles: Handles, begin: Callable[[str], None]) -> None:
    """Has ``begin`` called with a module's name whenever a call from outside enters there.

    A call to the model itself has the name ``""``. A call to a part (``model.encoder(x)``) begins
    a pass of that part alone; calls that happen inside another one begin nothing. Watched are the
    model, the layers of ``placement``, and their ancestors.
    """
    doors: dict[nn.Module, str] = {placement.model: "", unwrap(placement.model): ""}
    for layer in placement:
        parts = layer.split(".")
        for depth in range(1, len(parts) + 1):
            name = ".".join(parts[:depth])
            if name in placement.tree:
                doors.setdefault(placement.tree[name], name)
    door = _Door(begin)
    for module, name in doors.items():
        if type(module).__name__ != "OptimizedModule":
            handles.add(module.register_forward_pre_hook(door.entering(name)))
            handles.add(module.register_forward_hook(door.leave, always_call=True))


class _Door:
    """Knows the outermost call that is running by its frame, and so whether it still runs.

    Not by counting: a KeyboardInterrupt in a notebook leaves no chance to count down.
    """

    def __init__(self, begin: Callable[[str], None]) -> None:
        self._begin = begin
        self._outermost: FrameType | None = None

    def entering(self, name: str) -> Callable[[nn.Module, Any], None]:
        def enter(module: nn.Module, args: Any) -> None:
            # The copies that DataParallel makes run in threads of their own, inside its pass.
            if getattr(module, "_is_replica", False) or in_backward():
                return
            if self._outermost is None or not _is_running(self._outermost):
                self._outermost = sys._getframe(1)
                self._begin(name)

        return enter

    def leave(self, module: nn.Module, args: Any, output: Any) -> None:
        caller, outermost = sys._getframe(1), self._outermost
        # After an exception torch calls this from one frame further out.
        if outermost is not None and (outermost is caller or outermost.f_back is caller):
            self._outermost = None


def in_backward() -> bool:
    """Whether this is the second run of a layer that gradient checkpointing makes in backward."""
    return torch._C._current_graph_task_id() != -1


def rank_of(module: nn.Module, value: Any) -> int:
    """Which copy of a model a hook runs in: 0, or for the copies that ``DataParallel`` makes for
    one forward pass, one more than the number of their device."""
    if not getattr(module, "_is_replica", False):
        return 0
    first = next(tensors_in(value), None)
    return 1 + (first[1].get_device() if first else 0)


def _is_running(frame: FrameType) -> bool:
    current: FrameType | None = sys._getframe(1)
    while current is not None:
        if current is frame:
            return True
        current = current.f_back
    return False
