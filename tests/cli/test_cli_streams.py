"""What goes to which stream, and what happens when a stream is not there."""

from __future__ import annotations

import subprocess
import sys

import pytest

NOISY = (
    "from torch import nn\n"
    "class Noisy(nn.Module):\n"
    "    def __init__(self):\n"
    "        super().__init__()\n"
    "        print('made')\n"
    "        self.conv = nn.Conv2d(3, 4, 16, 16)\n"
    "        self.head = nn.Linear(4, 3)\n"
    "    def forward(self, x):\n"
    "        print('forward', tuple(x.shape))\n"
    "        return self.head(self.conv(x).relu().mean((2, 3)))\n"
)


@pytest.fixture
def noisy(tmp_path):
    path = tmp_path / "noisy.py"
    path.write_text(NOISY)
    return f"{path}:Noisy"


def test_what_a_network_prints_goes_to_stderr(hookscope, noisy, photo, tmp_path):
    names = hookscope("list-layers", noisy, "--format", "names")
    assert names.lines == ["conv", "head"]
    assert "forward" in names.err
    ran = hookscope("gradcam", photo, "-m", noisy, "-o", tmp_path / "o", "--json")
    assert [record["status"] for record in ran.records] == ["ok"]
    assert "forward" in ran.err
    paths = hookscope("capture", photo, "-m", noisy, "-l", "conv", "-o", tmp_path / "o").lines
    assert paths == [f"{tmp_path}/o/Noisy_conv_cat.png"]


@pytest.mark.parametrize(("stdout", "code"), [("> /dev/full", 1), (">&-", 0)])
def test_a_stdout_that_takes_nothing_is_one_line(noisy, stdout, code):
    command = f"{sys.executable} -m hookscope list-layers {noisy} --format names {stdout}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.returncode == code
    assert "Traceback" not in done.stderr


def test_help_has_no_colour_off_a_terminal(monkeypatch):
    done = subprocess.run(
        [sys.executable, "-m", "hookscope", "--help"],
        env={"PATH": "", "GITHUB_ACTIONS": "true"},
        capture_output=True,
        text=True,
    )
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        ("relu@7", "runs 2 times: there is no call 7"),
        ("first@2", "runs once: there is no call 2"),
        ("first[0]", "gives one tensor: there is no item [0]"),
        ("spare", "never runs: "),
    ],
)
def test_a_layer_that_gave_nothing_says_why(hookscope, net, photo, tmp_path, layer, said):
    ran = hookscope("capture", photo, "-m", net, "-l", layer, "-o", tmp_path, "--json")
    assert ran.code == 1
    (record,) = ran.records
    assert said in record["error"]
    assert said in record["reason"]


def test_labels_of_another_number_are_said(hookscope, net, photo, tmp_path):
    labels = tmp_path / "two.txt"
    labels.write_text("cat\ndog\n")
    ran = hookscope("gradcam", photo, "-m", net, "-o", tmp_path, "--labels", labels)
    assert "2 class names for a model of 5 classes" in ran.err
