"""What a file was made from, written into the file, and read back without decoding a pixel."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path, PurePath
from typing import Any, BinaryIO

from hookscope import __version__
from hookscope.output.records import Record, dumps

KEYWORD = "hookscope"
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_LAST_CHUNK = b"\0\0\0\0IEND\xaeB`\x82"
_TEXTS = (b"tEXt", b"zTXt", b"iTXt")
_LONGEST_TEXT = 16 << 20


@dataclass(frozen=True)
class Fingerprint:
    """Picture, weights and settings: what decides whether a file has to be made again.

    ``settings`` is what JSON can hold: all that changes the file, and no path, time or host.
    """

    picture_sha: str
    picture_name: str
    weights_digest: str
    settings: Mapping[str, Any] = field(hash=False)

    @cached_property
    def key(self) -> str:
        """Equal for equal picture, weights and settings, and for nothing else."""
        # Through JSON and back, as it will be when it is read from a file.
        settings = json.loads(dumps(self.settings))
        return _key(self.picture_sha, self.weights_digest, settings)

    def document(self) -> dict[str, Any]:
        """The fingerprint as it stands in a PNG and in the manifest."""
        return {
            "version": __version__,
            "settings": dict(self.settings),
            "picture": {"name": self.picture_name, "sha256": self.picture_sha},
            "weights": self.weights_digest,
        }


@dataclass(frozen=True)
class Origin:
    """What an existing file was made from; not ``whole`` when its end is missing."""

    picture_sha: str
    picture_name: str
    key: str
    record: Record
    whole: bool = True


def text_chunk(fingerprint: Fingerprint, portable: Record) -> dict[str, str]:
    """``{"hookscope": ...}`` for a PNG: the same for the same command, wherever it is run.

    ``portable``: the record as it stands in the manifest. Its picture loses its folder here.
    """
    shown = {**portable, "image": fingerprint.picture_name}
    # ASCII alone makes it a plain tEXt chunk, which every PNG reader shows.
    return {KEYWORD: dumps({**fingerprint.document(), "record": shown}, ascii=True)}


def read_png(path: str | Path) -> Origin | None:
    """What the PNG says it was made from; None when hookscope did not make it."""
    with open(path, "rb", buffering=4096) as file:
        text = _find_text(file)
        if text is None:
            return None
        file.seek(-len(_LAST_CHUNK), os.SEEK_END)
        whole = file.read() == _LAST_CHUNK
    try:
        document = json.loads(text)
        picture, weights = document["picture"], document["weights"]
        key = _key(picture["sha256"], weights, document["settings"])
        return Origin(picture["sha256"], picture["name"], key, dict(document["record"]), whole)
    except (ValueError, KeyError, TypeError):
        return None


def made_portable(record: Record, out: Path) -> Record:
    """``record`` with paths relative to ``out``."""
    image, files = record.get("image"), record.get("files") or {}
    return {
        **record,
        "image": image and relative(image, out),
        "files": {kind: file and relative(file, out) for kind, file in files.items()},
    }


def relative(path: str, out: Path) -> str:
    """``path`` as seen from ``out``, with ``/``; as it is when no relative path leads there."""
    prefix = f"{out}{os.sep}"
    if path.startswith(prefix):
        inside = path[len(prefix) :]
    else:
        try:
            inside = os.path.relpath(path, _physical(os.path.abspath(out)))
        except ValueError:  # another drive
            return path
    return inside if os.sep == "/" else PurePath(inside).as_posix()


@lru_cache(maxsize=8)
def _physical(out: str) -> str:
    """Where ``..`` leads up from: the folder itself, when ``--out`` is a symbolic link."""
    return os.path.realpath(out)


def _key(picture_sha: str, weights_digest: str, settings: Any) -> str:
    text = json.dumps([picture_sha, weights_digest, settings], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _find_text(file: BinaryIO) -> bytes | None:
    """The text under our keyword, wherever in the PNG it stands."""
    if file.read(8) != _SIGNATURE:
        return None
    prefix = KEYWORD.encode() + b"\0"
    while len(header := file.read(8)) == 8:
        length, kind = struct.unpack(">I4s", header)
        if kind == b"IEND":
            return None
        if kind not in _TEXTS or length > _LONGEST_TEXT:
            file.seek(length + 4, os.SEEK_CUR)
            continue
        data, checksum = file.read(length), file.read(4)
        if data.startswith(prefix) and zlib.crc32(kind + data) == int.from_bytes(checksum, "big"):
            return _unwrapped(kind, data[len(prefix) :])
    return None


def _unwrapped(kind: bytes, data: bytes) -> bytes | None:
    """The text behind the keyword, also when a tool has rewritten the chunk compressed."""
    if kind == b"tEXt":
        return data
    packed, text = kind == b"zTXt", data[1:]
    if kind == b"iTXt":  # compression flag and method, then two texts that end in zeros
        packed, text = data[:1] == b"\1", data[2:].split(b"\0", 2)[-1]
    try:
        return zlib.decompressobj().decompress(text, _LONGEST_TEXT) if packed else text
    except zlib.error:
        return None
