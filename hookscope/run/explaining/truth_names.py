"""Which classes are meant by the names that folders or a CSV file give to them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from hookscope.errors import HookscopeError, TargetError, UsageError, closest
from hookscope.models.labels import Labels

_INDEX = re.compile(r"[+-]?\d{1,18}")
_WORDNET_ID = re.compile(r"n\d{8}", re.ASCII)
_IMAGENET = 1000


@dataclass(frozen=True)
class Meaning:
    """Name -> index, what the classes are called, and how that was found if not by their names."""

    indices: Mapping[str, int]
    labels: Labels
    note: str | None = None


@dataclass(frozen=True)
class Names:
    """The names of classes that were ``told``, each with the number of its pictures.

    ``every``: these names and those of pictures that are not in the run. ``folders``: they are
    names of folders, whose order may tell. ``teller``: where they come from, for messages.
    """

    told: Mapping[str, int]
    every: Collection[str]
    folders: bool
    teller: str

    def meaning(self, labels: Labels, count: int | None) -> Meaning:
        """What they mean to a model of ``count`` classes.

        A class's name comes first, exactly or but for case, ``_``, ``-`` and spaces, then an
        index: a part of a name is never enough. Raises ``TargetError`` for a name that means no
        class or several, and ``UsageError`` where names cannot mean anything.
        """
        size = count if count is not None else len(labels) or None
        matches = _Matches(labels, size)
        found = {name: matches.of(name) for name in self.told}
        strangers = [name for name in self.told if not found[name]]
        if not strangers:
            self._refuse_ambiguous(found)
            indices = {name: places[0] for name, places in found.items()}
            return Meaning(indices, labels, self._note(indices, labels, size))
        if size == _IMAGENET and len(strangers) == len(self.told) and self._all_of_wordnet():
            return self._imagenet(labels)
        if self.folders and not labels and len(self.every) == count:
            return self._in_order("as torchvision's ImageFolder numbers them", labels)
        raise self._refusal(strangers, labels, size)

    def _all_of_wordnet(self) -> bool:
        return all(map(_WORDNET_ID.fullmatch, self.every))

    def _imagenet(self, labels: Labels) -> Meaning:
        if len(self.every) != _IMAGENET:
            ids = "one WordNet id" if len(self.every) == 1 else f"{len(self.every)} WordNet ids"
            raise UsageError(
                f"{self.teller}: {ids}, and only all {_IMAGENET} of ImageNet tell by their order "
                "which class each is",
                "Tell indices or names of classes with --truth FILE.csv, or give all ids in the "
                "order of the classes with --labels FILE.",
            )
        return self._in_order("as ImageNet numbers its WordNet ids", labels)

    def _in_order(self, whose: str, labels: Labels) -> Meaning:
        ordered = sorted(self.every)
        first = ", ".join(f"{index} {name}" for index, name in enumerate(ordered[:2]))
        more = ", ..." if len(ordered) > 2 else ""
        return Meaning(
            {name: index for index, name in enumerate(ordered)},
            labels or Labels(tuple(ordered)),
            f"true classes are taken in the order of their names, {whose}: {first}{more}",
        )

    def _note(self, indices: Mapping[str, int], labels: Labels, size: int | None) -> str | None:
        """In a table an index is no surprise; a folder may be called 7 for other reasons."""
        named = (
            _folded(labels.name(index) or "") == _folded(name) for name, index in indices.items()
        )
        if not self.folders or all(named):
            return None
        note = "folders that are called a number are taken for the class of that index"
        as_text = sorted(indices)
        if not labels and len(indices) == size and as_text != sorted(as_text, key=int):
            first = ", ".join(as_text[:3])
            note += f", unlike torchvision's ImageFolder, which orders them as text: {first}, ..."
        return note

    def _refuse_ambiguous(self, found: Mapping[str, list[int]]) -> None:
        for name, places in found.items():
            if len(places) > 1:
                indices = " and ".join(map(str, places))
                raise TargetError(
                    f"{self.teller}: {self._counted(name)} is the name of {len(places)} classes: "
                    f"{indices}",
                    "Give the index in its place, as the folder's name or in --truth FILE.csv.",
                )

    def _refusal(self, strangers: list[str], labels: Labels, size: int | None) -> HookscopeError:
        """What is to be said of names that mean nothing."""
        names = [name for name in strangers if not _INDEX.fullmatch(name.strip())]
        name = (names or strangers)[0]
        if not names:
            has = f": the model has {size} classes, 0 to {size - 1}" if size else ""
            return TargetError(f"{self.teller}: class {self._counted(name)} is out of range{has}")
        if not labels:
            classes = f"{size} classes" if size else "classes"
            folders = "one folder" if len(self.every) == 1 else f"{len(self.every)} folders"
            order = f", and {folders} cannot tell their order" if self.folders else ""
            return UsageError(
                f"{self.teller}: {self._counted(name)} is a name, and the names of this model's "
                f"{classes} are not known{order}",
                "Give them with --labels FILE, or indices of classes with --truth FILE.csv.",
            )
        more = len(strangers) - 1
        others = f"; {more} more {'name is' if more == 1 else 'names are'} unknown" if more else ""
        near = ", ".join(closest(name, filter(None, labels.names[:size])))
        return TargetError(
            f"{self.teller}: no class is named {self._counted(name)}{others}",
            f"The closest: {near}.",
        )

    def _counted(self, name: str) -> str:
        pictures = self.told[name]
        return f"{name!r} ({pictures} picture{'' if pictures == 1 else 's'})"


class _Matches:
    """The classes that have a name, of the first ``size``."""

    def __init__(self, labels: Labels, size: int | None) -> None:
        self._size = size
        self._exact: dict[str, list[int]] = {}
        self._folded: dict[str, list[int]] = {}
        for index, name in enumerate(labels.names[:size]):
            if name:
                self._exact.setdefault(name, []).append(index)
                self._folded.setdefault(_folded(name), []).append(index)

    def of(self, name: str) -> list[int]:
        """The indices of all classes that ``name`` may mean."""
        wanted = name.strip()
        if wanted in self._exact:
            return self._exact[wanted]
        if not _INDEX.fullmatch(wanted):
            return self._folded.get(_folded(wanted), [])
        index = int(wanted)
        return [index] if index >= 0 and (self._size is None or index < self._size) else []


def _folded(name: str) -> str:
    """The name without what folders and labels spell differently; some file systems split
    accents from their letters."""
    composed = unicodedata.normalize("NFC", name.casefold())
    return re.sub(r"[\s_-]+", " ", composed).strip()
