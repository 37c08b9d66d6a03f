"""Where in a checkpoint a model's state dict may lie: every place that fits, the best first.

A tensor called ``state_dict`` / ``module.model.layer1.0.weight`` could be the model's
``layer1.0.weight``, found under ``state_dict`` and behind the prefix ``module.model.``. Cutting
each tensor's path at every dot and asking whether the model knows the rest names the places;
counting the (name, shape) pairs that fit ranks them. Wrappings and prefixes are the same thing
then, in any order and any depth, and none has to be known beforehand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Size, Tensor

from hookscope.models.checkpoint.leaves import Leaf

# What parallel, sharded, compiled and checkpointed modules put into names, anywhere in them.
_WRAPPERS = frozenset(
    {
        "module",
        "_orig_mod",
        "_fsdp_wrapped_module",
        "_checkpoint_wrapped_module",
        "_forward_module",
    }
)
# torchvision's own DenseNet files have names from before dots were forbidden in them.
_OLD_SPELLING = re.compile(r"\b(norm|conv)\.([12])\b")
_NOT_WEIGHTS = re.compile(
    r"^optim(izers?)?(_.*)?$|^(exp_avg|exp_avg_sq|momentum_buffer|grads?|gradients)$"
)


@dataclass(frozen=True)
class Candidate:
    """One place in the checkpoint, and what the model finds there.

    ``root`` is the path of the place; ``added`` is the prefix that the model's own names have
    and the file's have not. ``entries`` maps the model's names to tensors, of whatever shape.
    """

    root: tuple[str, ...]
    added: str
    entries: Mapping[str, Leaf]
    clashes: tuple[str, ...]
    fits: int

    @cached_property
    def holder(self) -> tuple[str, ...]:
        """The path of the dictionary that is the state dict, or the root above several."""
        holders = {leaf.holder for leaf in self.entries.values()}
        only = next(iter(holders))
        return only if len(holders) == 1 and len(only) < len(self.root) else self.root

    @property
    def key(self) -> str:
        return ".".join(self.holder)

    @property
    def prefix(self) -> str:
        return "".join(f"{part}." for part in self.root[len(self.holder) :])


@dataclass(frozen=True)
class Scope:
    """The part of a checkpoint to look in: below ``start``, or exactly there."""

    start: tuple[str, ...] = ()
    exact: bool = False

    def allows(self, root: tuple[str, ...]) -> bool:
        """What an optimizer holds has the names of the weights, and is meant only if asked for."""
        deeper = root[len(self.start) :]
        if root[: len(self.start)] != self.start or (self.exact and deeper):
            return False
        return not any(_NOT_WEIGHTS.search(part.lower()) for part in deeper)


def candidates(
    leaves: Iterable[Leaf], shapes: Mapping[str, Size | None], scope: Scope
) -> list[Candidate]:
    """All places where some of the model's names are found, the best first.

    ``shapes`` are the model's, by name; None fits any shape.
    """
    aliases = _aliases(shapes)
    known_parts = {part for name in shapes for part in name.split(".")}
    wrappers = _WRAPPERS - known_parts
    entries: dict[tuple[tuple[str, ...], str], dict[str, Leaf]] = {}
    clashes: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for leaf in leaves:
        for cut, rest in _endings(leaf.parts, wrappers):
            if not scope.allows(leaf.parts[:cut]):
                continue
            for added, name in aliases.get(rest, ()):
                place = leaf.parts[:cut], added
                held = entries.setdefault(place, {}).setdefault(name, leaf)
                if held is not leaf and not same(held.tensor, leaf.tensor):
                    clashes.setdefault(place, []).append(name)
    found = [
        Candidate(
            root,
            added,
            held,
            tuple(clashes.get((root, added), ())),
            sum(fits(leaf.tensor, shapes[name]) for name, leaf in held.items()),
        )
        for (root, added), held in entries.items()
    ]
    return sorted(found, key=_rank)


def fits(tensor: Tensor, shape: Size | None) -> bool:
    """Whether a tensor can be loaded into one of that shape; a list of one number is a number."""
    if shape is None or tensor.shape == shape:
        return True
    return len(shape) == 0 and tuple(tensor.shape) == (1,)


def same(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors hold the same numbers; NaN equals NaN, as a copy's do."""
    if left.shape != right.shape:
        return False
    if left.data_ptr() == right.data_ptr() and left.stride() == right.stride():
        return True
    if left.is_quantized or right.is_quantized or left.is_sparse or right.is_sparse:
        return False
    left, right = left.double(), right.double()
    return bool(torch.equal(left.nan_to_num(), right.nan_to_num()))


def _rank(candidate: Candidate) -> tuple[int, int, int, int]:
    return (
        -candidate.fits,
        -len(candidate.entries),
        len(candidate.added),
        len(candidate.root),
    )


def _aliases(shapes: Mapping[str, Size | None]) -> dict[str, list[tuple[str, str]]]:
    """What the file may call a tensor -> (prefix that only the model has, the model's name)."""
    aliases = {name: [("", name)] for name in shapes}
    for added in _common_prefixes(list(shapes)):
        for name in shapes:
            aliases.setdefault(name[len(added) :], []).append((added, name))
    return aliases


def _common_prefixes(names: list[str]) -> Iterator[str]:
    """``net.`` and ``net.0.`` where all names begin with them; few models have such a prefix."""
    if not names:
        return
    first = names[0].split(".")
    for length in range(1, len(first)):
        prefix = "".join(f"{part}." for part in first[:length])
        if not all(name.startswith(prefix) for name in names):
            return
        yield prefix


def _endings(parts: tuple[str, ...], wrappers: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Where a path may be cut, and the name that is left, without wrappers inside it."""
    plain = not any(part in wrappers for part in parts)
    for cut, first in enumerate(parts):
        if first in wrappers:
            continue
        rest = ".".join(
            parts[cut:] if plain else (part for part in parts[cut:] if part not in wrappers)
        )
        yield cut, rest
        modern = _OLD_SPELLING.sub(r"\1\2", rest)
        if modern != rest:
            yield cut, modern
