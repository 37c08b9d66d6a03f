"""Many pictures through one job: whole chains side by side on a CPU, stages on an accelerator.

Results come out in the order of the pictures, whatever finishes first, and what is in flight is
bounded, so that memory does not grow with the number of pictures.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol, TypeVar

from hookscope.errors import PictureError
from hookscope.output.names import Sample
from hookscope.run.batches import Batches
from hookscope.run.clock import Clock
from hookscope.run.forward import Stopped
from hookscope.run.preparing import Prepared

Records = list[dict[str, Any]]
Result = Any  # what a job makes of one picture: records, or what will be one
Found = Any  # what a job's network step hands to its drawing step; only the job looks inside
Anything = TypeVar("Anything")


class Job(Protocol):
    """What is done with each picture: three steps, of which only the middle one has the network.

    Any other error than those named here ends the run.
    """

    @property
    def clock(self) -> Clock:
        """Where the seconds of each stage are kept."""

    def prepare(self, sample: Sample) -> Prepared | Result:
        """Decode and preprocess, or give the result of a picture that needs no work.

        Raises ``PictureError``.
        """

    def compute(self, network: Any, batch: Sequence[Prepared]) -> Sequence[Found]:
        """Forward pass and maps, one result a picture, small and on the host.

        Raises ``PictureError`` where the network cannot run these pictures.
        """

    def finish(self, prepared: Prepared, found: Found) -> Result:
        """Draw and write."""

    def failed(self, sample: Sample, error: PictureError) -> Result:
        """The result of a picture that could not be read or run."""


@dataclass
class _Done:
    """The results of some neighbouring pictures, and what ended the run at one of them."""

    results: list[Result] = field(default_factory=list)
    error: Exception | None = None


@dataclass
class Engine:
    """Runs one job over many pictures.

    ``networks``: one replica of the model a worker thread (they share their parameters). With
    one network and ``staged`` the network stays in the calling thread, and ``helpers`` threads
    decode before it and write behind it. ``only``: the one batch size that the network takes.
    ``say`` gets one note when a batch had to be halved.
    """

    job: Job
    networks: Sequence[Any]
    batch_size: int
    staged: bool = False
    helpers: int = 2
    only: int | None = None
    say: Callable[[str], None] = lambda text: None
    stopping: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._batches = Batches(self.job, self.stopping, self.only, self.say)

    def run(self, samples: Iterable[Sample]) -> Generator[Result, None, None]:
        """The result of each picture, in order.

        Once ``stopping`` is set no picture is begun, and those in flight are finished, or dropped
        where their turn at the network has not come. An error of the job sets it, and is raised
        when the results of all pictures that were finished by then are out.
        """
        failure: Exception | None = None
        for done in self._done(samples):
            yield from done.results
            failure = failure or done.error
        if failure is not None:
            raise failure

    def _done(self, samples: Iterable[Sample]) -> Iterator[_Done]:
        if self.staged:
            return self._through_stages(samples)
        if len(self.networks) == 1:
            return self._one_by_one(samples)
        return self._side_by_side(samples)

    def _one_by_one(self, samples: Iterable[Sample]) -> Iterator[_Done]:
        for chunk in _chunks(samples, self.batch_size):
            if self.stopping.is_set():
                return
            yield self._chain(chunk, self.networks[0])

    def _side_by_side(self, samples: Iterable[Sample]) -> Iterator[_Done]:
        """Each worker takes a small batch all the way from decoding to the written file."""
        free = deque(self.networks)

        def chain(chunk: list[Sample]) -> _Done:
            network = free.popleft()
            try:
                return self._chain(chunk, network)
            finally:
                free.append(network)

        with _pool(len(self.networks)) as pool, self._no_longer_than_wanted():
            chunks = _chunks(samples, self.batch_size)
            futures = (pool.submit(chain, chunk) for chunk in chunks)
            yield from self._in_order(futures, ahead=2 * len(self.networks))

    def _through_stages(self, samples: Iterable[Sample]) -> Iterator[_Done]:
        """The network in this thread; decoding ahead of it and writing behind it.

        At any time at most five batches are somewhere between the disk and the disk.
        """
        with _pool(self.helpers) as pool, self._no_longer_than_wanted():
            yield from self._in_order(self._network_stage(samples, pool), 2 * self.batch_size)

    def _network_stage(
        self, samples: Iterable[Sample], pool: ThreadPoolExecutor
    ) -> Iterator[Future[_Done]]:
        coming = iter(samples)
        decoding: deque[tuple[Sample, Future[Any]]] = deque()

        def decode_on() -> None:
            for sample in islice(coming, 2 * self.batch_size - len(decoding)):
                decoding.append((sample, pool.submit(self._prepared, sample)))

        decode_on()
        while decoding:
            chunk = [decoding.popleft() for _ in range(min(self.batch_size, len(decoding)))]
            decode_on()
            try:
                ready = [(sample, future.result()) for sample, future in chunk]
                found = self._batches.found([one for _, one in ready], self.networks[0])
            except (Exception, Stopped) as error:
                self.stopping.set()
                yield _settled(_Done(error=error if isinstance(error, Exception) else None))
                return
            for (sample, one), outcome in zip(ready, found, strict=True):
                yield pool.submit(self._finished, sample, one, outcome)

    def _in_order(self, futures: Iterator[Future[_Done]], ahead: int) -> Iterator[_Done]:
        pending: deque[Future[_Done]] = deque()
        while not self.stopping.is_set():
            future = next(futures, None)
            if future is None:
                break
            pending.append(future)
            while pending and (len(pending) > ahead or pending[0].done()):
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()

    @contextmanager
    def _no_longer_than_wanted(self) -> Iterator[None]:
        """Whoever takes the results may stop taking them: then nothing more is begun either."""
        try:
            yield
        except BaseException:
            self.stopping.set()
            raise

    def _chain(self, chunk: Sequence[Sample], network: Any) -> _Done:
        done = _Done()
        try:
            ready = [self._prepared(sample) for sample in chunk]
            found = self._batches.found(ready, network)
            for sample, one, outcome in zip(chunk, ready, found, strict=True):
                last = self._finished(sample, one, outcome)
                done.results += last.results
                if last.error is not None:
                    return _Done(done.results, last.error)
        except Stopped:
            pass
        except Exception as error:
            self.stopping.set()
            done.error = error
        return done

    def _prepared(self, sample: Sample) -> Prepared | PictureError | Result:
        if self.stopping.is_set():
            raise Stopped
        try:
            return self.job.prepare(sample)
        except PictureError as error:
            return error

    def _finished(self, sample: Sample, one: Any, outcome: Found | PictureError) -> _Done:
        try:
            if isinstance(outcome, PictureError):
                return _Done([self.job.failed(sample, outcome)])
            if not isinstance(one, Prepared):
                return _Done([outcome])
            with self.job.clock.stage("write"):
                return _Done([self.job.finish(one, outcome)])
        except Exception as error:
            self.stopping.set()
            return _Done(error=error)


@contextmanager
def _pool(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that each compute alone: side by side, more of them would starve each other."""
    import torch

    before = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield pool
    finally:
        # The last number set is that of every thread to come.
        torch.set_num_threads(before)


def _settled(done: _Done) -> Future[_Done]:
    future: Future[_Done] = Future()
    future.set_result(done)
    return future


def _chunks(samples: Iterable[Sample], size: int) -> Iterator[list[Sample]]:
    iterator = iter(samples)
    while chunk := list(islice(iterator, size)):
        yield chunk
