"""``capture --pool`` on a folder of small pictures, with two workers."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from embedding_runs import NETS, Ran
from pictures import open_image

from hookscope.cli.app import run
from hookscope.run import engine


@pytest.fixture(scope="module")
def nets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nets") / "nets.py"
    path.write_text(textwrap.dedent(NETS))
    return path


@pytest.fixture
def photos(tmp_path: Path, chelsea: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    picture = open_image(chelsea).convert("RGB")
    for number in range(11):
        picture.rotate(31 * number).resize((80 + 9 * number, 70)).save(folder / f"p{number}.png")
    return folder


@pytest.fixture
def pooled(
    nets: Path, photos: Path, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> Callable[..., Ran]:
    monkeypatch.setattr(engine, "usable_cores", lambda: 2)

    def command(*more: object, pool: str = "mean", net: str = "net", layer: str = "act") -> Ran:
        capsys.readouterr()
        arguments = ["capture", photos, "-m", f"{nets}:{net}", "--pool", pool, "-l", layer]
        arguments += ["-o", tmp_path / "out", *more]
        code = run([str(argument) for argument in arguments])
        return Ran(code, *capsys.readouterr())

    return command
