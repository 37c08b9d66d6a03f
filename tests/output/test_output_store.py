"""The rules for what is there already, and how files and lines get into the folder."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from hookscope.errors import OutputError
from hookscope.images.inputs import Source
from hookscope.output import store as store_module
from hookscope.output.names import Sample
from hookscope.output.provenance import Fingerprint, read_png
from hookscope.output.records import capture_record
from hookscope.output.store import Piece, Policy, Store

PRINT = Fingerprint("5ha", "cat.jpg", "d1gest", {"layer": "layer4", "class_index": 281})
OTHER_PICTURE = replace(PRINT, picture_sha="0ther", picture_name="dog.jpg")
OTHER_WEIGHTS = replace(PRINT, weights_digest="0ther")
OTHER_SETTINGS = replace(PRINT, settings={"layer": "layer3", "class_index": 281})
CAT = Sample(Source("photos/cat.jpg"), "cat", "")


def png(name: str = "x.png", value: int = 0, kind: str = "grid") -> Piece:
    def write(file: BinaryIO, text: Mapping[str, str]) -> None:
        info = PngInfo()
        for keyword, content in text.items():
            info.add_text(keyword, content)
        Image.new("L", (4, 4), value).save(file, "png", pnginfo=info)

    return Piece(kind, name, write)


def raw(name: str = "x.npy", content: bytes = b"tensor", kind: str = "tensor") -> Piece:
    return Piece(kind, name, lambda file, text: file.write(content))


def record(sample: str = "cat", **more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "image": "photos/cat.jpg",
        "sample": sample,
        "model": "resnet18",
        "weights": None,
        "layer": "layer4",
        "call": 1,
        "preprocess": None,
        "device": "cpu",
        "files": {},
    }
    return capture_record(**(fields | more))


def made(out: Path, *pieces: Piece, fingerprint: Fingerprint = PRINT) -> dict[str, Any]:
    store = Store(out)
    try:
        return store.deliver(record(), pieces, fingerprint)
    finally:
        store.close()


def lines(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "manifest.jsonl").read_text("utf-8").splitlines()]


def left(out: Path) -> dict[str, bytes]:
    """Every file but the manifests, hidden ones included."""
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in out.rglob("*")
        if path.is_file() and path.suffix != ".jsonl"
    }


def inode(path: Path) -> int | None:
    return path.stat().st_ino if path.exists() else None


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


# --- the rules -----------------------------------------------------------------------------------


@pytest.mark.parametrize("piece", [png(), raw()], ids=["png", "npy"])
@pytest.mark.parametrize(
    ("before", "policy", "force", "decision"),
    [
        (None, "replace", False, "write"),
        (None, "skip", False, "write"),
        (None, "no-clobber", False, "write"),
        (PRINT, "replace", False, "write"),
        (PRINT, "skip", False, "skip"),
        (PRINT, "no-clobber", False, OutputError),
        (PRINT, "no-clobber", True, OutputError),
        (PRINT, "skip-no-clobber", False, "skip"),
        (PRINT, "skip", True, "skip"),
        (OTHER_WEIGHTS, "replace", False, "write"),
        (OTHER_WEIGHTS, "skip", False, "write"),
        (OTHER_WEIGHTS, "skip-no-clobber", False, OutputError),
        (OTHER_SETTINGS, "replace", False, "write"),
        (OTHER_SETTINGS, "skip", False, "write"),
        (OTHER_PICTURE, "replace", False, OutputError),
        (OTHER_PICTURE, "skip", False, OutputError),
        (OTHER_PICTURE, "replace", True, "write"),
        (OTHER_PICTURE, "skip", True, "write"),
        ("alien", "replace", False, OutputError),
        ("alien", "skip", False, OutputError),
        ("alien", "skip", True, "write"),
        ("alien", "replace", True, "write"),
    ],
)
def test_rules(
    out: Path, piece: Piece, before: Any, policy: Policy, force: bool, decision: Any
) -> None:
    if before == "alien":
        out.mkdir()
        (out / piece.name).write_bytes(b"my own")
    elif before:
        made(out, piece, fingerprint=before)
    old, number = left(out), inode(out / piece.name)
    store = Store(out, policy=policy, force=force)
    if isinstance(decision, str):
        assert store.decide(piece.name, PRINT) == decision
        result = store.deliver(record(), [piece], PRINT)
        assert result["status"] == ("skipped" if decision == "skip" else "ok")
        assert (inode(out / piece.name) == number) is (decision == "skip")
        assert b"my own" not in left(out).values()
    else:
        with pytest.raises(decision) as error:
            store.decide(piece.name, PRINT)
        assert str(out / piece.name) in error.value.message
        assert error.value.hint
        with pytest.raises(decision):
            store.deliver(record(), [piece], PRINT)
        assert left(out) == old
    store.close()


def test_the_error_names_the_other_picture(out: Path) -> None:
    made(out, png(), fingerprint=OTHER_PICTURE)
    with pytest.raises(OutputError, match=r"dog\.jpg.*\n--force"):
        Store(out).decide("x.png", PRINT)


def test_a_changed_file_is_no_longer_ours(out: Path) -> None:
    made(out, raw())
    (out / "x.npy").write_bytes(b"edited by somebody")
    with pytest.raises(OutputError, match="not made by hookscope"):
        Store(out).decide("x.npy", PRINT)


def test_a_cut_png_is_not_skipped_but_made_again(out: Path) -> None:
    made(out, png())
    (out / "x.png").write_bytes((out / "x.png").read_bytes()[:-5])
    assert Store(out, policy="skip").decide("x.png", PRINT) == "write"


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_is_never_replaced(out: Path, force: bool) -> None:
    (out / "x.png").mkdir(parents=True)
    with pytest.raises(OutputError, match="is a folder"):
        Store(out, force=force).decide("x.png", PRINT)


def test_a_dangling_link_is_not_ours(out: Path) -> None:
    out.mkdir()
    (out / "x.png").symlink_to("nowhere")
    with pytest.raises(OutputError, match="not made by hookscope"):
        Store(out).decide("x.png", PRINT)


def test_a_sub_folder_that_is_a_file_costs_its_own_records(out: Path) -> None:
    store = Store(out)
    (out / "cats").write_bytes(b"")
    with pytest.raises(OutputError, match="cannot be written") as error:
        store.deliver(record(), [png("cats/x.png")], PRINT)
    assert not isinstance(error.value, store_module.FolderLostError)


# --- delivery ------------------------------------------------------------------------------------


def test_a_record_is_shown_with_out_and_noted_without(tmp_path: Path, out: Path) -> None:
    (tmp_path / "photos").mkdir()
    given = record(image=str(tmp_path / "photos/cat.jpg"), mean=float("nan"))
    store = Store(out)
    result = store.deliver(given, [png("a b/x.png"), raw("a b/x.npy")], PRINT)
    store.close()
    assert given["files"] == {}
    assert result == given | {
        "files": {"grid": str(out / "a b/x.png"), "tensor": str(out / "a b/x.npy")}
    }
    [line] = lines(out)
    provenance = line.pop("provenance")
    assert line == result | {
        "image": "../photos/cat.jpg",
        "files": {"grid": "a b/x.png", "tensor": "a b/x.npy"},
        "mean": None,
    }
    assert provenance["picture"] == {"name": "cat.jpg", "sha256": "5ha"}
    assert provenance["settings"] == PRINT.settings
    assert sorted(left(out)) == ["a b/x.npy", "a b/x.png"]
    origin = read_png(out / "a b/x.png")
    assert origin is not None
    assert origin.key == PRINT.key == provenance["key"]
    assert origin.record["files"] == line["files"]


def test_the_same_command_gives_the_same_bytes_anywhere(tmp_path: Path) -> None:
    made(tmp_path / "one", png(), raw())
    made(tmp_path / "another/deep", png(), raw())
    assert left(tmp_path / "one") == left(tmp_path / "another/deep")


def test_a_line_without_files_is_noted(out: Path) -> None:
    store = Store(out)
    store.append(record(status="error", error="no picture", image=str(out / "../cat.jpg")))
    store.close()
    assert [(line["error"], line["image"]) for line in lines(out)] == [("no picture", "../cat.jpg")]


def test_shards_have_their_own_manifests_and_know_of_each_other(out: Path) -> None:
    first = Store(out, shard=(0, 2))
    first.deliver(record(), [raw()], PRINT)
    first.close()
    assert (out / "manifest.shard0-of-2.jsonl").exists()
    assert Store(out, policy="skip", shard=(1, 2)).decide("x.npy", PRINT) == "skip"


@pytest.mark.parametrize("bad", ["alien", "decision", "writer"])
def test_all_files_of_a_record_are_written_or_none(out: Path, bad: str) -> None:
    made(out, png("a.png", 1), raw("a.npy", b"old tensor"))
    old, noted = left(out), lines(out)
    pieces = [raw("a.npy", b"new tensor"), png("a.png", 2), png("new/b.png", 3), raw("b.npy")]
    if bad == "alien":
        (out / "b.npy").write_bytes(b"my own")
        old["b.npy"] = b"my own"
    elif bad == "decision":
        pieces.append(png("a.png/c.png"))
    else:
        pieces.append(Piece("sheet", "c.png", lambda file, text: Image.new("L", (0, 0)).save(file)))
    store = Store(out)
    with pytest.raises(OutputError):
        store.deliver(record(), pieces, OTHER_SETTINGS)
    store.close()
    assert left(out) == old
    assert lines(out) == noted


def test_only_what_is_missing_is_written(out: Path) -> None:
    made(out, png(), raw())
    (out / "x.npy").unlink()
    before = inode(out / "x.png")
    store = Store(out, policy="skip-no-clobber")
    result = store.deliver(record(), [png(value=9), raw(content=b"again")], PRINT)
    store.close()
    assert result["status"] == "ok"
    assert inode(out / "x.png") == before
    assert (out / "x.npy").read_bytes() == b"again"
    assert Store(out, policy="skip").decide("x.npy", PRINT) == "skip"


def test_a_skipped_record_adds_no_line(out: Path) -> None:
    made(out, png(), raw())
    store = Store(out, policy="skip")
    assert store.deliver(record(), [png(), raw()], PRINT)["status"] == "skipped"
    assert len(lines(out)) == 1


def test_a_dry_run_decides_and_leaves_no_trace(tmp_path: Path) -> None:
    out = tmp_path / "new/out"
    store = Store(out, dry_run=True)
    result = store.deliver(record(), [png()], PRINT)
    store.append(record(status="error"))
    assert result["files"] == {"grid": str(out / "x.png")}
    assert list(tmp_path.iterdir()) == []
    made(out, png(), fingerprint=OTHER_PICTURE)
    with pytest.raises(OutputError):
        Store(out, dry_run=True).deliver(record(), [png()], PRINT)
    assert Store(out, dry_run=True, force=True).deliver(record(), [png()], PRINT)["status"] == "ok"


# --- what earlier runs left ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["png", "jpg"])
def test_an_earlier_class_is_known_without_a_forward_pass(out: Path, kind: str) -> None:
    store = Store(out)
    for rank, index in enumerate((281, 285)):
        fingerprint = replace(PRINT, settings={"layer": "l", "class_index": index})
        piece = png if kind == "png" else raw
        name = f"{index}.{kind}"
        store.deliver(record(score=5.0 - rank), [piece(name, kind="overlay")], fingerprint)
    copy = replace(PRINT, settings={"layer": "l", "class_index": 7})
    store.deliver(record("cat-copy"), [raw("copy.jpg", kind="overlay")], copy)
    assert store.known(PRINT, CAT) == []
    store.close()
    again = Store(out, policy="skip")
    asked = replace(PRINT, settings={"layer": "l", "class_index": None})
    found = again.known(asked, CAT, apart_from=["class_index"])
    assert [one.record["score"] for one in found] == [5.0, 4.0]
    assert [one.settings["class_index"] for one in found] == [281, 285]
    assert found[0].record["files"] == {"overlay": str(out / f"281.{kind}")}
    assert {one.record["status"] for one in found} == {"skipped"}
    for other in (
        replace(asked, weights_digest="0ther"),
        replace(asked, picture_sha="0ther"),
        replace(asked, settings={"layer": "k", "class_index": None}),
    ):
        assert again.known(other, CAT, apart_from=["class_index"]) == []
    assert again.known(asked, replace(CAT, folder="b"), apart_from=["class_index"]) == []
    (out / f"281.{kind}").write_bytes(b"edited by hand")
    assert len(again.known(asked, CAT, apart_from=["class_index"])) == 1


def test_finished_files_give_their_record_back(out: Path) -> None:
    files = {"grid": "x.png", "tensor": "x.npy"}
    store = Store(out)
    store.deliver(record(mean=0.25), [png(), raw()], PRINT)
    assert store.finished(files, PRINT) is None
    store.close()
    again = Store(out, policy="skip")
    found = again.finished(files, PRINT)
    assert found is not None
    assert (found["status"], found["mean"]) == ("skipped", 0.25)
    assert found["files"] == {kind: str(out / name) for kind, name in files.items()}
    assert again.finished(files, OTHER_SETTINGS) is None
    assert again.finished({**files, "sheet": "s.png"}, PRINT) is None
    (out / "x.npy").unlink()
    assert again.finished(files, PRINT) is None


def test_a_png_needs_no_manifest_to_be_skipped(out: Path) -> None:
    made(out, png())
    (out / "manifest.jsonl").unlink()
    assert Store(out, policy="skip").finished({"grid": "x.png"}, PRINT)


# --- many at once --------------------------------------------------------------------------------


def test_threads_write_every_file_and_line_once(out: Path) -> None:
    store = Store(out)

    def one(number: int) -> None:
        pieces = [png(f"{number % 7}/{number}.png", number), raw(f"{number % 7}/{number}.npy")]
        store.deliver(record(mean=float(number)), pieces, PRINT)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(200)))
    store.close()
    assert len(left(out)) == 400
    assert sorted(line["mean"] for line in lines(out)) == list(range(200))


@pytest.mark.parametrize("piece", [png, raw], ids=["png", "npy"])
def test_of_two_pictures_with_one_name_one_gets_it(out: Path, piece: Any) -> None:
    """Whichever store, that is, whichever run, they are in."""
    stores = [Store(out), Store(out)]

    def one(number: int) -> str:
        fingerprint = replace(PRINT, picture_sha=str(number))
        try:
            return stores[number % 2].deliver(record(), [piece()], fingerprint)["status"]
        except OutputError:
            return "kept"

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(one, range(40))) == ["kept"] * 39 + ["ok"]
    assert len(left(out)) == len(lines(out)) == 1
    winner = lines(out)[0]["provenance"]["picture"]["sha256"]
    assert Store(out, policy="skip").decide(piece().name, replace(PRINT, picture_sha=winner))


def test_no_clobber_loses_no_race(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process writes between the last look and the renaming."""
    real = store_module.publish

    def slow(part: str, target: str, *, new: bool) -> None:
        if new:
            Path(target).write_bytes(b"theirs")
        real(part, target, new=new)

    monkeypatch.setattr(store_module, "publish", slow)
    with pytest.raises(OutputError):
        Store(out, policy="no-clobber").deliver(record(), [png()], PRINT)
    assert left(out) == {"x.png": b"theirs"}


@pytest.fixture
def no_links(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refuse(*paths: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    return


@pytest.mark.usefixtures("no_links")
def test_a_file_system_without_hard_links_will_do(out: Path) -> None:
    made(out, png(value=1))
    made(out, png(value=2))
    assert Image.open(out / "x.png").getpixel((0, 0)) == 2
    with pytest.raises(OutputError):
        made(out, png(), fingerprint=OTHER_PICTURE)
