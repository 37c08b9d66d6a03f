"""Which of several places in a checkpoint is meant: EMA before raw, and no guess beyond that."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from torch import Size

from hookscope.errors import CheckpointError, did_you_mean
from hookscope.models.checkpoint.candidates import Candidate, Scope, candidates, same
from hookscope.models.checkpoint.leaves import Leaf

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


@dataclass(frozen=True)
class Choice:
    """The place taken; ``ema`` says that it is an averaged copy.

    ``completed_from`` is the place that lent what an EMA of the parameters alone lacks.
    """

    candidate: Candidate
    ema: bool = False
    completed_from: Candidate | None = None


def choose(
    leaves: tuple[Leaf, ...],
    shapes: Mapping[str, Size | None],
    learned: Collection[str],
    scope: Scope,
    file: str,
) -> Choice | None:
    """The place whose tensors the model is to get, or None where no name is known to it.

    ``learned`` names the model's parameters: an EMA may hold no more than these. Raises
    ``CheckpointError`` when two places fit alike and hold different numbers.
    """
    ranked = candidates(leaves, shapes, scope)
    if not ranked:
        return None
    best = ranked[0]
    rivals = [
        candidate
        for candidate in ranked
        if candidate.entries.keys() == best.entries.keys() and candidate.fits == best.fits
    ]
    averaged = [candidate for candidate in rivals if _is_averaged(candidate, ranked)]
    if averaged:
        return Choice(_the_one(averaged, file), ema=True)
    partly = [
        candidate
        for candidate in ranked
        if _is_averaged(candidate, ranked) and set(learned) <= candidate.entries.keys()
    ]
    if partly and set(learned) <= best.entries.keys():
        chosen, lender = _the_one(partly, file), _the_one(rivals, file)
        entries = {**lender.entries, **chosen.entries}
        return Choice(replace(chosen, entries=entries), ema=True, completed_from=lender)
    return Choice(_the_one(rivals, file))


def scope_of(key: str | None, leaves: tuple[Leaf, ...], file: str) -> Scope:
    """Where ``--checkpoint-key`` says to look: under a key, or behind a prefix.

    A key that ends in a dot says all: what follows it are the model's own names; ``.`` alone
    stands for the top of the file. Raises ``CheckpointError`` where nothing has that key.
    """
    if key is None:
        return Scope()
    wanted = tuple(part for part in key.split(".") if part)
    starts = {
        leaf.parts[: start + len(wanted)]
        for leaf in leaves
        for start in range(len(leaf.parts) - len(wanted))
        if leaf.parts[start : start + len(wanted)] == wanted
    }
    if wanted in starts:
        starts = {wanted}
    if not starts:
        keys = list(dict.fromkeys(".".join(leaf.holder) or leaf.parts[0] for leaf in leaves))
        raise CheckpointError(
            f"{file} has no tensors under the key {key!r}",
            f"{did_you_mean(key, keys)} It has: {listed(keys)}.",
        )
    if len(starts) > 1:
        names = sorted(".".join(start) for start in starts)
        raise CheckpointError(
            f"the key {key!r} is in {file} more than once", f"Say which: {listed(names)}."
        )
    return Scope(starts.pop(), exact=key.endswith("."))


def listed(names: Collection[str], many: int = 5) -> str:
    """``a, b, c and 7 more``."""
    shown = ", ".join(list(names)[:many])
    return f"{shown} and {len(names) - many} more" if len(names) > many else shown


def _the_one(rivals: list[Candidate], file: str) -> Candidate:
    first, *others = rivals
    for other in others:
        if any(not same(first.entries[n].tensor, other.entries[n].tensor) for n in first.entries):
            keys = [f"{'.'.join(candidate.root)}." for candidate in (first, other)]
            raise CheckpointError(
                f"{file} is ambiguous: {_place(first)} and {_place(other)} both fit the model, "
                "and hold different numbers",
                f"Choose: --checkpoint-key {keys[0]} or --checkpoint-key {keys[1]}",
            )
    if first.clashes:
        raise CheckpointError(
            f"{file} is ambiguous: it holds {first.clashes[0]} twice, with different numbers",
            "The names differ only by what a parallel or compiled module put in.",
        )
    return first


def _place(candidate: Candidate) -> str:
    return f"{'.'.join(candidate.root)}.*" if candidate.root else "the names without a prefix"


def _is_averaged(candidate: Candidate, ranked: list[Candidate]) -> bool:
    words = _words(candidate)
    if "teacher" in words:
        return any("student" in _words(other) for other in ranked)
    return "ema" in words


def _words(candidate: Candidate) -> set[str]:
    return {word.lower() for part in candidate.root for word in _WORD.findall(part)}
