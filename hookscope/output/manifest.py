"""``manifest.jsonl``: one whole line a record, and what earlier runs left in it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hookscope.output.provenance import Fingerprint, Origin
from hookscope.output.records import Record, dumps

try:
    import fcntl
except ImportError:  # Windows: a line is one write all the same
    fcntl = None  # type: ignore[assignment]

PROVENANCE = "provenance"
_BLOCK = 1 << 16


def manifest_name(shard: tuple[int, int] | None) -> str:
    """``shard`` is (I, N), as in ``--shard I/N``."""
    return f"manifest.shard{shard[0]}-of-{shard[1]}.jsonl" if shard else "manifest.jsonl"


def manifest_line(
    record: Record,
    fingerprint: Fingerprint | None,
    sizes: Mapping[str, int],
    about: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """The record and, under ``provenance``, what its files were made from and how long they are.

    A JPEG or a tensor has no place for that in itself. ``sizes``: kind of file -> bytes;
    ``about``: kind -> what else is to be known of the file, such as where a grid's tiles lie.
    """
    if fingerprint is None:
        return record
    more: dict[str, Any] = {"key": fingerprint.key, "bytes": dict(sizes)}
    if about:
        more["about"] = dict(about)
    return {**record, PROVENANCE: {**fingerprint.document(), **more}}


class ManifestWriter:
    """Appends whole lines; threads and processes may append to one file.

    ``append`` raises ``OSError`` when it cannot; then nothing of the line is left behind.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self._path = path
        self._file: int | None = None
        self._lock = threading.Lock()

    def open(self) -> None:
        """Done by the first ``append``, or before, to find out whether it can be done."""
        if self._file is None:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
            with _alone(self._file):
                _mend_last_line(self._file)

    def append(self, line: Mapping[str, Any]) -> None:
        data = dumps(line).encode() + b"\n"
        with self._lock:
            self.open()
            assert self._file is not None
            with _alone(self._file):
                _write_whole(self._file, data)

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                os.close(self._file)
                self._file = None


class ManifestReader:
    """Finds the last line for a file, over all manifests of a folder (of shards too).

    It keeps places, not lines, and reads on where it stopped when it is asked again. A line that
    is torn, or not ours, is passed over.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._end: dict[str, int] = {}
        self._of_file: dict[str, tuple[str, int]] = {}
        self._of_picture: dict[str, list[tuple[str, int]]] = {}
        self._lock = threading.Lock()

    def origin(self, name: str, size: int) -> Origin | None:
        """What ``name`` (relative to the folder) was made from, if it has the length noted."""
        with self._lock:
            self._read_on()
            if name not in self._of_file:  # by a run that has begun since
                self._look_for_manifests()
                self._read_on()
            place = self._of_file.get(name)
        line = place and self._line(*place)
        if not line:
            return None
        made = line.pop(PROVENANCE)
        kind = next(kind for kind, file in line["files"].items() if file == name)
        if made["bytes"].get(kind) != size:
            return None
        return Origin(made["picture"]["sha256"], made["picture"]["name"], made["key"], line)

    def lines(self, picture_sha: str) -> list[dict[str, Any]]:
        """What earlier runs noted of a picture, ``provenance`` included: the last line for each
        set of files, in the order of those lines."""
        with self._lock:
            self._read_on()
            places = list(self._of_picture.get(picture_sha, ()))
        latest: dict[tuple[str, ...], dict[str, Any]] = {}
        for line in (self._line(*place) for place in places):
            if line:
                files = tuple(line["files"].values())
                latest.pop(files, None)
                latest[files] = line
        return list(latest.values())

    def names(self) -> set[str]:
        """Every file that some line notes, relative to the folder."""
        with self._lock:
            self._read_on()
            return set(self._of_file)

    def _read_on(self) -> None:
        if not self._end:
            self._look_for_manifests()
        for manifest, end in self._end.items():
            with suppress(OSError):
                if os.stat(manifest).st_size > end:
                    self._end[manifest] = self._read(manifest, end)

    def _read(self, manifest: str, place: int) -> int:
        """Takes the lines from ``place`` on; returns where the last whole one ends."""
        with open(manifest, "rb") as file:
            file.seek(place)
            for raw in file:
                if not raw.endswith(b"\n"):
                    break
                if line := _parsed(raw):
                    for kind in own_files(line):
                        self._of_file[line["files"][kind]] = (manifest, place)
                    sha = line[PROVENANCE]["picture"]["sha256"]
                    self._of_picture.setdefault(sha, []).append((manifest, place))
                place += len(raw)
        return place

    def _look_for_manifests(self) -> None:
        for manifest in _manifests(self._folder):
            self._end.setdefault(manifest, 0)

    @staticmethod
    def _line(manifest: str, place: int) -> dict[str, Any] | None:
        try:
            with open(manifest, "rb") as file:
                file.seek(place)
                return _parsed(file.readline())
        except OSError:
            return None


def read_lines(folder: Path) -> Iterator[dict[str, Any]]:
    """Every whole line of every manifest of a folder, records of failures included.

    Later lines come later; what is torn, or no JSON object, is passed over.
    """
    for manifest in _manifests(folder):
        with suppress(OSError), open(manifest, "rb") as file:
            for raw in file:
                if not raw.endswith(b"\n"):
                    break
                with suppress(ValueError):
                    line = json.loads(raw)
                    if isinstance(line, dict):
                        yield line


def made_by_us(folder: Path) -> set[str]:
    """The real paths of the files that earlier runs left in ``folder``: no pictures to explain."""
    real = os.path.realpath(folder)
    return {os.path.join(real, *name.split("/")) for name in ManifestReader(folder).names()}


def own_files(line: Mapping[str, Any]) -> list[str]:
    """The kinds of files that came with this line; it may name those of other lines too."""
    return [kind for kind in line["files"] if kind in line[PROVENANCE]["bytes"]]


def _manifests(folder: Path) -> list[str]:
    """The one written to last comes last: its lines are the later ones."""
    times = {}
    for path in folder.glob("manifest*.jsonl"):
        with suppress(OSError):
            times[str(path)] = path.stat().st_mtime_ns
    return sorted(times, key=lambda manifest: times[manifest])


def _parsed(raw: bytes) -> dict[str, Any] | None:
    """A line that names files and what they were made from; None for any other."""
    try:
        line = json.loads(raw)
        made = line[PROVENANCE]
        usable = line["files"] and made["key"] and made["picture"]["sha256"] and made["bytes"]
    except (ValueError, KeyError, TypeError):
        return None
    return line if usable else None


@contextmanager
def _alone(file: int) -> Iterator[None]:
    """Keeps other hookscope processes out of the file, where the file system can."""
    if fcntl is None:
        yield
        return
    with suppress(OSError):  # some network file systems have no locks
        fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)


def _write_whole(file: int, data: bytes) -> None:
    before = os.fstat(file).st_size
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(file, rest) :]
    except OSError:
        os.ftruncate(file, before)
        raise


def _mend_last_line(file: int) -> None:
    """What a killed run left unfinished goes, so that the next line does not stick to it."""
    end = os.fstat(file).st_size
    tail, start = b"", end
    while start and b"\n" not in tail:
        start = max(0, start - _BLOCK)
        os.lseek(file, start, os.SEEK_SET)
        tail = os.read(file, end - start)
    torn = tail.rpartition(b"\n")[2]
    if not torn:
        return
    try:
        json.loads(torn)
    except ValueError:
        os.ftruncate(file, end - len(torn))
    else:  # whole but for its line end: written by somebody else
        os.write(file, b"\n")
