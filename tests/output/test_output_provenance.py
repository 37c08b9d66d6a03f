"""What a PNG was made from reads back from the file, whoever rewrote it, without its pixels."""

from __future__ import annotations

import json
import os
import struct
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from hookscope import __version__
from hookscope.output.provenance import Fingerprint, made_portable, read_png, relative, text_chunk

PRINT = Fingerprint(
    "5ha", "kätzchen.jpg", "d1gest", {"cmap": "turbo", "alpha": 0.1, "crop": (2, 3)}
)
RECORD = {
    "image": "/home/me/photos/kätzchen.jpg",
    "sample": "kätzchen",
    "score": 0.1,
    "files": {"overlay": "out/a/x.png"},
}
OUT = Path("out")


def saved(path: Path, info: PngInfo | None = None, size: int = 8) -> Path:
    Image.effect_noise((size, size), 50).save(path, pnginfo=info)
    return path


def carrying(**how: Any) -> PngInfo:
    info = PngInfo()
    info.add_text("Software", "something else")
    for keyword, text in text_chunk(PRINT, made_portable(RECORD, OUT)).items():
        info.add_text(keyword, text, **how)
    return info


def test_the_chunk_says_it_all_and_nothing_of_this_machine() -> None:
    document = json.loads(text_chunk(PRINT, made_portable(RECORD, OUT))["hookscope"])
    assert document == {
        "version": __version__,
        "settings": {"cmap": "turbo", "alpha": 0.1, "crop": [2, 3]},
        "picture": {"name": "kätzchen.jpg", "sha256": "5ha"},
        "weights": "d1gest",
        "record": {**RECORD, "image": "kätzchen.jpg", "files": {"overlay": "a/x.png"}},
    }


def test_the_same_command_gives_the_same_text_wherever_it_writes() -> None:
    elsewhere = {**RECORD, "image": "kätzchen.jpg", "files": {"overlay": "/srv/o/a/x.png"}}
    assert text_chunk(PRINT, made_portable(RECORD, OUT)) == text_chunk(
        PRINT, made_portable(elsewhere, Path("/srv/o"))
    )


@pytest.mark.parametrize("how", [{}, {"zip": True}], ids=["plain", "zipped"])
def test_it_reads_back(tmp_path: Path, how: dict[str, bool]) -> None:
    origin = read_png(saved(tmp_path / "x.png", carrying(**how)))
    assert origin is not None
    assert origin.key == PRINT.key
    assert origin.picture_sha == "5ha"
    assert origin.picture_name == "kätzchen.jpg"
    assert origin.record["score"] == 0.1
    assert origin.whole


@pytest.mark.parametrize("zipped", [False, True])
def test_it_reads_back_from_an_international_chunk(tmp_path: Path, zipped: bool) -> None:
    info = PngInfo()
    info.add_itxt(
        "hookscope",
        text_chunk(PRINT, made_portable(RECORD, OUT))["hookscope"],
        "en",
        "k",
        zip=zipped,
    )
    origin = read_png(saved(tmp_path / "x.png", info))
    assert origin is not None
    assert origin.key == PRINT.key


def test_it_reads_back_from_behind_the_pixels(tmp_path: Path) -> None:
    info = PngInfo()
    text = text_chunk(PRINT, made_portable(RECORD, OUT))["hookscope"].encode()
    info.add(b"tEXt", b"hookscope\0" + text, after_idat=True)
    assert read_png(saved(tmp_path / "x.png", info)) == read_png(
        saved(tmp_path / "y.png", carrying())
    )


@pytest.mark.parametrize(
    "change",
    [
        {"picture_sha": "0ther"},
        {"weights_digest": "0ther"},
        {"settings": {**PRINT.settings, "alpha": 0.10000000000000002}},
        {"settings": {"cmap": "turbo", "alpha": 0.1}},
        {"settings": {**PRINT.settings, "more": None}},
    ],
)
def test_the_key_tells_pictures_weights_and_settings_apart(change: dict[str, Any]) -> None:
    assert replace(PRINT, **change).key != PRINT.key


