"""Which pictures an INPUT... stands for: files, folders, quoted globs, and lists on stdin."""

from __future__ import annotations

import os
import sys
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import BinaryIO, NamedTuple

from hookscope.errors import PictureError, UsageError
from hookscope.images.patterns import fixed_part, is_pattern, matches
from hookscope.images.walk import named_like_a_picture, search

STDIN = "-"


class Source(NamedTuple):
    """One picture to be: its path as typed, and its sub-folder in the folder that was typed.

    A source with a ``problem`` stands for an argument that is no picture, so that it gets its
    error record in its turn. A plain tuple of texts, since there may be millions.
    """

    typed: str
    folder: str = ""
    problem: str | None = None
    hint: str = ""

    @property
    def path(self) -> Path:
        """Where the picture is."""
        return Path(self.typed)

    def check(self) -> None:
        """Raise the source's ``PictureError``, if it has one."""
        if self.problem is not None:
            raise PictureError(self.problem, self.hint)


@dataclass(frozen=True)
class Inputs:
    """What the arguments stand for, in order, each picture once.

    ``skipped``: hidden files and non-pictures in folders; ``unsearched``: sub-folders left out
    without ``--recursive``; ``repeated``: pictures that were named a second time.
    """

    pictures: tuple[Source, ...]
    skipped: int = 0
    unsearched: int = 0
    repeated: int = 0


def expand(
    arguments: Iterable[str],
    *,
    recursive: bool = False,
    nul: bool = False,
    stdin: BinaryIO | None = None,
    exclude: str | os.PathLike[str] | None = None,
    made: Container[str] = (),
) -> Inputs:
    """The pictures that ``arguments`` stand for. No picture is opened.

    ``-`` reads names from ``stdin``, one a line; ``nul`` expects them to end in NUL, and reads
    them even without ``-``. ``exclude``: the output folder, which is not entered unless typed;
    ``made``: real paths of the program's own files, for an output folder that is typed.
    Raises ``UsageError`` for a list that cannot be meant; anything else that is wrong is a
    source with a problem.
    """
    avoid = os.path.realpath(exclude) if exclude is not None else None
    expansion = _Expansion(recursive, avoid, made)
    names = list(arguments)
    if nul and STDIN not in names:
        names.append(STDIN)
    for position, name in enumerate(names):
        if name != STDIN:
            expansion.argument(name)
        elif STDIN not in names[:position]:
            for listed in _listed(stdin or sys.stdin.buffer, nul):
                expansion.listed(listed)
    return Inputs(
        tuple(expansion.sources), expansion.skipped, expansion.unsearched, expansion.repeated
    )


@dataclass
class _Expansion:
    recursive: bool
    avoid: str | None
    made: Container[str]
    sources: list[Source] = field(default_factory=list)
    skipped: int = 0
    unsearched: int = 0
    repeated: int = 0
    taken: set[str] = field(default_factory=set)
    real_folders: dict[str, str] = field(default_factory=dict)

    def argument(self, name: str) -> None:
        """A name from the command line: as it stands if there is such a file, else as a glob."""
        if not name:
            self.problem(name, "an empty name", "Is a shell variable unset?")
        elif os.path.isdir(name):
            self.folder(name)
        elif os.path.lexists(name):
            self.file(name)
        elif is_pattern(name):
            self.pattern(name)
        else:
            self.problem(name, *_missing(name))

    def listed(self, name: str) -> None:
        """A name from a list: never a glob. Where it ends like a picture, nothing is looked up:
        a million names on a network drive would take minutes."""
        if not named_like_a_picture(name) and os.path.isdir(name):
            self.folder(name)
        else:
            self.file(name)

    def pattern(self, pattern: str) -> None:
        found = matches(pattern)
        if self.avoid and not _within(os.path.realpath(fixed_part(pattern)), self.avoid):
            found = [path for path in found if not _within(self.identity(path), self.avoid)]
        found = [path for path in found if self.identity(path) not in self.made]
        if not found:
            self.problem(pattern, "no file matches this pattern", _pattern_hint(pattern))
        files = [path for path in found if not os.path.isdir(path)]
        # `photos/*` means the pictures among them; a pattern that meets none means its files.
        pictures = [path for path in files if named_like_a_picture(path)]
        wanted = set(pictures if pictures or len(files) < len(found) else files)
        self.skipped += len(files) - len(wanted)
        for path in found:
            if path in wanted:
                self.file(path)
            elif os.path.isdir(path):
                self.folder(path, met=True)

    def folder(self, name: str, *, met: bool = False) -> None:
        """A folder that was typed, or ``met`` by a pattern, which need not hold pictures."""
        contents = search(name, recursive=self.recursive, avoid=self.avoid, made=self.made)
        self.skipped += contents.skipped
        self.unsearched += contents.unsearched
        for below, identity in contents.pictures:
            subfolder = os.path.dirname(below).replace(os.sep, "/")
            self.take(os.path.join(name, below), identity, subfolder)
        for below, why in contents.unreadable:
            self.problem(os.path.join(name, below), f"the folder cannot be listed: {why.lower()}")
        if not (met or contents.pictures or contents.own or contents.unreadable):
            others = f", only {_count(contents.skipped, 'other file')}" if contents.skipped else ""
            hint = ""
            if contents.unsearched:
                inner = _count(contents.unsearched, "sub-folder")
                hint = f"It has {inner}: --recursive searches those too."
            self.problem(name, f"no pictures in this folder{others}", hint)

    def file(self, name: str) -> None:
        self.take(name, self.identity(name))

    def take(self, typed: str, identity: str, folder: str = "") -> None:
        if identity in self.taken:
            self.repeated += 1
        else:
            self.taken.add(identity)
            self.sources.append(Source(typed, folder))

    def problem(self, typed: str, problem: str, hint: str = "") -> None:
        self.sources.append(Source(typed, problem=problem, hint=hint))

    def identity(self, path: str) -> str:
        """The folder entry that a path leads to; a link to a picture is an entry of its own."""
        cut = path.rfind(os.sep) + 1
        folder, name = path[:cut], path[cut:]
        if name in ("", ".", ".."):
            return os.path.realpath(path)
        real = self.real_folders.get(folder)
        if real is None:
            real = self.real_folders[folder] = os.path.join(os.path.realpath(folder), "")
        return real + name


def _listed(stdin: BinaryIO, nul: bool) -> list[str]:
    data = stdin.read()
    if not nul and b"\0" in data:
        raise UsageError("the list on stdin has NUL characters in it", "Add -0 to read it.")
    if not nul:
        data = data.replace(b"\r\n", b"\n")
    return [name for name in os.fsdecode(data).split("\0" if nul else "\n") if name]


def _missing(name: str) -> tuple[str, str]:
    """What is missing, and what may have been meant."""
    if "://" in name:
        return "an address, not a file", "Download it first, then name the file."
    try:
        os.lstat(name)
    except OSError as error:
        if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
            return f"the file cannot be looked up: {(error.strerror or str(error)).lower()}", ""
    folder, base = os.path.split(name)
    if folder and not os.path.isdir(folder):
        return f"there is no folder {folder}", ""
    try:
        near = get_close_matches(base, os.listdir(folder or "."), n=1, cutoff=0.75)
    except OSError:
        near = []
    hint = f"Did you mean {os.path.join(folder, near[0])}?" if near else ""
    return "there is no such file", hint


def _pattern_hint(pattern: str) -> str:
    folder = fixed_part(pattern)
    return "" if os.path.isdir(folder) else f"There is no folder {folder}."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)
