"""One forward pass, written down: which module returned which tensor, in which order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from hookscope.layers.addresses import Address
from hookscope.layers.outputs import Item, tensors_in

# An output of a node of the autograd graph: the node, and which of its outputs.
Place = tuple[Any, int]


@dataclass(frozen=True)
class Value:
    """One tensor that a module returned. ``layer``, ``call`` (from 1) and ``item`` say where.

    ``version`` counted the in-place writes so far. In a traced pass ``place`` is where in the
    autograd graph the tensor came from, ``read`` where the module's inputs did, and ``no_op`` is
    true where the output is an input, or a view of one.
    """

    layer: str
    call: int
    item: Item
    tensor: Tensor
    version: int
    place: Place | None = None
    read: tuple[Place, ...] = ()
    no_op: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    @property
    def overwritten(self) -> bool:
        """Whether something wrote into the tensor after the module had returned it."""
        return self.tensor._version > self.version


@dataclass(frozen=True)
class Recording:
    """What a forward pass did: ``values`` in execution order, ``order`` of the (layer, call).

    ``sources`` are the places of the inputs in a traced pass. ``failure`` is what ended the pass
    early; the rest then tells what happened until there. ``doubtful``: a module ran after
    ``doubt`` had set in (see ``record``).
    """

    values: tuple[Value, ...]
    calls: Mapping[str, int]
    order: tuple[tuple[str, int], ...]
    output: Any
    sources: tuple[Place, ...]
    failure: Exception | None
    doubtful: bool

    def address(self, value: Value) -> Address:
        call = value.call if self.calls[value.layer] > 1 else None
        return Address(value.layer, call, value.item)


@dataclass(frozen=True)
class _Entry:
    """A tensor on its way into a module."""

    tensor: Tensor
    version: int
    place: Place | None


def record(
    root: nn.Module,
    layers: Mapping[str, nn.Module],
    inputs: Sequence[Any],
    *,
    traced: bool,
    doubt: Callable[[], bool] | None = None,
) -> Recording:
    """Run ``root(*inputs)`` and write down what each of ``layers`` returned.

    ``traced`` builds the autograd graph from the inputs. ``doubt`` is asked before each module
    whether the pass can still be trusted. Hooks are gone afterwards. Any error of the model's
    own is kept in the recording.
    """
    recorder = _Recorder(traced, doubt)
    sources: tuple[Place, ...] = ()
    output, failure = None, None
    try:
        recorder.attach(layers)
        with torch.set_grad_enabled(traced):
            if traced:
                inputs = [_watched(part) for part in inputs]
                found = [_place(tensor) for _, tensor in tensors_in(inputs)]
                sources = tuple(place for place in found if place is not None)
            output = root(*inputs)
    except Exception as error:
        failure = error
    finally:
        recorder.detach()
    return Recording(
        tuple(recorder.values),
        recorder.calls,
        tuple(recorder.order),
        output,
        sources,
        failure,
        recorder.doubtful,
    )


class _Recorder:
    def __init__(self, traced: bool, doubt: Callable[[], bool] | None) -> None:
        self.values: list[Value] = []
        self.calls: Counter[str] = Counter()
        self.order: list[tuple[str, int]] = []
        self.doubtful = False
        self._traced = traced
        self._doubt = doubt
        self._entered: list[list[_Entry]] = []
        self._handles: list[RemovableHandle] = []

    def attach(self, layers: Mapping[str, nn.Module]) -> None:
        for name, module in layers.items():
            if self._traced or self._doubt:
                before = module.register_forward_pre_hook(self._enter, with_kwargs=True)
                self._handles.append(before)
            self._handles.append(module.register_forward_hook(self._leave(name)))

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _enter(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        self.doubtful = self.doubtful or (self._doubt is not None and self._doubt())
        if not self._traced:
            return
        tensors = [tensor for _, tensor in tensors_in([args, kwargs])]
        self._entered.append([_Entry(t, t._version, _place(t)) for t in tensors])

    def _leave(self, name: str) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            self.calls[name] += 1
            call = self.calls[name]
            self.order.append((name, call))
            entries = self._entered.pop() if self._traced else []
            read = tuple(entry.place for entry in entries if entry.place is not None)
            for item, tensor in tensors_in(output):
                passed_on = any(_same_data(tensor, entry) for entry in entries)
                value = Value(
                    name, call, item, tensor, tensor._version, _place(tensor), read, passed_on
                )
                self.values.append(value)

        return hook


def _watched(part: Any) -> Any:
    if isinstance(part, Tensor) and part.is_floating_point():
        # The copy is no leaf, so that a model may write into its input.
        return part.detach().requires_grad_().clone()
    if isinstance(part, (list, tuple)):
        return [_watched(member) for member in part]
    return part


def _place(tensor: Tensor) -> Place | None:
    return None if tensor.grad_fn is None else (tensor.grad_fn, tensor.output_nr)


def _same_data(tensor: Tensor, entry: _Entry) -> bool:
    """Whether ``tensor`` is what came in, or a view of it, with nothing written meanwhile."""
    if tensor._version != entry.version:
        return False
    return tensor is entry.tensor or (tensor._is_view() and _base(tensor) is _base(entry.tensor))


def _base(tensor: Tensor) -> Tensor:
    return tensor._base if tensor._is_view() and tensor._base is not None else tensor
