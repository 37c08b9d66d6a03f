"""capture --stats: numbers over many pictures, and what in them is suspicious."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import torch
from pictures import open_image
from PIL import Image

from hookscope.layout import Layout
from hookscope.maps.statistics import RunningStatistics
from hookscope.models.opening import open_model
from hookscope.run.capturing.suspicions import Measured, suspicions

SICK = """
    import torch
    from torch import nn


    class Scale(nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.factor = factor

        def forward(self, x):
            return x * self.factor


    class Chain(nn.Module):
        def __init__(self, *factors):
            super().__init__()
            self.steps = nn.Sequential(*(Scale(factor) for factor in factors))
            self.head = nn.Linear(3, 2)

        def forward(self, x):
            return self.head(self.steps(x).mean((2, 3)))


    class Reds(nn.Module):
        # Channel 0 fires on red pictures only, channel 1 never, channel 2 always.
        def __init__(self):
            super().__init__()
            self.body, self.relu = nn.Conv2d(3, 3, 1), nn.ReLU()
            with torch.no_grad():
                self.body.weight.zero_()
                self.body.bias.copy_(torch.tensor([-0.5, -1.0, 0.1]))
                self.body.weight[0, 0] = 1.0
                self.body.weight[2, 1] = 1.0

        def forward(self, x):
            return self.relu(self.body(x)).mean((2, 3))


    def falling():
        torch.manual_seed(0)
        return Chain(1.0, 2e-2, 2e-2)


    def rising():
        torch.manual_seed(0)
        return Chain(1.0, 1e2, 1e2)


    def broken():
        torch.manual_seed(0)
        return Chain(1.0, float("nan"), 1.0)


    def reds():
        return Reds()
"""
RAW = ("--resize", "8x8", "--crop", "none", "--mean", "0,0,0", "--std", "1,1,1")


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("sick") / "sick.py"
    path.write_text(textwrap.dedent(SICK))
    return str(path)


@pytest.fixture
def colours(tmp_path: Path) -> dict[str, Path]:
    """A red and a blue picture, neither of one colour all over."""
    found = {}
    for name, colour in (("red", (250, 0, 0)), ("blue", (0, 0, 250))):
        picture = Image.new("RGB", (8, 8), colour)
        picture.putpixel((0, 0), (colour[0] // 2, 10, colour[2] // 2))
        picture.save(tmp_path / f"{name}.png")
        found[name] = tmp_path / f"{name}.png"
    return found


@torch.no_grad()
def test_records_are_the_numbers_over_all_pictures(hookscope, net, photo, tmp_path):
    paths = []
    for number in range(5):
        paths.append(tmp_path / f"p{number}.png")
        open_image(photo).rotate(50 * number).save(paths[-1])
    out = tmp_path / "out"
    opened = open_model(net)
    pictures = torch.stack([opened.preprocessing(open_image(path))[0] for path in paths])
    expected = opened.module.first(pictures)
    for size in (2, 5):
        ran = hookscope(
            "capture", *paths, "-m", net, "-l", "first", "-l", "relu", "--stats", "--json",
            "--batch-size", size, "-o", out,
        )  # fmt: skip
        assert ran.code == 0
        first, *relus = ran.records
        assert [(record["layer"], record["call"]) for record in relus] == [("relu", 1), ("relu", 2)]
        assert (first["image"], first["sample"], first["files"]) == (None, None, {})
        assert (first["pictures"], first["shape"], first["channels"]) == (5, [8, 112, 112], 8)
        for field, number in (
            ("mean", expected.mean()),
            ("std", expected.std(correction=0)),
            ("min", expected.min()),
            ("max", expected.max()),
            ("norm", (expected.flatten(1).norm(dim=1) ** 2).mean().sqrt()),
        ):
            assert first[field] == pytest.approx(float(number), rel=1e-4, abs=1e-5), field
        assert first["nonfinite"] == 0
        assert 0 < relus[0]["zero_fraction"] < 1
    assert not out.exists()


def test_a_channel_is_dead_only_if_it_never_fires(hookscope, sick, colours, tmp_path):
    def relu(*pictures: Path) -> dict:
        command = ("-m", f"{sick}:reds", *RAW, "-l", "relu", "--stats", "--json", "-o", tmp_path)
        (record,) = hookscope("capture", *pictures, *command).records
        return record

    assert relu(colours["blue"])["dead_channels"] == 2
    assert relu(colours["red"])["dead_channels"] == 1
    both = relu(colours["blue"], colours["red"])
    assert (both["dead_channels"], both["constant_channels"]) == (1, 1)
    assert "1 of 3 channels are constant over 2 pictures" in both["reason"]
    assert both["suspicious"] == [both["reason"]]


def test_the_table_marks_what_it_explains_below(hookscope, sick, colours, tmp_path):
    ran = hookscope(
        "capture",
        *colours.values(),
        "-m",
        f"{sick}:reds",
        *RAW,
        "-l",
        "*",
        "--stats",
        "-o",
        tmp_path,
    )
    assert ran.code == 0
    assert "2 pictures" in ran.lines[0]
    (body,) = (line for line in ran.lines if " body " in line)
    (relu,) = (line for line in ran.lines if " relu " in line)
    assert "1/3" in relu
    assert relu.split()[0] == "!"
    assert body.split()[0] == "!"  # a convolution without weights gives its bias everywhere
    assert "! relu: 1 of 3 channels are constant over 2 pictures" in ran.out
    assert "\x1b" not in ran.out
    assert all(line == line.rstrip() for line in ran.lines)
    assert not list(tmp_path.glob("manifest*"))


def test_the_first_layer_with_values_that_are_not_finite(hookscope, sick, photo, tmp_path):
    ran = hookscope(
        "capture",
        photo,
        "-m",
        f"{sick}:broken",
        *RAW,
        "-l",
        "*",
        "--stats",
        "--json",
        "-o",
        tmp_path,
    )
    reasons = {record["layer"]: record["reason"] for record in ran.records}
    assert reasons["steps.0"] is None
    assert reasons["steps.1"].startswith("the first layer with values that are not finite: 192")
    assert reasons["steps.2"].startswith("also")


@pytest.mark.parametrize(("network", "word"), [("falling", "vanishes"), ("rising", "explodes")])
def test_a_gradient_that_vanishes_or_explodes(hookscope, sick, photo, tmp_path, network, word):
    ran = hookscope(
        "capture", photo, "-m", f"{sick}:{network}", *RAW, "-l", "steps.*", "--stats", "--what",
        "gradient", "--json", "-o", tmp_path,
    )  # fmt: skip
    first, second, third = ran.records
    factor = 2e-2 if network == "falling" else 1e2
    assert first["ratio"] == pytest.approx(factor, rel=1e-4)
    assert second["ratio"] == pytest.approx(factor, rel=1e-4)
    assert third["ratio"] is None
    assert word in first["reason"]
    assert second["reason"] is third["reason"] is None
    healthy = hookscope(
        "capture", photo, "-m", f"{sick}:{network}", *RAW, "-l", "steps.[12]", "--stats", "--what",
        "gradient", "--json", "-o", tmp_path,
    ).records  # fmt: skip
    assert [record["reason"] for record in healthy] == [None, None]
    table = hookscope(
        "capture", photo, "-m", f"{sick}:{network}", *RAW, "-l", "steps.*", "--stats", "--what",
        "gradient", "-o", tmp_path,
    ).out  # fmt: skip
    assert "norm" in table
    assert f"! steps.0: the gradient {word}" in table


def test_a_bad_picture_does_not_count(hookscope, net, photo, tmp_path):
    text = tmp_path / "text.jpg"
    text.write_text("no picture")
    ran = hookscope(
        "capture", text, photo, "-m", net, "-l", "first", "--stats", "--json", "-o", tmp_path / "o"
    )
    assert ran.code == 1
    error, first = ran.records
    assert (error["status"], first["status"], first["pictures"]) == ("error", "ok", 1)
    alone = hookscope("capture", text, "-m", net, "-l", "first", "--stats", "-o", tmp_path / "o")
    assert (alone.code, alone.out) == (1, "")
    assert "never runs" not in alone.err


def test_a_vector_of_one_picture_has_no_constant_channels():
    numbers = RunningStatistics()
    numbers.update(torch.tensor([[0.0, 1.0, 2.0]]), Layout("vector"))
    assert suspicions("output", [Measured("fc", 1, numbers.result())]) == {"fc": []}
    numbers.update(torch.tensor([[0.0, 1.0, 5.0]]), Layout("vector"))
    (sentence,) = suspicions("output", [Measured("fc", 2, numbers.result())])["fc"]
    assert sentence == "2 of 3 channels are constant over 2 pictures, 1 of them always zero"
