"""Right and wrong: true classes from folders' names, and how often the network is right."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import pytest
from torchvision.datasets import ImageFolder

from hookscope.errors import HookscopeError, TargetError, UsageError
from hookscope.images.inputs import Source, expand
from hookscope.models.labels import Labels
from hookscope.output.names import Sample, settle
from hookscope.run.explaining.truth import Truths, read_truths

PETS = Labels(("tabby cat", "Egyptian cat", "dog", "crane", "hot-dog", "crane", "T-shirt", ""))
WORDNET = [f"n{number:08}" for number in range(1_440_764, 1_441_764)]
IMAGENET = Labels(tuple(f"thing {number}" for number in range(1000)))


def samples(*paths: str) -> list[Sample]:
    return settle([Source(path) for path in paths])


def by_folders(*paths: str, labels: Labels = PETS, count: int | None = None) -> list[int | None]:
    run = samples(*paths)
    count = (len(labels) or None) if count is None else count
    return classes(read_truths("folders", run, labels, count), run)


def classes(truths: Truths, run: Sequence[Sample]) -> list[int | None]:
    return [truths.of(sample) for sample in run]


@pytest.mark.parametrize(
    ("folder", "index"),
    [
        ("dog", 2),
        ("DOG", 2),
        ("Egyptian_cat", 1),
        ("egyptian-cat", 1),
        ("Egyptian  cat", 1),
        ("tabby _-cat", 0),
        ("t shirt", 6),
        ("hot_dog", 4),
        ("3", 3),
        ("007", 7),
    ],
)
def test_the_parent_folder_is_the_class(folder: str, index: int) -> None:
    assert by_folders(f"photos/{folder}/1.png") == [index]
    assert by_folders(f"/{folder}/dog.png", f"{folder}/./crane.png") == [index, index]


def test_an_exact_name_comes_before_case_and_a_name_before_an_index() -> None:
    labels = Labels(("Cat", "cat", "0", "1", "cat_", "-1"))
    paths = ("cat/1.png", "Cat/1.png", "0/1.png", "4/1.png", "cat_/1.png", "-1/1.png")
    assert by_folders(*paths, labels=labels) == [1, 0, 2, 4, 4, 5]


def test_an_accent_may_be_split_from_its_letter() -> None:
    split = unicodedata.normalize("NFD", "Löwe")
    assert by_folders(f"{split}/1.png", labels=Labels(("Tiger", "Löwe"))) == [1]


@pytest.mark.parametrize("name", ["cat", "egyptian", "t", "shirt", "dogs", "d og"])
def test_a_part_of_a_name_is_no_class(name: str) -> None:
    with pytest.raises(TargetError, match=rf"'{name}' \(1 picture\)"):
        by_folders(f"{name}/1.png")


def test_a_minus_is_no_hyphen() -> None:
    with pytest.raises(TargetError, match="out of range"):
        by_folders("-1/1.png", labels=Labels(("0", "1")))


def test_an_unknown_class_names_the_closest_and_how_many_have_it() -> None:
    paths = [f"tabbi_cat/{number}.png" for number in range(12)]
    with pytest.raises(TargetError) as caught:
        by_folders("dog/1.png", *paths)
    assert "'tabbi_cat' (12 pictures)" in caught.value.message
    assert "more" not in caught.value.message
    assert caught.value.hint.startswith("The closest: tabby cat, ")
    assert caught.value.hint.count(",") == 2
    with pytest.raises(TargetError, match="2 more names are unknown"):
        by_folders("kat/1.png", "dig/1.png", "dog/1.png", "mouse/1.png")


def test_a_name_of_two_classes_is_refused_with_both() -> None:
    with pytest.raises(TargetError, match=r"'crane' \(2 pictures\).*3 and 5") as caught:
        by_folders("crane/1.png", "crane/2.png", "dog/1.png")
    assert "index" in caught.value.hint
    assert by_folders("5/1.png", "3/1.png", "dog/1.png") == [5, 3, 2]
    labels = Labels(("hot dog", "Hot-Dog"))
    assert by_folders("hot dog/1.png", "Hot-Dog/1.png", labels=labels) == [0, 1]
    with pytest.raises(TargetError, match="0 and 1"):
        by_folders("hot_dog/1.png", labels=labels)


def test_names_behind_the_last_class_do_not_count() -> None:
    assert by_folders("crane/1.png", count=5) == [3]
    with pytest.raises(TargetError, match="'T-shirt'"):
        by_folders("T-shirt/1.png", count=5)


@pytest.mark.parametrize(("labels", "name"), [(PETS, "8"), (PETS, "-1"), (Labels(), "8")])
def test_an_index_out_of_range_is_refused(labels: Labels, name: str) -> None:
    with pytest.raises(TargetError, match=rf"'{name}' \(1 picture\).*8 classes, 0 to 7"):
        by_folders(f"{name}/1.png", "3/1.png", labels=labels, count=8)


def test_indices_need_no_names() -> None:
    run = samples("b/7/1.png", "c/0/1.png")
    for count in (8, None):
        truths = read_truths("folders", run, Labels(), count)
        assert classes(truths, run) == [7, 0]
        assert truths.labels == Labels()
        assert truths.note is not None
        assert "index" in truths.note
    with pytest.raises(TargetError, match="out of range"):
        read_truths("folders", run, Labels(), 7)


def test_only_a_number_that_is_no_name_is_remarked_on() -> None:
    digits = Labels(tuple("0123456789"))
    assert read_truths("folders", samples("3/1.png"), digits, 10).note is None
    assert read_truths("folders", samples("DOG/1.png"), PETS, 8).note is None
    note = read_truths("folders", samples("3/1.png", "DOG/1.png"), PETS, 8).note
    assert note is not None
    assert "ImageFolder" not in note


def test_numbers_that_image_folder_would_order_otherwise_are_remarked_on() -> None:
    eleven = samples(*(f"{number}/1.png" for number in range(11)))
    truths = read_truths("folders", eleven, Labels(), 11)
    assert classes(truths, eleven) == list(range(11))
    assert truths.note is not None
    assert "ImageFolder, which orders them as text: 0, 1, 10" in truths.note
    ten = read_truths("folders", eleven[:10], Labels(), 10)
    assert ten.note is not None
    assert "ImageFolder" not in ten.note


@pytest.mark.parametrize("folders", [("cat", "Zebra", "dog", "Ähre"), ("1", "2", "10", "11")])
def test_without_names_the_order_is_that_of_image_folder(
    tmp_path: Path, folders: tuple[str, ...]
) -> None:
    for folder in folders:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "1.png").touch()
    count = len(folders)
    run = settle(expand([str(tmp_path)], recursive=True).pictures)
    truths = read_truths("folders", run, Labels(), count)
    dataset = ImageFolder(str(tmp_path))
    expected = dict(dataset.samples)
    assert [truths.of(sample) for sample in run] == [expected[one.source.typed] for one in run]
    assert truths.labels == Labels(tuple(dataset.classes))
    assert truths.note is not None
    assert (
        f"ImageFolder numbers them: 0 {dataset.classes[0]}, 1 {dataset.classes[1]}" in truths.note
    )
    assert "\n" not in truths.note


@pytest.mark.parametrize("count", [2, 4, None])
def test_without_names_and_another_number_of_folders_nothing_is_guessed(count: int | None) -> None:
    with pytest.raises(UsageError, match=r"'cat' \(2 pictures\).*not known") as caught:
        by_folders("cat/1.png", "cat/2.png", "dog/1.png", "0/1.png", labels=Labels(), count=count)
    assert "3 folders cannot tell their order" in caught.value.message
    assert "--labels FILE" in caught.value.hint
    assert "CSV" in caught.value.hint.upper()


@pytest.mark.parametrize("labels", [IMAGENET, Labels()])
def test_all_ids_of_wordnet_are_imagenet_in_order(labels: Labels) -> None:
    run = samples(*(f"val/{name}/1.png" for name in reversed(WORDNET)))
    truths = read_truths("folders", run, labels, 1000)
    assert classes(truths, run) == list(reversed(range(1000)))
    assert truths.labels == (labels or Labels(tuple(WORDNET)))
    assert truths.note is not None
    assert "WordNet" in truths.note


@pytest.mark.parametrize("labels", [IMAGENET, Labels()])
@pytest.mark.parametrize("names", [WORDNET[:999], WORDNET[:1]])
def test_fewer_ids_tell_nothing(labels: Labels, names: list[str]) -> None:
    with pytest.raises(UsageError, match="WordNet id") as caught:
        by_folders(*(f"{name}/1.png" for name in names), labels=labels, count=1000)
    assert "--truth FILE.csv" in caught.value.hint


def test_ids_are_found_where_the_model_has_them() -> None:
    labels = Labels(tuple(reversed(WORDNET)))
    assert by_folders(f"{WORDNET[1]}/1.png", labels=labels) == [998]
    with pytest.raises(TargetError, match="'n99999999'"):
        by_folders(f"{WORDNET[1]}/1.png", "n99999999/1.png", labels=labels)
    # Ten classes of ImageNet, numbered by who trained on them.
    ten = [f"{name}/1.png" for name in WORDNET[10:20]]
    assert by_folders(*ten, labels=Labels(), count=10) == list(range(10))


def test_a_relative_path_has_a_folder_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dog" / "crane").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "dog")
    assert by_folders("1.png", "./2.png", "crane/../3.png", ".//4.png") == [2] * 4
    monkeypatch.chdir(tmp_path / "dog" / "crane")
    assert by_folders("../1.png") == [2]


def test_a_link_is_called_by_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "n0123").mkdir()
    (tmp_path / "n0123" / "1.png").touch()
    (tmp_path / "dog").symlink_to("n0123")
    assert by_folders(f"{tmp_path}/dog/1.png") == [2]
    (tmp_path / "n0123" / "inner").mkdir()
    (tmp_path / "elsewhere").symlink_to("n0123/inner")
    with pytest.raises(TargetError, match="'n0123'"):
        by_folders(f"{tmp_path}/elsewhere/../1.png")
    (tmp_path / "Egyptian cat").mkdir()
    (tmp_path / "Egyptian cat" / "2.png").symlink_to(tmp_path / "dog" / "1.png")
    assert by_folders(f"{tmp_path}/Egyptian cat/2.png") == [1]


def test_a_picture_in_no_folder_is_of_no_class() -> None:
    with pytest.raises(TargetError, match="'/'"):
        by_folders("/1.png")


def test_what_is_no_picture_has_no_class() -> None:
    run = settle([Source("cat/*.jpg", problem="no file matches"), Source("dog/1.png")])
    assert classes(read_truths("folders", run, PETS, 8), run) == [None, 2]


def test_no_pictures_are_no_problem() -> None:
    run = settle([Source("cat/*.jpg", problem="no file matches")])
    assert read_truths("folders", run, Labels(), 8) == Truths({}, Labels(), None)


def test_errors_are_those_that_nothing_was_started_for() -> None:
    for error in (TargetError, UsageError):
        assert issubclass(error, HookscopeError)
    with pytest.raises(TargetError, match=re.escape("--truth folders: ")):
        by_folders("kat/1.png")
