"""``.index.jsonl`` beside a matrix: whose row is which, and whether it is still that row."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hookscope.output.provenance import relative
from hookscope.output.records import dumps


@dataclass(frozen=True)
class Picture:
    """Whose row it is; ``image`` as it was typed."""

    image: str
    sample: str
    sha256: str


def index_line(row: int, picture: Picture, settings: str, crc32: int, out: Path) -> str:
    """``settings``: what the row was made with, apart from the picture. ``crc32``: of its bytes,
    so that a matrix beside which another one's index lies is found out."""
    line = {
        "row": row,
        "image": relative(picture.image, out),
        "sample": picture.sample,
        "sha256": picture.sha256,
        "settings": settings,
        "crc32": crc32,
    }
    return dumps(line) + "\n"


def index_lines(path: Path) -> Iterator[Mapping[str, Any]]:
    """The lines of an index that we wrote, up to the first that is not ours; none where there is
    no file."""
    with suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        for text in file:
            try:
                line = json.loads(text)
                row, crc32 = int(line["row"]), int(line["crc32"])
                known = {name: str(line[name]) for name in ("image", "sha256", "settings")}
            except (ValueError, KeyError, TypeError):
                return
            yield {**known, "row": row, "crc32": crc32}
