"""The README tells the truth: its commands run, its flags exist, its house is the house."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from pictures import open_image
from torch import nn

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)
COMMANDS = [
    line
    for kind, block in BLOCKS
    if kind == "sh"
    for line in block.splitlines()
    if "hookscope " in line or line.startswith("jq ")
]
PYTHON = [block for kind, block in BLOCKS if kind == "python"]
TRAINED = "IMAGENET1K_V1"


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that the README's commands speak of."""
    folder = tmp_path_factory.mktemp("desk")
    (folder / "sample_images").symlink_to(ROOT / "sample_images")
    (folder / "photos" / "more").mkdir(parents=True)
    cat = open_image(ROOT / "sample_images" / "chelsea.png")
    cat.save(folder / "photos" / "cat.jpg")
    cat.rotate(180).save(folder / "photos" / "more" / "tac.jpg")
    for name in ("best", "epoch5"):
        network = torchvision.models.resnet18(num_classes=3)
        state = {f"module.{name}": tensor for name, tensor in network.state_dict().items()}
        torch.save({"epoch": 4, "state_dict": state}, folder / f"{name}.pth")
    for kind in ("cat", "dog"):
        (folder / "val" / kind).mkdir(parents=True)
        cat.save(folder / "val" / kind / "1.jpg")
    (folder / "classes.txt").write_text("cat\ndog\nbird\n")
    (folder / "net.py").write_text(
        textwrap.dedent(
            """
            from torch import nn


            class SmallNet(nn.Sequential):
                def __init__(self, width=8):
                    super().__init__(
                        nn.Conv2d(3, width, 5, stride=4),
                        nn.ReLU(inplace=True),
                        nn.AdaptiveAvgPool2d(1),
                        nn.Flatten(),
                        nn.Linear(width, 3),
                    )
            """
        )
    )
    return folder


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}


def needs(program: str, command: str) -> None:
    if f"{program} " in command and not any(
        Path(folder, program).exists() for folder in os.environ["PATH"].split(os.pathsep)
    ):
        pytest.skip(f"{program} is not on this machine")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_readme_runs(command, desk, environment, request):
    if TRAINED in command:
        request.getfixturevalue("mobilenet_weights")
    if "--tensorboard" in command:
        pytest.importorskip("tensorboard")
    needs("jq", command)
    if command.startswith("jq "):
        test_the_records_of_the_script_example_are_json(desk, environment)
    done = subprocess.run(
        ["bash", "-c", command], cwd=desk, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout or ">" in command or "--skip-existing" in command


def test_there_are_commands():
    assert len(COMMANDS) > 15


def test_the_records_of_the_script_example_are_json(desk, environment):
    (command,) = [command for command in COMMANDS if "> results.jsonl" in command]
    subprocess.run(["bash", "-c", command], cwd=desk, env=environment, check=True, timeout=300)
    records = [json.loads(line) for line in (desk / "results.jsonl").read_text().splitlines()]
    assert [record["sample"] for record in records] == ["cat", "tac"]


class Own(nn.Sequential):
    """The reader's own network, in the examples that have none."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 3)
        self.relu = nn.ReLU(inplace=True)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.fc = nn.Linear(4, 3)


def given() -> dict[str, Any]:
    """The names that the examples expect their reader to have."""
    model = Own()
    batch = torch.rand(4, 3, 16, 16), torch.tensor([0, 1, 2, 0])
    return {
        "x": torch.rand(2, 3, 224, 224),
        "model": model,
        "loader": [batch] * 2,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
    }


@pytest.mark.parametrize("code", PYTHON)
def test_a_python_example_of_the_readme_runs(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    names = given()
    exec(compile(code, "README.md", "exec"), names)
    if "grid.png" in code:
        assert open_image(tmp_path / "grid.png").mode == "P"
    if "monitor" in code:
        assert names["monitor"].verdict().kind == "healthy"
        assert open_image(tmp_path / "gradients.png").width > 300
    if "losses" in code:
        assert names["losses"][-1] < names["losses"][0] / 4


def test_there_are_python_examples():
    subjects = ("load_model(", "GradientMonitor(", "detach=False")
    assert all(any(subject in code for code in PYTHON) for subject in subjects)


def test_every_flag_that_the_readme_names_is_in_the_help(environment):
    helps = ""
    for command in ((), ("list-layers",), ("capture",), ("gradcam",)):
        helps += subprocess.run(
            [sys.executable, "-m", "hookscope", *command, "--help"],
            env={**environment, "COLUMNS": "200"},
            capture_output=True,
            text=True,
        ).stdout
    ours = [line for line in README.splitlines() if "hookscope " in line or line.startswith("**")]
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", "\n".join(ours)))
    assert named
    assert {flag for flag in named if flag not in helps} == set()


def test_the_house_of_the_readme_is_the_house():
    (picture,) = [block for _, block in BLOCKS if block.startswith("hookscope/\n")]
    named = set(re.findall(r"^  (\w+(?:\.py|/))", picture, re.MULTILINE))
    there = {
        f"{path.name}/" if path.is_dir() else path.name
        for path in (ROOT / "hookscope").iterdir()
        if path.name not in ("__init__.py", "__main__.py", "py.typed", "__pycache__")
    }
    assert named == there


def test_its_pictures_are_there():
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README)
    assert pictures
    assert all((ROOT / picture).is_file() for picture in pictures)
