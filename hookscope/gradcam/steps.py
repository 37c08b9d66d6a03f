"""How far the slow methods are."""

from __future__ import annotations

from collections.abc import Callable


class Steps:
    """Calls ``progress(done, total)`` as channels are tried, over all ``repeats`` of the work."""

    def __init__(self, progress: Callable[[int, int], None] | None, repeats: int) -> None:
        self._progress = progress
        self._repeats = repeats
        self._done = 0
        self._total = 0

    def begin(self, channels: int) -> None:
        """One of the repeats begins, which will try this many channels."""
        self._total = self._total or channels * self._repeats

    def advance(self, channels: int) -> None:
        self._done += channels
        if self._progress is not None:
            self._progress(self._done, self._total)
