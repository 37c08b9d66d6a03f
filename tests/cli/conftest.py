"""The command line, run inside the test's own process, and a small network to run it on."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pictures import open_image
from prompts import Prompt
from slow_runs import NETS, PICTURES, Command

from hookscope.cli.app import app, run
from hookscope.cli.completion.answers import answers

NETWORK = """
    import torch
    from torch import nn


    class Net(nn.Module):
        # Two convolutions, one activation used twice, and a head that is never called.
        def __init__(self, classes=5):
            super().__init__()
            self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1)
            self.norm = nn.BatchNorm2d(8)
            self.relu = nn.ReLU(inplace=True)
            self.second = nn.Conv2d(8, 16, 3, stride=2, padding=1)
            self.head = nn.Linear(16, classes)
            self.spare = nn.Linear(16, 2)

        def forward(self, x):
            x = self.relu(self.norm(self.first(x)))
            x = self.relu(self.second(x))
            return self.head(x.mean((2, 3)))


    def net(classes=5):
        torch.manual_seed(1)
        return Net(classes)
"""


@dataclass(frozen=True)
class Ran:
    """One command's exit code and what it printed."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


@pytest.fixture
def hookscope(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    def command(*arguments: object) -> Ran:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Ran(code, printed.out, printed.err)

    return command


@pytest.fixture(scope="session")
def net(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The MODEL argument of a small network in a user's own file."""
    path = tmp_path_factory.mktemp("user") / "nets.py"
    path.write_text(textwrap.dedent(NETWORK))
    return f"{path}:net"


@pytest.fixture(scope="session")
def photo(tmp_path_factory: pytest.TempPathFactory, chelsea: Path) -> Path:
    """The cat, small: 90 x 60."""
    path = tmp_path_factory.mktemp("photos") / "cat.png"
    open_image(chelsea).resize((90, 60)).save(path)
    return path


@pytest.fixture(scope="session")
def slow_photos(tmp_path_factory: pytest.TempPathFactory, chelsea: Path) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    picture = open_image(chelsea).convert("RGB").resize((120, 90))
    for number in range(PICTURES):
        picture.rotate(10 * number).save(folder / f"p{number}.png")
    return folder


@pytest.fixture
def command(slow_photos: Path, tmp_path: Path) -> Command:
    """A network that takes its time, on a folder of pictures."""
    path = tmp_path / "nets.py"
    path.write_text(textwrap.dedent(NETS))
    return Command(path, slow_photos, tmp_path / "out")


@pytest.fixture(scope="session")
def prompt(tmp_path_factory: pytest.TempPathFactory) -> Prompt:
    """A shell's prompt with a cache of its own, which the tests fill."""
    return Prompt(tmp_path_factory.mktemp("cache"), tmp_path_factory.mktemp("desk"))


@pytest.fixture(scope="session")
def warm(prompt: Prompt) -> Prompt:
    """One where resnet18 has been completed before, and nothing heavy can be imported."""
    assert prompt.bash("capture", "-l", "layer1.0.b") == ["layer1.0.bn1", "layer1.0.bn2"]
    return prompt.without_libraries(prompt.folder / "stubs")


@pytest.fixture
def found_here(prompt: Prompt, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Completes in this process, which has torch already, and fills the prompt's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(prompt.cache))
    monkeypatch.chdir(prompt.folder)
    return lambda *words: [one.value for one in answers(app, list(words[:-1]), words[-1])]


@pytest.fixture
def user_file(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a user's own file of networks; torch and nn are imported in it."""

    def write(body: str) -> Path:
        path = tmp_path / "own.py"
        path.write_text("import torch\nfrom torch import nn\n\n\n" + textwrap.dedent(body))
        return path

    return write
