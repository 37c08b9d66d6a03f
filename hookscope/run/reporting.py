"""``--report``: ``index.html``, made from the manifests of the output folder alone.

So it covers earlier runs, resumed ones and all shards, and can be made again at any time.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hookscope.errors import OutputError
from hookscope.output.manifest import PROVENANCE, own_files, read_lines
from hookscope.output.parts import part_name, write_part
from hookscope.output.records import Record
from hookscope.render.grid import TILES
from hookscope.render.report import GENERATOR, Entry, report

REPORT = "index.html"
_HEAD = 1024  # bytes, in which a page of ours says so
_QUESTION = ("command", "model", "image", "layer", "call", "what", "method", "class_index")


def write_report(out: Path, *, force: bool = False) -> Path:
    """Writes the page, whole or not at all, and returns its path.

    An earlier page of ours is replaced. Raises ``OutputError`` when something else is there and
    not ``force``, or when the page cannot be written.
    """
    path = out / REPORT
    if not force and os.path.lexists(path) and not _is_ours(path):
        raise OutputError(
            f"{path} was not made by hookscope: kept",
            "--force replaces it; another --out leaves it alone.",
        )
    title = Path(os.path.realpath(out)).name or str(out)
    page = report(report_entries(out), title=title).encode(errors="replace")
    part = str(out / part_name(REPORT))
    try:
        write_part(part, page)
        try:
            os.replace(part, path)
        except OSError:
            with suppress(OSError):
                os.unlink(part)
            raise
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise OutputError(f"{path} cannot be written: {reason}") from error
    return path


def report_entries(out: Path) -> list[Entry]:
    """What the folder holds: the last record of each file that is still there, and the failures
    that no later run made good. In the order in which they were noted."""
    there = _Folder(out)
    kept = filter(None, map(there.without_missing, latest(read_lines(out))))
    return [Entry(line.record, line.tiles) for line in kept]


@dataclass(frozen=True)
class Line:
    """What the report needs of a manifest's line.

    ``own``: the files that came with it, kind -> name; its record may name those of others too.
    """

    record: Record
    own: Mapping[str, str]
    key: str | None
    tiles: Mapping[str, Mapping[str, Any]]


def latest(lines: Iterable[dict[str, Any]]) -> list[Line]:
    """The lines of manifests that no later one replaces.

    The last line for a file wins: an earlier one loses that file, and goes when it is left with
    none. A line that brought no files goes when what it says was said or answered again.
    """
    noted: list[Line] = []
    maker: dict[str, int] = {}  # file -> the number of its last line
    said: dict[Hashable, int] = {}
    for number, line in enumerate(map(_read, filter(_is_record, lines))):
        tiles = dict(line.tiles)
        for kind, name in line.own.items():
            before = noted[maker[name]] if name in maker else None
            # A file that was skipped for being the same is not described again.
            if kind not in tiles and before and before.key == line.key and kind in before.tiles:
                tiles[kind] = before.tiles[kind]
            maker[name] = number
        noted.append(replace(line, tiles=tiles))
        said.update((answer, number) for answer in _answers(line.record))
    return list(_last_ones(noted, maker, said))


def _last_ones(
    noted: list[Line], maker: Mapping[str, int], said: Mapping[Hashable, int]
) -> Iterator[Line]:
    for number, line in enumerate(noted):
        if line.own:
            lost = {kind for kind, name in line.own.items() if maker[name] > number}
            if not lost:
                yield line
            elif len(lost) < len(line.own):
                yield _without(line, lost)
            continue
        files = line.record["files"].values()
        redone = any(maker.get(name, number) > number for name in files)
        if not redone and said[_question(line.record)] == number:
            yield line


def _is_record(line: Mapping[str, Any]) -> bool:
    files = line.get("files")
    names = [line.get(name) for name in ("image", "layer", "class_name")]
    return (
        isinstance(line.get("command"), str)
        and isinstance(line.get("status"), str)
        and isinstance(files, dict)
        and all(isinstance(name, str) for name in files.values())
        and all(name is None or isinstance(name, str) for name in names)
    )


def _read(line: dict[str, Any]) -> Line:
    made = line.pop(PROVENANCE, None)
    try:
        own = {kind: line["files"][kind] for kind in own_files({**line, PROVENANCE: made})}
        about = made.get("about", {})
        tiles = {kind: about[kind][TILES] for kind in own if TILES in about.get(kind, ())}
        return Line(line, own, made["key"], tiles)
    except (KeyError, TypeError, AttributeError):  # a failure, or nothing of ours
        return Line(line, {}, None, {})


def _question(record: Record) -> Hashable:
    """What a record without files is about: later lines about the same replace it."""
    return tuple(str(record.get(name)) for name in _QUESTION)


def _answers(record: Record) -> Iterator[Hashable]:
    """The questions that a line settles: its own, and those of failures that it makes good."""
    yield _question(record)
    if record.get("image") is not None and record.get("layer") is not None:
        known = {name: record.get(name) for name in ("command", "model")}
        yield _question({**known, "image": record["image"]})  # the picture could not be read
        yield _question({**known, "layer": record["layer"]})  # the layer never ran


def _without(line: Line, kinds: set[str]) -> Line:
    files = {kind: name for kind, name in line.record["files"].items() if kind not in kinds}
    own = {kind: name for kind, name in line.own.items() if kind not in kinds}
    return replace(line, record={**line.record, "files": files}, own=own)


class _Folder:
    """Which files are there, with one look at each sub-folder."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._names: dict[str, set[str]] = {}

    def without_missing(self, line: Line) -> Line | None:
        """The line with the files that are left; None when all that it brought are gone."""
        missing = {kind for kind, name in line.record["files"].items() if name not in self}
        if not missing:
            return line
        return None if missing >= set(line.own) and line.own else _without(line, missing)

    def __contains__(self, name: str) -> bool:
        folder, _, file = name.rpartition("/")
        if folder not in self._names:
            try:
                self._names[folder] = set(os.listdir(self._out / folder))
            except OSError:
                self._names[folder] = set()
        return file in self._names[folder]


def _is_ours(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            return f'<meta name="generator" content="{GENERATOR} '.encode() in file.read(_HEAD)
    except OSError:
        return False