def test_the_key_does_not_hang_on_order_name_or_python_types() -> None:
    settings = {"crop": [2, 3], "alpha": 0.1, "cmap": "turbo"}
    assert replace(PRINT, settings=settings, picture_name="copy.jpg").key == PRINT.key
    assert (
        replace(PRINT, settings={10: 1, 2: 1}).key == replace(PRINT, settings={"2": 1, "10": 1}).key
    )
    nan = replace(PRINT, settings={"scale": float("nan")})
    assert nan.key == replace(PRINT, settings={"scale": None}).key


def test_foreign_files_have_no_origin(tmp_path: Path) -> None:
    assert read_png(saved(tmp_path / "plain.png")) is None
    other = PngInfo()
    other.add_text("hookscope", "not json")
    assert read_png(saved(tmp_path / "other.png", other)) is None
    other.add_text("hookscope", "[]")
    assert read_png(saved(tmp_path / "list.png", other)) is None
    for name, content in {
        "text": b"hookscope\0{}",
        "empty": b"",
        "head": b"\x89PNG\r\n\x1a\n",
    }.items():
        (tmp_path / name).write_bytes(content)
        assert read_png(tmp_path / name) is None


def test_a_cut_or_changed_file_is_noticed(tmp_path: Path) -> None:
    whole = saved(tmp_path / "x.png", carrying(), size=64).read_bytes()
    (tmp_path / "cut.png").write_bytes(whole[:-20])
    cut = read_png(tmp_path / "cut.png")
    assert cut is not None
    assert not cut.whole
    (tmp_path / "changed.png").write_bytes(whole.replace(b"5ha", b"5hb"))
    assert read_png(tmp_path / "changed.png") is None
    for end in [*range(0, len(whole), 101), *range(len(whole) - 14, len(whole))]:
        (tmp_path / "torn.png").write_bytes(whole[:end])
        origin = read_png(tmp_path / "torn.png")
        assert origin is None or not origin.whole


def test_pixels_are_passed_over_unread(tmp_path: Path) -> None:
    """The first chunk of pixels is a hole of 64 MiB that no decoder would take."""
    text = text_chunk(PRINT, made_portable(RECORD, OUT))["hookscope"].encode()
    info = PngInfo()
    info.add(b"tEXt", b"hookscope\0" + text, after_idat=True)
    head, pixels, tail = saved(tmp_path / "x.png", info).read_bytes().partition(b"IDAT")
    hole = 64 << 20
    with open(tmp_path / "x.png", "wb") as file:
        file.write(head[:-4] + struct.pack(">I", hole) + b"IDAT")
        file.seek(hole + 4, os.SEEK_CUR)
        file.write(head[-4:] + pixels + tail)
    tracemalloc.start()
    try:
        origin = read_png(tmp_path / "x.png")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert origin is not None
    assert origin.key == PRINT.key


@pytest.mark.parametrize(
    ("path", "out", "seen"),
    [
        ("out/a/x.png", "out", "a/x.png"),
        ("x.png", ".", "x.png"),
        ("photos/cat.jpg", "out", "../photos/cat.jpg"),
        ("photos/cat.jpg", "photos/out", "../cat.jpg"),
        ("/data/cat.jpg", "/data/out/deep", "../../cat.jpg"),
    ],
)
def test_paths_are_seen_from_the_output_folder(path: str, out: str, seen: str) -> None:
    assert relative(path, Path(out)) == seen


def test_a_path_seen_from_a_linked_output_folder_leads_to_the_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "far/away").mkdir(parents=True)
    (tmp_path / "out").symlink_to("far/away")
    (tmp_path / "cat.jpg").write_bytes(b"cat")
    inside = made_portable({"image": "cat.jpg", "files": {"grid": "out/x.png"}}, Path("out"))
    assert (Path("out") / inside["image"]).read_bytes() == b"cat"
    assert inside["files"] == {"grid": "x.png"}
