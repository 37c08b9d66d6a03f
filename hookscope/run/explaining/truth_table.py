"""``--truth FILE.csv``: which row tells the class of which picture."""

from __future__ import annotations

import csv
import os
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from hookscope.errors import UsageError
from hookscope.images.walk import named_like_a_picture

# What a header calls its columns, the surest first; without spaces, dashes and underscores.
_PICTURES = ("path", "picture", "image", "file", "filename", "name")
_CLASSES = ("classindex", "class", "label", "target", "truth", "classname")
_EXPECTED = "Two columns, picture and class, with a comma, a semicolon or a tab between them."


class Row(NamedTuple):
    """What line ``line`` tells of a picture."""

    line: int
    picture: str
    told: str


@dataclass(frozen=True)
class Table:
    """The rows of each picture of the run, by its path as typed, and all classes of the file.

    ``by_name``: how many pictures lie elsewhere than their row says, and were found by name.
    """

    rows: Mapping[str, Sequence[Row]]
    classes: AbstractSet[str]
    by_name: int


def read_table(path: str, pictures: Sequence[str]) -> Table:
    """The rows for ``pictures``, given as typed, in one pass over the file.

    A row means the picture that was typed like it; else the one where its path leads to, from
    the file's folder or from the current one; else the only one of its name, if no other row has
    that name. Rows for other pictures, and rows without a class, are passed over. Raises
    ``UsageError``.
    """
    run = _Pictures(pictures, os.path.dirname(path))
    rows: dict[str, list[Row]] = {}
    namesakes: dict[str, list[Row]] = {}
    classes: set[str] = set()
    example = None
    for row in _rows(path):
        if not row.told:
            continue
        classes.add(row.told)
        example = example or row
        spelled = unicodedata.normalize("NFC", row.picture)
        picture = run.at(spelled)
        if picture is not None:
            rows.setdefault(picture, []).append(row)
        elif (namesake := run.named(spelled)) is not None:
            namesakes.setdefault(namesake, []).append(row)
    by_name = 0
    for picture, found in namesakes.items():
        if picture not in rows and len({row.picture for row in found}) == 1:
            rows[picture] = found
            by_name += bool(os.path.dirname(found[0].picture))
    if example is None:
        raise UsageError(f"--truth {path} tells no class of any picture", _EXPECTED)
    if pictures and not rows:
        number = "the picture" if len(pictures) == 1 else f"any of the {len(pictures)} pictures"
        raise UsageError(
            f"--truth {path} does not tell the class of {number}",
            f"It names {example.picture!r}, and the run has {pictures[0]!r}. A file name without "
            "its folder counts where no other picture, and no other row, has the same.",
        )
    return Table(rows, classes, by_name)


class _Pictures:
    """The pictures of a run, by what a row may call them; composed letters (NFC) throughout."""

    def __init__(self, pictures: Sequence[str], folder: str) -> None:
        """``folder``: that of the file."""
        self._here, self._there = _Folders(os.curdir), _Folders(folder)
        self._typed: dict[str, str] = {}
        self._placed: dict[str, str] = {}
        self._named: dict[str, str | None] = {}  # None for a name that several have
        for picture in pictures:
            spelled = unicodedata.normalize("NFC", picture)
            name = os.path.basename(spelled)
            self._typed[spelled] = picture
            self._placed[self._here.place(spelled)] = picture
            self._named[name] = None if name in self._named else picture

    def at(self, path: str) -> str | None:
        """The picture that was typed like ``path``, or is where it leads to."""
        if path in self._typed:
            return self._typed[path]
        if os.path.basename(path) not in self._named:
            return None
        placed = self._placed
        return placed.get(self._there.place(path)) or placed.get(self._here.place(path))

    def named(self, path: str) -> str | None:
        """The only picture of that file name."""
        return self._named.get(os.path.basename(path))


class _Folders:
    """Where paths lead from ``base``, with one look at each folder. Links to pictures stay."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._real: dict[str, str] = {}

    def place(self, path: str) -> str:
        folder, name = os.path.split(path)
        real = self._real.get(folder)
        if real is None:
            real = self._real[folder] = os.path.realpath(os.path.join(self._base, folder))
        return os.path.join(real, name)


def _rows(path: str) -> Iterator[Row]:
    columns = None
    for line, cells in _cells(path):
        header = _header(cells) if columns is None else None
        columns = columns or header or (0, 1)
        if len(cells) <= max(columns):
            width = "one column" if len(cells) == 1 else f"{len(cells)} columns"
            raise UsageError(f"--truth {path}: line {line} has only {width}", _EXPECTED)
        if header is None:
            yield Row(line, cells[columns[0]], cells[columns[1]])


def _cells(path: str) -> Iterator[tuple[int, list[str]]]:
    """The number and the cells of each line that is not empty."""
    line = 0
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            lines = map(_text, file)
            first, blank = "", 0
            for first in lines:
                if first.strip():
                    break
                blank += 1
            reader = csv.reader(
                chain([first], lines),
                delimiter=_delimiter(first),
                skipinitialspace=True,
                strict=True,
            )
            for cells in reader:
                line = blank + reader.line_num
                cells = [cell.strip() for cell in cells]
                if any(cells):
                    yield line, cells
    except OSError as error:
        raise UsageError(
            f"--truth {path} cannot be read: {(error.strerror or str(error)).lower()}",
            "--truth folders takes the name of each picture's folder for its class.",
        ) from None
    except UnicodeDecodeError:
        raise UsageError(f"--truth {path} is not a text file in UTF-8", _EXPECTED) from None
    except csv.Error as error:
        raise UsageError(
            f"--truth {path} is no CSV file: line {line + 1}: {error}", _EXPECTED
        ) from None


def _text(line: str) -> str:
    if "\0" in line:
        raise csv.Error("a NUL character")
    return line


def _delimiter(line: str) -> str:
    """Tabs are in no name, and few pictures' names have a comma or a semicolon."""
    bare = re.sub(r'"[^"]*"', "", line)
    found = re.search("\t", bare) or re.search("[,;]", bare)
    return found.group() if found else ","


def _header(cells: Sequence[str]) -> tuple[int, int] | None:
    """The columns of picture and class, if the cells are a header that names one of them."""
    if any(map(named_like_a_picture, cells)):
        return None
    names = [re.sub(r"[\s_-]+", "", cell.casefold()) for cell in cells]
    picture, told = _first(_PICTURES, names), _first(_CLASSES, names)
    if picture is None and told is None:
        return None
    if picture is None:
        picture = 0 if told else 1
    if told is None:
        told = 0 if picture else 1
    return picture, told


def _first(known: Sequence[str], names: Sequence[str]) -> int | None:
    return next((names.index(name) for name in known if name in names), None)
