"""Rows of a matrix in the making: kept on the disk as they come, so that no run is for nothing."""

from __future__ import annotations

import errno
import json
import os
import threading
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

from hookscope.errors import OutputError
from hookscope.output.matrix_files import NUMBER, Block

try:
    import fcntl
except ImportError:  # Windows: two runs that fill one matrix are not kept apart
    fcntl = None  # type: ignore[assignment]


@dataclass(frozen=True)
class StoredRow:
    """A row somewhere in a file, and the checksum that it had when it was written."""

    place: int
    crc32: int


class RowFile:
    """Reads single rows of a file, and trusts none whose checksum is another. Threads may share
    it."""

    def __init__(self, path: Path, block: Block, rows: Mapping[str, StoredRow]) -> None:
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 - closed by close()
        self._lock = threading.Lock()
        self._block = block
        self._rows = rows

    def find(self, sha256: str) -> StoredRow | None:
        """That picture's row, if it is whole."""
        row = self._rows.get(sha256)
        return row if row is not None and zlib.crc32(self.read(row.place)) == row.crc32 else None

    def read(self, place: int) -> bytes:
        size = self._block.columns * NUMBER
        with self._lock:
            self._file.seek(self._block.offset + place * size)
            return self._file.read(size)

    def close(self) -> None:
        self._file.close()


class RowJournal:
    """Two hidden files beside the matrix: the rows as they were computed, and whose they are.

    A run that is killed at any moment leaves them whole, but for the last row; one that continues
    it finds its rows with ``known``. ``settings``: what all rows were made with; rows of other
    settings are not continued. The matrix itself is made from it when the run is complete.
    """

    def __init__(self, matrix: Path, settings: str) -> None:
        self._matrix = matrix
        self._rows_path = matrix.with_name(f".{matrix.stem}.rows")
        self._lines_path = matrix.with_name(f".{matrix.stem}.rows.jsonl")
        self._settings = settings
        self._files: tuple[FileIO, FileIO] | None = None
        self.columns = 0
        self.count = 0

    def claim(self) -> None:
        """Raises ``OutputError`` where another process that is alive fills the same matrix."""
        self._open()

    def known(self, columns: int | None = None) -> dict[str, StoredRow]:
        """The rows that an earlier run with the same settings has left: SHA-256 -> row; none
        where they have not as many ``columns``."""
        found: dict[str, StoredRow] = {}
        rows, lines = self._open()
        with open(self._lines_path, "rb") as file:
            header = _parsed(file.readline())
            self.columns = int(header.get("columns") or 0)
            same = header.get("settings") == self._settings and columns in (None, self.columns)
            if not same or not self.columns:
                return found
            size = self.columns * NUMBER
            most, end = os.path.getsize(self._rows_path) // size, file.tell()
            for line in file:
                entry = _parsed(line) if line.endswith(b"\n") else {}
                if not entry or self.count == most:
                    break
                found[entry["sha256"]] = StoredRow(self.count, entry["crc32"])
                self.count, end = self.count + 1, end + len(line)
        lines.truncate(end)
        rows.truncate(self.count * size)
        return found

    def append(self, row: bytes, sha256: str) -> StoredRow:
        """Where the new row is."""
        rows, lines = self._open()
        if not self.count:
            self.columns = len(row) // NUMBER
            rows.truncate(0)
            lines.truncate(0)
            _write(lines, _line({"columns": self.columns, "settings": self._settings}))
        _write(rows, row)
        # The line comes last: it stands for a row that is there.
        stored = StoredRow(self.count, zlib.crc32(row))
        _write(lines, _line({"sha256": sha256, "crc32": stored.crc32}))
        self.count += 1
        return stored

    def reader(self, rows: Mapping[str, StoredRow]) -> RowFile:
        return RowFile(self._rows_path, Block(0, self.count, self.columns), rows)

    def remove(self) -> None:
        """The matrix is there: what it was made from is not needed any more."""
        self.close()
        for path in (self._rows_path, self._lines_path):
            with suppress(FileNotFoundError):
                path.unlink()

    def close(self) -> None:
        if self._files is None:
            return
        empty = not self._rows_path.exists() or not self._rows_path.stat().st_size
        for file in self._files:
            file.close()
        self._files = None
        if empty:
            self.remove()

    def _open(self) -> tuple[FileIO, FileIO]:
        if self._files is None:
            lines = open(self._lines_path, "ab+", buffering=0)  # noqa: SIM115 - closed by close()
            try:
                self._lock(lines)
                rows = open(self._rows_path, "ab+", buffering=0)  # noqa: SIM115 - likewise
                self._files = rows, lines
            except BaseException:
                lines.close()
                raise
        return self._files

    def _lock(self, file: FileIO) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise OutputError(
                    f"another run is filling {self._matrix}",
                    "Wait for it, share the pictures with --shard, or choose another --out.",
                ) from error
            # Some network file systems have no locks.


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _write(file: FileIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]
