"""Layers that were asked for and gave nothing, and what is to be said of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import nn

from hookscope.layers.addresses import Selection, item_text
from hookscope.layers.modules import class_name, named_layers
from hookscope.layers.probe import Probe


def unanswered(
    model: nn.Module,
    selections: Sequence[Selection],
    seen: Probe,
    fired: Iterable[tuple[str, int]],
    what: str = "output",
) -> list[tuple[Selection, str]]:
    """Each selection for which nothing is in ``fired``, (layer, call), with the rest of a sentence
    that begins with the layer's name: ``never runs: ...``, ``runs 2 times: there is no call 7``."""
    calls: dict[str, set[int]] = {}
    for layer, call in fired:
        calls.setdefault(layer, set()).add(call)
    missing = []
    for selection in selections:
        ran = calls.get(selection.layer, set())
        answered = bool(ran) if selection.call is None else selection.call in ran
        if not answered or not _has_item(selection, seen):
            often = max(seen.calls.get(selection.layer, 0), *ran, 0)
            missing.append((selection, _sentence(model, selection, seen, often, what)))
    return missing


def _has_item(selection: Selection, seen: Probe) -> bool:
    known = seen.of(selection.layer)
    return not selection.item or not known or any(selection.covers(one.address) for one in known)


def _sentence(model: nn.Module, selection: Selection, seen: Probe, often: int, what: str) -> str:
    if not often:
        return f"never runs: {_reason(model, selection.layer)}"
    if selection.call is not None and selection.call > often:
        times = "once" if often == 1 else f"{often} times"
        return f"runs {times}: there is no call {selection.call}"
    items = dict.fromkeys(item_text(info.address.item) for info in seen.of(selection.layer))
    if selection.item and items:
        given = ", ".join(filter(None, items)) or "one tensor"
        return f"gives {given}: there is no item {item_text(selection.item)}"
    return f"runs, but has no {what} of its own"


def _reason(model: nn.Module, layer: str) -> str:
    modules = named_layers(model)
    parents = [modules[name] for name in _ancestors(layer) if name in modules]
    if any(isinstance(parent, nn.MultiheadAttention) for parent in parents):
        return "nn.MultiheadAttention uses its weights without calling it"
    if any("aux" in part.lower() for part in layer.split(".")):
        return "auxiliary heads run in training mode only"
    if isinstance(modules.get(layer), (nn.ModuleList, nn.ModuleDict)):
        return f"{class_name(modules[layer])} holds modules and is never called itself"
    return "the model's forward does not call it, or only uses its weights"


def _ancestors(layer: str) -> list[str]:
    parts = layer.split(".")
    return [".".join(parts[:depth]) for depth in range(1, len(parts))]
