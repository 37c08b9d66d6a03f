"""Ctrl-C and SIGTERM: while pictures run, what is in flight is finished first."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(BaseException):
    """Ctrl-C or SIGTERM, before there was anything to finish."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.exit_code = 128 + number


class Signals:
    """Which signal came, and who is to be told.

    Without ``stopping`` a signal raises at once. With it, the event is set, so that records are
    never torn by an exception in the middle of a write; a second signal leaves on the spot.
    """

    def __init__(self) -> None:
        self.stopping: threading.Event | None = None
        self.caught: int | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.caught is not None:
            if os.isatty(2):
                os.write(2, b"\x1b[?25h")  # the progress bar had hidden the cursor
            os._exit(128 + number)
        if self.stopping is None:
            raise Interrupted(number)
        self.caught = number
        self.stopping.set()


@contextmanager
def signals() -> Iterator[Signals]:
    """A block with our own handlers for SIGINT and SIGTERM; the old ones come back behind it."""
    handler = Signals()
    if threading.current_thread() is not threading.main_thread():
        yield handler
        return
    # A shell's background job starts with SIGINT ignored, and means it.
    numbers = [
        number
        for number in (signal.SIGINT, signal.SIGTERM)
        if signal.getsignal(number) is not signal.SIG_IGN
    ]
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield handler
    finally:
        for number, old in before.items():
            signal.signal(number, old)
