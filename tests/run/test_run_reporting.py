"""The report shows what the folder holds by now, whichever runs have made it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from hookscope.errors import OutputError
from hookscope.output.manifest import manifest_line
from hookscope.output.provenance import Fingerprint
from hookscope.output.records import error_record, gradcam_record
from hookscope.output.store import Piece, Store
from hookscope.run.reporting import latest, report_entries, write_report

TILES = {"left": 0, "top": 20, "cell": [9, 9], "tile": [7, 7], "cols": 3, "count": 5}


def record(image: str = "a.png", files: Mapping[str, str] | None = None, **fields: Any) -> Any:
    usual = {"model": "net", "weights": None, "layer": "layer4", "call": 1, "preprocess": None}
    usual |= {"device": "cpu", "method": "gradcam", "class_index": 1, "sample": image}
    return gradcam_record(image=image, files=files or {}, **{**usual, **fields})


def line(*names: str, setting: int = 0, about: Any = None, **fields: Any) -> dict[str, Any]:
    """A manifest's line whose files, named kind:name, came with it."""
    files = dict(name.split(":") for name in names)
    made = Fingerprint("5ha", "a.png", "digest", {"setting": setting})
    return manifest_line(record(files=files, **fields), made, dict.fromkeys(files, 3), about)


def failure(**fields: Any) -> dict[str, Any]:
    return error_record("gradcam", error="no picture", **{"model": "net", **fields})


def scores(lines: list[dict[str, Any]]) -> list[Any]:
    return [one.record["score"] for one in latest(lines)]


def put(out: Path, *lines: dict[str, Any], manifest: str = "manifest.jsonl") -> None:
    with open(out / manifest, "a") as file:
        for one in lines:
            file.write(json.dumps(one) + "\n")
            for name in one["files"].values():
                (out / name).write_bytes(b"png")


def test_the_last_line_for_a_file_wins() -> None:
    lines = [line("overlay:a.png", score=1), line("overlay:b.png", score=2)]
    assert scores([*lines, line("overlay:a.png", score=3)]) == [2, 3]


def test_a_line_keeps_the_files_that_were_not_made_again() -> None:
    lines = [line("overlay:a.png", "heatmap:h.png", score=1), line("overlay:a.png", score=2)]
    found = latest(lines)
    assert [one.record["files"] for one in found] == [{"heatmap": "h.png"}, {"overlay": "a.png"}]


def test_a_sheet_of_many_classes_belongs_to_all_of_them() -> None:
    def run(score: int) -> list[dict[str, Any]]:
        first = line("sheet:s.png", class_index=1, score=score)
        others = [
            {**line(class_index=rank, score=score + rank), "files": {"sheet": "s.png"}}
            for rank in (2, 3)
        ]
        return [first, *others]

    assert scores(run(10)) == [10, 12, 13]
    assert scores(run(10) + run(20)) == [20, 22, 23]
    # A later run with one class only has drawn the sheet again, without the others.
    assert scores(run(10) + run(20)[:1]) == [20]


def test_a_failure_that_was_made_good_is_forgotten() -> None:
    bad, other = failure(image="a.png"), failure(image="b.png")
    layer = failure(layer="layer4", call=None)
    assert len(latest([bad, other, layer])) == 3
    kept = latest([bad, other, layer, line("overlay:a.png", image="a.png")])
    assert [(one.record["status"], one.record["image"]) for one in kept] == [
        ("error", "b.png"),
        ("ok", "a.png"),
    ]
    assert len(latest([line("overlay:a.png", image="a.png"), bad])) == 2, "both are true"
    assert len(latest([bad, bad, bad])) == 1


def test_records_without_files_are_told_once() -> None:
    lines = [record(score=1), record(score=2), record(score=3, layer="layer1")]
    assert scores(lines) == [2, 3]


def test_tiles_outlive_a_line_that_did_not_draw_again() -> None:
    drawn = line("grid:g.png", about={"grid": {"tiles": TILES}})
    skipped = line("grid:g.png", "tensor:t.npy")
    assert latest([drawn, skipped])[0].tiles == {"grid": TILES}
    assert latest([drawn, line("grid:g.png", setting=1)])[0].tiles == {}


