"""gradcam: classes, names, records, views; and the cat with real weights."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from captum.attr import LayerGradCam
from pictures import open_image

from hookscope.models.opening import open_model


def test_the_predicted_class_at_the_default_layer(hookscope, net, photo, tmp_path):
    ran = hookscope("gradcam", photo, "-m", net, "-o", tmp_path, "--json", "--save", "npy")
    assert ran.code == 0
    (record,) = ran.records
    assert list(record) == [
        *("schema", "command", "status", "image", "sample", "model", "weights", "layer", "call"),
        *("preprocess", "device", "files", "reason", "error"),
        *("method", "class_index", "class_name", "score", "probability", "shape", "min", "max"),
    ]
    assert record["layer"] == "relu"
    assert record["call"] == 2
    assert set(record["files"]) == {"overlay", "tensor"}

    opened = open_model(net)
    x, _ = opened.preprocessing(open_image(photo))
    logits = opened.module(x[None])[0].detach()
    assert record["class_index"] == int(logits.argmax())
    assert record["score"] == pytest.approx(float(logits.max()), abs=1e-5)
    assert record["probability"] == pytest.approx(float(logits.softmax(0).max()), abs=1e-5)
    # The relu runs twice; the same values leave the second convolution before it overwrites them.
    saved = np.load(record["files"]["tensor"])
    assert saved.dtype == np.float32
    assert list(saved.shape) == record["shape"] == [56, 56]


def test_the_saved_map_is_captums(hookscope, net, photo, tmp_path):
    (record,) = hookscope(
        "gradcam", photo, "-m", net, "-l", "first", "--class", "3", "-o", tmp_path, "--json",
        "--save", "npy",
    ).records  # fmt: skip
    opened = open_model(net)
    x, _ = opened.preprocessing(open_image(photo))
    module = opened.module
    expected = LayerGradCam(module, module.first).attribute(
        x[None], 3, relu_attributions=True
    )  # fmt: skip
    saved = torch.from_numpy(np.load(record["files"]["tensor"]))
    torch.testing.assert_close(saved, expected[0, 0].detach(), atol=1e-6, rtol=1e-4)


def test_the_overlay_has_the_pictures_size_and_the_heatmap_is_lossless(
    hookscope, net, photo, tmp_path
):
    (record,) = hookscope(
        "gradcam", photo, "-m", net, "-o", tmp_path, "--json", "--view", "overlay", "--view",
        "heatmap",
    ).records  # fmt: skip
    for view in ("overlay", "heatmap"):
        assert open_image(record["files"][view]).size == (90, 60)
    assert record["files"]["heatmap"].endswith("_heatmap.png")


def test_classes_as_asked_and_by_rank(hookscope, net, photo, tmp_path):
    labels = tmp_path / "labels.txt"
    labels.write_text("cat\ndog\nhot dog\nbird\nfish\n")
    common = ("gradcam", photo, "-m", net, "-o", tmp_path, "--json", "--labels", labels)
    asked = hookscope(*common, "--class", "bird", "--class", "0", "--class", "hot").records
    assert [record["class_index"] for record in asked] == [3, 0, 2]
    assert asked[2]["files"]["overlay"].endswith("_gradcam_2-hot-dog.png")
    assert hookscope(*common, "--class", "dog").records[0]["class_index"] == 1
    best = hookscope(*common, "--top-k", "3").records
    scores = [record["score"] for record in best]
    assert scores == sorted(scores, reverse=True)
    assert len({record["class_index"] for record in best}) == 3


@pytest.mark.parametrize("wrong", ["5", "-1", "1000", "unicorn", "o"])
def test_a_class_that_is_not_there(hookscope, net, photo, tmp_path, wrong):
    labels = tmp_path / "labels.txt"
    labels.write_text("cat\ndog\nhot dog\nbird\nfish\n")
    ran = hookscope(
        "gradcam", photo, "-m", net, "-o", tmp_path / "o", "--labels", labels, f"--class={wrong}"
    )
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: ")
    assert not (tmp_path / "o").exists()


def test_a_class_index_beyond_an_unnamed_head(hookscope, net, photo, tmp_path):
    ran = hookscope("gradcam", photo, "-m", net, "-o", tmp_path / "o", "--class", "5")
    assert (ran.code, ran.out) == (2, "")
    assert "5 classes, 0 to 4" in ran.err
    assert not (tmp_path / "o").exists()


def test_a_dead_network_gives_degenerate_maps(hookscope, photo, tmp_path):
    path = tmp_path / "dead.py"
    path.write_text(
        "import torch\n"
        "from torch import nn\n"
        "class Dead(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.conv = nn.Conv2d(3, 4, 16, 16)\n"
        "        self.head = nn.Linear(4, 3)\n"
        "        nn.init.zeros_(self.head.weight)\n"
        "    def forward(self, x):\n"
        "        return self.head(self.conv(x).mean((2, 3)))\n"
    )
    command = ("gradcam", photo, "-m", f"{path}:Dead", "-o", tmp_path, "--json")
    ran = hookscope(*command)
    assert ran.code == 0
    assert ran.records[0]["status"] == "degenerate"
    assert "zero" in ran.records[0]["reason"]
    assert hookscope(*command, "--strict").code == 1
    # What was degenerate before is so still.
    assert hookscope(*command, "--skip-existing").code == 0
    again = hookscope(*command, "--skip-existing", "--strict")
    assert again.code == 1
    assert "all zero" in again.err


def test_several_methods_and_layers_from_one_command(hookscope, net, photo, tmp_path):
    ran = hookscope(
        "gradcam", photo, "-m", net, "-o", tmp_path, "--json", "-l", "first", "-l", "second",
        "--method", "gradcam", "--method", "layercam",
    )  # fmt: skip
    assert [(record["layer"], record["method"]) for record in ran.records] == [
        *(("first", "gradcam"), ("first", "layercam"), ("second", "gradcam")),
        ("second", "layercam"),
    ]
    assert hookscope("gradcam", photo, "-m", net, "--method", "gradcan").code == 2


def test_skip_existing_costs_no_forward_pass(hookscope, photo, tmp_path):
    """The network counts its passes in a file; a repeated command adds none."""
    counter = tmp_path / "passes"
    path = tmp_path / "counting.py"
    path.write_text(
        "import torch\n"
        "from torch import nn\n"
        "class Counting(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.conv = nn.Conv2d(3, 4, 16, 16)\n"
        "        self.head = nn.Linear(4, 3)\n"
        "    def forward(self, x):\n"
        "        if not x.is_meta:\n"
        f"            with open({str(counter)!r}, 'a') as file:\n"
        "                file.write('.')\n"
        "        return self.head(self.conv(x).relu().mean((2, 3)))\n"
        "def net():\n"
        "    torch.manual_seed(0)\n"
        "    return Counting()\n"
    )
    for extra in ([], ["--class", "1"], ["--top-k", "2"]):
        command = (
            "gradcam", photo, "-m", f"{path}:net", "-o", tmp_path / "o", "--json",
            "--skip-existing", *extra,
        )  # fmt: skip
        first = hookscope(*command).records
        counter.write_text("")
        again = hookscope(*command).records
        assert {record["status"] for record in again} == {"skipped"}
        assert [record["files"] for record in again] == [record["files"] for record in first]
        assert counter.read_text() == ""


def test_the_cat_is_where_the_heat_is(hookscope, mobilenet_weights, chelsea, tmp_path):
    ran = hookscope(
        "gradcam", chelsea, "-m", "mobilenet_v2", "-w", "IMAGENET1K_V1", "-o", tmp_path, "--json",
        "--save", "npy", "--offline",
    )  # fmt: skip
    (record,) = ran.records
    assert (record["class_index"], record["class_name"]) == (285, "Egyptian cat")
    assert record["probability"] == pytest.approx(0.72, abs=0.01)
    assert record["layer"] == "features"
    assert record["files"]["overlay"] == (
        f"{tmp_path}/mobilenet_v2_features_chelsea_gradcam_285-Egyptian-cat.png"
    )
    assert "Egyptian cat (285) 0.72" in ran.err
    inside = json.loads(open_image(record["files"]["overlay"]).text["hookscope"])
    assert inside["record"]["class_name"] == "Egyptian cat"
    # The face is in the right two thirds of what the network saw.
    heat = np.load(record["files"]["tensor"])
    assert heat[:, 3:].sum() > 0.6 * heat.sum()


def test_weights_that_cannot_be_had(hookscope, photo, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "empty"))
    ran = hookscope("gradcam", photo, "-o", tmp_path / "o", "--offline")
    assert (ran.code, ran.out) == (2, "")
    assert "--weights none" in ran.err
    assert "--checkpoint" in ran.err


def test_layers_without_a_map(hookscope, net, photo, tmp_path):
    """What has no height and width is refused; what never runs costs its own record."""
    flat = hookscope("gradcam", photo, "-m", net, "-l", "head", "-o", tmp_path / "o")
    assert (flat.code, flat.out) == (2, "")
    assert "head has no map" in flat.err
    for layers in (["-l", "spare"], ["-l", "first", "-l", "spare"]):
        ran = hookscope("gradcam", photo, "-m", net, *layers, "-o", tmp_path / "p", "--json")
        assert ran.code == 1
        assert ran.records[-1]["status"] == "error"
        assert ran.records[-1]["layer"] == "spare"
        assert len(ran.records) == len(layers) // 2


def test_questions_that_exclude_each_other(hookscope, net, photo, tmp_path):
    both = hookscope("gradcam", photo, "-m", net, "--class", "1", "--top-k", "2")
    assert both.code == 2
    assert not (tmp_path / "hookscope-out").exists()


def test_one_colour_scale_for_the_run(hookscope, net, photo, tmp_path):
    """Only the picture with the strongest map still reaches the hot end of the colours."""
    dark = open_image(photo).point(lambda value: value // 4)
    dark.save(tmp_path / "dark.png")
    command = ("gradcam", photo, tmp_path / "dark.png", "-m", net, "-l", "first", "--class", "1")
    command += ("--view", "heatmap", "--crop", "none", "--resize", "64x64")
    own = hookscope(*command, "-o", tmp_path / "own", "--json").records
    shared = hookscope(*command, "-o", tmp_path / "shared", "--scale", "shared", "--json").records
    assert [record["max"] for record in own] == [record["max"] for record in shared]

    def hottest(record):
        return max(open_image(record["files"]["heatmap"]).tobytes())

    strong, weak = (0, 1) if own[0]["max"] > own[1]["max"] else (1, 0)
    assert hottest(shared[weak]) < 0.9 * hottest(own[weak])
    assert hottest(shared[strong]) > 0.9 * hottest(own[strong])


def test_formats_sizes_sheets_and_figures(hookscope, net, photo, tmp_path):
    (record,) = hookscope(
        "gradcam", photo, "-m", net, "-o", tmp_path, "--format", "jpg", "--max-side", "45",
        "--view", "overlay", "--view", "sheet", "--figure", "svg", "--json",
    ).records  # fmt: skip
    files = record["files"]
    overlay = open_image(files["overlay"])
    assert (overlay.format, overlay.size) == ("JPEG", (45, 30))
    assert files["sheet"].endswith("_gradcam_sheet.png")
    assert files["figure"].endswith("_gradcam_sheet.svg")
    assert Path(files["figure"]).read_text().lstrip().startswith("<?xml")


def test_a_sheet_of_several_classes_is_one_file(hookscope, net, photo, tmp_path):
    command = ("gradcam", photo, "-m", net, "-o", tmp_path, "--view", "sheet", "--top-k", "3")
    ran = hookscope(*command)
    assert len(ran.lines) == 1
    again = hookscope(*command, "--skip-existing", "--json").records
    assert [record["status"] for record in again] == ["skipped"] * 3


def test_class_names_cannot_colour_the_terminal(hookscope, net, photo, tmp_path):
    labels = tmp_path / "labels.txt"
    labels.write_text("".join(f"x\x1b[31m{k}\n" for k in range(5)))
    ran = hookscope("gradcam", photo, "-m", net, "--labels", labels, "-o", tmp_path / "out")
    assert ran.code == 0
    assert "\x1b" not in ran.err
    assert r"x\x1b[31m" in ran.err
