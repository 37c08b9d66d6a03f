"""``--show``: something is drawn on a real terminal, and only there."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from pictures import open_image
from PIL import Image
from terminal import Seen, on_terminal

pytest.importorskip("textual_image")

HALF = "▀"
SCREEN = """
import sys
from hookscope.cli.console import Console
from hookscope.cli.showing import Screen
screen = Screen.of(Console.of_process())
for path in sys.argv[1:]:
    screen.show({"overlay": path, "tensor": "x.npy"})
print("done")
"""


def shown(*paths: Path, **terminal: object) -> Seen:
    """Pictures on a terminal, without any network."""
    command = [sys.executable, "-c", SCREEN, *map(str, paths)]
    seen = on_terminal(command, **terminal)  # type: ignore[arg-type]
    assert (seen.code, seen.out) == (0, "done\n"), seen.screen
    assert "Traceback" not in seen.screen
    return seen


def rows(screen: str) -> list[int]:
    """How many half blocks each line of the screen has, of those that have any."""
    return [line.count(HALF) for line in screen.split("\n") if HALF in line]


def seen_from(*arguments: object, **terminal: object) -> Seen:
    command = [sys.executable, "-m", "hookscope", *map(str, arguments)]
    return on_terminal(command, **terminal)  # type: ignore[arg-type]


@pytest.fixture
def stripes(tmp_path: Path) -> Path:
    """Left half red, right half blue: 400 x 200."""
    picture = Image.new("RGB", (400, 200), (255, 0, 0))
    picture.paste((0, 0, 255), (200, 0, 400, 200))
    path = tmp_path / "stripes.png"
    picture.save(path)
    return path


def test_a_terminal_that_answers_nothing_gets_half_blocks(stripes):
    seen = shown(stripes, lines=30, columns=60)
    assert rows(seen.screen) == [60] * 15  # as wide as the terminal, half as high
    first = next(line for line in seen.screen.split("\n") if HALF in line)
    assert "38;2;255;0;0" in first.partition("38;2;0;0;255")[0]
    assert "\x1b[c" in seen.screen


def test_a_picture_takes_at_most_half_of_the_lines(stripes):
    upright = stripes.with_name("upright.png")
    open_image(stripes).rotate(90, expand=True).save(upright)
    seen = shown(upright, lines=20, columns=100)
    assert rows(seen.screen) == [10] * 10


@pytest.mark.parametrize("size", [(2000, 3), (3, 2000), (1, 1)])
@pytest.mark.parametrize(("lines", "columns"), [(24, 80), (5, 12)])
def test_pictures_of_any_shape_leave_something_to_see(tmp_path, size, lines, columns):
    path = tmp_path / "odd.png"
    Image.new("RGB", size).save(path)
    seen = shown(path, lines=lines, columns=columns)
    assert rows(seen.screen)
    assert max(rows(seen.screen)) <= columns
    assert "cannot" not in seen.screen


def test_a_terminal_without_a_size_is_no_matter(stripes):
    assert rows(shown(stripes, lines=0, columns=0).screen)


def test_a_terminal_of_another_session_is_not_asked(stripes):
    seen = shown(stripes, owns=False)
    assert rows(seen.screen)
    assert "\x1b[c" not in seen.screen


def test_a_terminal_that_answers_nonsense_gets_half_blocks(stripes):
    nonsense = {b"\x1b[c": b"\x1b[?c", b"\x1b_G": b"\x1b_G\x1b\\", b"\x1b[16t": b"\xff\xfe"}
    assert rows(shown(stripes, answers=nonsense).screen)


def test_sixel_where_the_terminal_says_so(stripes):
    answers = {b"\x1b[c": b"\x1b[?62;4;22c", b"\x1b[16t": b"\x1b[6;20;10t"}
    seen = shown(stripes, answers=answers, lines=24, columns=40)
    assert HALF not in seen.screen
    width, height = map(int, re.findall(r'\x1bP[\d;]*q"1;1;(\d+);(\d+)', seen.screen)[0])
    assert (width, height) == (400, 200)


def test_kitty_where_the_terminal_says_so(stripes):
    answers = {b"\x1b[c": b"\x1b[?62c", b"\x1b_G": b"\x1b_Gi=1;OK\x1b\\"}
    seen = shown(stripes, answers=answers)
    assert HALF not in seen.screen
    assert "f=100" in seen.screen
    assert "\U0010eeee" in seen.screen


def test_no_colour_means_no_colour(stripes):
    seen = shown(stripes, environment={"NO_COLOR": "1"})
    assert "\x1b" not in seen.screen
    assert set("█▓▒░") & set(seen.screen)


def test_a_file_is_shown_once_and_a_bad_one_is_said(stripes, tmp_path):
    bad = tmp_path / "bad.png"
    bad.write_text("no picture")
    once = shown(stripes, stripes, bad)
    assert len(rows(once.screen)) == len(rows(shown(stripes).screen))
    assert f"note: {bad} cannot be shown" in once.screen


@pytest.mark.parametrize("format", ["jpg", "webp"])
def test_overlays_of_each_format(net, photo, tmp_path, format):
    seen = seen_from("gradcam", photo, "-m", net, "-o", tmp_path, "--format", format, "--show")
    assert seen.code == 0
    assert rows(seen.screen)
    (path,) = seen.out.splitlines()
    assert Path(path).suffix == f".{format}"
    assert seen.screen.index(HALF) < seen.screen.index("cat.png: class")


def test_grids_while_a_bar_runs_and_json_goes_to_a_program(net, photo, tmp_path):
    more = photo.with_name("more.png")
    open_image(photo).rotate(180).save(more)
    seen = seen_from(
        *("capture", photo, more, "-m", net, "-l", "first", "-l", "norm", "-o", tmp_path),
        *("--json", "--save", "npy", "--show"),
        columns=50,
    )
    assert seen.code == 0
    records = [json.loads(line) for line in seen.out.splitlines()]
    assert len(records) == 4
    assert open_image(records[0]["files"]["grid"]).mode == "P"
    drawn = rows(seen.screen)
    assert len(drawn) % 4 == 0
    assert set(drawn) <= set(range(1, 51))
    assert "pictures" in seen.screen  # the bar


def test_the_bar_stays_below_what_is_written(net, photo, tmp_path):
    folder, out = tmp_path / "photos", tmp_path / "out"
    folder.mkdir()
    for number in range(5):
        open_image(photo).rotate(number).save(folder / f"{number}.png")
    line = ("gradcam", folder, "-m", net, "-l", "norm", "--class", 1, "-o", out, "--show")
    seen = seen_from(*line, together=True, columns=300)
    assert seen.code == 0
    expected = []
    for number in range(5):
        expected.append(f"{out}/net_norm_{number}_gradcam_1.png")
        expected.append(f"{folder}/{number}.png: class 1 ")
    texts = [line for line in seen.lines if line and HALF not in line]
    assert len(texts) == len(expected)
    assert all(text.startswith(start) for text, start in zip(texts, expected, strict=True))
    assert len([line for line in seen.lines if HALF in line]) == 5 * 12
    assert seen.screen.count("pictures") > 1


def test_a_sheet_of_several_classes_is_one_picture(net, photo, tmp_path):
    seen = seen_from(
        *("gradcam", photo, "-m", net, "-o", tmp_path, "--view", "sheet", "--top-k", 3, "--show"),
        lines=40,
        columns=60,
    )
    assert seen.screen.count("class") == 3
    assert 5 < len(rows(seen.screen)) <= 20


@pytest.mark.parametrize("flags", [("--dry-run",), ("--pool", "mean"), ("--skip-existing",)])
def test_where_no_picture_is_made_none_is_shown(net, photo, tmp_path, flags):
    line = ("capture", photo, "-m", net, "-l", "first", "-o", tmp_path)
    if "--skip-existing" in flags:
        assert seen_from(*line).code == 0
    seen = seen_from(*line, *flags, "--show")
    assert seen.code == 0
    assert HALF not in seen.screen


def test_off_a_terminal_there_is_a_note(hookscope, net, photo, tmp_path):
    line = ("gradcam", photo, "-m", net, "-o", tmp_path, "--show")
    ran = hookscope(*line)
    assert ran.code == 0
    assert "note: --show needs a terminal" in ran.err
    assert HALF not in ran.out + ran.err
    assert "--show" not in hookscope(*line, "--quiet").err


def test_without_the_library_nothing_is_started(net, photo, tmp_path):
    (tmp_path / "textual_image.py").write_text("raise ImportError('none here')")
    out = tmp_path / "out"
    seen = seen_from(
        *("gradcam", photo, "-m", net, "-o", out, "--show"),
        environment={"PYTHONPATH": str(tmp_path)},
    )
    assert (seen.code, seen.out) == (2, "")
    assert "none here" in seen.screen
    assert "pip install 'hookscope[show]'" in seen.screen
    assert not out.exists()
