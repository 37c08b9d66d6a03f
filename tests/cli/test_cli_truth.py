"""gradcam --truth: right, wrong, and a map of both classes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def folders(photo: Path, tmp_path: Path) -> Path:
    """Five classes, named as folders; one picture in each of two, and another one in a third."""
    root = tmp_path / "val"
    for name in ("ant", "bee", "cat", "dog", "eel"):
        (root / name).mkdir(parents=True)
        shutil.copy(photo, root / name / f"{name}.png")
    return root


def test_mistakes_get_a_map_of_both_classes(hookscope, net, folders, tmp_path):
    command = ("gradcam", folders, "-r", "-m", net, "--truth", "folders", "-o", tmp_path / "out")
    ran = hookscope(*command, "--json")
    assert ran.code == 0
    by_picture: dict[str, list[dict]] = {}
    for record in ran.records:
        by_picture.setdefault(record["sample"], []).append(record)
    assert list(by_picture) == ["ant", "bee", "cat", "dog", "eel"]
    # The same photograph five times: one of the folders may be right, and no more.
    predicted = ran.records[0]["class_index"]
    for true, (sample, records) in enumerate(by_picture.items()):
        truth = records[0]["truth"]
        assert truth == {
            "correct": true == predicted,
            "class_index": true,
            "class_name": sample,
            "predicted_index": predicted,
            "predicted_name": ["ant", "bee", "cat", "dog", "eel"][predicted],
        }
        shown = [predicted] if true == predicted else [predicted, true]
        assert [record["class_index"] for record in records] == shown
        assert all(record["truth"] == truth for record in records)
    assert "accuracy 0.200: 1 of 5 pictures right" in ran.err
    again = hookscope(*command, "--json", "--skip-existing")
    assert [record["status"] for record in again.records] == ["skipped"] * len(ran.records)
    assert [record["class_index"] for record in again.records] == [
        record["class_index"] for record in ran.records
    ]
    assert "accuracy 0.200" in again.err


def test_a_table_of_classes_and_the_order_of_layers(hookscope, net, folders, tmp_path):
    table = tmp_path / "truth.csv"
    table.write_text("picture,class\nval/ant/ant.png,4\nval/bee/bee.png,3\n")
    ran = hookscope(
        "gradcam", folders / "ant", folders / "bee", folders / "cat", "-m", net, "-l", "first",
        "-l", "second", "--truth", table, "--json", "-o", tmp_path / "out",
    )  # fmt: skip
    ants = [record for record in ran.records if record["sample"] == "ant"]
    assert [record["layer"] for record in ants] == sorted(record["layer"] for record in ants)
    assert ants[0]["truth"]["class_index"] == 4
    cats = [record for record in ran.records if record["sample"] == "cat"]
    assert all("truth" not in record for record in cats)
    assert "1 of 3 pictures have no true class" in ran.err
    assert "without a true class" in ran.err


def test_named_classes_stay_as_asked_and_the_truth_is_told(hookscope, net, folders, tmp_path):
    ran = hookscope(
        "gradcam", folders, "-r", "-m", net, "--truth", "folders", "--class", "eel", "--json",
        "-o", tmp_path / "out",
    )  # fmt: skip
    assert ran.code == 0
    # The network has no names of its own, and takes those of the folders.
    assert [record["class_name"] for record in ran.records] == ["eel"] * 5
    assert [record["truth"]["class_index"] for record in ran.records] == [0, 1, 2, 3, 4]
    assert len({record["truth"]["predicted_index"] for record in ran.records}) == 1


def test_a_true_class_that_only_the_network_can_refuse_costs_its_picture(
    hookscope, user_file, photo, tmp_path
):
    path = user_file(
        """
        class Dict(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv, self.head = nn.Conv2d(3, 4, 5, 4), nn.Linear(4, 3)

            def forward(self, x):
                x = self.head(self.conv(x).mean((2, 3)))
                return {"logits": x, "twice": 2 * x}
        """,
    )
    table = tmp_path / "truth.csv"
    table.write_text("picture,class\na.png,9\nb.png,0\n")
    for name in ("a", "b"):
        shutil.copy(photo, tmp_path / f"{name}.png")
    ran = hookscope(
        "gradcam", tmp_path / "a.png", tmp_path / "b.png", "-m", f"{path}:Dict", "--truth", table,
        "--json", "-o", tmp_path / "out",
    )  # fmt: skip
    assert ran.code == 1
    assert [record["status"] for record in ran.records][:2] == ["error", "ok"]
    assert "no class 9" in ran.records[0]["error"]


def test_the_sheet_says_which_class_is_true(folders, net, monkeypatch, hookscope, tmp_path):
    drawn = []
    monkeypatch.setattr(
        "hookscope.run.explaining.pictures.sheet",
        lambda picture, box, panels, **look: drawn.append(panels) or picture,
    )
    hookscope(
        "gradcam", folders, "-r", "-m", net, "--truth", "folders", "--top-k", "5", "--view",
        "sheet", "-o", tmp_path / "out",
    )  # fmt: skip
    true = [[one.name for one in panels if "the true class" in one.lines] for panels in drawn]
    assert sorted(true) == [["ant"], ["bee"], ["cat"], ["dog"], ["eel"]]
    wrong = [one for panels in drawn for one in panels if "predicted, and wrong" in one.lines]
    assert len(wrong) == 4
    assert len({one.name for one in wrong}) == 1
