"""Names for what flows past a layer, and patterns that choose among them."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from torch import nn

from hookscope.errors import LayerNotFoundError, closest
from hookscope.layers.modules import class_name, named_layers, other_names
from hookscope.layers.outputs import Item

_CALL_AND_ITEM = re.compile(r"(?P<layer>.+?)(?:@(?P<call>[1-9]\d*))?(?P<items>(?:\[[^\[\]]+\])*)")
_CALL_THEN_ITEM = re.compile(r"(?P<layer>.+)@(?P<call>[1-9]\d*)(?P<items>(?:\[[^\[\]]+\])*)")

# What an index or a key never is: a range, or a negation.
_CHARACTER_CLASS = re.compile(r"\[(?:!|[^\]]*\w-\w)[^\]]*\]")


@dataclass(frozen=True)
class Address:
    """One tensor of one call of one layer: ``layer1.0.relu@2``, ``lstm[1][0]``, ``x@2[0]``.

    ``call`` counts from 1 and is None where the layer runs once in a forward pass; ``item`` is
    empty where it returns a tensor by itself.
    """

    layer: str
    call: int | None = None
    item: Item = ()

    def __str__(self) -> str:
        call = "" if self.call is None else f"@{self.call}"
        return f"{self.layer}{call}{item_text(self.item)}"


@dataclass(frozen=True)
class Selection:
    """What one pattern chose in one layer: all calls where ``call`` is None, all items below
    ``item``. ``exact`` where the layer was named rather than matched by a glob or a class."""

    layer: str
    call: int | None
    item: Item
    exact: bool
    pattern: str

    def covers(self, address: Address) -> bool:
        """Whether this selection wants what ``address`` names."""
        return (
            self.layer == address.layer
            and (self.call is None or self.call == (address.call or 1))
            and _same_item(self.item, address.item[: len(self.item)])
        )


def item_text(item: Item) -> str:
    return "".join(f"[{part}]" for part in item)


def select(
    model: nn.Module, patterns: Sequence[str] = (), types: Sequence[str] = ()
) -> list[Selection]:
    """The layers that ``patterns`` and ``types`` (class names) choose, in ``named_layers`` order.

    A pattern is an exact name, with ``@N`` and ``[item]`` behind it if need be, or else a glob.
    With both, a layer must match a pattern and have one of the classes; ``types`` alone choose
    all modules of these classes. Raises ``LayerNotFoundError`` for what matches nothing.
    """
    layers = named_layers(model)
    classes = {name: class_name(module) for name, module in layers.items()}
    _refuse_unknown_types(types, classes.values())
    if patterns:
        found = [
            hit for pattern in patterns for hit in _matches(pattern, model, layers, classes, types)
        ]
    else:
        found = [
            Selection(name, None, (), exact=False, pattern=classes[name])
            for name in layers
            if classes[name] in types
        ]
    order = {name: position for position, name in enumerate(layers)}
    found.sort(key=lambda hit: (order[hit.layer], hit.call or 0, [str(part) for part in hit.item]))
    return list(_without_repeats(found))


def chosen(
    selections: Iterable[Selection], addresses: Iterable[Address]
) -> tuple[list[Address], list[Selection]]:
    """The ``addresses`` that some selection covers, in their order, and the selections that
    cover none: layers, calls or items that a forward pass does not have."""
    wanted = list(selections)
    available = list(addresses)
    taken = [address for address in available if any(hit.covers(address) for hit in wanted)]
    missing = [hit for hit in wanted if not any(hit.covers(address) for address in available)]
    return taken, missing


def _matches(
    pattern: str,
    model: nn.Module,
    layers: dict[str, nn.Module],
    classes: dict[str, str],
    types: Sequence[str],
) -> list[Selection]:
    hits = _exact(pattern, model, layers)
    if not hits or _CHARACTER_CLASS.search(pattern):
        # `features.1[0-2]` begins like a layer's name, but no item is called 0-2.
        hits = _globbed(pattern, layers) or hits
    if not hits:
        raise _unknown_layer(pattern, layers)
    if not types:
        return hits
    kept = [hit for hit in hits if classes[hit.layer] in types]
    if not kept:
        raise LayerNotFoundError(
            f"No layer that matches {pattern!r} is of type {' or '.join(types)}.",
            f"{hits[0].layer} is of type {classes[hits[0].layer]}.",
        )
    return kept


def _exact(pattern: str, model: nn.Module, layers: dict[str, nn.Module]) -> list[Selection]:
    split = _CALL_AND_ITEM.fullmatch(pattern)
    call, item = (_call_of(split), _item_of(split)) if split else (None, ())
    name = split["layer"] if split else pattern
    for known in (layers, other_names(model)):
        if pattern in known:
            return [Selection(_canonical(pattern, known), None, (), exact=True, pattern=pattern)]
        if name in known:
            return [Selection(_canonical(name, known), call, item, exact=True, pattern=pattern)]
    return []


def _canonical(name: str, known: dict[str, nn.Module] | dict[str, str]) -> str:
    value = known[name]
    return value if isinstance(value, str) else name


def _globbed(pattern: str, layers: Iterable[str]) -> list[Selection]:
    # Brackets are a character class in a glob, so an item needs a call before it: `*.lstm@1[0]`.
    split = _CALL_THEN_ITEM.fullmatch(pattern)
    glob, call, item = (
        (split["layer"], _call_of(split), _item_of(split)) if split else (pattern, None, ())
    )
    return [
        Selection(name, call, item, exact=False, pattern=pattern)
        for name in layers
        if fnmatch.fnmatchcase(name, glob)
    ]


def _call_of(split: re.Match[str]) -> int | None:
    return int(split["call"]) if split["call"] else None


def _item_of(split: re.Match[str]) -> Item:
    parts = re.findall(r"\[([^\[\]]+)\]", split["items"] or "")
    return tuple(int(part) if part.isdecimal() else part for part in parts)


def _same_item(wanted: Item, found: Item) -> bool:
    # A pattern cannot tell the key "0" of a dict from the index 0.
    return [str(part) for part in wanted] == [str(part) for part in found]


def _without_repeats(selections: Iterable[Selection]) -> Iterator[Selection]:
    """Each (layer, call, item) once; a layer named exactly stays exact."""
    best: dict[tuple[str, int | None, str], Selection] = {}
    for hit in selections:
        key = (hit.layer, hit.call, item_text(hit.item))
        if key not in best or (hit.exact and not best[key].exact):
            best[key] = hit
    yield from best.values()


def _refuse_unknown_types(types: Sequence[str], known: Iterable[str]) -> None:
    available = set(known)
    for wanted in types:
        if wanted not in available:
            raise LayerNotFoundError(
                f"The model has no module of type {wanted!r}.",
                f"Closest: {', '.join(closest(wanted, sorted(available)))}.",
            )


def _unknown_layer(pattern: str, layers: Iterable[str]) -> LayerNotFoundError:
    plain = re.sub(r"@\d*|[*?!\[\]]", "", pattern)
    near = ", ".join(closest(plain, layers))
    return LayerNotFoundError(
        f"No layer matches {pattern!r}.",
        f"Closest: {near}. `hookscope list-layers` shows all of them." if near else "",
    )
