"""Quoted globs: ``*``, ``?``, ``[...]`` within a name, and ``**`` for any folders between."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator

from hookscope.images.walk import is_folder, natural

_MAGIC = re.compile(r"[*?[]")


def is_pattern(text: str) -> bool:
    """Whether the text holds a character that a glob gives a meaning to."""
    return bool(_MAGIC.search(text))


def matches(pattern: str) -> list[str]:
    """The paths that match, in natural order, each once; hidden ones only where spelled out."""
    root, parts = _split(pattern)
    return sorted(sorted(set(_below(root, parts))), key=natural)


def fixed_part(pattern: str) -> str:
    """The folder in which a pattern begins to be one; ``"."`` for the current folder."""
    root, parts = _split(pattern)
    for part in parts:
        if is_pattern(part):
            break
        root = os.path.join(root, part)
    return root or "."


def _split(pattern: str) -> tuple[str, list[str]]:
    drive, rest = os.path.splitdrive(pattern)
    root = drive + os.sep if rest.startswith(os.sep) else drive
    return root, [part for part in rest.split(os.sep) if part]


def _below(folder: str, parts: list[str]) -> Iterator[str]:
    """Paths in ``folder`` that match the names ``parts``; nothing where it cannot be listed."""
    part, rest = parts[0], parts[1:]
    if part == "**":
        for inner in _folders(folder):
            yield from _below(inner, rest or ["*"])
    elif not is_pattern(part):
        path = os.path.join(folder, part)
        if not rest and os.path.lexists(path):
            yield path
        elif rest and os.path.isdir(path):
            yield from _below(path, rest)
    else:
        for entry in _listing(folder):
            if entry.name.startswith(".") and not part.startswith("."):
                continue
            if fnmatch.fnmatch(entry.name, part):
                path = os.path.join(folder, entry.name)
                if not rest:
                    yield path
                elif is_folder(entry):
                    yield from _below(path, rest)


def _folders(folder: str) -> Iterator[str]:
    """``folder`` and every folder below it, each once, so that a loop of links ends."""
    entered: set[str] = set()
    ahead = [folder]
    while ahead:
        path = ahead.pop()
        real = os.path.realpath(path)
        if real in entered:
            continue
        entered.add(real)
        yield path
        ahead += [
            os.path.join(path, entry.name)
            for entry in _listing(path)
            if is_folder(entry) and not entry.name.startswith(".")
        ]


def _listing(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder or ".") as entries:
            return list(entries)
    except OSError:
        return []
