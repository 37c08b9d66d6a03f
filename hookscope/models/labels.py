"""The names of a network's classes, and which class a user means."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hookscope.errors import TargetError, UsageError, closest

_MOST_SHOWN = 8


@dataclass(frozen=True)
class Labels:
    """Class names in the order of the network's outputs; none where they are not known."""

    names: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def name(self, index: int) -> str | None:
        """The name of class ``index``, or ``None`` where it has none."""
        return (self.names[index] or None) if 0 <= index < len(self.names) else None

    def find(self, text: str, count: int) -> int:
        """The class, of ``count``, that ``text`` means: an index, a name, a unique part of one.

        Raises ``TargetError``.
        """
        wanted = text.strip()
        if re.fullmatch(r"[+-]?\d+", wanted):
            return self._index(int(wanted), count)
        if not self.names:
            raise TargetError(
                f"class {text!r} is a name, and the names of this model's classes are not known",
                f"Give an index from 0 to {count - 1}, or the names with --labels FILE.",
            )
        matches = self._matches(wanted) if wanted else []
        if len(matches) > 1:
            raise TargetError(f"class {text!r} is ambiguous: {self._listed(matches)}")
        if not matches:
            near = ", ".join(closest(wanted, filter(None, self.names)))
            raise TargetError(f"no class is named {text!r}", f"The closest: {near}.")
        return self._index(matches[0], count)

    def _index(self, index: int, count: int) -> int:
        if 0 <= index < count:
            return index
        raise TargetError(
            f"class {index} is out of range: the model has {count} classes, 0 to {count - 1}"
        )

    def _matches(self, wanted: str) -> list[int]:
        folded = wanted.casefold()
        numbered = [(index, name) for index, name in enumerate(self.names) if name]
        return (
            [index for index, name in numbered if name == wanted]
            or [index for index, name in numbered if name.casefold() == folded]
            or [index for index, name in numbered if folded in name.casefold()]
        )

    def _listed(self, matches: list[int]) -> str:
        shown = ", ".join(f"{index} {self.names[index]}" for index in matches[:_MOST_SHOWN])
        more = len(matches) - _MOST_SHOWN
        return f"{shown} and {more} more" if more > 0 else shown


def read_labels(path: Path | str) -> Labels:
    """Class names from a file: one a line, or JSON (a list, or an object index -> name).

    An object name -> index and lists whose last item is the name are understood too.
    Raises ``UsageError``.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"--labels {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"--labels {path} is not a text file in UTF-8") from None
    try:
        names = _from_json(json.loads(text)) if _looks_like_json(text) else _from_lines(text)
    except (ValueError, TypeError) as error:
        raise UsageError(f"--labels {path} is JSON, but holds no class names: {error}") from None
    if not any(names):
        raise UsageError(f"--labels {path} holds no class names")
    return Labels(names)


def _looks_like_json(text: str) -> bool:
    stripped = text.strip()
    return stripped[:1] + stripped[-1:] in ("[]", "{}")


def _from_lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.rstrip().splitlines())


def _from_json(document: Any) -> tuple[str, ...]:
    if isinstance(document, list):
        return tuple(_plain(item) for item in document)
    if not isinstance(document, Mapping):
        raise TypeError("it is neither a list nor an object")
    if document and all(isinstance(value, int) for value in document.values()):
        document = {index: name for name, index in document.items()}
    named = {int(index): _plain(name) for index, name in document.items()}
    if any(index < 0 for index in named):
        raise ValueError("an index is negative")
    if len(set(named)) < len(document) or max(named, default=0) > 10 * len(named) + 1000:
        raise ValueError("its keys are not the indices of classes")
    return tuple(named.get(index, "") for index in range(max(named, default=-1) + 1))


def _plain(item: Any) -> str:
    if isinstance(item, list) and item:
        item = item[-1]
    if not isinstance(item, str):
        raise TypeError(f"{item!r} is not a name")
    return item.strip()
