"""The records of a zip archive that torch wrote: names, bytes, mapped storages, checksums."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

_LOCAL_HEADER = 30
_CHECKING_THREADS = 2  # zlib lets go of the interpreter: two read twice as fast


class ZipRecords:
    """An archive's records, by their names without the folder in which they all lie.

    Methods raise ``zipfile.BadZipFile``, ``OSError`` or ``ValueError`` on a damaged archive.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with zipfile.ZipFile(path) as archive:
            self._entries = {_inner(entry.filename): entry for entry in archive.infolist()}
        self._big_endian = "byteorder" in self and self.read("byteorder") == b"big"

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    @property
    def names(self) -> list[str]:
        return list(self._entries)

    @property
    def mappable(self) -> bool:
        """Whether no tensor's bytes are compressed, as they are where a file was zipped anew."""
        return all(
            entry.compress_type == zipfile.ZIP_STORED
            for name, entry in self._entries.items()
            if name.startswith("data/")
        )

    def read(self, name: str) -> bytes:
        """A record's bytes. Raises ``BadZipFile`` where they do not match their checksum."""
        entry = self._entries[name]
        if entry.compress_type != zipfile.ZIP_STORED:
            with zipfile.ZipFile(self._path) as archive:
                return archive.read(entry)
        with self._path.open("rb") as file:
            file.seek(self._start(entry))
            content = file.read(entry.file_size)
        if entry.CRC and zlib.crc32(content) != entry.CRC:
            raise zipfile.BadZipFile(f"record {name} does not match its checksum")
        return content

    def storage(self, name: str) -> torch.UntypedStorage:
        """A record's bytes, mapped from the file where they lie in it uncompressed."""
        entry = self._entries[name]
        if entry.compress_type != zipfile.ZIP_STORED:
            return torch.frombuffer(bytearray(self.read(name)), dtype=torch.uint8).untyped_storage()
        start = self._start(entry)
        part = self._mapped[start : start + entry.file_size]
        assert isinstance(part, torch.UntypedStorage)
        return part

    def damaged(self, tensors: Mapping[str, Tensor]) -> list[str]:
        """The names of those tensors whose bytes are not those of any record's checksum.

        Neither torch nor safetensors looks: a file that was copied badly opens without a word.
        """
        entries = [entry for entry in self._entries.values() if entry.file_size]
        if self._big_endian or not all(entry.CRC for entry in entries):
            return []  # turned over while loading, or written without checksums
        sound = {(entry.file_size, entry.CRC) for entry in entries}
        sizes = {size for size, _ in sound}
        names: dict[tuple[int, int], str] = {}
        for name, tensor in tensors.items():
            if tensor.layout == torch.strided and tensor.untyped_storage().nbytes() in sizes:
                storage = tensor.untyped_storage()
                names.setdefault((storage.data_ptr(), storage.nbytes()), name)
        with ThreadPoolExecutor(_CHECKING_THREADS) as threads:
            sums = threads.map(_checksum, (tensors[name] for name in names.values()))
            return [
                name
                for (_, size), name, checksum in zip(names, names.values(), sums, strict=True)
                if (size, checksum) not in sound
            ]

    @cached_property
    def _mapped(self) -> torch.UntypedStorage:
        size = self._path.stat().st_size
        content = torch.from_file(str(self._path), shared=False, size=size, dtype=torch.uint8)
        return content.untyped_storage()

    def _start(self, entry: zipfile.ZipInfo) -> int:
        with self._path.open("rb") as file:
            file.seek(entry.header_offset)
            header = file.read(_LOCAL_HEADER)
        if header[:4] != b"PK\x03\x04":
            raise zipfile.BadZipFile(f"no record starts where {entry.filename} should")
        name_length = int.from_bytes(header[26:28], "little")
        extra_length = int.from_bytes(header[28:30], "little")
        return entry.header_offset + _LOCAL_HEADER + name_length + extra_length


def _inner(name: str) -> str:
    return name.partition("/")[2] or name


def _checksum(tensor: Tensor) -> int:
    content = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
    return zlib.crc32(content.numpy().data)
