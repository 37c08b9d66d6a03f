"""Promises about which pictures an INPUT... stands for."""

from __future__ import annotations

import os
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import pytest

from hookscope.errors import PictureError, UsageError
from hookscope.images.inputs import Inputs, Source, expand
from hookscope.images.walk import natural


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def make(*names: str) -> None:
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()


def typed(inputs: Inputs) -> list[str]:
    return [source.typed for source in inputs.pictures]


def only_problem(inputs: Inputs) -> Source:
    (source,) = inputs.pictures
    assert source.problem is not None
    return source


def test_files_come_in_the_order_they_were_named():
    make("b.jpg", "a.jpg")
    inputs = expand(["b.jpg", "a.jpg"])
    assert inputs.pictures == (Source("b.jpg"), Source("a.jpg"))
    assert inputs.pictures[0].path == Path("b.jpg")


@pytest.mark.parametrize(
    "name",
    ["notes.txt", "no_suffix", ".hidden.jpg", "a b.jpg", "zwei\nZeilen.png", "ä.jpg", "-x.jpg"],
)
def test_a_named_file_is_taken_whatever_it_is_called(name):
    make(name)
    assert expand([name]) == Inputs((Source(name),))


def test_a_folder_gives_its_pictures_in_natural_order_and_counts_the_rest():
    make("f/img10.jpg", "f/img2.JPG", "f/IMG1.png", "f/img02.jpg", "f/Thumbs.db", "f/.DS_Store")
    make("f/.x.jpg.part", "f/readme.md", "f/deep/y.jpg")
    inputs = expand(["f"])
    assert typed(inputs) == ["f/IMG1.png", "f/img02.jpg", "f/img2.JPG", "f/img10.jpg"]
    assert (inputs.skipped, inputs.unsearched) == (4, 1)
    assert {source.folder for source in inputs.pictures} == {""}


def test_recursion_keeps_sub_folders_and_enters_no_hidden_ones():
    make("f/b/2.jpg", "f/b/c/1.jpg", "f/a.jpg", "f/.git/x.jpg", "f/b10/1.jpg", "f/b9/1.jpg")
    inputs = expand(["f/"], recursive=True)
    assert [(source.typed, source.folder) for source in inputs.pictures] == [
        ("f/a.jpg", ""),
        ("f/b/2.jpg", "b"),
        ("f/b/c/1.jpg", "b/c"),
        ("f/b9/1.jpg", "b9"),
        ("f/b10/1.jpg", "b10"),
    ]
    assert (inputs.skipped, inputs.unsearched) == (1, 0)


def test_a_folder_named_like_a_picture_is_a_folder():
    make("x.jpg/inner.png", "f/y.jpg/inner.png")
    assert typed(expand(["x.jpg", "f"], recursive=True)) == ["x.jpg/inner.png", "f/y.jpg/inner.png"]


def test_loops_of_links_end_and_a_folder_linked_twice_is_searched_once():
    make("f/z/1.jpg")
    os.symlink("..", "f/z/up")
    os.symlink("z", "f/a")
    os.symlink("self.jpg", "f/self.jpg")
    inputs = expand(["f"], recursive=True)
    assert typed(inputs) == ["f/self.jpg", "f/z/1.jpg"]
    assert typed(expand(["f/**/*.jpg"]))[0] == "f/a/1.jpg"
    assert len(expand(["f/**/*.jpg"]).pictures) == 2


def test_a_linked_folder_outside_is_followed():
    make("elsewhere/1.jpg", "f/2.jpg")
    os.symlink("../elsewhere", "f/linked")
    assert typed(expand(["f"], recursive=True)) == ["f/2.jpg", "f/linked/1.jpg"]


def test_a_broken_link_named_like_a_picture_is_not_dropped_and_a_pipe_is():
    Path("f").mkdir()
    os.symlink("gone.jpg", "f/broken.jpg")
    os.symlink("gone.txt", "f/broken.txt")
    os.mkfifo("f/pipe.jpg")
    inputs = expand(["f"])
    assert (typed(inputs), inputs.skipped) == (["f/broken.jpg"], 2)


