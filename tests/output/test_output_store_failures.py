"""Full disks, folders that take nothing, killed runs and what they leave."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hookscope.errors import OutputError
from hookscope.output.parts import part_name, remove_stale
from hookscope.output.provenance import Fingerprint
from hookscope.output.store import FolderLostError, Piece, Store

PRINT = Fingerprint("5ha", "cat.jpg", "d1gest", {})


def raw(name: str, content: bytes = b"tensor") -> Piece:
    return Piece(name, name, lambda file, text: file.write(content))


def deliver(store: Store, *pieces: Piece) -> dict[str, Any]:
    return store.deliver({"image": "cat.jpg", "sample": "cat", "status": "ok"}, pieces, PRINT)


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("out", ["file", "file/below", "file/far/below"])
def test_out_that_is_a_file(tmp_path: Path, out: str, dry_run: bool) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    with pytest.raises(OutputError, match=r"--out .*(is a file|not a directory)") as error:
        Store(tmp_path / out, dry_run=dry_run)
    assert error.value.hint
    assert (tmp_path / "file").read_bytes() == b"mine"


def test_a_manifest_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "manifest.jsonl").mkdir()
    with pytest.raises(OutputError, match="cannot be written to: is a directory"):
        Store(tmp_path)


@pytest.mark.skipif(os.name == "posix" and os.geteuid() == 0, reason="root may write anywhere")
@pytest.mark.parametrize("dry_run", [False, True])
def test_an_unwritable_folder(tmp_path: Path, dry_run: bool) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(OutputError, match="permission denied"):
            Store(tmp_path / "out", dry_run=dry_run)
        with pytest.raises(OutputError, match="permission denied"):
            Store(tmp_path, dry_run=dry_run)
    finally:
        tmp_path.chmod(0o700)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB; ``mount`` is left for what the test wants of it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no mount command to make a small file system with")
    if mounted.returncode:
        pytest.skip(f"no small file system can be made here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def lines(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "manifest.jsonl").read_text().splitlines()]


def fill(store: Store) -> None:
    for number in range(1000):
        deliver(store, raw(f"{number}.npy", b"x" * 9000), raw(f"{number}.npz", b"x" * 9000))


def test_a_full_disk_is_one_clear_error_and_leaves_whole_files(small_disk: Path) -> None:
    out = small_disk / "out"
    store = Store(out)
    with pytest.raises(FolderLostError, match="no space left on device") as error:
        fill(store)
    assert "--skip-existing" in error.value.hint
    store.close()
    noted = lines(out)
    assert 5 < len(noted) < 20
    written = {path for path in out.iterdir() if path.name != "manifest.jsonl"}
    assert {path.name for path in written} == {name for line in noted for name in line["files"]}
    assert {path.stat().st_size for path in written} == {9000}


def test_a_line_that_the_disk_has_no_room_for_takes_its_files_along(small_disk: Path) -> None:
    store = Store(small_disk)
    deliver(store, raw("a.npy"))
    with open(small_disk / "filler", "wb", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(b"x" * 1024)
    noted = lines(small_disk)
    long = {"image": "cat.jpg", "sample": "cat", "reason": "x" * 50_000}
    with pytest.raises(FolderLostError, match=r"manifest\.jsonl cannot be written: no space left"):
        store.deliver(long, [raw("b.npy", b"")], PRINT)
    store.close()
    assert lines(small_disk) == noted
    assert sorted(os.listdir(small_disk)) == ["a.npy", "filler", "manifest.jsonl"]


def test_a_folder_that_turns_read_only_is_lost(small_disk: Path) -> None:
    store = Store(small_disk)
    deliver(store, raw("a.npy"))
    store.close()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(FolderLostError, match="read-only file system"):
        deliver(store, raw("b.npy"))
    with pytest.raises(OutputError, match="read-only file system"):
        Store(small_disk)


def test_parts_of_the_dead_go_and_those_of_the_living_stay(tmp_path: Path) -> None:
    living = part_name("a.png")
    dead = subprocess.run(
        [
            sys.executable,
            "-c",
            "from hookscope.output.parts import part_name; print(part_name('b'))",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    machine, pid, started, number = living.removesuffix(".part").rpartition(".")[2].split("-")
    reused = f".c.{machine}-{pid}-{int(started, 16) - 5:x}-{number}.part"
    elsewhere = f".d.{'0' * 8}-{pid}-{started}-{number}.part"
    forgotten = f".e.{'0' * 8}-{pid}-{started}-{number}.part"
    others = {".anything.png.part", ".part"}
    mine = {"x.part", ".hidden", ".hidden.part.png"}
    for name in {living, dead, reused, elsewhere, forgotten} | others | mine:
        (tmp_path / name).write_bytes(b"")
    os.utime(tmp_path / forgotten, (time.time() - 7200,) * 2)
    (tmp_path / ".folder.part").mkdir()
    remove_stale(tmp_path)
    gone = {dead, forgotten} | others
    if os.path.exists("/proc/self/stat"):  # where a process number in new use can be told
        gone.add(reused)
    expected = {living, dead, reused, elsewhere, forgotten} | others | mine | {".folder.part"}
    assert set(os.listdir(tmp_path)) == expected - gone


def test_a_part_name_is_short_hidden_and_new_each_time() -> None:
    names = [part_name("a/" + "猫" * 66 + ".png") for _ in range(3)]
    assert len(set(names)) == 3
    for name in names:
        folder, _, part = name.rpartition("/")
        assert folder == "a"
        assert part.startswith(".猫")
        assert part.endswith(".part")
        assert len(part.encode()) < 143  # what an encrypted folder takes
        assert socket.gethostname() not in part


def test_each_folder_is_swept_when_the_run_comes_to_it(tmp_path: Path) -> None:
    for folder in ("", "a", "b"):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / ".x.png.part").write_bytes(b"half")
    Store(tmp_path, dry_run=True).decide("a/x.npy", PRINT)
    assert (tmp_path / ".x.png.part").exists()
    store = Store(tmp_path)
    assert not (tmp_path / ".x.png.part").exists()
    store.decide("a/x.npy", PRINT)
    assert not (tmp_path / "a/.x.png.part").exists()
    assert (tmp_path / "b/.x.png.part").exists()


ENDLESS = """
import sys
from pathlib import Path
from hookscope.output.provenance import Fingerprint
from hookscope.output.store import Piece, Store

