"""How far a run is, on the last line of the terminal, out of the way of what is written there."""

from __future__ import annotations

import time

from rich.console import Console
from rich.control import Control
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
from rich.segment import ControlType

_SECONDS_BETWEEN = 0.1


class Bar:
    """Use as a context. It is drawn by ``advance`` alone: a thread would draw it into the lines."""

    def __init__(self, terminal: Console, total: int, what: str) -> None:
        self._terminal = terminal
        self._progress = Progress(
            "{task.description}",
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=terminal,
            redirect_stdout=False,
            redirect_stderr=False,
            transient=True,
            auto_refresh=False,
        )
        self._task = self._progress.add_task(what, total=total)
        self._drawn = 0.0

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def advance(self, count: int = 1) -> None:
        """So many more are done."""
        self._progress.advance(self._task, count)
        now = time.monotonic()
        if now - self._drawn > _SECONDS_BETWEEN:
            self._progress.refresh()
            self._drawn = now

    def make_way(self) -> None:
        """Leave the terminal's last line to what is written next."""
        self._terminal.control(Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2)))
        self._drawn = 0.0