def test_each_picture_once_whichever_way_it_was_named():
    make("f/a.jpg", "f/b.jpg")
    os.symlink("f", "g")
    inputs = expand(["f/b.jpg", "f", "./f/a.jpg", "g/a.jpg", "f/../f/b.jpg", os.path.abspath("f")])
    assert typed(inputs) == ["f/b.jpg", "f/a.jpg"]
    assert inputs.repeated == 6


def test_a_link_to_a_picture_is_a_picture_of_its_own():
    make("f/blob.jpg")
    os.symlink("blob.jpg", "f/cat.jpg")
    assert typed(expand(["f"])) == ["f/blob.jpg", "f/cat.jpg"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("f/*.jpg", ["f/a.jpg", "f/b1.jpg", "f/b10.jpg"]),
        ("f/b?.jpg", ["f/b1.jpg"]),
        ("f/[ab]*.jpg", ["f/a.jpg", "f/b1.jpg", "f/b10.jpg"]),
        ("*/*", ["f/a.jpg", "f/b1.jpg", "f/b10.jpg", "f/g/c.png"]),
        ("f/**/*.png", ["f/g/c.png", "f/g/h/d.png"]),
        ("**/c.png", ["f/g/c.png"]),
        ("f/g*", ["f/g/c.png"]),
        ("f/.*.jpg", ["f/.hidden.jpg"]),
        ("./f/?.jpg", ["./f/a.jpg"]),
        ("f/*.md", ["f/notes.md"]),
    ],
)
def test_a_quoted_glob(pattern, expected):
    make("f/b10.jpg", "f/b1.jpg", "f/a.jpg", "f/notes.md", "f/.hidden.jpg")
    make("f/g/c.png", "f/g/h/d.png", "f/.h/e.png")
    assert typed(expand([pattern])) == expected


def test_an_absolute_glob_and_one_that_meets_a_link_loop():
    make("f/a.jpg")
    os.symlink(".", "f/here")
    assert typed(expand([os.path.abspath("f") + "/*.jpg"])) == [os.path.abspath("f/a.jpg")]
    assert typed(expand(["f/**"])) == ["f/a.jpg"]


def test_a_file_whose_name_is_a_glob_is_taken_as_it_stands():
    make("cat[1].jpg", "cat1.jpg")
    assert typed(expand(["cat[1].jpg"])) == ["cat[1].jpg"]


def test_a_list_on_stdin_is_read_once_and_holds_no_globs():
    make("a b.jpg", "f/1.png", "sub.dir/2.png")
    stdin = BytesIO("a b.jpg\r\n\n*.jpg\nf\nsub.dir\nä.jpg".encode())
    inputs = expand(["f/1.png", "-", "-"], stdin=stdin)
    assert typed(inputs) == ["f/1.png", "a b.jpg", "*.jpg", "sub.dir/2.png", "ä.jpg"]


def test_a_nul_list_keeps_newlines_and_bytes_that_are_no_utf8():
    names = [b"two\nlines.jpg", b"caf\xe9.jpg", b" ", b"-"]
    inputs = expand([], nul=True, stdin=BytesIO(b"\0".join(names) + b"\0"))
    assert [os.fsencode(name) for name in typed(inputs)] == names
    assert typed(expand(["-"], nul=True, stdin=BytesIO(b"a.jpg\0"))) == ["a.jpg"]


def test_a_nul_list_without_its_flag_is_a_usage_error():
    with pytest.raises(UsageError, match="-0"):
        expand(["-"], stdin=BytesIO(b"a.jpg\0b.jpg\0"))


def test_an_empty_list_is_no_pictures():
    assert expand(["-"], stdin=BytesIO(b"")) == Inputs(())


def test_a_long_list_costs_no_system_call_a_name(monkeypatch):
    names = [f"n{number // 100}/{number}.jpg" for number in range(1000)]
    looked_up = []
    monkeypatch.setattr("os.path.isdir", looked_up.append)
    monkeypatch.setattr("os.path.realpath", lambda path: looked_up.append(path) or path)
    inputs = expand(["-"], stdin=BytesIO("\n".join(names).encode()))
    assert typed(inputs) == names
    assert len(looked_up) == 10


