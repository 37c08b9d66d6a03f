"""Manifest lines are whole or absent, whoever writes at the same time, and the last one wins."""

from __future__ import annotations

import json
import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hookscope.output.manifest import ManifestReader, ManifestWriter, manifest_line, manifest_name
from hookscope.output.provenance import Fingerprint

PRINT = Fingerprint("5ha", "cat.jpg", "d1gest", {"layer": "layer4"})


def line(
    file: str = "x.jpg", size: int = 10, made: Fingerprint = PRINT, **more: Any
) -> dict[str, Any]:
    return manifest_line({"files": {"overlay": file}, **more}, made, {"overlay": size})


def write(path: Path, *lines: dict[str, Any]) -> None:
    writer = ManifestWriter(path)
    for one in lines:
        writer.append(one)
    writer.close()


def test_names() -> None:
    assert manifest_name(None) == "manifest.jsonl"
    assert manifest_name((2, 8)) == "manifest.shard2-of-8.jsonl"


def test_a_line_is_there_at_once(tmp_path: Path) -> None:
    writer = ManifestWriter(tmp_path / "m.jsonl")
    assert not (tmp_path / "m.jsonl").exists()
    for number in range(3):
        writer.append({"number": number, "image": "猫"})
        lines = (tmp_path / "m.jsonl").read_text("utf-8").splitlines()
        assert json.loads(lines[number]) == {"number": number, "image": "猫"}
    writer.close()


def test_a_torn_last_line_goes_and_a_whole_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_bytes(b'{"a": 1}\n{"b": ' + b"2" * 100_000)
    write(path, {"c": 3})
    assert path.read_bytes() == b'{"a": 1}\n{"c": 3}\n'
    path.write_bytes(b'{"a": 1}\n{"b": 2}')
    write(path, {"c": 3})
    assert path.read_bytes() == b'{"a": 1}\n{"b": 2}\n{"c": 3}\n'
    path.write_bytes(b'{"b": ')
    write(path, {"c": 3})
    assert path.read_bytes() == b'{"c": 3}\n'


def test_threads_do_not_tear_each_others_lines(tmp_path: Path) -> None:
    writer = ManifestWriter(tmp_path / "m.jsonl")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: writer.append({"number": n, "text": "x" * n * 10}), range(400)))
    writer.close()
    lines = [json.loads(text) for text in (tmp_path / "m.jsonl").read_text().splitlines()]
    assert sorted(one["number"] for one in lines) == list(range(400))


def _many(path: Path, start: int) -> None:
    write(path, *({"number": start + n, "text": "x" * 5000} for n in range(100)))


def test_processes_do_not_tear_each_others_lines(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    path = tmp_path / "m.jsonl"
    workers = [context.Process(target=_many, args=(path, start)) for start in (0, 100)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    assert sorted(one["number"] for one in lines) == list(range(200))


def test_a_line_that_does_not_fit_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.jsonl"
    write(path, {"a": 1})
    writer = ManifestWriter(path)
    real, calls = os.write, []

    def full(file: int, data: bytes) -> int:
        calls.append(len(data))
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return real(file, data[:4])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            writer.append({"b": 2})
    assert len(calls) == 2
    assert path.read_bytes() == b'{"a": 1}\n'
    writer.append({"b": 2})
    writer.close()
    assert path.read_bytes() == b'{"a": 1}\n{"b": 2}\n'


def test_a_files_origin_is_its_last_line(tmp_path: Path) -> None:
    other = Fingerprint("0ther", "dog.jpg", "d1gest", {"layer": "layer4"})
    write(tmp_path / "manifest.jsonl", line(made=other), line(score=0.5), line("y.jpg", made=other))
    origin = ManifestReader(tmp_path).origin("x.jpg", 10)
    assert origin is not None
    assert (origin.picture_sha, origin.picture_name, origin.key) == ("5ha", "cat.jpg", PRINT.key)
    assert origin.record == {"files": {"overlay": "x.jpg"}, "score": 0.5}
    assert ManifestReader(tmp_path).origin("z.jpg", 10) is None


def test_a_file_of_another_length_is_not_the_one_noted(tmp_path: Path) -> None:
    write(tmp_path / "manifest.jsonl", line(size=10))
    assert ManifestReader(tmp_path).origin("x.jpg", 9) is None


@pytest.mark.parametrize(
    "bad", ["", "torn", "[]", "3", "{}", '{"files": {"overlay": "x.jpg"}, "provenance": {}}']
)
def test_lines_that_are_not_ours_are_passed_over(tmp_path: Path, bad: str) -> None:
    path = tmp_path / "manifest.jsonl"
    text = json.dumps(line())
    path.write_text(f"{bad}\n{text}\n{bad}\n" + text[:-9].replace("5ha", "tor"))
    origin = ManifestReader(tmp_path).origin("x.jpg", 10)
    assert origin is not None
    assert origin.picture_sha == "5ha"


def test_other_shards_lines_count_and_the_later_file_wins(tmp_path: Path) -> None:
    old, new = tmp_path / manifest_name((0, 2)), tmp_path / manifest_name((1, 2))
    write(old, line(number=0), line("y.jpg", number=0))
    write(new, line(number=1))
    for path, seconds in ((old, 2000), (new, 1000)):
        os.utime(path, (seconds, seconds))
    found = ManifestReader(tmp_path).origin("x.jpg", 10)
    assert found is not None
    assert found.record["number"] == 0
    os.utime(new, (3000, 3000))
    reader = ManifestReader(tmp_path)
    numbers = [
        origin and origin.record["number"]
        for origin in (reader.origin("x.jpg", 10), reader.origin("y.jpg", 10))
    ]
    assert numbers == [1, 0]


def test_the_reader_sees_what_others_write_later(tmp_path: Path) -> None:
    reader = ManifestReader(tmp_path)
    assert reader.origin("x.jpg", 10) is None
    writer = ManifestWriter(tmp_path / "manifest.jsonl")
    writer.append(line())
    assert reader.origin("x.jpg", 10)
    writer.append(line(size=11))
    assert reader.origin("x.jpg", 11)
    writer.close()
    write(tmp_path / manifest_name((1, 2)), line("y.jpg"))
    assert reader.origin("y.jpg", 10)


def test_lines_of_a_picture_come_in_order_and_once_a_file(tmp_path: Path) -> None:
    other = Fingerprint("0ther", "dog.jpg", "d1gest", {})
    write(
        tmp_path / "manifest.jsonl",
        *(
            line("a.png", n=1),
            line("b.png", n=2),
            line("c.png", n=3, made=other),
            line("a.png", n=4),
        ),
    )
    found = ManifestReader(tmp_path).lines("5ha")
    assert [one["n"] for one in found] == [2, 4]
    assert found[0]["provenance"]["settings"] == {"layer": "layer4"}
    assert found[0]["provenance"]["weights"] == "d1gest"
    assert ManifestReader(tmp_path).lines("n0ne") == []
