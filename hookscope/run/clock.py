"""Where the time of a run goes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_ORDER = ("model", "decode", "preprocess", "forward", "maps", "render", "encode", "write")


class Clock:
    """Seconds spent in each stage, summed over the threads.

    A stage inside another one is not counted twice: its seconds are not the outer one's.
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._lock = threading.Lock()
        self._thread = threading.local()

    @property
    def seconds(self) -> dict[str, float]:
        """By stage, in the order in which a picture comes through them."""
        order = {name: place for place, name in enumerate(_ORDER)}
        with self._lock:
            names = sorted(self._seconds, key=lambda name: order.get(name, len(order)))
            return {name: self._seconds[name] for name in names}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        inner: list[float] = self._thread.__dict__.setdefault("inner", [])
        inner.append(0.0)
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            own = spent - inner.pop()
            if inner:
                inner[-1] += spent
            with self._lock:
                self._seconds[name] = self._seconds.get(name, 0.0) + own