store = Store(Path(sys.argv[1]), policy="replace")
content = b"x" * 300_000
for turn in range(10_000):
    made = Fingerprint("5ha", "cat.jpg", "d1gest", {"turn": turn})
    for number in range(5):
        piece = Piece("tensor", f"{number}.npy", lambda file, text: file.write(content))
        store.deliver({"image": "cat.jpg", "sample": "cat", "status": "ok"}, [piece], made)
    print(turn, flush=True)
"""


@pytest.mark.parametrize("after", [1, 3, 7])
def test_a_killed_run_leaves_whole_files_and_the_next_one_goes_on(
    tmp_path: Path, after: int
) -> None:
    out = tmp_path / "out"
    run = subprocess.Popen([sys.executable, "-c", ENDLESS, str(out)], stdout=subprocess.PIPE)
    assert run.stdout is not None
    for _ in range(after):
        run.stdout.readline()
    time.sleep(0.001 * after)
    run.send_signal(signal.SIGKILL)
    run.wait()
    run.stdout.close()
    visible = [name for name in os.listdir(out) if name.endswith(".npy")]
    assert {os.stat(out / name).st_size for name in visible} == {300_000}
    turns: dict[str, int] = {}
    for raw_line in (out / "manifest.jsonl").read_bytes().split(b"\n"):
        try:
            line = json.loads(raw_line)
        except ValueError:
            continue
        turns[line["files"]["tensor"]] = line["provenance"]["settings"]["turn"]
    store = Store(out, policy="skip")
    assert not [name for name in os.listdir(out) if name.endswith(".part")]
    for name in visible:  # every file is claimed, by the run that made it
        made = Fingerprint("5ha", "cat.jpg", "d1gest", {"turn": turns[name]})
        assert store.decide(name, made) == "skip"
    for number in range(5):  # and the missing one, if any, can be made
        deliver(store, raw(f"{number}.npy"))
    store.close()
