"""What completion remembers, and when it must ask again."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hookscope.cli.completion import cache as completion_cache
from hookscope.cli.completion.cache import Found, installed, remembered


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "hookscope"


@pytest.fixture
def asked() -> list[int]:
    """One item for each time that the answer was not remembered."""
    return []


@pytest.fixture
def ask(folder: Path, asked: list[int]) -> Callable[..., list[str]]:
    def once(question: str = "?", *, files: tuple[Path, ...] = ()) -> list[str]:
        def find() -> Found:
            asked.append(1)
            return Found([question], map(str, files))

        return remembered("kind", {"question": question}, ["pillow", "nosuch"], find)

    return once


def test_a_question_is_answered_once(ask, asked, folder):
    assert ask() == ask() == ["?"]
    assert ask("!") == ["!"]
    assert len(asked) == 2
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("rubbish", [b"", b"{", b"[]", b'{"question": 1}', b"\xff\x00", b"null"])
def test_rubbish_is_asked_again_and_replaced(ask, asked, folder, rubbish):
    ask()
    (entry,) = folder.iterdir()
    whole = entry.read_bytes()
    entry.write_bytes(rubbish)
    assert ask() == ["?"]
    assert len(asked) == 2
    assert list(folder.iterdir()) == [entry]
    assert entry.read_bytes() == whole


def test_another_version_is_asked_again_in_the_same_place(ask, asked, folder, monkeypatch):
    ask()
    monkeypatch.setattr(completion_cache, "installed", lambda name: "99")
    ask()
    ask()
    assert len(asked) == 2
    assert len(list(folder.iterdir())) == 1


def test_a_file_that_changes_or_goes_is_asked_again(ask, asked, tmp_path):
    file = tmp_path / "net.py"
    file.write_text("one")
    ask(files=(file,))
    ask(files=(file,))
    assert len(asked) == 1
    os.utime(file, ns=(1, 1))
    ask(files=(file,))
    file.write_text("longer")
    os.utime(file, ns=(1, 1))
    ask(files=(file,))
    file.unlink()
    ask(files=(file,))
    assert len(asked) == 4


def test_what_fails_is_not_remembered(folder):
    def find() -> Found:
        raise ValueError("broken")

    for _ in range(2):
        with pytest.raises(ValueError, match="broken"):
            remembered("kind", {}, [], find)
    assert not folder.exists()


@pytest.mark.parametrize("blocked", ["file", "folder in the way"])
def test_a_cache_that_cannot_be_written_is_as_good_as_none(ask, asked, folder, blocked):
    if blocked == "file":
        folder.touch()
    else:
        ask()
        (entry,) = folder.iterdir()
        entry.unlink()
        (entry / "inside").mkdir(parents=True)
        asked.clear()
    assert ask() == ask() == ["?"]
    assert len(asked) == 2
    assert not list(folder.parent.rglob("*.part"))


def test_without_a_folder_for_caches_nothing_is_kept(ask, asked, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setattr(Path, "home", staticmethod(_homeless))
    assert ask() == ask() == ["?"]
    assert len(asked) == 2


def _homeless() -> Path:
    raise RuntimeError("no home")


def test_versions_are_those_of_the_metadata(monkeypatch, tmp_path):
    from importlib.metadata import version

    for name in ("torch", "torchvision", "matplotlib"):
        assert installed(name) == version(name)
    assert installed("nosuch") is None
    (tmp_path / "torch-99.0+new.dist-info").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert installed("torch") == "99.0+new"
