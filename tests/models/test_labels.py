"""Class names: read from any usual file, found by index, name or a unique part of one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hookscope.errors import TargetError, UsageError
from hookscope.models.labels import Labels, read_labels

PETS = Labels(("tabby cat", "tiger cat", "Egyptian cat", "crane", "dog", "crane", "Cat", ""))


@pytest.mark.parametrize(
    ("text", "index"),
    [
        ("2", 2),
        (" 7 ", 7),
        ("dog", 4),
        ("DOG", 4),
        ("Cat", 6),  # exact, although it is a part of others
        ("cat", 6),
        ("egypt", 2),
        ("tiger", 1),
    ],
)
def test_find(text: str, index: int) -> None:
    assert PETS.find(text, 8) == index


@pytest.mark.parametrize("text", ["8", "1000", "-1", "+8"])
def test_an_index_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(TargetError, match="8 classes, 0 to 7"):
        PETS.find(text, 8)


def test_a_name_behind_the_last_class_is_out_of_range() -> None:
    with pytest.raises(TargetError, match="out of range"):
        PETS.find("dog", 3)


@pytest.mark.parametrize(("text", "listed"), [("crane", "3 crane, 5 crane"), (" cat", "Egyptian")])
def test_an_ambiguous_name_lists_what_it_may_mean(text: str, listed: str) -> None:
    with pytest.raises(TargetError, match=f"ambiguous: .*{listed}"):
        Labels((*PETS.names[:6], "cats")).find(text.strip(), 7)


def test_an_unknown_name_is_answered_with_the_closest() -> None:
    with pytest.raises(TargetError, match="tabby cat"):
        PETS.find("taby", 8)


@pytest.mark.parametrize("text", ["dog", ""])
def test_without_names_only_an_index_will_do(text: str) -> None:
    with pytest.raises(TargetError, match="index from 0 to 9"):
        Labels().find(text, 10)


def test_an_empty_name_finds_nothing() -> None:
    with pytest.raises(TargetError):
        PETS.find("", 8)


def test_name_is_none_where_there_is_none() -> None:
    assert PETS.name(4) == "dog"
    assert [PETS.name(index) for index in (7, 8, -1)] == [None, None, None]
    assert not Labels()
    assert len(PETS) == 8


@pytest.mark.parametrize(
    "text",
    [
        "cat\ndog\n\nbird\n\n",
        "\ufeffcat\r\ndog\r\n\r\nbird",
        json.dumps(["cat", "dog", "", "bird"]),
        json.dumps({"0": "cat", "1": "dog", "3": "bird"}),
        json.dumps({"bird": 3, "cat": 0, "dog": 1}),
        json.dumps({"0": ["n01", "cat"], "1": ["n02", "dog"], "3": ["n03", "bird"]}),
    ],
)
def test_every_usual_file_is_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "labels").write_text(text, encoding="utf-8")
    assert read_labels(tmp_path / "labels").names == ("cat", "dog", "", "bird")


def test_digits_as_names_are_lines(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("0\n1\n2\n")
    assert read_labels(tmp_path / "labels.txt").names == ("0", "1", "2")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "[]",
        "{}",
        "[1, 2]",
        '{"cat": "dog"}',
        '{"-1": "cat"}',
        '{"0": "cat",}',
        '{"0": "cat", "00": "dog"}',
        '{"1000000000": "cat"}',
    ],
)
def test_a_file_without_class_names_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "labels.json").write_text(text)
    with pytest.raises(UsageError, match=r"labels\.json"):
        read_labels(tmp_path / "labels.json")


def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x80")
    for path in (tmp_path / "binary", tmp_path / "missing", tmp_path):
        with pytest.raises(UsageError, match="--labels"):
            read_labels(path)
