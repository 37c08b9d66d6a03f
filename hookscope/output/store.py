"""The output folder: what may be written there, and how it gets there whole."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Literal

from hookscope.errors import OutputError
from hookscope.output.earlier import Earlier, EarlierRuns
from hookscope.output.manifest import ManifestWriter, manifest_line, manifest_name
from hookscope.output.names import Sample
from hookscope.output.parts import part_name, publish, remove_stale, write_part
from hookscope.output.provenance import Fingerprint, made_portable, text_chunk
from hookscope.output.records import Record

Policy = Literal["replace", "skip", "no-clobber", "skip-no-clobber"]
Decision = Literal["write", "skip"]

_FORCE = "--force replaces it; another --out leaves it alone."


class FolderLostError(OutputError):
    """The output folder takes no more files (a full disk, no permission): the run is over."""


@dataclass(frozen=True)
class Piece:
    """One file of a record.

    ``write(file, text)`` puts it into a seekable buffer; ``text`` is what a PNG has to carry.
    ``about``: what the manifest has to note of the file; ``write`` may fill it.
    """

    kind: str
    name: str
    write: Callable[[BinaryIO, Mapping[str, str]], None]
    about: Mapping[str, Any] = field(default_factory=dict)


class Store:
    """Writes whole files into one folder, and one whole line a record into its manifest.

        store = Store(Path("hookscope-out"), policy="skip")
        record = store.deliver(record, [Piece("grid", name, draw)], fingerprint)

    All names are relative to the folder, with ``/``. Threads may share a store, and processes a
    folder. Raises ``OutputError`` when the folder cannot be used.
    """

    def __init__(
        self,
        out: Path,
        *,
        policy: Policy = "replace",
        force: bool = False,
        dry_run: bool = False,
        shard: tuple[int, int] | None = None,
    ) -> None:
        self.out = out
        self.dry_run = dry_run
        self._skips = policy in ("skip", "skip-no-clobber")
        self._keeps = policy in ("no-clobber", "skip-no-clobber")
        self._force = force
        self._cleaned: set[str] = set()
        self._lock = threading.Lock()
        self._writer = ManifestWriter(out / manifest_name(shard))
        self._earlier = EarlierRuns(out)
        if dry_run:
            self._check_usable()
        else:
            self._prepare()

    def path(self, name: str) -> str:
        """The file as it is shown to the user, ``--out`` included."""
        return str(self.out / name)  # Path(".") / name has no dot in front

    def decide(self, name: str, fingerprint: Fingerprint) -> Decision:
        """Whether the file has to be written. Raises ``OutputError`` when it must not be."""
        self._clean(name)
        try:
            found = os.lstat(f"{self.out}/{name}")
        except FileNotFoundError:
            return "write"
        except OSError as error:
            raise OutputError(*_words(self.path(name), error)) from error
        if stat.S_ISDIR(found.st_mode):
            raise OutputError(f"{self.path(name)} is a folder", "Choose another --out.")
        if self._force and not self._skips and not self._keeps:
            return "write"
        origin = self._earlier.origin(name, found.st_size)
        same_picture = origin is not None and origin.picture_sha == fingerprint.picture_sha
        if self._skips and origin and origin.whole and origin.key == fingerprint.key:
            return "skip"
        if self._keeps:
            raise OutputError(f"{self.path(name)} is there already", "--no-clobber keeps it.")
        if same_picture or self._force:
            return "write"
        if origin is None:
            raise OutputError(f"{self.path(name)} was not made by hookscope: kept", _FORCE)
        raise OutputError(
            f"{self.path(name)} was made from another picture ({origin.picture_name}): kept", _FORCE
        )

    def deliver(
        self,
        record: Record,
        pieces: Sequence[Piece],
        fingerprint: Fingerprint,
        also: Mapping[str, str] | None = None,
    ) -> Record:
        """Writes the files of a record and its line: all of them or, on ``OutputError``, none.

        Returns the record with its ``files``; as ``skipped``, and without a line, where each of
        them may be. ``also``: files (kind -> name) that another record of the run brings. In a dry
        run the decisions are taken and nothing is written. Raises
        ``FolderLostError`` when there is no point in going on.
        """
        names = {**{piece.kind: piece.name for piece in pieces}, **(also or {})}
        record = {**record, "files": {kind: self.path(name) for kind, name in names.items()}}
        due = [piece for piece in pieces if self.decide(piece.name, fingerprint) == "write"]
        if pieces and not due:
            return {**record, "status": "skipped"}
        if self.dry_run:
            return record
        portable = made_portable(record, self.out)
        text = text_chunk(fingerprint, portable)
        with self._written(due, text) as parts, self._lock:
            # Others may have written since the decision. A PNG says itself what it was made from,
            # so its place is taken before its line is written. For any other file the line comes
            # first: a run that is killed in between leaves a line too many, never a file of nobody.
            for name in parts:
                self.decide(name, fingerprint)
            new = {name for name in parts if self._make_room(name)}
            sizes = self._sizes(pieces, parts)
            about = {piece.kind: piece.about for piece in pieces if piece.about}
            for name, part in parts.items():
                if name.endswith(".png"):
                    self._publish(part, name, fingerprint, new=name in new)
            self._append(manifest_line(portable, fingerprint, sizes, about))
            for name, part in parts.items():
                if not name.endswith(".png"):
                    self._publish(part, name, fingerprint, new=name in new)
        return record

    def append(self, record: Record) -> None:
        """The line of a record that ``deliver`` did not write: an error, a skipped one."""
        if not self.dry_run:
            self._append(made_portable(record, self.out))

    def finished(self, files: Mapping[str, str], fingerprint: Fingerprint) -> Record | None:
        """The record, as ``skipped``, of files (kind -> name) that all may be skipped; else None.

        Its ``image`` is what the file says: the caller knows better how it was typed.
        """
        return self._earlier.finished(files, fingerprint.key) if self._skips else None

    def known(
        self, fingerprint: Fingerprint, sample: Sample, apart_from: Collection[str] = ()
    ) -> list[Earlier]:
        """What may be skipped of what earlier runs made of that sample, without a forward pass.

        ``apart_from`` names settings that may differ (the class, when it is to be predicted).
        Records are ``skipped`` ones; their ``image`` is what the manifest says.
        """
        return self._earlier.known(fingerprint, sample, apart_from) if self._skips else []

    def close(self) -> None:
        self._writer.close()

    def _clean(self, name: str) -> None:
        """Sweeps each folder that the run comes to, once."""
        folder = name.rpartition("/")[0]
        if folder not in self._cleaned and not self.dry_run:
            self._cleaned.add(folder)
            remove_stale(self.out / folder)

    @contextmanager
    def _written(
        self, pieces: Sequence[Piece], text: Mapping[str, str]
    ) -> Iterator[dict[str, str]]:
        """The files under temporary names, name -> part; those still there in the end go."""
        parts: dict[str, str] = {}
        try:
            for piece in pieces:
                buffer = BytesIO()
                try:
                    piece.write(buffer, text)
                except (OSError, ValueError) as error:  # a picture too large for its format
                    raise OutputError(f"{self.path(piece.name)} cannot be made: {error}") from error
                part = str(self.out / part_name(piece.name))
                with self._in_words(piece.name, fatal=True):
                    write_part(part, buffer.getbuffer())
                parts[piece.name] = part
            yield parts
        finally:
            for part in parts.values():
                with suppress(OSError):
                    os.unlink(part)

    def _make_room(self, name: str) -> bool:
        """Whether nothing is there. What cannot say itself what it was made from goes now: the
        new line must never stand for the old content."""
        target = f"{self.out}/{name}"
        if not os.path.lexists(target):
            return True
        if name.endswith(".png"):
            return False
        with self._in_words(name):
            os.unlink(target)
        return True

    def _publish(self, part: str, name: str, fingerprint: Fingerprint, *, new: bool) -> None:
        target = str(self.out / name)
        with self._in_words(name):
            try:
                publish(part, target, new=new)
            except FileExistsError:  # another process was faster
                self.decide(name, fingerprint)
                publish(part, target, new=False)

    def _append(self, line: Mapping[str, Any]) -> None:
        with self._in_words(self._writer.name, fatal=True):
            self._writer.append(line)

    def _sizes(self, pieces: Sequence[Piece], parts: Mapping[str, str]) -> dict[str, int]:
        sizes = {}
        for piece in pieces:
            with self._in_words(piece.name):
                file = parts.get(piece.name) or f"{self.out}/{piece.name}"
                sizes[piece.kind] = os.stat(file).st_size
        return sizes

    def _prepare(self) -> None:
        try:
            os.makedirs(self.out, exist_ok=True)
            probe = str(self.out / part_name("hookscope"))
            write_part(probe, b"")
            os.unlink(probe)
            if os.path.lexists(self.out / self._writer.name):
                self._writer.open()
        except OSError as error:
            raise unusable(self.out, error) from error
        self._clean("")

    def _check_usable(self) -> None:
        """The same without leaving a trace."""
        above = (self.out, *self.out.absolute().parents)
        there = next(path for path in above if os.path.exists(path))
        if not os.path.isdir(there):
            raise unusable(self.out, NotADirectoryError(errno.ENOTDIR, "Not a directory"))
        if not os.access(there, os.W_OK | os.X_OK):
            raise unusable(self.out, PermissionError(errno.EACCES, "Permission denied"))

    @contextmanager
    def _in_words(self, name: str, *, fatal: bool = False) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            kind = FolderLostError if fatal else OutputError
            raise kind(*_words(self.path(name), error)) from error


def unusable(out: Path, error: OSError) -> OutputError:
    """Why no run can start with this ``--out``."""
    if out.exists() and not out.is_dir():
        return OutputError(f"--out {out} is a file", "Name a folder; it is made if need be.")
    return OutputError(
        f"--out {out} cannot be written to: {_reason(error)}", "Name another folder."
    )


def _words(path: str, error: OSError) -> tuple[str, str]:
    hint = ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = "Make room; the same command with --skip-existing goes on where this one stopped."
    return f"{path} cannot be written: {_reason(error)}", hint


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
