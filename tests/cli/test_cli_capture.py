"""capture: names, records, files and rules, on a small network."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from pictures import open_image

from hookscope.models.opening import open_model


def test_one_grid_a_layer_with_its_record(hookscope, net, photo, tmp_path):
    out = tmp_path / "out"
    ran = hookscope("capture", photo, "-m", net, "-l", "first", "-l", "head", "-o", out, "--json")
    assert ran.code == 0
    first, head = ran.records
    assert list(first) == [
        *("schema", "command", "status", "image", "sample", "model", "weights", "layer", "call"),
        *("preprocess", "device", "files", "reason", "error"),
        *("what", "shape", "dtype", "layout", "min", "max", "mean", "std", "zero_fraction"),
        *("dead_channels", "nonfinite"),
    ]
    assert (first["layer"], first["call"], first["shape"]) == ("first", 1, [8, 112, 112])
    assert (head["layer"], head["layout"], head["shape"]) == ("head", "vector", [5])
    assert first["files"] == {"grid": f"{out}/net_first_cat.png"}
    assert first["image"] == str(photo)
    assert open_image(first["files"]["grid"]).mode == "P"


def test_paths_alone_go_to_stdout(hookscope, net, photo, tmp_path):
    out = tmp_path / "out"
    ran = hookscope("capture", photo, "-m", net, "-l", "first", "-o", out)
    assert ran.out == f"{out}/net_first_cat.png\n"


@torch.no_grad()
def test_the_saved_tensor_is_a_hand_made_clone(hookscope, net, photo, tmp_path):
    """At a layer that the next one overwrites in place, and at both calls of a shared one."""
    opened = open_model(net)
    x, _ = opened.preprocessing(open_image(photo))
    taken: list[torch.Tensor] = []
    hooks = [
        getattr(opened.module, name).register_forward_hook(
            lambda module, args, output: taken.append(output.clone())
        )
        for name in ("norm", "relu")
    ]
    opened.module(x[None])
    for hook in hooks:
        hook.remove()
    ran = hookscope(
        "capture", photo, "-m", net, "-l", "norm", "-l", "relu", "-o", tmp_path, "--save", "npy",
        "--json",
    )  # fmt: skip
    records = ran.records
    assert [(record["layer"], record["call"]) for record in records] == [
        *(("norm", 1), ("relu", 1), ("relu", 2)),
    ]
    assert [record["files"]["tensor"].rpartition("/")[2] for record in records] == [
        *("net_norm_cat.npy", "net_relu@1_cat.npy", "net_relu@2_cat.npy"),
    ]
    for record, expected in zip(records, taken, strict=True):
        saved = np.load(record["files"]["tensor"])
        np.testing.assert_allclose(saved, expected[0].detach(), atol=1e-6)
        assert record["min"] == pytest.approx(float(expected.min()), abs=1e-6)
        assert record["zero_fraction"] == pytest.approx(float((expected == 0).float().mean()))
    assert records[0]["min"] < 0


@pytest.mark.parametrize("kind", ["npz", "safetensors", "pt"])
def test_other_tensor_formats_hold_the_same(hookscope, net, photo, tmp_path, kind):
    from safetensors.torch import load_file

    def saved(form: str):
        (record,) = hookscope(
            "capture", photo, "-m", net, "-l", "second", "-o", tmp_path, "--save", form, "--json"
        ).records
        return record["files"]["tensor"]

    readers = {
        "npz": lambda path: torch.from_numpy(np.load(path)["tensor"]),
        "safetensors": lambda path: load_file(path)["tensor"],
        "pt": lambda path: torch.load(path, weights_only=True),
    }
    reference = torch.from_numpy(np.load(saved("npy")))
    assert torch.equal(readers[kind](saved(kind)), reference)


def test_one_call_can_be_chosen(hookscope, net, photo, tmp_path):
    ran = hookscope("capture", photo, "-m", net, "-l", "relu@2", "-o", tmp_path, "--json")
    assert [(record["layer"], record["call"]) for record in ran.records] == [("relu", 2)]


def test_records_come_by_input_then_by_execution(hookscope, net, photo, tmp_path):
    for name in ("b.png", "a.png", "c.png"):
        (tmp_path / name).write_bytes(photo.read_bytes())
    names = [tmp_path / name for name in ("b.png", "a.png", "c.png")]
    ran = hookscope(
        "capture", *names, "-m", net, "-l", "head", "-l", "first", "-o", tmp_path / "o", "--json",
        "--batch-size", 1,
    )  # fmt: skip
    assert [(record["sample"], record["layer"]) for record in ran.records] == [
        *(("b", "first"), ("b", "head"), ("a", "first"), ("a", "head")),
        *(("c", "first"), ("c", "head")),
    ]


def test_a_bad_picture_costs_its_own_record_only(hookscope, net, photo, tmp_path):
    text = tmp_path / "text.jpg"
    text.write_text("this is no picture")
    ran = hookscope(
        "capture", tmp_path / "gone.png", text, photo, "-m", net, "-l", "first", "-o",
        tmp_path / "o", "--json",
    )  # fmt: skip
    assert ran.code == 1
    assert [record["status"] for record in ran.records] == ["error", "error", "ok"]
    assert "text" in ran.records[1]["error"]
    assert "2 failed" in ran.err


def test_fail_fast_stops_at_the_first(hookscope, net, photo, tmp_path):
    ran = hookscope(
        "capture", tmp_path / "gone.png", photo, "-m", net, "-l", "first", "-o", tmp_path / "o",
        "--json", "--fail-fast",
    )  # fmt: skip
    assert ran.code == 1
    assert [record["status"] for record in ran.records] == ["error"]


def test_a_layer_that_never_runs(hookscope, net, photo, tmp_path):
    named = hookscope("capture", photo, "-m", net, "-l", "spare", "-o", tmp_path, "--json")
    assert named.code == 1
    (record,) = named.records
    assert (record["status"], record["layer"]) == ("error", "spare")
    assert record["reason"]
    globbed = hookscope("capture", photo, "-m", net, "-l", "s*", "-o", tmp_path, "--json")
    assert globbed.code == 0
    assert [record["layer"] for record in globbed.records] == ["second"]
    assert "spare never runs" in globbed.err


def test_an_unknown_layer_names_three(hookscope, net, photo, tmp_path):
    ran = hookscope("capture", photo, "-m", net, "-l", "frist", "-o", tmp_path / "o")
    assert (ran.code, ran.out) == (2, "")
    assert "first" in ran.err
    assert not (tmp_path / "o").exists()


def test_no_layer_is_a_question(hookscope, net, photo):
    ran = hookscope("capture", photo, "-m", net)
    assert ran.code == 2
    assert "--layer" in ran.err


def test_channels_and_top(hookscope, net, photo, tmp_path):
    def width(*flags: str) -> int:
        (path,) = hookscope(
            "capture", photo, "-m", net, "-l", "first", "-o", tmp_path, *flags
        ).lines
        return open_image(path).width

    assert width("--channels", "0,3") < width()
    assert width("--top", "1") < width()
    wrong = hookscope("capture", photo, "-m", net, "-l", "first", "--channels", "8-")
    assert wrong.code == 2
    assert hookscope("capture", photo, "-m", net, "-l", "first", "--channels", "99").code == 2


def test_dry_run_writes_nothing(hookscope, net, photo, tmp_path):
    out = tmp_path / "out"
    ran = hookscope(
        "capture", photo, "-m", net, "-l", "first", "-o", out, "--dry-run", "--save", "npy"
    )
    assert ran.lines == [f"{out}/net_first_cat.png", f"{out}/net_first_cat.npy"]
    assert not out.exists()


def test_the_same_command_gives_the_same_bytes(hookscope, net, photo, tmp_path):
    (one,) = hookscope("capture", photo, "-m", net, "-l", "first", "-o", tmp_path / "a").lines
    (two,) = hookscope("capture", photo, "-m", net, "-l", "first", "-o", tmp_path / "b").lines
    assert Path(one).read_bytes() == Path(two).read_bytes()
    record = json.loads(open_image(one).text["hookscope"])
    assert str(tmp_path) not in json.dumps(record)


def test_a_picture_carries_its_record(hookscope, net, photo, tmp_path):
    (record,) = hookscope(
        "capture", photo, "-m", net, "-l", "first", "-o", tmp_path, "--json"
    ).records
    inside = json.loads(open_image(record["files"]["grid"]).text["hookscope"])
    assert inside["record"]["mean"] == record["mean"]
    assert inside["record"]["image"] == "cat.png"
    (line,) = (tmp_path / "manifest.jsonl").read_text().splitlines()
    assert json.loads(line)["files"] == {"grid": "net_first_cat.png"}


def test_skip_existing_skips_exactly_the_same(hookscope, net, photo, tmp_path):
    command = ("capture", photo, "-m", net, "-l", "first", "-o", tmp_path, "--skip-existing")
    first = hookscope(*command, "--json").records
    again = hookscope(*command, "--json").records
    other = hookscope(*command, "--json", "--cmap", "magma").records
    assert [first[0]["status"], again[0]["status"], other[0]["status"]] == ["ok", "skipped", "ok"]
    assert hookscope(*command, "--cmap", "magma").out == ""


def test_what_is_there_already(hookscope, net, photo, chelsea, tmp_path):
    command = ("capture", "-m", net, "-l", "first", "-o", tmp_path)
    (path,) = hookscope(*command, photo).lines
    kept = Path(path).read_bytes()
    assert hookscope(*command, photo, "--no-clobber").code == 1
    other = tmp_path / "elsewhere" / "cat.png"
    other.parent.mkdir()
    other.write_bytes(chelsea.read_bytes())
    refused = hookscope(*command, other)
    assert refused.code == 1
    assert Path(path).read_bytes() == kept
    assert hookscope(*command, photo).code == 0
    assert hookscope(*command, other, "--force").code == 0
    assert Path(path).read_bytes() != kept


def test_an_output_folder_that_cannot_be(hookscope, net, photo, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    ran = hookscope("capture", photo, "-m", net, "-l", "first", "-o", file)
    assert (ran.code, ran.out) == (2, "")
    assert str(file) in ran.err


def test_colliding_names_all_get_digits(hookscope, net, photo, tmp_path):
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "cat.png").write_bytes(photo.read_bytes())
    ran = hookscope(
        "capture", tmp_path / "x/cat.png", tmp_path / "y/cat.png", "-m", net, "-l", "first", "-o",
        tmp_path / "o",
    )  # fmt: skip
    assert len(set(ran.lines)) == 2
    assert all(len(line.rpartition("cat-")[2]) == len("01234567.png") for line in ran.lines)


def test_a_folder_keeps_its_sub_folders(hookscope, net, photo, tmp_path):
    (tmp_path / "in/deep").mkdir(parents=True)
    (tmp_path / "in/deep/cat.png").write_bytes(photo.read_bytes())
    (tmp_path / "in/notes.txt").write_text("nothing to see")
    ran = hookscope(
        "capture", tmp_path / "in", "-r", "-m", net, "-l", "first", "-o", tmp_path / "o"
    )
    assert ran.lines == [f"{tmp_path}/o/deep/net_first_cat.png"]


def test_batches_do_not_change_the_numbers(hookscope, net, photo, tmp_path):
    for number in range(5):
        picture = open_image(photo).rotate(9 * number)
        picture.save(tmp_path / f"p{number}.png")
    means = []
    for size in (1, 5):
        ran = hookscope(
            "capture", f"{tmp_path}/p*.png", "-m", net, "-l", "second", "-o", tmp_path / str(size),
            "--batch-size", size, "--json",
        )  # fmt: skip
        means.append([record["mean"] for record in ran.records])
    assert means[0] == pytest.approx(means[1], abs=1e-5)
    assert len(set(means[0])) == 5


def test_a_detector_that_finds_nothing_is_no_failure(hookscope, photo, tmp_path):
    """Random weights find no box: tensors without values, one list item a picture."""
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(photo.read_bytes())
    ran = hookscope(
        "capture", tmp_path / "a.png", tmp_path / "b.png", "-w", "none", "-l", "roi_heads",
        "-m", "fasterrcnn_mobilenet_v3_large_320_fpn", "-o", tmp_path / "o", "--json",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    boxes = [record for record in ran.records if record["layer"].endswith("[boxes]")]
    assert [record["sample"] for record in boxes] == ["a", "b"]
    for record in boxes:
        if 0 in record["shape"]:
            assert (record["min"], record["mean"], record["nonfinite"]) == (None, None, 0)
        assert open_image(record["files"]["grid"]).width > 100
