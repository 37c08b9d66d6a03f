"""gradcam --evaluate, and several methods side by side."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from pictures import open_image

from hookscope.gradcam.evaluation import Evaluator
from hookscope.maps.faithfulness import average_drop, over_picture
from hookscope.models.opening import open_model
from hookscope.output.provenance import read_png

NUMBERS = [
    *("average_drop", "increase", "deletion_auc", "insertion_auc"),
    *("randomised_head", "randomised_all"),
]


def test_evaluated_maps_have_their_numbers_in_records_and_the_run_its_means(
    hookscope, net, photo, tmp_path
):
    ran = hookscope(
        "gradcam", photo, "-m", net, "--evaluate", "--top-k", "2", "--json", "-o", tmp_path
    )
    assert ran.code == 0
    assert [list(record["evaluation"]) for record in ran.records] == [NUMBERS] * 2
    for record in ran.records:
        numbers = record["evaluation"]
        assert 0 <= numbers["average_drop"] <= 1
        assert isinstance(numbers["increase"], bool)
        assert 0 < numbers["deletion_auc"] < 1
        assert -1 <= numbers["randomised_all"] <= 1
        assert read_png(record["files"]["overlay"]).record["evaluation"] == numbers
    mean = sum(record["evaluation"]["insertion_auc"] for record in ran.records) / 2
    assert "gradcam, mean over 2 maps: average drop " in ran.err
    assert f"insertion {mean:.2f}" in ran.err


def test_the_same_numbers_each_time_and_others_with_another_seed(hookscope, net, photo, tmp_path):
    def numbers(*more: str) -> dict[str, float]:
        command = ("gradcam", photo, "-m", net, "--evaluate", "--json", "-o", tmp_path, *more)
        return hookscope(*command).records[0]["evaluation"]

    first = numbers()
    assert numbers() == first
    other = numbers("--seed", "5")
    assert other["deletion_auc"] == first["deletion_auc"]
    assert other["randomised_all"] != first["randomised_all"]


def test_a_map_that_was_not_evaluated_is_not_skipped_for_one_that_is(
    hookscope, net, photo, tmp_path
):
    command = ("gradcam", photo, "-m", net, "--json", "-o", tmp_path, "--skip-existing")
    assert hookscope(*command).records[0]["status"] == "ok"
    assert hookscope(*command, "--evaluate").records[0]["status"] == "ok"
    again = hookscope(*command, "--evaluate")
    assert again.records[0]["status"] == "skipped"
    assert set(again.records[0]["evaluation"]) == set(NUMBERS)
    assert "mean over 1 map: " in again.err


def test_a_map_that_shows_nothing_has_no_numbers(hookscope, net, photo, tmp_path):
    ran = hookscope(
        "gradcam", photo, "-m", net, "-l", "spare", "--evaluate", "--json", "-o", tmp_path
    )
    assert ran.code == 1  # it never runs
    dead = tmp_path / "dead.pth"
    module = open_model(net).module
    module.head.weight.data.zero_()
    torch.save(module.state_dict(), dead)
    (record,) = hookscope(
        "gradcam", photo, "-m", net, "-c", dead, "--evaluate", "--json", "-o", tmp_path
    ).records
    assert record["status"] == "degenerate"
    assert record["evaluation"] == dict.fromkeys(NUMBERS)


def test_pictures_are_asked_one_by_one_where_they_change_each_other(
    hookscope, user_file, photo, tmp_path
):
    path = user_file(
        """
        def mixing():
            torch.manual_seed(0)
            return nn.Sequential(
                nn.Conv2d(3, 8, 5, 4),
                nn.BatchNorm2d(8, track_running_stats=False),
                nn.ReLU(),
                nn.AdaptiveAvgPool2d(2),
                nn.Flatten(),
                nn.Linear(32, 3),
            )
        """,
    )
    model = f"{path}:mixing"
    other = tmp_path / "other.png"
    open_image(photo).rotate(180).save(other)
    command = ("gradcam", "-m", model, "--evaluate", "--json", "--save", "npy")
    together = hookscope(*command, photo, other, "-o", tmp_path / "a").records
    alone = [hookscope(*command, one, "-o", tmp_path / "b").records[0] for one in (photo, other)]
    assert [one["score"] for one in together] == [one["score"] for one in alone]
    opened = open_model(model)
    x, _ = opened.preprocessing(open_image(photo))
    heatmap = torch.from_numpy(np.load(together[0]["files"]["tensor"]))
    weights = over_picture(heatmap, tuple(x.shape[1:]))
    index = together[0]["class_index"]
    chances = [opened.module(one[None]).softmax(1)[0, index].item() for one in (x, x * weights)]
    expected = average_drop(*chances)
    assert together[0]["evaluation"]["average_drop"] == pytest.approx(expected, abs=1e-6)


def test_one_scale_for_the_run_asks_without_evaluating(
    hookscope, net, photo, monkeypatch, tmp_path
):
    asked = []
    evaluations = Evaluator.evaluations
    monkeypatch.setattr(
        Evaluator,
        "evaluations",
        lambda self, *arguments: asked.append(1) or evaluations(self, *arguments),
    )
    ran = hookscope(
        "gradcam", photo, "-m", net, "--evaluate", "--scale", "shared", "-o", tmp_path / "out"
    )
    assert ran.code == 0
    assert len(asked) == 1


def test_methods_side_by_side_on_one_sheet_a_picture(hookscope, net, photo, tmp_path):
    ran = hookscope(
        "gradcam", photo, "-m", net, "--compare", "layercam", "--compare", "gradcam", "--json",
        "-o", tmp_path, "--top-k", "2",
    )  # fmt: skip
    assert ran.code == 0
    assert [record["method"] for record in ran.records] == ["gradcam", "layercam"] * 2
    sheets = {record["files"]["sheet"] for record in ran.records}
    (sheet,) = sheets
    assert Path(sheet).name == f"net_relu@2_{photo.stem}_gradcam_layercam_sheet.png"
    assert all(record["evaluation"]["deletion_auc"] for record in ran.records)
    assert len(list(tmp_path.glob("*.png"))) == 1
    page = open_image(sheet)
    assert page.width > page.height > 300
    # The paths are told once.
    told = hookscope("gradcam", photo, "-m", net, "--compare", "layercam", "-o", tmp_path)
    assert told.lines == [sheet]


def test_several_methods_share_a_sheet_without_being_evaluated(hookscope, net, photo, tmp_path):
    command = (
        "gradcam", photo, "-m", net, "--method", "gradcam", "--method", "hirescam", "--view",
        "sheet", "--view", "overlay", "--figure", "svg", "--json", "-o", tmp_path,
    )  # fmt: skip
    records = hookscope(*command).records
    assert [list(record["files"]) for record in records] == [["overlay", "sheet", "figure"]] * 2
    assert "evaluation" not in records[0]
    svg = Path(records[0]["files"]["figure"]).read_text()
    assert "hirescam" in svg
    skipped = hookscope(*command, "--skip-existing").records
    assert [record["status"] for record in skipped] == ["skipped"] * 2
    assert skipped[1]["files"] == records[1]["files"]
    # Another set of methods is another sheet.
    other = hookscope(*command, "--method", "layercam", "--skip-existing").records
    assert [record["status"] for record in other] == ["ok", "skipped", "ok"]
