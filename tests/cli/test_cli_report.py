"""--report: when the page is written, and what is said of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]


@pytest.fixture
def gradcam(hookscope: Command, net: str, photo: Path, tmp_path: Path) -> Command:
    def command(*flags: object, picture: object = photo) -> Any:
        return hookscope("gradcam", picture, "-m", net, "-o", tmp_path / "out", "--report", *flags)

    return command


def results(out: Path) -> int:
    found = re.search(r"<span>(\d+) results?<", (out / "index.html").read_text())
    assert found
    return int(found[1])


def test_the_page_is_the_last_file_of_the_run(gradcam: Command, tmp_path: Path) -> None:
    ran = gradcam("-l", "first")
    assert ran.code == 0
    assert ran.lines[-1] == str(tmp_path / "out" / "index.html")
    assert results(tmp_path / "out") == 1


def test_it_covers_earlier_runs_and_both_commands(
    gradcam: Command, hookscope: Command, net: str, photo: Path, tmp_path: Path
) -> None:
    gradcam("-l", "first")
    assert gradcam("-l", "second").code == 0
    assert results(tmp_path / "out") == 2
    assert gradcam("-l", "second", "--skip-existing").code == 0
    assert results(tmp_path / "out") == 2
    hookscope("capture", photo, "-m", net, "-l", "first", "-o", tmp_path / "out", "--report")
    assert results(tmp_path / "out") == 3


def test_with_json_only_records_are_on_stdout(gradcam: Command, tmp_path: Path) -> None:
    ran = gradcam("--json", "-l", "first")
    assert [record["command"] for record in ran.records] == ["gradcam"]
    assert f"report: {tmp_path / 'out' / 'index.html'}" in ran.err


def test_a_dry_run_writes_no_page(gradcam: Command, tmp_path: Path) -> None:
    ran = gradcam("--dry-run", "-l", "first")
    assert ran.code == 0
    assert "index.html" not in ran.out
    assert not (tmp_path / "out").exists()


def test_failures_are_on_the_page(gradcam: Command, tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_text("no picture")
    ran = gradcam("-l", "first", picture=tmp_path / "bad.png")
    assert ran.code == 1
    assert results(tmp_path / "out") == 1


def test_a_page_of_somebody_else_is_kept(gradcam: Command, tmp_path: Path) -> None:
    page = tmp_path / "out" / "index.html"
    page.parent.mkdir()
    page.write_text("my homepage")
    ran = gradcam("-l", "first")
    assert ran.code == 1
    assert "was not made by hookscope" in ran.err
    assert page.read_text() == "my homepage"
    assert gradcam("-l", "first", "--force").code == 0
    assert results(page.parent) == 1
