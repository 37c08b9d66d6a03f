"""What the files are called: safe names, short enough, and one for each picture of a run."""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hookscope.images.inputs import Source

LONGEST_NAME = 200  # bytes; file systems take 255, the temporary name needs the rest
_LONGEST_EXTENSION = len(".safetensors")
_PLAIN = re.compile(r"[A-Za-z0-9_.@\[\]-]*")
_KEPT = frozenset("._@[]-")


@dataclass(frozen=True)
class Sample:
    """One input of a run: the file, its name in ours, and the sub-folder of ``--out`` for it."""

    source: Source
    sample: str
    folder: str


def sanitise(text: str) -> str:
    """Letters and digits of any script and ``. _ @ [ ] -`` stay; any other run becomes one ``-``.

    Accents and vowel signs are part of their letter. Letters are composed (NFC), so that a name
    from a file system that splits them comes out the same.
    """
    if _PLAIN.fullmatch(text):
        return text
    text = unicodedata.normalize("NFC", text)
    marked = "".join(char if _stays(char) else "\0" for char in text)
    return re.sub("\0+", "-", marked)


def settle(sources: Iterable[Source]) -> list[Sample]:
    """One name for each input of the whole run (all shards), in order.

    Inputs whose names collide whatever the case all get 8 hex digits of the SHA-256 of their path
    as typed.
    """
    sources = list(sources)
    folders = [_folder(source.folder) for source in sources]
    names = [sanitise(source.path.stem) for source in sources]
    hashed = [False] * len(sources)
    # A name with digits behind it may hit a third input's own name: then that one gets digits too.
    while True:
        keys = [_collision_key(*pair) for pair in zip(folders, names, strict=True)]
        taken = Counter(keys)
        changed = False
        for position, key in enumerate(keys):
            if taken[key] > 1 and not hashed[position]:
                names[position] += "-" + _digits(sources[position].typed)
                hashed[position] = changed = True
        if not changed:
            return [Sample(*parts) for parts in zip(sources, names, folders, strict=True)]


def file_name(model: str, layer: str, sample: Sample | str, *suffixes: str, extension: str) -> str:
    """``{model}_{layer}_{sample}_{suffixes}.{extension}``, behind the sample's sub-folder.

    A name over 200 bytes is cut and gets ``-{8 hex digits}`` of its own SHA-256.
    """
    name, folder = (sample, "") if isinstance(sample, str) else (sample.sample, sample.folder)
    stem = "_".join(map(sanitise, (model, layer, name, *suffixes)))
    file = f"{_shortened(stem, len(extension.lstrip('.')) + 1)}.{extension.lstrip('.')}"
    return f"{folder}/{file}" if folder else file


def beside(name: str, extension: str) -> str:
    """The file that has the stem of the file ``name`` (one of ours) and another extension."""
    return f"{name.rpartition('.')[0]}.{extension.lstrip('.')}"


def _shortened(stem: str, extension: int) -> str:
    raw = stem.encode()
    if len(raw) + extension <= LONGEST_NAME:
        return stem
    # Room for the longest extension: a raw tensor has the stem of its picture.
    room = LONGEST_NAME - _LONGEST_EXTENSION - len("-01234567")
    return f"{raw[:room].decode(errors='ignore')}-{_digits(stem)}"


def _folder(folder: str) -> str:
    """The sub-folder as it is, but for what would leave ``--out`` or spoil a line of text."""
    parts = [part for part in folder.replace(os.sep, "/").split("/") if part not in ("", ".", "..")]
    return "/".join("".join(c if c.isprintable() else "-" for c in part) for part in parts)


def _stays(char: str) -> bool:
    return char.isalnum() or char in _KEPT or unicodedata.category(char)[0] == "M"


def _collision_key(folder: str, name: str) -> str:
    path = f"{folder}/{name}"
    return path.casefold() if path.isascii() else unicodedata.normalize("NFC", path.casefold())


def _digits(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:8]
