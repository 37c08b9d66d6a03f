"""A program on a terminal that is really there: a pty, with whatever the terminal would answer."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_TERMINAL = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}


def _own_environment() -> dict[str, str]:
    """This process's, without what it believes of the size of a terminal."""
    return {name: text for name, text in os.environ.items() if name not in ("LINES", "COLUMNS")}


@dataclass(frozen=True)
class Seen:
    """What a program left: its exit code, what a pipe on stdout got, and what was on the screen."""

    code: int
    out: str
    screen: str

    @property
    def lines(self) -> list[str]:
        """What a reader of the terminal sees in the end, without colours, however far up it is."""
        rows, row, column = [""], 0, 0
        for token in re.findall(r"\x1b\[\??[\d;]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", self.screen):
            if token == "\r":
                column = 0
            elif token == "\n":
                row += 1
                rows += [""] * (row - len(rows) + 1)
            elif token == "\x1b[2K":
                rows[row] = ""
            elif token[0] == "\x1b":
                up = re.fullmatch(r"\x1b\[(\d+)A", token)
                row -= int(up[1]) if up else 0
            else:
                old = rows[row].ljust(column)
                rows[row] = old[:column] + token + old[column + len(token) :]
                column += len(token)
        return rows


def on_terminal(
    command: Sequence[str],
    *,
    lines: int = 24,
    columns: int = 80,
    answers: Mapping[bytes, bytes] | None = None,
    owns: bool = True,
    together: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Seen:
    """Run ``command`` with stderr on a terminal of that size and stdout in a pipe, or ``together``.

    ``answers``: what the terminal sends when a query has been written to it. ``owns``: whether
    the terminal is the process's own, so that it may ask.
    """
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def take() -> None:
        if owns:
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=slave if together else subprocess.PIPE,
        stderr=slave,
        start_new_session=True,
        preexec_fn=take,
        env={**_own_environment(), **_TERMINAL, **(environment or {})},
    )
    os.close(slave)
    screen = bytearray()
    watching = threading.Thread(target=_watch, args=(master, screen, dict(answers or {})))
    watching.start()
    try:
        out, _ = process.communicate(timeout=120)
    finally:
        process.kill()
        watching.join()
        os.close(master)
    return Seen(process.returncode, (out or b"").decode(), screen.decode())


def _watch(master: int, screen: bytearray, answers: dict[bytes, bytes]) -> None:
    """All that is written to the terminal, until nobody has it open any more."""
    while True:
        try:
            written = os.read(master, 65536)
        except OSError:
            return
        if not written:
            return
        screen += written
        for query in [query for query in answers if query in screen]:
            os.write(master, answers.pop(query))
