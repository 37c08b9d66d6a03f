"""One layer's matrix: a row a picture, in the order of the pictures, and its index beside it."""

from __future__ import annotations

import filecmp
import os
from array import array
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TextIO, cast

from hookscope.errors import OutputError
from hookscope.output.matrix_files import NUMBER, MatrixFormat, locate, write_matrix
from hookscope.output.matrix_index import Picture, index_line, index_lines
from hookscope.output.names import beside
from hookscope.output.parts import part_name, publish
from hookscope.output.provenance import relative
from hookscope.output.row_journal import RowFile, RowJournal, StoredRow
from hookscope.output.store import FolderLostError

_FORCE = "--force replaces it; another --out leaves it alone."


@dataclass(frozen=True)
class EarlierRow:
    """A row that need not be computed again: of the matrix that is there, or of the journal."""

    of_matrix: bool
    row: StoredRow


@dataclass(frozen=True)
class Replacing:
    """What may happen to rows and files of earlier runs.

    ``continues`` (--skip-existing): rows that they have computed are taken over. ``keeps``
    (--no-clobber): a matrix is never replaced. ``forces`` (--force): one of other pictures, or of
    other programs, is replaced too.
    """

    continues: bool = False
    keeps: bool = False
    forces: bool = False


class Matrix:
    """The rows of one layer, added in the order of the pictures; a file once the run is complete.

        matrix = Matrix(Path("hookscope-out"), "resnet18_layer4_mean.npy", settings, Replacing())
        matrix.open(images)
        row = matrix.add(Picture("cat.jpg", "cat", sha256), numbers)
        matrix.publish()

    Never more than a row is in memory. Until it is published the rows are in a journal, where a
    run that continues finds them, besides those of the matrix that is there. ``settings``: what
    a row depends on apart from the picture. Raises ``FolderLostError`` where the disk takes
    no more.
    """

    def __init__(
        self,
        out: Path,
        name: str,
        settings: str,
        policy: Replacing,
        dry_run: bool = False,
    ) -> None:
        self._out = out
        self._path, self._index_path = out / name, out / beside(name, "index.jsonl")
        self._form = cast(MatrixFormat, name.rpartition(".")[2])
        self._settings = settings
        self._policy = policy
        self._dry_run = dry_run
        self._places = array("q")  # of the journal, or ~place in the matrix that is there
        self._journal = RowJournal(self._path, settings)
        self._index: TextIO | None = None
        self._index_part = str(out / part_name(self._index_path.name))
        self._before: RowFile | None = None
        self._left: RowFile | None = None
        self._rows_before = 0
        self.columns: int | None = None

    def open(self, images: Collection[str]) -> None:
        """Looks at what earlier runs have left. Raises ``OutputError`` where it must stay:
        ``images`` are all inputs of the run, as typed, and a matrix may have no others."""
        self._refuse_replacing(images)
        if self._dry_run:
            return
        with self._in_words():
            self._journal.claim()
            if self._policy.continues:
                self._find_earlier_rows()

    @property
    def files(self) -> dict[str, str]:
        """Kind -> path, as shown to the user."""
        return {"tensor": str(self._path), "index": str(self._index_path)}

    def find(self, sha256: str) -> EarlierRow | None:
        """The row of a picture that an earlier run has computed."""
        for rows in (self._before, self._left):
            row = rows.find(sha256) if rows else None
            if row is not None:
                return EarlierRow(rows is self._before, row)
        return None

    def add(self, picture: Picture, row: bytes | EarlierRow) -> int:
        """The number of the new row. Raises ``OutputError`` where it has another length."""
        if isinstance(row, EarlierRow):
            crc32, place = row.row.crc32, ~row.row.place if row.of_matrix else row.row.place
        else:
            self._check_length(len(row) // NUMBER)
            stored = StoredRow(0, 0)
            if not self._dry_run:
                with self._in_words():
                    stored = self._journal.append(row, picture.sha256)
            crc32, place = stored.crc32, stored.place
        number = len(self._places)
        self._places.append(place)
        if not self._dry_run:
            with self._in_words():
                self._note(number, picture, crc32)
        return number

    def publish(self) -> bool:
        """Writes matrix and index; False where there is nothing new to write."""
        if not self._places:
            return False
        if self._dry_run:
            return True
        with self._in_words():
            new = not self._is_there()
            if new:
                if self._policy.keeps and os.path.lexists(self._path):
                    raise OutputError(f"{self._path} is there already", "--no-clobber keeps it.")
                self._write()
            self.close()
            self._journal.remove()
        return new

    def close(self) -> None:
        """Without ``publish`` the rows stay in the journal."""
        with suppress(OSError):  # a full disk, which has been told
            if self._index is not None:
                self._index.close()
        self._index = None
        with suppress(OSError):
            os.unlink(self._index_part)
        for rows in (self._before, self._left):
            if rows is not None:
                rows.close()
        self._before = self._left = None
        self._journal.close()

    def _refuse_replacing(self, images: Collection[str]) -> None:
        path = self._path
        if path.is_dir():
            raise OutputError(f"{path} is a folder", "Choose another --out.")
        if not os.path.lexists(path) and not os.path.lexists(self._index_path):
            return
        if self._policy.keeps and not self._policy.continues:
            raise OutputError(f"{path} is there already", "--no-clobber keeps it.")
        if self._policy.forces:
            return
        lines = index_lines(self._index_path)
        first = next(lines, None)
        if first is None:
            raise OutputError(f"{path} was not made by hookscope: kept", _FORCE)
        ours = {relative(image, self._out) for image in images}
        for line in chain([first], lines):
            if line["image"] not in ours:
                raise OutputError(
                    f"{path} has a row of {line['image']}, which is not among the inputs: kept",
                    _FORCE,
                )

    def _find_earlier_rows(self) -> None:
        rows = {
            line["sha256"]: StoredRow(line["row"], line["crc32"])
            for line in index_lines(self._index_path)
            if line["settings"] == self._settings
        }
        block = locate(self._path) if rows else None
        if block is not None:
            rows = {sha256: row for sha256, row in rows.items() if row.place < block.rows}
            self._before = RowFile(self._path, block, rows)
            self._rows_before, self.columns = block.rows, block.columns
        left = self._journal.known(self.columns)
        if left:
            self._left = self._journal.reader(left)
            self.columns = self._journal.columns

    def _is_there(self) -> bool:
        """Whether the matrix and the index that are there would be written again."""
        assert self._index is not None
        self._index.flush()
        before = self._before
        return (
            before is not None
            and len(self._places) == self._rows_before
            and filecmp.cmp(self._index_part, self._index_path, shallow=False)
            # A picture that is there twice may have been found in the other one's row.
            and all(
                place == ~row or (place < 0 and before.read(~place) == before.read(row))
                for row, place in enumerate(self._places)
            )
        )

    def _check_length(self, columns: int) -> None:
        if self.columns not in (None, columns):
            raise OutputError(
                f"{columns} numbers do not fit into a row of {self.columns}, as the pictures "
                f"before have in {self._path}",
                "--crop or --resize HxW makes all inputs equal; --pool mean takes any size.",
            )
        self.columns = columns

    def _note(self, number: int, picture: Picture, crc32: int) -> None:
        if self._index is None:
            self._index = open(  # noqa: SIM115 - closed by close()
                self._index_part, "x", encoding="utf-8", newline="\n"
            )
        self._index.write(index_line(number, picture, self._settings, crc32, self._out))

    def _write(self) -> None:
        assert self._index is not None
        assert self.columns is not None
        part = str(self._out / part_name(self._path.name))
        try:
            self._index.close()
            shape = len(self._places), self.columns
            write_matrix(part, self._form, self._rows_in_order(), shape)
            # The index first: what it says of rows that are not there is found out by checksum.
            publish(self._index_part, str(self._index_path), new=False)
            publish(part, str(self._path), new=False)
        finally:
            with suppress(OSError):
                os.unlink(part)

    def _rows_in_order(self) -> Iterator[bytes]:
        journal = self._journal.reader({}) if any(place >= 0 for place in self._places) else None
        try:
            for place in self._places:
                rows = self._before if place < 0 else journal
                assert rows is not None
                yield rows.read(~place if place < 0 else place)
        finally:
            if journal is not None:
                journal.close()

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise FolderLostError(
                f"{self._path} cannot be written: {reason}",
                "The rows so far are kept: the same command with --skip-existing goes on there.",
            ) from error
