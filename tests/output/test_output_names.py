"""Names stay readable, short and apart, and are settled for the whole run."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookscope.images.inputs import Source
from hookscope.output.names import Sample, beside, file_name, sanitise, settle


def named(*typed: str, folder: str = "") -> list[str]:
    return [sample.sample for sample in settle([Source(text, folder) for text in typed])]


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("layer1.0.relu@2", "layer1.0.relu@2"),
        ("lstm[1][0]", "lstm[1][0]"),
        ("a b/c\\d:e", "a-b-c-d-e"),
        ("two\n\nlines", "two-lines"),
        ("a - b", "a---b"),
        ("Ägypten 猫 кошка", "Ägypten-猫-кошка"),
        ("हिन्दी", "हिन्दी"),
        ("tabby, tabby cat", "tabby-tabby-cat"),
        ("broken\udcffbyte", "broken-byte"),
        ("😀", "-"),
        ("", ""),
    ],
)
def test_letters_and_digits_of_any_script_stay(text: str, safe: str) -> None:
    assert sanitise(text) == safe


def test_a_name_is_the_same_however_its_accents_are_stored() -> None:
    assert sanitise(unicodedata.normalize("NFD", "café")) == "café"


@given(st.text())
def test_a_safe_name_is_printable_text_and_safe_again(text: str) -> None:
    safe = sanitise(text)
    assert sanitise(safe) == safe
    assert "/" not in safe
    assert "\n" not in safe
    safe.encode()


def test_the_parts_are_joined_in_the_order_of_the_contract() -> None:
    name = file_name("resnet18", "layer4", "cat", "gradcam", "281-tabby cat", extension="png")
    assert name == "resnet18_layer4_cat_gradcam_281-tabby-cat.png"


def test_a_sample_brings_its_sub_folder() -> None:
    [sample] = settle([Source("photos/my cats/old/cat.jpg", "my cats/old")])
    assert sample == Sample(
        Source("photos/my cats/old/cat.jpg", "my cats/old"), "cat", "my cats/old"
    )
    assert file_name("m", "l", sample, extension="png") == "my cats/old/m_l_cat.png"


@pytest.mark.parametrize("folder", ["../../etc", "/etc", "a/./b", "a//b", "a/../../b"])
def test_no_sub_folder_leaves_the_output_folder(folder: str) -> None:
    [sample] = settle([Source("cat.jpg", folder)])
    assert not sample.folder.startswith("/")
    assert not {"", ".", ".."} & set(sample.folder.split("/"))


@pytest.mark.parametrize(("letters", "cut"), [(192, False), (193, True)])
def test_a_name_over_200_bytes_is_cut(letters: int, cut: bool) -> None:
    name = file_name("m", "l", "x" * letters, extension="png")
    assert ("x" * letters in name) is not cut
    assert len(name.encode()) <= 200


def test_cut_names_stay_apart_and_whole_letters_stay_whole() -> None:
    long = "猫" * 100
    names = {file_name("m", "l", long + end, extension="png") for end in "abc"}
    assert len(names) == 3
    for name in names:
        assert len(name.encode()) <= 200
        stem = file_name("m", "l", long + "a", extension="png").removesuffix(".png")
        assert stem.rpartition("-")[2] == hashlib.sha256(f"m_l_{long}a".encode()).hexdigest()[:8]
        assert set(name.split("_")[2].rpartition("-")[0]) == {"猫"}


@pytest.mark.parametrize("letters", [10, 190, 250])
def test_a_tensor_has_the_stem_of_its_picture(letters: int) -> None:
    picture = file_name("m", "l", "x" * letters, extension="png")
    tensor = beside(picture, "safetensors")
    assert tensor.removesuffix(".safetensors") == picture.removesuffix(".png")
    if letters > 200:
        assert len(tensor.encode()) <= 200


def test_inputs_that_collide_all_get_digits_of_their_path_as_typed() -> None:
    names = named("a/cat.jpg", "b/cat.png", "dog.jpg")
    assert names == [
        "cat-" + hashlib.sha256(b"a/cat.jpg").hexdigest()[:8],
        "cat-" + hashlib.sha256(b"b/cat.png").hexdigest()[:8],
        "dog",
    ]


@pytest.mark.parametrize(
    "pair",
    [
        ("Cat.jpg", "cat.jpg"),
        ("a b.jpg", "a-b.jpg"),
        ("STRASSE.jpg", "straße.jpg"),
        ("\u00e9.jpg", "e\u0301.jpg"),
    ],
)
def test_names_that_one_file_system_or_another_takes_for_one_collide(pair: tuple[str, str]) -> None:
    first, second = named(*pair)
    assert first.casefold() != second.casefold()
    assert first.startswith(sanitise(pair[0][:-4]) + "-")
    assert second.startswith(sanitise(pair[1][:-4]) + "-")


def test_same_stems_in_two_sub_folders_do_not_collide() -> None:
    sources = [Source("p/a/cat.jpg", "a"), Source("p/b/cat.jpg", "b")]
    assert [sample.sample for sample in settle(sources)] == ["cat", "cat"]


def test_sub_folders_that_differ_in_case_alone_collide() -> None:
    first, second = settle([Source("p/A/cat.jpg", "A"), Source("p/a/cat.jpg", "a")])
    assert first.sample != second.sample


def test_digits_that_hit_a_third_input_are_settled_too() -> None:
    digits = hashlib.sha256(b"a/cat.jpg").hexdigest()[:8]
    names = named("a/cat.jpg", "b/cat.jpg", f"cat-{digits}.jpg")
    assert len(set(names)) == 3
    assert names[2].startswith(f"cat-{digits}-")


@given(
    st.lists(
        st.sampled_from(
            [f"{d}/{n}.{e}" for d in "ab" for n in ("x", "X", "x y", "x-y") for e in ("jpg", "png")]
        ),
        unique=True,
    )
)
def test_settled_names_are_unique_and_do_not_depend_on_order(typed: list[str]) -> None:
    names = named(*typed)
    assert len({name.casefold() for name in names}) == len(typed)
    assert dict(zip(typed, names, strict=True)) == dict(
        zip(reversed(typed), named(*reversed(typed)), strict=True)
    )


def test_names_need_no_torch() -> None:
    code = "import sys, hookscope.output.names; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
