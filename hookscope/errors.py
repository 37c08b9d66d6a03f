"""What hookscope raises when the fault is in what it was given, and how it suggests a way out."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class HookscopeError(Exception):
    """An expected failure: what happened and why, and in ``hint`` what to do next."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class UsageError(HookscopeError):
    """A flag or an argument that cannot be meant: nothing was started."""


class ModelError(HookscopeError):
    """A model that is unknown, or cannot be built, run or explained."""


class WeightsError(ModelError):
    """Weights that are unknown or cannot be had."""


class CheckpointError(ModelError):
    """A checkpoint that cannot be read, or does not fit the model."""


class LayerNotFoundError(HookscopeError, KeyError):
    """A layer name or pattern that matches nothing in the model."""


class TargetError(HookscopeError):
    """A class that the model does not have, or an output that holds no class scores."""


class PictureError(HookscopeError):
    """One picture that cannot be read; the others are not touched by it."""


class OutputError(HookscopeError):
    """A file that cannot, or must not, be written."""


def closest(word: str, candidates: Iterable[str], count: int = 3) -> list[str]:
    """The ``count`` candidates most like ``word``, best first, whatever their case."""
    pool = list(dict.fromkeys(candidates))
    wanted = word.casefold()

    def likeness(candidate: str) -> tuple[bool, float]:
        folded = candidate.casefold()
        contained = bool(wanted) and wanted in folded
        return contained, difflib.SequenceMatcher(None, wanted, folded).ratio()

    return sorted(pool, key=likeness, reverse=True)[:count]


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """``Did you mean a, b or c?``, or nothing when there are no candidates."""
    names = closest(word, candidates)
    if not names:
        return ""
    head = ", ".join(names[:-1])
    return f"Did you mean {head} or {names[-1]}?" if head else f"Did you mean {names[0]}?"
