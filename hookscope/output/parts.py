"""Files in the making: a temporary name that says whose it is, and what the dead left behind."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import time
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path

_OWNED = re.compile(r"\.([0-9a-f]{8})-([0-9a-f]+)-([0-9a-f]+)-[0-9a-f]+\.part")
_GIVEN_UP = 3600  # seconds without a write, for a writer that cannot be asked whether it lives
_SHOWN = 80  # bytes of the final name
_numbers = count()


def part_name(name: str) -> str:
    """A hidden name in the same folder that no other thread, process or machine uses."""
    folder, _, file = name.rpartition("/")
    number = next(_numbers)
    file = file.encode()[:_SHOWN].decode(errors="ignore")  # with the rest it must not be too long
    part = f".{file}.{_machine()}-{_process(os.getpid())}-{number:x}.part"
    return f"{folder}/{part}" if folder else part


def write_part(path: str, data: bytes | memoryview) -> None:
    """A new file, folders included; nothing of it is left when it cannot be written whole."""
    try:
        file = open(path, "xb", buffering=0)  # noqa: SIM115 - closed below, errors included
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        file = open(path, "xb", buffering=0)  # noqa: SIM115
    try:
        with file:
            rest = memoryview(data)
            while rest:
                rest = rest[file.write(rest) :]
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        raise


def publish(part: str, target: str, *, new: bool) -> None:
    """Gives the part its final name. ``new``: raises ``FileExistsError`` where one is there."""
    if new:
        try:
            os.link(part, target)
            os.unlink(part)
            return
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links
            if os.path.lexists(target):
                raise FileExistsError(target) from None
    os.replace(part, target)


def remove_stale(folder: str | Path) -> None:
    """Removes the hidden ``.part`` files of a folder, but not those of a writer that is alive."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") and entry.name.endswith(".part") and _stale(entry):
                with suppress(OSError):
                    os.unlink(entry.path)


def _stale(entry: os.DirEntry[str]) -> bool:
    if not entry.is_file(follow_symlinks=False):
        return False
    owner = _OWNED.search(entry.name)
    if owner is None:
        return True
    machine, pid, started = owner[1], int(owner[2], 16), int(owner[3], 16)
    if machine == _machine() and os.name == "posix":
        return not _alive(pid, started)
    return time.time() - entry.stat(follow_symlinks=False).st_mtime > _GIVEN_UP


def _alive(pid: int, started: int) -> bool:
    """Whether the process of that number is still the one that began then."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return _started(pid) == started


@cache
def _machine() -> str:
    """The host, and the container in it: process numbers mean something only there."""
    place = [socket.gethostname()]
    with suppress(OSError):
        place.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256("\0".join(place).encode()).hexdigest()[:8]


@cache
def _process(pid: int) -> str:
    return f"{pid:x}-{_started(pid):x}"


def _started(pid: int) -> int:
    """When a process began, in the kernel's ticks; 0 where that cannot be read."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0
