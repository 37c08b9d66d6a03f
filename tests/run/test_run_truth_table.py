"""True classes from a CSV file: its columns, its ways to name a picture, its mistakes."""

from __future__ import annotations

import os
import re
import unicodedata
from pathlib import Path

import pytest

from hookscope.errors import TargetError, UsageError
from hookscope.images.inputs import Source
from hookscope.models.labels import Labels
from hookscope.output.names import settle
from hookscope.run.explaining.truth import Truths, read_truths

PETS = Labels(("cat", "dog", "crane", "crane", "Egyptian cat"))


@pytest.fixture(autouse=True)
def _at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(
    text: str | bytes, *pictures: str, at: str = "truth.csv", labels: Labels = PETS, count: int = 5
) -> Truths:
    raw = text if isinstance(text, bytes) else text.encode()
    Path(at).parent.mkdir(parents=True, exist_ok=True)
    Path(at).write_bytes(raw)
    return read_truths(at, settle(map(Source, pictures)), labels, count)


def told(
    text: str | bytes, *pictures: str, at: str = "truth.csv", labels: Labels = PETS, count: int = 5
) -> list[int | None]:
    truths = read(text, *pictures, at=at, labels=labels, count=count)
    return [truths.of(sample) for sample in settle(map(Source, pictures))]


@pytest.mark.parametrize(
    "text",
    [
        "a.png,cat\nb.png,dog\n",
        "a.png;cat\nb.png;dog",
        "a.png\tcat\nb.png\tdog\n",
        "\ufeffa.png,cat\r\nb.png,dog\r\n",
        "a.png,cat\rb.png,dog\r",
        '"a.png", "cat"\n"b.png","dog"\n',
        "\n\na.png;cat;an, old, one\n\n;;\nb.png;dog;;\n",
        "a.png,0\nb.png, 1 \n",
        "a.png,CAT\nb.png,1\n",
        "a.png,cat,Felis, catus\nb.png,dog\n",
    ],
)
def test_a_table_without_a_header(text: str) -> None:
    assert told(text, "a.png", "b.png") == [0, 1]


@pytest.mark.parametrize(
    "header",
    [
        *("picture,class", "image,label", "file,target", "path,truth", "filename,class_index"),
        *("name,class_name", "IMAGE,Label", "File Name,Class-Name", " picture , class "),
    ],
)
def test_a_header_is_recognised(header: str) -> None:
    picture, _, label = header.partition(",")
    # Were it data, a picture of that name would have an unknown class.
    assert told(f"{header}\na.png,dog\n", picture.strip(), "a.png") == [None, 1]
    assert told(f"{label},{picture}\ndog,a.png\n", "a.png") == [1]
    assert told(f"x,{label},y,{picture}\n7,dog,,a.png\n", "a.png") == [1]


def test_one_column_known_by_its_name_is_enough() -> None:
    for header in ("image_id,label", "image,breed"):
        first, second = header.split(",")
        assert told(f"{header}\na.png,dog\n", first, "a.png") == [None, 1]
        assert told(f"{second},{first}\ndog,a.png\n", "a.png") == [1]


def test_the_surest_columns_are_taken() -> None:
    header = "name,label,class_index,path\n"
    assert told(header + "x,cat,3,a.png\n", "a.png") == [3]
    assert told(",image,label\n0,a.png,dog\n", "a.png") == [1]


def test_a_first_line_with_a_picture_is_no_header() -> None:
    labels = Labels(("target", "name"))
    assert told("a.png,target\nb.png,name\n", "a.png", "b.png", labels=labels) == [0, 1]


@pytest.mark.parametrize(
    ("text", "picture", "index"),
    [
        ("a.png;hot dog, a food\n", "a.png", 1),
        ("a.png,hot dog; a food\n", "a.png", 2),
        ("a, b.png\thot dog, a food\n", "a, b.png", 1),
        ('"a, b.png";"hot dog, a food"\n', "a, b.png", 1),
        ('"a; ""b"".png","hot dog; a food"\n', 'a; "b".png', 2),
    ],
)
def test_names_may_have_separators_in_them(text: str, picture: str, index: int) -> None:
    labels = Labels(("cat", "hot dog, a food", "hot dog; a food", "hot dog"))
    assert told(text, picture, labels=labels) == [index]


