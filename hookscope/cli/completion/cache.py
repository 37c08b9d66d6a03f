"""What completion has found out before, in the user's cache folder; never in anybody's way."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple


class Found(NamedTuple):
    """An answer, as JSON can hold it, and the files that it was read from."""

    value: Any
    files: Iterable[str] = ()


def remembered(
    kind: str, question: dict[str, Any], packages: Iterable[str], find: Callable[[], Found]
) -> Any:
    """The answer to ``question`` from the cache, or else from ``find``, which is then cached.

    Valid as long as the ``packages`` have their versions and the files are as they were. What
    ``find`` raises is not cached. A cache that is torn or cannot be written is as good as none.
    """
    asked = {"question": question, "versions": {name: installed(name) for name in packages}}
    path = _path(kind, question)
    known = None if path is None else _read(path, asked)
    if known is not None:
        return known
    found = find()
    if path is not None:
        files = {file: _stamp(file) for file in sorted(set(found.files))}
        _write(path, {**asked, "files": files, "value": found.value})
    return found.value


def installed(package: str) -> str | None:
    """The version of an installed package, from the name of its metadata's folder.

    ``importlib.metadata`` knows better, and takes a tenth of what a completion may.
    """
    start = f"{package}-"
    for folder in sys.path:
        with suppress(OSError):
            for name in os.listdir(folder or "."):
                if name.startswith(start) and name.endswith((".dist-info", ".egg-info")):
                    return name[len(start) :].rpartition(".")[0]
    return None


def _path(kind: str, question: dict[str, Any]) -> Path | None:
    folder = _folder()
    if folder is None:
        return None
    text = json.dumps(question, sort_keys=True)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return folder / f"{kind}-{digest[:16]}.json"


def _folder() -> Path | None:
    """Where this platform keeps what can be found out again."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if named.is_absolute():
        return named / "hookscope"
    try:
        home = Path.home()
    except RuntimeError:
        return None
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "hookscope"
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else home / "AppData" / "Local") / "hookscope" / "Cache"
    return home / ".cache" / "hookscope"


def _read(path: Path, asked: dict[str, Any]) -> Any:
    try:
        entry = json.loads(path.read_bytes())
        if any(entry[key] != value for key, value in asked.items()):
            return None
        if any(_stamp(file) != stamp for file, stamp in entry["files"].items()):
            return None
        return entry["value"]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def _stamp(file: str) -> list[int] | None:
    """Size and time of change, which tell two states of a file apart; ``None``: not there."""
    try:
        status = os.stat(file)
    except OSError:
        return None
    return [status.st_size, status.st_mtime_ns]


def _write(path: Path, entry: dict[str, Any]) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part.write_text(json.dumps(entry), encoding="utf-8")
        part.replace(path)
    except OSError:
        with suppress(OSError):
            part.unlink()
