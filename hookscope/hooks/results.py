"""What the hooks of one forward pass brought back, and the names by which it is asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hookscope.errors import LayerNotFoundError, did_you_mean
from hookscope.hooks.placing import Placement
from hookscope.layers.addresses import Address, Selection
from hookscope.layers.outputs import Item

_NAME = re.compile(r"(?P<layer>.+?)(?:@(?P<call>[1-9]\d*))?(?P<items>(?:\[[^\[\]]+\])*)", re.DOTALL)


@dataclass(frozen=True)
class Activation:
    """One tensor of one call of one layer.

    ``call`` counts from 1 within the forward pass. ``item`` is the way to the tensor in what the
    layer returned or was given: ``()``, ``(1, 0)``, ``("logits",)``.
    """

    layer: str
    call: int
    item: Item
    tensor: Tensor


class Activations(Mapping[str, Any]):
    """Tensors by name: ``"layer4"``, ``"relu@1"``, ``"lstm[1][0]"``, ``"head[logits]"``.

    Iterating gives one name a tensor in execution order, with ``@N`` only where a layer ran more
    than once. Asking without ``@N`` gives the last call; asking without an item gives the only
    tensor there is, or else a tuple or dict of them, nested as the layer returned them.

    ``placement`` knows the layers that are captured, ``calls`` how often each ran in this pass.
    """

    def __init__(
        self, results: Sequence[Activation], placement: Placement, calls: Mapping[str, int]
    ) -> None:
        self._results = results
        self._placement = placement
        self.calls = calls

    def __getitem__(self, name: str) -> Any:
        layer, call, item = self._parse(name)
        ran = [result for result in self._results if result.layer == layer]
        wanted = Selection(layer, call or (ran[-1].call if ran else 1), item, True, name)
        found = {
            result.item[len(item) :]: result.tensor
            for result in ran
            if wanted.covers(Address(layer, result.call, result.item))
        }
        if not found:
            raise self._not_found(name, layer)
        return _nested(found)

    def __iter__(self) -> Iterator[str]:
        return (self._name(result) for result in self._results)

    def __len__(self) -> int:
        return len(self._results)

    def __repr__(self) -> str:
        shapes = (f"{self._name(r)}: {tuple(r.tensor.shape)}" for r in self._results)
        return f"{type(self).__name__}({', '.join(shapes)})"

    def _name(self, result: Activation) -> str:
        call = result.call if self.calls.get(result.layer, 1) > 1 else None
        return str(Address(result.layer, call, result.item))

    def _parse(self, name: str) -> tuple[str, int | None, Item]:
        whole, match = self._placement.named(name), _NAME.fullmatch(name)
        if whole is not None or match is None:
            return whole or name, None, ()
        layer = self._placement.named(match["layer"]) or match["layer"]
        items = re.findall(r"\[([^\[\]]+)\]", match["items"])
        return layer, int(match["call"]) if match["call"] else None, tuple(items)

    def _not_found(self, name: str, layer: str) -> LayerNotFoundError:
        if layer not in self._placement:
            hint = did_you_mean(layer, self._placement)
            return LayerNotFoundError(f"{name!r} was not captured", hint)
        there = [self._name(result) for result in self._results if result.layer == layer]
        if there:
            return LayerNotFoundError(f"there is no {name!r}", f"There is {', '.join(there)}.")
        return LayerNotFoundError(
            f"nothing was captured at {layer!r}",
            "It has not run since the last forward pass began, or not in that call.",
        )


def merged(taken: Iterable[tuple[int, Activation]]) -> list[Activation]:
    """Results with the rank of the copy that gave them -> results, in order.

    The shares of a batch that ``DataParallel`` spread are joined along the first axis in order of
    rank, on the device of the first.
    """
    shares: dict[tuple[str, int, Item], dict[int, Activation]] = {}
    for rank, result in taken:
        shares.setdefault((result.layer, result.call, result.item), {})[rank] = result
    return [_joined([by_rank[rank] for rank in sorted(by_rank)]) for by_rank in shares.values()]


def _joined(shares: list[Activation]) -> Activation:
    first = shares[0]
    if len(shares) == 1:
        return first
    tensors = [torch.atleast_1d(share.tensor).to(first.tensor.device) for share in shares]
    return Activation(first.layer, first.call, first.item, torch.cat(tensors))


def _nested(found: dict[Item, Tensor]) -> Any:
    if len(found) == 1:
        return next(iter(found.values()))
    groups: dict[int | str, dict[Item, Tensor]] = {}
    for item, tensor in found.items():
        groups.setdefault(item[0], {})[item[1:]] = tensor
    parts = {key: _nested(group) for key, group in groups.items()}
    return tuple(parts.values()) if list(parts) == list(range(len(parts))) else parts