def test_a_picture_is_found_as_it_was_typed() -> None:
    pictures = ("photos/a.png", "./photos/b.png", "photos//c.png", "../x/d.png")
    assert told("".join(f"{name},1\n" for name in pictures), *pictures) == [1] * 4


def test_a_picture_is_found_from_the_folder_of_the_file(tmp_path: Path) -> None:
    text = "a.png,0\nval/a.png,1\n../a.png,4\n"
    pictures = ("data/a.png", "data/val/a.png", f"{tmp_path}/a.png")
    assert told(text, *pictures, at="data/truth.csv") == [0, 1, 4]
    assert told(text, *pictures, at=f"{tmp_path}/data/truth.csv") == [0, 1, 4]


def test_as_it_was_typed_comes_first() -> None:
    assert told("a.png,1\n", "data/a.png", "a.png", at="data/truth.csv") == [None, 1]


def test_a_picture_is_found_from_the_current_folder(tmp_path: Path) -> None:
    text = "./photos/1/../a.png,0\nphotos/b.png,1\n" + f"{tmp_path}/photos/c.png,4\n"
    pictures = ("photos/a.png", f"{tmp_path}/photos/b.png", "photos/c.png")
    # Others of these names, so that a name alone does not do.
    others = ("x/a.png", "x/b.png", "x/c.png")
    assert told(text, *pictures, *others, at="data/truth.csv") == [0, 1, 4, None, None, None]


def test_a_linked_folder_is_the_folder() -> None:
    Path("real").mkdir()
    os.symlink("real", "linked")
    text = "linked/a.png,0\nreal/a.png,0\n"
    assert told(text, "real/a.png", "x/a.png") == [0, None]
    assert told("a.png,1\n", "real/a.png", "x/a.png", at="linked/truth.csv") == [1, None]


def test_a_file_name_will_do_where_it_is_the_only_one() -> None:
    text = "a.png,0\nelsewhere/b.png,1\n/old/disk/c.png,4\n"
    truths = read(text, "x/a.png", "y/b.png", "z/c.png", at="data/truth.csv")
    assert truths.classes == {"x/a.png": 0, "y/b.png": 1, "z/c.png": 4}
    assert truths.note == "found by file name alone: 2 of 3 pictures"


def test_a_file_name_that_several_have_tells_nothing() -> None:
    kept = "keep.png,0\n"
    assert told(kept + "a.png,1\n", "keep.png", "x/a.png", "y/a.png") == [0, None, None]
    rows = "train/a.png,1\nval/a.png,1\n"
    assert told(kept + rows, "keep.png", "x/a.png") == [0, None]
    # Exactly named, one of two is certain.
    assert told("x/a.png,1\n", "x/a.png", "y/a.png") == [1, None]
    assert told("x/a.png,1\nz/a.png,0\n", "x/a.png") == [1]


def test_an_accent_may_be_split_from_its_letter() -> None:
    split = unicodedata.normalize("NFD", "Löwe.png")
    assert told("Löwe.png,1\n", split, "x/" + split) == [1, None]
    assert told(f"{split},1\n", "Löwe.png", "x/Löwe.png") == [1, None]


def test_names_are_read_as_those_of_folders_are() -> None:
    assert told("a.png,egyptian_cat\nb.png,3\n", "a.png", "b.png") == [4, 3]
    with pytest.raises(TargetError, match=r"--truth truth.csv: .*'crane' \(1 picture\).*2 and 3"):
        told("a.png,crane\n", "a.png")
    with pytest.raises(TargetError, match=r"'kat' \(2 pictures\)") as caught:
        told("a.png,kat\nb.png,kat\n", "a.png", "b.png")
    assert caught.value.hint.startswith("The closest: cat")
    with pytest.raises(TargetError, match="5 classes, 0 to 4"):
        told("a.png,5\n", "a.png")


def test_names_need_names_of_the_model() -> None:
    text = "a.png,cat\nb.png,dog\n"
    with pytest.raises(UsageError, match="not known") as caught:
        told(text, "a.png", "b.png", labels=Labels(), count=2)  # a table has no order
    assert "--labels" in caught.value.hint
    assert told("a.png,4\n", "a.png", labels=Labels()) == [4]


