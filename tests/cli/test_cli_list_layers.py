"""list-layers: its rows, its marks, its document."""

from __future__ import annotations

import pytest


def test_the_document(hookscope, net):
    ran = hookscope("list-layers", net, "--json", "--input-size", "64x48")
    (document,) = ran.records
    assert ran.code == 0
    assert list(document) == [
        *("schema", "command", "model", "parameters", "trainable", "input_size", "layers"),
    ]
    assert document["input_size"] == [64, 48]
    rows = {row["name"]: row for row in document["layers"]}
    assert list(rows["first"]) == [
        *("name", "type", "depth", "parameters", "trainable", "output_shape", "layout", "calls"),
        *("overwritten_in_place", "cam_default"),
    ]
    assert rows["first"]["output_shape"] == [1, 8, 32, 24]
    assert rows["first"]["parameters"] == 8 * 3 * 9 + 8
    assert rows["relu"]["calls"] == 2
    assert rows["spare"]["calls"] == 0
    assert rows["norm"]["overwritten_in_place"] is True
    assert rows["head"]["layout"] == "vector"
    assert [name for name, row in rows.items() if row["cam_default"]] == ["relu"]


def test_the_tree_off_a_terminal_is_one_whole_line_a_layer(hookscope, net):
    ran = hookscope("list-layers", net)
    assert len(ran.lines) == 6
    assert "\x1b" not in ran.out
    by_name = {line.split()[0]: line for line in ran.lines}
    assert "never runs" in by_name["spare"]
    assert "overwritten in place" in by_name["norm"]
    assert "<- CAM" in by_name["relu"]
    assert "x2" in by_name["relu"]


def test_names_are_ready_for_xargs(hookscope, net):
    ran = hookscope("list-layers", net, "--format", "names", "--type", "Conv2d")
    assert ran.lines == ["first", "second"]


def test_a_table_has_a_head(hookscope, net):
    head, *rows = hookscope("list-layers", net, "--format", "table").lines
    assert head.split() == ["name", "type", "output", "parameters", "calls"]
    assert len(rows) == 6


def test_depth_and_patterns_cut_the_tree(hookscope):
    shallow = hookscope("list-layers", "resnet18", "--depth", "1", "--format", "names").lines
    assert shallow[:2] == ["conv1", "bn1"]
    assert not any("." in name for name in shallow)
    some = hookscope("list-layers", "resnet18", "-l", "layer4.1.*", "--format", "names").lines
    assert some
    assert all(name.startswith("layer4.1.") for name in some)


def test_no_shapes_runs_nothing(hookscope, net):
    (document,) = hookscope("list-layers", net, "--no-shapes", "--json").records
    assert document["input_size"] == [224, 224]
    assert {row["calls"] for row in document["layers"]} == {None}
    assert {row["cam_default"] for row in document["layers"]} == {None}


def test_a_model_that_cannot_run_is_listed_all_the_same(hookscope, tmp_path):
    path = tmp_path / "broken.py"
    path.write_text(
        "from torch import nn\n"
        "class Broken(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.conv = nn.Conv2d(3, 4, 1)\n"
        "    def forward(self, x):\n"
        "        raise RuntimeError('no forward today')\n"
    )
    ran = hookscope("list-layers", f"{path}:Broken")
    assert ran.code == 0
    assert ran.lines[0].split()[:2] == ["conv", "Conv2d"]
    assert "no forward today" in ran.err


@pytest.mark.parametrize("model", ["resnet81", "nowhere.py:net", "no_such_package:net"])
def test_an_unknown_model(hookscope, model):
    ran = hookscope("list-layers", model)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: ")
    assert "Traceback" not in ran.err


def test_an_unknown_torchvision_name_has_three_close_ones(hookscope):
    err = hookscope("list-layers", "resnet81").err
    assert "resnet18" in err