@pytest.mark.parametrize(
    ("argument", "problem", "hint"),
    [
        ("cat1.jpeg", "no such file", "cat1.jpg"),
        ("nowhere/cat.jpg", "no folder nowhere", ""),
        ("cat1.jpg/x.jpg", "no folder cat1.jpg", ""),
        ("*.tiff", "no file matches", ""),
        ("nowhere/*.jpg", "no file matches", "no folder nowhere"),
        ("", "an empty name", "variable"),
        ("https://example.org/cat.jpg", "an address", "Download"),
        ("n" * 300 + ".jpg", "too long", ""),
    ],
)
def test_what_is_not_there_is_one_source_with_a_problem(argument, problem, hint):
    make("cat1.jpg", "dog.jpg")
    first, last = expand([argument, "dog.jpg"]).pictures
    assert last == Source("dog.jpg")
    assert first.typed == argument
    assert problem in (first.problem or "")
    assert hint in first.hint
    with pytest.raises(PictureError):
        first.check()
    last.check()


def test_a_folder_without_pictures_says_where_they_may_be():
    make("f/notes.txt", "f/deep/a.jpg")
    source = only_problem(expand(["f"]))
    assert "no pictures" in source.problem
    assert "1 other file" in source.problem
    assert "--recursive" in source.hint
    Path("empty").mkdir()
    assert only_problem(expand(["empty"], recursive=True)).hint == ""


def test_a_folder_whose_pictures_were_all_named_before_is_no_problem():
    make("f/a.jpg")
    assert expand(["f/a.jpg", "f"]) == Inputs((Source("f/a.jpg"),), repeated=1)


def test_what_may_not_be_listed_is_a_problem_of_its_own(monkeypatch):
    make("f/a.jpg", "f/locked/b.jpg", "f/z/c.jpg")
    scandir = os.scandir

    def refusing(path):
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr("os.scandir", refusing)
    inputs = expand(["f"], recursive=True)
    assert typed(inputs) == ["f/a.jpg", "f/z/c.jpg", "f/locked"]
    assert "permission denied" in inputs.pictures[-1].problem


def test_the_output_folder_is_entered_only_when_typed():
    make("f/a.jpg", "f/out/grid.png", "f/out/sub/grid2.png", "f/g/out/b.jpg")
    every = {"f/a.jpg", "f/g/out/b.jpg"}
    assert set(typed(expand(["f"], recursive=True, exclude="f/g/../out"))) == every
    assert set(typed(expand(["f/**"], recursive=True, exclude=Path("f/out")))) == every
    assert expand(["f"], exclude="f/out").unsearched == 1
    assert typed(expand(["f/out"], exclude="f/out")) == ["f/out/grid.png"]
    assert typed(expand(["f/out/*.png"], exclude="f/out")) == ["f/out/grid.png"]
    assert typed(expand(["f/a.jpg"], exclude=".")) == ["f/a.jpg"]
    assert typed(expand(["f"], exclude=".")) == ["f/a.jpg"]


def test_own_files_in_a_folder_that_is_both_input_and_output_are_left_out():
    make("f/a.jpg", "f/resnet18_layer4_a.png")
    made = {os.path.realpath("f/resnet18_layer4_a.png")}
    assert expand(["f"], exclude="f", made=made) == Inputs((Source("f/a.jpg"),))
    assert typed(expand(["f/*"], exclude="f", made=made)) == ["f/a.jpg"]
    assert typed(expand(["f/resnet18_layer4_a.png"], made=made)) == ["f/resnet18_layer4_a.png"]


def test_a_folder_of_own_files_alone_is_no_problem():
    make("out/grid.png", "a.jpg")
    made = {os.path.realpath("out/grid.png")}
    assert typed(expand(["a.jpg", "out"], exclude="out", made=made)) == ["a.jpg"]


def test_natural_order_is_by_value_of_numbers_whatever_the_case():
    names = ["a", "A1", "a01b", "a2", "a10", "a100", "b/1", "b/10", "b-1", "é"]
    assert sorted({*names}, key=natural) == names


def test_importing_it_loads_neither_torch_nor_pillow():
    heavy = "{'torch', 'PIL', 'numpy'} & set(sys.modules)"
    code = f"import sys, hookscope.images.inputs as _; print({heavy})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