def test_ids_of_wordnet_may_be_those_of_the_whole_table() -> None:
    ids = [f"n{number:08}" for number in range(5_000, 6_000)]
    text = "".join(f"{number}.png,{name}\n" for number, name in enumerate(ids))
    labels = Labels(tuple(f"thing {number}" for number in range(1000)))
    assert told(text, "999.png", "7.png", labels=labels, count=1000) == [999, 7]
    fewer = text.partition("\n")[2]
    with pytest.raises(UsageError, match="999 WordNet ids"):
        told(fewer, "999.png", labels=labels, count=1000)


def test_two_rows_may_agree() -> None:
    rows = "a.png,cat\n./a.png,Cat\na.png,0\na.png,cat\n"
    assert told(rows, "a.png") == [0]
    assert told("z/b.png,dog\nz/b.png,1\n", "b.png") == [1]


@pytest.mark.parametrize(
    "rows",
    [
        "a.png,cat\n\na.png,dog\n",
        "a.png,cat\na.png,0\n./a.png,dog\n",
        "z/a.png,cat\nz/a.png,CAT\nz/a.png,dog\n",
    ],
)
def test_two_rows_that_disagree_are_refused_with_their_lines(rows: str) -> None:
    with pytest.raises(UsageError, match=r"two classes of a.png: line 2 .*cat, line 4 .*dog"):
        told("picture,class\n" + rows, "a.png")


def test_lines_are_counted_from_the_top_of_the_file() -> None:
    with pytest.raises(UsageError, match=r"line 3 .*cat, line 5 .*dog"):
        told('\n\na.png,cat\n\na.png,"dog"\n', "a.png")


def test_a_quarrel_about_other_pictures_does_not_matter() -> None:
    assert told("a.png,cat\nb.png,cat\nb.png,dog\nc.png,kat\n", "a.png") == [0]


def test_pictures_without_a_row_are_counted() -> None:
    truths = read("a.png,0\nb.png,\nother.png,1\n", "a.png", "b.png", "c.png")
    assert truths.classes == {"a.png": 0}
    assert truths.note == "2 of 3 pictures have no true class in truth.csv"
    assert truths.labels == PETS
    assert read("a.png,0\n", "a.png").note is None


def test_what_is_no_picture_is_not_looked_for() -> None:
    Path("truth.csv").write_text("a.png,0\n")
    run = settle([Source("*.jpg", problem="no file matches"), Source("a.png")])
    truths = read_truths("truth.csv", run, PETS, 5)
    assert truths.note is None
    assert [truths.of(sample) for sample in run] == [None, 0]
    assert read_truths("truth.csv", run[:1], PETS, 5).classes == {}


def test_a_table_of_other_pictures_shows_both_sides() -> None:
    with pytest.raises(UsageError, match="any of the 2 pictures") as caught:
        told("image,class\ntrain/1.png,cat\n", "photos/a.png", "photos/b.png")
    assert "'train/1.png'" in caught.value.hint
    assert "'photos/a.png'" in caught.value.hint


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "tells no class"),
        (b"\n \n", "tells no class"),
        (b"picture,class\n", "tells no class"),
        (b"a.png,\nb.png,\n", "tells no class"),
        (b"a.png cat\n", "line 1 has only one column"),
        (b"picture,class\na.png,cat\n\nb.png\n", "line 4 has only one column"),
        (b"image,size,label\na.png,7\n", "line 2 has only 2 columns"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "not a text file"),
        ("a.png,cat\n".encode("utf-16"), "not a text file"),
        (b"a.png,cat\nb.png,\0\n", "line 2: a NUL"),
        (b'a.png,cat\n"b.png,dog\n', "no CSV file: line 2"),
        (b"a.png,cat\nb.png," + b"x" * 200_000, "no CSV file: line 2"),
    ],
)
def test_an_unusable_file_is_refused_in_a_sentence(raw: bytes, reason: str) -> None:
    with pytest.raises(UsageError, match=f"--truth truth.csv.*{reason}") as caught:
        told(raw, "a.png")
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 120


@pytest.mark.parametrize("name", ["folder", "gone/truth.csv", "."])
def test_a_file_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"--truth {name} cannot be read")) as caught:
        read_truths(name, settle([Source("a.png")]), PETS, 5)
    assert "--truth folders" in caught.value.hint


def test_a_file_called_folders_has_a_path() -> None:
    assert told("a.png,1\n", "a.png", at="./folders") == [1]
