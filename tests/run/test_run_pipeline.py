"""The engine: order, bounds, batches, failures and stopping, in each of its three ways to run."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hookscope.errors import PictureError, TargetError
from hookscope.images.inputs import Source
from hookscope.output.names import Sample
from hookscope.run.clock import Clock
from hookscope.run.pipeline import Engine
from hookscope.run.preparing import Prepared

WAYS = ("alone", "chains", "stages")


def sample(number: int) -> Sample:
    return Sample(Source(Path(f"{number}.jpg"), f"{number}.jpg", ""), str(number), "")


def samples(count: int) -> list[Sample]:
    return [sample(number) for number in range(count)]


class Squares:
    """A job whose pictures are numbers; its result is a text, and each of its steps can be told
    what to do first."""

    def __init__(self, **before: Callable[[Any], None]) -> None:
        self.clock = Clock()
        self.before = before
        self.batches: list[list[int]] = []
        self.begun = 0
        self.threads: set[int] = set()
        self.written: set[int] = set()
        self._lock = threading.Lock()

    def _first(self, step: str, argument: Any) -> None:
        self.before.get(step, lambda argument: None)(argument)

    def prepare(self, sample: Sample) -> Any:
        with self._lock:
            self.begun += 1
        number = int(sample.sample)
        self._first("prepare", number)
        if number % 7 == 6:
            return f"{number} was known"
        tensor = torch.full((1, 2 + number % 2), float(number))
        return Prepared(sample, None, "5ha", tensor, None)  # type: ignore[arg-type]

    def compute(self, network: Any, batch: list[Prepared]) -> list[float]:
        numbers = [int(one.sample.sample) for one in batch]
        with self._lock:
            self.batches.append(numbers)
            self.threads.add(torch.get_num_threads())
        self._first("compute", numbers)
        assert len({one.tensor.shape for one in batch}) == 1
        return [number**2 for number in numbers]

    def finish(self, prepared: Prepared, found: float) -> str:
        self._first("finish", int(prepared.sample.sample))
        with self._lock:
            self.written.add(int(prepared.sample.sample))
        return f"{prepared.sample.sample} -> {found}"

    def failed(self, sample: Sample, error: PictureError) -> str:
        return f"{sample.sample} failed: {error.message}"


def expected(count: int) -> list[str]:
    return [f"{n} was known" if n % 7 == 6 else f"{n} -> {n**2}" for n in range(count)]


def engine(job: Squares, way: str, batch_size: int = 4, **more: Any) -> Engine:
    networks = [object() for _ in range(3 if way == "chains" else 1)]
    return Engine(job, networks, batch_size, way == "stages", helpers=3, **more)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("batch_size", [1, 4, 100])
def test_results_come_in_the_order_of_the_pictures(way: str, batch_size: int) -> None:
    def dawdle(argument: Any) -> None:
        time.sleep(random.random() / 1000)

    job = Squares(prepare=dawdle, compute=dawdle, finish=dawdle)
    assert list(engine(job, way, batch_size).run(samples(45))) == expected(45)
    assert all(len(batch) <= batch_size for batch in job.batches)
    assert sorted(n for batch in job.batches for n in batch) == [n for n in range(45) if n % 7 != 6]


@pytest.mark.parametrize("way", WAYS)
def test_no_pictures(way: str) -> None:
    assert list(engine(Squares(), way).run([])) == []


@pytest.mark.parametrize("way", WAYS)
def test_what_is_in_flight_is_bounded(way: str) -> None:
    """However slow the one who takes the results, and however many pictures there are."""
    job, most = Squares(), 0
    for done, _ in enumerate(engine(job, way).run(map(sample, range(300)))):
        most = max(most, job.begun - done)
        if done % 20 == 0:
            time.sleep(0.005)
    assert most <= {"alone": 4, "chains": 4 * (2 * 3 + 1), "stages": 5 * 4 + 1}[way]


@pytest.mark.parametrize("way", WAYS)
def test_a_bad_picture_costs_its_own_result_and_nothing_else(way: str) -> None:
    def refuse(number: int) -> None:
        if number == 3:
            raise PictureError("3 is torn")

    def run(numbers: list[int]) -> None:
        if 9 in numbers:
            raise PictureError("9 is too small")

    results = list(engine(Squares(prepare=refuse, compute=run), way).run(samples(12)))
    wanted = expected(12)
    wanted[3], wanted[9] = "3 failed: 3 is torn", "9 failed: 9 is too small"
    assert results == wanted


OUT_OF_MEMORY = (
    torch.OutOfMemoryError("CUDA out of memory."),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
    MemoryError(),
)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=["cuda", "cpu", "python"])
def test_a_batch_that_does_not_fit_is_halved_once_and_for_all(way: str, error: Exception) -> None:
    notes: list[str] = []

    def run(numbers: list[int]) -> None:
        if len(numbers) > 2:
            raise error

    job = Squares(compute=run)
    results = list(engine(job, way, 8, say=notes.append).run(samples(96)))
    assert results == expected(96)
    assert len(notes) == 1
    assert re.fullmatch(r"note: a batch of [34] does not fit into memory: halved", notes[0])
    # Each of the workers may find out by itself, for each of the two shapes; nobody twice.
    assert sum(len(batch) > 2 for batch in job.batches) <= (6 if way == "chains" else 2)


@pytest.mark.parametrize("way", WAYS)
def test_a_picture_that_does_not_fit_alone_fails_alone(way: str) -> None:
    def run(numbers: list[int]) -> None:
        if 5 in numbers:
            raise torch.OutOfMemoryError

    results = list(engine(Squares(compute=run), way).run(samples(12)))
    assert results[5] == "5 failed: an input of 1x3 needs more memory than there is"
    assert [*results[:5], *results[6:]] == [*expected(12)[:5], *expected(12)[6:]]


@pytest.mark.parametrize("way", WAYS)
def test_a_network_that_takes_one_batch_size_gets_no_other(way: str) -> None:
    job = Squares(compute=lambda numbers: pytest.fail("size") if len(numbers) != 3 else None)
    assert list(engine(job, way, 5, only=3).run(samples(25))) == expected(25)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("step", ["prepare", "compute", "finish"])
@pytest.mark.parametrize("error", [ZeroDivisionError("a bug"), TargetError("no such class")])
def test_any_other_error_ends_the_run_and_comes_out(way: str, step: str, error: Exception) -> None:
    def fail(argument: Any) -> None:
        if argument == 40 or (isinstance(argument, list) and 40 in argument):
            raise error

    job: Squares = Squares(**{step: fail})
    results: list[str] = []
    with pytest.raises(type(error), match=str(error)):
        results.extend(engine(job, way).run(map(sample, range(10_000))))
    done = [int(result.split()[0]) for result in results]
    assert done == sorted(done)
    assert job.written <= set(done)  # whatever was finished is told
    assert len(done) >= 24
    assert 40 not in done
    assert job.begun < 100


@pytest.mark.parametrize("way", WAYS)
def test_stopping_begins_nothing_new(way: str) -> None:
    job = Squares()
    running = engine(job, way)
    results = []
    for result in running.run(map(sample, range(10_000))):
        results.append(result)
        if len(results) == 10:
            running.stopping.set()
            begun = job.begun
    done = [int(result.split()[0]) for result in results]
    assert done == sorted(done)
    assert done[:10] == list(range(10))
    assert job.written <= set(done)  # one in flight may be dropped, but what is written is told
    assert job.begun - begun <= 3  # one a thread, between the look at the clock and the start
    assert len(results) < 100


class Passes(Squares):
    """A job that needs a thousand passes for one picture."""

    def compute(self, network: Any, batch: list[Prepared]) -> list[float]:
        for _ in range(1000):
            network(torch.ones(1))
        return super().compute(network, batch)


@pytest.mark.parametrize("way", WAYS)
def test_stopping_does_not_wait_for_a_thousand_passes(way: str) -> None:
    class Network(nn.Module):
        passes = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.passes += 1
            if self.passes == 5:
                running.stopping.set()
            return x

    networks = [Network() for _ in range(2 if way == "chains" else 1)]
    running = Engine(Passes(), networks, 4, way == "stages")
    assert list(running.run(samples(12))) == []
    assert min(network.passes for network in networks) < 1000
    assert all(not network._forward_pre_hooks for network in networks)
    assert all(not network._forward_hooks for network in networks)


@pytest.mark.parametrize("way", WAYS)
def test_who_leaves_early_leaves_no_threads_behind(way: str) -> None:
    job = Squares()
    running = engine(job, way)
    with closing(running.run(map(sample, range(10_000)))) as results:
        assert next(results) == expected(1)[0]
    assert job.begun < 100
    assert running.stopping.is_set() == (way != "alone")


def test_workers_compute_in_one_thread_each_and_nobody_else_is_changed() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        job = Squares()
        list(engine(job, "chains").run(samples(45)))
        assert job.threads == {1}
        assert torch.get_num_threads() == 3
        later: list[int] = []
        thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        assert later == [3]
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("way", WAYS)
def test_stages_are_timed_and_no_second_counts_twice(way: str) -> None:
    def sleep(argument: Any) -> None:
        time.sleep(0.005)

    class Timed(Squares):
        def compute(self, network: Any, batch: list[Prepared]) -> list[float]:
            network(torch.ones(1))
            return super().compute(network, batch)

        def finish(self, prepared: Prepared, found: float) -> str:
            with self.clock.stage("render"):
                time.sleep(0.02)
            return super().finish(prepared, found)

    class Network(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            time.sleep(0.03)
            return x

    job = Timed(compute=sleep, finish=sleep)
    networks = [Network() for _ in range(2 if way == "chains" else 1)]
    list(Engine(job, networks, 1, way == "stages").run(samples(4)))
    seconds = job.clock.seconds
    assert list(seconds) == ["forward", "maps", "render", "write"]
    assert seconds["forward"] >= 4 * 0.03
    assert seconds["render"] >= 4 * 0.02
    assert 4 * 0.005 <= seconds["maps"] < seconds["forward"]
    assert 4 * 0.005 <= seconds["write"] < seconds["render"]


def test_a_clock_keeps_threads_apart() -> None:
    clock = Clock()

    def inside() -> None:
        with clock.stage("inner"):
            time.sleep(0.02)

    with clock.stage("outer"):
        thread = threading.Thread(target=inside)
        thread.start()
        thread.join()
    assert clock.seconds["inner"] >= 0.02
    assert clock.seconds["outer"] >= 0.02
