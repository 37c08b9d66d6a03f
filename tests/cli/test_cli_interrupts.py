"""Ctrl-C, SIGTERM and kill -9: real signals to real processes."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from slow_runs import CAPTURE, GRADCAM, PICTURES, POOL, Command, end, read, whole_files


@pytest.mark.parametrize(
    ("sent", "code", "what"),
    [(signal.SIGINT, 130, GRADCAM), (signal.SIGTERM, 143, CAPTURE)],
    ids=["Ctrl-C", "SIGTERM"],
)
def test_an_interrupted_run_keeps_what_is_done_and_the_next_one_goes_on(
    command: Command, capsys: Any, sent: signal.Signals, code: int, what: tuple[str, ...]
) -> None:
    process = command.start(*what, forward=0.1)
    first = read(process, 3)
    process.send_signal(sent)
    returncode, rest, err = end(process)
    printed = first + rest
    done = len(printed) // (2 if what is CAPTURE else 1)
    assert returncode == code
    assert f"stopped: {done} of {PICTURES} pictures are done; --skip-existing goes on" in err
    assert "Traceback" not in err
    assert done < PICTURES
    assert whole_files(command.out) == sorted(printed)
    again, records = command.here(capsys, *what, "--skip-existing")
    assert again == 0
    statuses = [record["status"] for record in records]
    assert (statuses.count("skipped"), statuses.count("ok")) == (done, PICTURES - done)
    assert len(whole_files(command.out)) == PICTURES * (2 if what is CAPTURE else 1)


@pytest.mark.parametrize("lines", [2, 9])
def test_a_killed_run_leaves_no_partial_picture(command: Command, capsys: Any, lines: int) -> None:
    process = command.start(*CAPTURE, forward=0.02)
    read(process, lines)
    process.kill()
    end(process)
    seen = [name for name in whole_files(command.out) if not Path(name).name.startswith(".")]
    assert seen
    code, records = command.here(capsys, *CAPTURE, "--skip-existing")
    assert code == 0
    skipped = [record for record in records if record["status"] == "skipped"]
    kept = {path for record in skipped for path in record["files"].values()}
    assert kept <= set(seen)
    assert len(seen) - len(kept) <= 2 * 4  # a picture in flight a thread, and its tensor
    names = {path.name for path in command.out.iterdir()}
    assert len(names) == 2 * PICTURES + 1
    assert not any(name.startswith(".") for name in names)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
def test_an_interrupted_matrix_is_gone_on_with(
    command: Command, capsys: Any, tmp_path: Path, sent: signal.Signals
) -> None:
    process = command.start(*POOL, "--json", forward=0.1)
    first = read(process, 6)
    process.send_signal(sent)
    code, rest, _ = end(process)
    done = len(first + rest)
    assert code == (130 if sent == signal.SIGINT else -9)
    assert not list(command.out.glob("net*"))  # a matrix is there when it is complete
    again, records = command.here(capsys, *POOL, "--skip-existing")
    assert again == 0
    statuses = [record["status"] for record in records]
    # The last row may have got to the disk and not to the pipe.
    assert done <= statuses.count("skipped") < PICTURES
    assert [record["row"] for record in records] == list(range(PICTURES))
    matrix = np.load(command.out / "net_first_mean.npy")
    assert not [path for path in command.out.iterdir() if path.name.startswith(".")]
    command.out = tmp_path / "at one go"
    assert command.here(capsys, *POOL)[0] == 0
    whole = np.load(command.out / "net_first_mean.npy")
    np.testing.assert_allclose(matrix, whole, atol=1e-6)


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_before_anything_has_begun(
    command: Command, sent: signal.Signals, code: int
) -> None:
    process = command.start(*GRADCAM, build=60)
    deadline = time.monotonic() + 60
    while b"torch" not in Path(f"/proc/{process.pid}/maps").read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(sent)
    returncode, printed, err = end(process)
    assert (returncode, printed, err.strip()) == (code, [], "")


def test_the_second_ctrl_c_does_not_wait(command: Command) -> None:
    process = command.start(*GRADCAM, "-v", forward=1000)
    time.sleep(0.5)
    while len(os.listdir(f"/proc/{process.pid}/task")) < 3:  # until the workers are at it
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=10) == 130
    end(process)
