"""What a folder holds, in natural order, and which of it looks like a picture by its name."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Container
from dataclasses import dataclass, field

SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".apng", ".gif", ".webp", ".bmp", ".dib"}
    | {".tif", ".tiff", ".avif", ".avifs", ".heic", ".heics", ".heif", ".heifs", ".hif"}
    | {".jp2", ".j2k", ".jpx", ".ppm", ".pgm", ".pbm", ".pnm", ".pfm"}
    | {".tga", ".qoi", ".ico", ".pcx", ".sgi", ".psd"}
)
_DIGITS = re.compile(r"[0-9]+")


def named_like_a_picture(name: str) -> bool:
    """Whether the name ends as pictures' names do; the file itself is not looked at."""
    return name[name.rfind(".") :].lower() in SUFFIXES


def natural(path: str) -> str:
    """A sorting key: ``img2`` before ``img10``, whatever the case, folder by folder."""
    return _DIGITS.sub(_by_value, path.casefold()).replace(os.sep, "\0")


def _by_value(match: re.Match[str]) -> str:
    digits = match.group().lstrip("0")
    # A longer number is a larger one; a name has at most 255 bytes, so three figures hold that.
    return f"{len(digits):03}{digits}"


@dataclass
class Contents:
    """What was found in a folder.

    ``pictures``: (path below the folder, identity) in natural order; the identity is the same
    whichever way leads to that folder entry. ``skipped`` counts what is hidden or no picture by
    its name; ``own`` the files the program made itself; ``unsearched`` the sub-folders that only a
    recursive search enters; ``unreadable`` has (path below the folder, why) of each folder that
    could not be listed.
    """

    pictures: list[tuple[str, str]] = field(default_factory=list)
    skipped: int = 0
    own: int = 0
    unsearched: int = 0
    unreadable: list[tuple[str, str]] = field(default_factory=list)


def search(
    folder: str, *, recursive: bool, avoid: str | None = None, made: Container[str] = ()
) -> Contents:
    """The pictures in ``folder``; ``recursive`` goes through links to folders too, each once.

    ``avoid``: a folder (its real path) that is not entered when it is met on the way.
    ``made``: identities of files that are nobody's input, since the program made them itself.
    """
    contents = Contents()
    entered: set[str] = set()
    ahead = deque([""])
    links: deque[str] = deque()
    while ahead or links:
        # Links last, so that a folder within reach keeps its own name and a loop finds it entered.
        below = ahead.popleft() if ahead else links.popleft()
        path = os.path.join(folder, below) if below else folder
        real = os.path.realpath(path)
        if real in entered or (below and real == avoid):
            continue
        if below and not recursive:
            contents.unsearched += 1
            continue
        entered.add(real)
        try:
            with os.scandir(path) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            contents.unreadable.append((below, error.strerror or str(error)))
            continue
        for entry in entries:
            found = os.path.join(below, entry.name)
            identity = os.path.join(real, entry.name)
            if entry.name.startswith("."):
                contents.skipped += 1
            elif is_folder(entry):
                (links if entry.is_symlink() else ahead).append(found)
            elif identity in made:
                contents.own += 1
            elif named_like_a_picture(entry.name) and _worth_opening(entry):
                contents.pictures.append((found, identity))
            else:
                contents.skipped += 1
    contents.pictures.sort(key=lambda found: natural(found[0]))
    return contents


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether the entry is a folder or a link to one; a link to itself is not."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _worth_opening(entry: os.DirEntry[str]) -> bool:
    """A file, or a link that leads nowhere, which is worth an error; not a pipe or a device."""
    try:
        return entry.is_file() or (entry.is_symlink() and not os.path.exists(entry.path))
    except OSError:
        return True
