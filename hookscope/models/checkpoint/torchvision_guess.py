"""Which torchvision model a checkpoint was written for, by its names and shapes alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from torchvision import models

from hookscope.errors import ModelError
from hookscope.models.checkpoint.candidates import Scope
from hookscope.models.checkpoint.head import best_match
from hookscope.models.checkpoint.leaves import Leaf
from hookscope.models.spec import resolve
from hookscope.models.structure import without_initialisation

_ALIKE, _SURE = 0.5, 0.95
_AS_GOOD = 0.05
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Guess:
    """``name`` is a torchvision model that fits perfectly, if any.

    ``families`` are the classes of networks that the names are like.
    """

    name: str | None
    families: tuple[str, ...]


@dataclass(frozen=True)
class _Family:
    names: tuple[str, ...]
    label: str
    likeness: float


def guess(leaves: tuple[Leaf, ...], scope: Scope, file: str, nearest: str) -> Guess | None:
    """The family that the names are like, and its member that fits; None where none is like it.

    One member of each family is built for its names (that of ``nearest`` first), then those of
    the most similar families for their shapes. No memory, but a second or two of building: this
    is for what has gone wrong.
    """
    weights = [leaf for leaf in leaves if scope.allows(leaf.holder)]
    endings = [
        {pattern(".".join(leaf.parts[cut:])) for cut in range(len(leaf.parts))} for leaf in weights
    ]
    likeliest: list[_Family] = []
    for group in _groups(weights, nearest):
        families = _likeliest(group, endings, nearest)
        likeliest.extend(families)
        for family in families:
            for name in family.names:
                if _fits(name, leaves, scope, file):
                    return Guess(name, (family.label,))
    labels = tuple(family.label for family in likeliest)
    return Guess(None, labels) if labels else None


def pattern(name: str) -> str:
    """A name without its numbers: what all blocks of a family share."""
    return _NUMBER.sub("#", name)


def _groups(leaves: list[Leaf], nearest: str) -> Iterator[list[list[str]]]:
    """The names of the classifiers by family; then, if the file has a backbone, of what has one."""
    families: dict[str, list[str]] = {}
    for name in models.list_models():
        families.setdefault(models.get_model_builder(name).__module__, []).append(name)
    ordered = sorted(families.items(), key=lambda item: nearest not in item[1])
    yield [names for module, names in ordered if module.count(".") == 2]
    if any("backbone" in leaf.parts for leaf in leaves):
        kinds = (".segmentation.", ".detection.")
        yield [names for module, names in ordered if any(kind in module for kind in kinds)]


def _likeliest(group: list[list[str]], endings: list[set[str]], nearest: str) -> list[_Family]:
    seen: list[_Family] = []
    for names in group:
        seen.append(_family(names, endings))
        if nearest in names and seen[-1].likeness > _SURE:
            break  # that of the model itself, which stands first
    best = max(family.likeness for family in seen)
    return [family for family in seen if family.likeness >= max(best - _AS_GOOD, _ALIKE)]


def _family(names: list[str], endings: list[set[str]]) -> _Family:
    with without_initialisation():
        model = resolve(names[0]).build()
    theirs = {pattern(name) for name in model.state_dict()}
    explained = sum(not theirs.isdisjoint(each) for each in endings)
    met = theirs & set().union(*endings)
    likeness = min(explained / max(len(endings), 1), len(met) / len(theirs))
    return _Family(tuple(names), type(model).__name__, likeness)


def _fits(name: str, leaves: tuple[Leaf, ...], scope: Scope, file: str) -> bool:
    try:
        match = best_match(resolve(name), leaves, scope, None, file)
    except ModelError:
        return False
    return match is not None and match.fit.perfect
