"""A disk that fills up, a reader that goes away, a bug: one clear end, and whole files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from slow_runs import GRADCAM, PICTURES, Command, read, whole_files

from hookscope.cli.app import run


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_reader_that_goes_away_ends_the_run_in_silence(
    command: Command, flags: tuple[str, ...]
) -> None:
    process = command.start(*GRADCAM, "-q", *flags, forward=0.05)
    read(process, 1)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    err = process.stderr.read()
    assert (process.wait(timeout=60), err) == (0, "")
    assert len(whole_files(command.out)) < PICTURES
    process.stderr.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 80 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=80k", "tmpfs", str(disk)]
    try:
        mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no mount command to make a small file system with")
    if mounted.returncode:
        pytest.skip(f"no small file system can be made here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.mark.parametrize("what", [GRADCAM, ("capture", "-l", "first", "--pool", "flatten")])
def test_a_full_disk_is_one_clear_error(
    command: Command, capsys: Any, small_disk: Path, what: tuple[str, ...]
) -> None:
    command.out = small_disk / "out"
    code = run(command.arguments(*what))
    printed = capsys.readouterr()
    assert code == 1
    assert printed.err.count("no space left on device") == 1
    assert "--skip-existing" in printed.err
    assert f" of {PICTURES} pictures are done" in printed.err
    files = [name for name in whole_files(command.out) if not Path(name).name.startswith(".")]
    assert files == sorted(printed.out.splitlines())
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    again, records = command.here(capsys, *what, "--skip-existing")
    assert again == 0
    assert len(records) == PICTURES
    assert "skipped" in {record["status"] for record in records}


def test_a_class_that_is_not_there_starts_nothing(command: Command, capsys: Any) -> None:
    code = run(command.arguments("gradcam", "-l", "first", "--class", "77"))
    printed = capsys.readouterr()
    assert (code, printed.out) == (2, "")
    assert "77" in printed.err
    assert "Traceback" not in printed.err
    assert whole_files(command.out) == []


def test_a_bug_in_a_worker_ends_the_run(command: Command, monkeypatch: Any) -> None:
    from hookscope.run import pieces

    def broken(*_: Any) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(pieces, "save_picture", broken)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        run(command.arguments(*GRADCAM))
    assert whole_files(command.out) == []


def test_a_failure_stops_a_fail_fast_run(command: Command, capsys: Any, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for path in command.photos.iterdir():
        (photos / path.name).write_bytes(path.read_bytes())
    (photos / "p3.png").write_bytes(b"torn")
    command.photos = photos
    code, records = command.here(capsys, *GRADCAM, "--fail-fast", "--batch-size", "1")
    assert code == 1
    assert [record["sample"] for record in records[:4]] == ["p0", "p1", "p2", "p3"]
    assert len(records) < PICTURES
    done = [record for record in records if record["status"] == "ok"]
    assert whole_files(command.out) == sorted(record["files"]["overlay"] for record in done)


ORDER = """
import os, sys
import hookscope.cli.app as app
assert "torch" not in sys.modules
os.environ.pop("OMP_WAIT_POLICY", None)

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            print(os.environ.get("OMP_WAIT_POLICY"), flush=True)
            os._exit(0)

sys.meta_path.insert(0, Watch())
app.run(["gradcam", sys.argv[1], "-w", "none"])
"""


def test_waiting_threads_do_not_spin(slow_photos: Path) -> None:
    """The variable must be there before torch is: it is read once."""
    command = [sys.executable, "-c", ORDER, str(slow_photos)]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    assert ran.stdout + ran.stderr == "PASSIVE\n"
