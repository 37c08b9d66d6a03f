"""Pictures into batches that the network takes and that fit into memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hookscope.errors import PictureError
from hookscope.run.forward import out_of_memory, watched
from hookscope.run.preparing import Prepared

if TYPE_CHECKING:
    from hookscope.run.pipeline import Job

_Shape = tuple[int, ...]


class Batches:
    """Runs a job's network step: pictures of one shape together, and smaller batches where a
    large one does not fit into memory, or where the network cannot run one of its pictures.

    ``only``: the one size of batch that the network takes; smaller ones are filled up. ``say``
    gets one note when a batch had to be halved. Threads may share it.
    """

    def __init__(
        self,
        job: Job,
        stopping: threading.Event,
        only: int | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._job = job
        self._stopping = stopping
        self._only = only
        self._say = say
        self._fits: dict[_Shape, int] = {}
        self._lock = threading.Lock()

    def found(self, ready: Sequence[Any], network: Any) -> list[Any]:
        """For each of ``ready`` what the network gave, or a ``PictureError``; what is not
        ``Prepared`` is returned as it is.

        Raises ``Stopped`` where the run is over before the network's turn.
        """
        found = list(ready)
        groups: dict[_Shape, list[int]] = {}
        for position, one in enumerate(ready):
            if isinstance(one, Prepared):
                groups.setdefault(tuple(one.tensor.shape), []).append(position)
        for shape, positions in groups.items():
            with self._job.clock.stage("maps"), watched(network, self._job.clock, self._stopping):
                outcomes = self._computed(network, shape, [ready[place] for place in positions])
            for position, outcome in zip(positions, outcomes, strict=True):
                found[position] = outcome
        return found

    def _computed(self, network: Any, shape: _Shape, batch: list[Prepared]) -> list[Any]:
        size = self._only or self._fits.get(shape) or len(batch)
        pieces = [batch[start : start + size] for start in range(0, len(batch), size)]
        return [one for piece in pieces for one in self._one_batch(network, shape, piece)]

    def _one_batch(self, network: Any, shape: _Shape, batch: list[Prepared]) -> list[Any]:
        missing = (self._only or 0) - len(batch)
        try:
            found = self._job.compute(network, batch + batch[-1:] * missing)
            return list(found[: len(batch)])
        except PictureError as error:
            if len(batch) == 1:
                return [error]
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            if len(batch) == 1 or self._only:
                return [_too_big(shape)] * len(batch)
            self._remember(shape, len(batch))
        # Outside of the handlers: the exception holds the tensors that had no room.
        half = len(batch) // 2
        halves = batch[:half], batch[half:]
        return [one for each in halves for one in self._one_batch(network, shape, each)]

    def _remember(self, shape: _Shape, size: int) -> None:
        with self._lock:
            first = not self._fits
            self._fits[shape] = min((size + 1) // 2, self._fits.get(shape, size))
        if first:
            self._say(f"note: a batch of {size} does not fit into memory: halved")


def _too_big(shape: _Shape) -> PictureError:
    size = "x".join(str(side) for side in shape)
    return PictureError(
        f"an input of {size} needs more memory than there is",
        "--resize and --crop choose a smaller one.",
    )