def test_all_shards_and_earlier_runs_are_there(tmp_path: Path) -> None:
    put(tmp_path, line("overlay:a.png", image="a.png"))
    put(tmp_path, line("overlay:b.png", image="b.png"), manifest="manifest.shard1-of-2.jsonl")
    put(tmp_path, line("overlay:c.png", image="c.png"), manifest="manifest.shard2-of-2.jsonl")
    images = {entry.record["image"] for entry in report_entries(tmp_path)}
    assert images == {"a.png", "b.png", "c.png"}


def test_of_two_manifests_the_one_written_to_last_wins(tmp_path: Path) -> None:
    put(tmp_path, line("overlay:a.png", score=1))
    put(tmp_path, line("overlay:a.png", score=2), manifest="manifest.shard1-of-2.jsonl")
    os.utime(tmp_path / "manifest.jsonl", (1, 1))
    assert [entry.record["score"] for entry in report_entries(tmp_path)] == [2]


def test_torn_and_foreign_lines_are_passed_over(tmp_path: Path) -> None:
    put(tmp_path, line("overlay:a.png"))
    with open(tmp_path / "manifest.jsonl", "a") as file:
        file.write('nonsense\n[1]\n{}\n{"command": "gradcam", "status": "ok", "files": {"a": 1}}\n')
        file.write('{"command": "gradcam", "status": "ok", "files": {}, "image": 7}\n')
        file.write('{"command": "gradcam", "status": "error", "files": {}, "provenance": 3}\n')
        file.write('{"command": "gradcam", "sta')
    assert [entry.record["status"] for entry in report_entries(tmp_path)] == ["ok", "error"]
    write_report(tmp_path)


def test_files_that_were_deleted_are_not_shown(tmp_path: Path) -> None:
    put(tmp_path, line("overlay:a.png"), line("overlay:b.png", "heatmap:c.png"))
    (tmp_path / "a.png").unlink()
    (tmp_path / "c.png").unlink()
    assert [entry.record["files"] for entry in report_entries(tmp_path)] == [{"overlay": "b.png"}]


def test_what_the_store_writes_is_what_the_report_shows(tmp_path: Path) -> None:
    about: dict[str, Any] = {}

    def draw(file: BinaryIO, text: Mapping[str, str]) -> None:
        file.write(b"picture")
        about["tiles"] = TILES

    store = Store(tmp_path / "out")
    made = Fingerprint("5ha", "a.png", "digest", {})
    image = str(tmp_path / "photos" / "a.png")
    store.deliver(record(image), [Piece("grid", "sub/g.jpg", draw, about)], made)
    store.append(failure(image=str(tmp_path / "photos" / "b.png")))
    store.close()
    grid, bad = report_entries(tmp_path / "out")
    assert grid.record["files"] == {"grid": "sub/g.jpg"}
    assert grid.record["image"] == "../photos/a.png"
    assert grid.tiles == {"grid": TILES}
    assert bad.record["error"] == "no picture"


def test_the_page_is_written_whole_and_again(tmp_path: Path) -> None:
    put(tmp_path, line("overlay:a.png"))
    path = write_report(tmp_path)
    assert path == tmp_path / "index.html"
    assert f"<title>{tmp_path.name}" in path.read_text()
    first = path.read_bytes()
    put(tmp_path, line("overlay:b.png"))
    assert write_report(tmp_path).read_bytes() != first
    assert sorted(os.listdir(tmp_path)) == ["a.png", "b.png", "index.html", "manifest.jsonl"]


def test_a_page_of_somebody_else_is_kept(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<!doctype html><p>my homepage, made with hookscope")
    with pytest.raises(OutputError, match=r"index\.html was not made by hookscope"):
        write_report(tmp_path)
    assert "homepage" in (tmp_path / "index.html").read_text()
    write_report(tmp_path, force=True)
    assert "homepage" not in (tmp_path / "index.html").read_text()


def test_nothing_is_left_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "index.html").mkdir()
    with pytest.raises(OutputError, match=re.escape(str(tmp_path / "index.html"))):
        write_report(tmp_path, force=True)
    assert os.listdir(tmp_path) == ["index.html"]
    (tmp_path / "index.html").rmdir()
    (tmp_path / "index.html").touch()
    with pytest.raises(OutputError, match="cannot be written"):
        write_report(tmp_path / "index.html" / "none")
