"""An N x D matrix of float32 in a file: written row by row, and found again without reading it."""

from __future__ import annotations

import json
import os
import struct
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO, Literal

import numpy as np

MatrixFormat = Literal["npy", "npz", "safetensors", "pt"]

NUMBER = 4  # bytes of a float32
_KEY = "tensor"  # as in the files of single tensors
_MOST_HEADER = 100 << 20
_EARLIEST = (1980, 1, 1, 0, 0, 0)  # a date that is the same for every run


@dataclass(frozen=True)
class Block:
    """Where the rows lie in a file, one behind the other, little-endian."""

    offset: int
    rows: int
    columns: int


def write_matrix(
    path: str, form: MatrixFormat, rows: Iterable[bytes], shape: tuple[int, int]
) -> None:
    """A new file with ``rows``, ``shape[0]`` of them with ``shape[1]`` numbers each.

    One row is in memory at a time. In npz and safetensors the matrix is called ``tensor``.
    """
    with open(path, "xb") as file:
        _WRITERS[form](file, rows, shape)


def locate(path: Path) -> Block | None:
    """Where the rows are in a file that ``write_matrix`` has made; None for any other."""
    try:
        with open(path, "rb") as file:
            block = _FINDERS[path.suffix[1:]](file)
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile, struct.error):
        return None
    if block and block.offset + block.rows * block.columns * NUMBER > os.path.getsize(path):
        return None
    return block


def _write_npy(file: BinaryIO, rows: Iterable[bytes], shape: tuple[int, int]) -> None:
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    file.writelines(rows)


def _write_npz(file: BinaryIO, rows: Iterable[bytes], shape: tuple[int, int]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        info = zipfile.ZipInfo(f"{_KEY}.npy", _EARLIEST)
        with archive.open(info, "w", force_zip64=True) as member:
            _write_npy(member, rows, shape)  # type: ignore[arg-type]


def _write_safetensors(file: BinaryIO, rows: Iterable[bytes], shape: tuple[int, int]) -> None:
    end = shape[0] * shape[1] * NUMBER
    entry = {"dtype": "F32", "shape": list(shape), "data_offsets": [0, end]}
    header = json.dumps({_KEY: entry}).encode()
    header += b" " * (-len(header) % 8)
    file.write(struct.pack("<Q", len(header)) + header)
    file.writelines(rows)


def _write_pt(file: BinaryIO, rows: Iterable[bytes], shape: tuple[int, int]) -> None:
    import torch

    # torch writes a tensor in one go: give it one whose numbers are in a file, not in memory.
    with TemporaryFile(dir=os.path.dirname(file.name)) as numbers:
        numbers.writelines(rows)
        numbers.flush()
        mapped = np.memmap(numbers, dtype="<f4", mode="c", shape=shape)
        torch.save(torch.from_numpy(mapped), file)


def _find_npy(file: BinaryIO, end: int | None = None) -> Block | None:
    if np.lib.format.read_magic(file) != (1, 0):
        return None
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    if fortran or dtype != np.dtype("<f4") or len(shape) != 2:
        return None
    return Block(file.tell(), *shape)


def _find_npz(file: BinaryIO) -> Block | None:
    file.seek(_start_of(file, f"{_KEY}.npy"))
    return _find_npy(file)


def _find_safetensors(file: BinaryIO) -> Block | None:
    (length,) = struct.unpack("<Q", file.read(8))
    if length > _MOST_HEADER:
        return None
    entry = json.loads(file.read(length))[_KEY]
    if entry["dtype"] != "F32" or len(entry["shape"]) != 2:
        return None
    return Block(8 + length + entry["data_offsets"][0], *entry["shape"])


def _find_pt(file: BinaryIO) -> Block | None:
    import torch

    try:
        tensor = torch.load(file.name, mmap=True, weights_only=True)
    except Exception:  # torch has no one class for what is not its own
        return None
    if not isinstance(tensor, torch.Tensor) or tensor.dtype != torch.float32 or tensor.dim() != 2:
        return None
    return Block(_start_of(file, "/data/0"), *tensor.shape)


def _start_of(file: BinaryIO, ending: str) -> int:
    """Where the bytes of a member of a zip archive begin; it must not be compressed."""
    with zipfile.ZipFile(file) as archive:
        info = next(one for one in archive.infolist() if f"/{one.filename}".endswith(ending))
    if info.compress_type != zipfile.ZIP_STORED:
        raise ValueError("compressed")
    file.seek(info.header_offset + 26)
    name, extra = struct.unpack("<HH", file.read(4))
    return info.header_offset + 30 + int(name) + int(extra)


_WRITERS: dict[str, Callable[[BinaryIO, Iterable[bytes], tuple[int, int]], None]] = {
    "npy": _write_npy,
    "npz": _write_npz,
    "safetensors": _write_safetensors,
    "pt": _write_pt,
}
_FINDERS: dict[str, Callable[[BinaryIO], Block | None]] = {
    "npy": _find_npy,
    "npz": _find_npz,
    "safetensors": _find_safetensors,
    "pt": _find_pt,
}
