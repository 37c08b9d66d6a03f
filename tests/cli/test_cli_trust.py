"""gradcam --evaluate, --compare, --versus and --truth."""

from __future__ import annotations

import shutil
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from pictures import open_image
from scipy.stats import spearmanr

from hookscope.gradcam import gradcam
from hookscope.gradcam.evaluation import Evaluator
from hookscope.maps.faithfulness import average_drop, over_picture
from hookscope.models.opening import open_model
from hookscope.output.provenance import read_png

NUMBERS = [
    *("average_drop", "increase", "deletion_auc", "insertion_auc"),
    *("randomised_head", "randomised_all"),
]


@pytest.fixture
def two_checkpoints(net: str, tmp_path: Path) -> tuple[Path, Path]:
    """Two states of the same network."""
    files = tmp_path / "early.pth", tmp_path / "late.pth"
    for seed, file in enumerate(files):
        torch.manual_seed(10 + seed)
        module = type(open_model(net).module)()
        torch.save(module.state_dict(), file)
    return files


@pytest.fixture
def folders(photo: Path, tmp_path: Path) -> Path:
    """Five classes, named as folders; one picture in each of two, and another one in a third."""
    root = tmp_path / "val"
    for name in ("ant", "bee", "cat", "dog", "eel"):
        (root / name).mkdir(parents=True)
        shutil.copy(photo, root / name / f"{name}.png")
    return root


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


def test_two_checkpoints_answer_the_same_question(hookscope, net, photo, two_checkpoints, tmp_path):
    early, late = two_checkpoints
    (record,) = hookscope(
        "gradcam", photo, "-m", net, "-c", early, "--versus", late, "-l", "second", "--json",
        "--save", "npy", "-o", tmp_path / "out",
    ).records  # fmt: skip
    versus = record["versus"]
    opened = open_model(net, checkpoint=early), open_model(net, checkpoint=late)
    x, _ = opened[0].preprocessing(open_image(photo))
    index = record["class_index"]
    logits = [one.module(x[None])[0].detach() for one in opened]
    assert record["predicted_index"] == index == int(logits[0].argmax())
    assert versus["name"] == "late"
    assert versus["predicted_index"] == int(logits[1].argmax())
    assert versus["predicted_probability"] == pytest.approx(
        float(logits[1].softmax(0).max()), abs=1e-5
    )
    assert versus["score"] == pytest.approx(float(logits[1][index]), abs=1e-5)
    maps = [np.load(record["files"][kind]) for kind in ("tensor", "versus_tensor")]
    for one, saved in zip(opened, maps, strict=True):
        expected = gradcam(one.module, x[None], "second", index)[0]
        np.testing.assert_allclose(saved, expected, atol=1e-6)
    expected = spearmanr(maps[0].ravel(), maps[1].ravel()).statistic
    assert versus["rank_correlation"] == pytest.approx(expected, abs=1e-9)
    name = f"net-early_second_{photo.stem}_gradcam_{index}_versus-late.png"
    assert Path(record["files"]["versus"]).name == name
    assert open_image(record["files"]["versus"]).width > 600


def test_versus_is_skipped_for_the_same_second_checkpoint_only(
    hookscope, net, photo, two_checkpoints, tmp_path
):
    early, late = two_checkpoints
    command = (
        "gradcam", photo, "-m", net, "--json", "--skip-existing", "-o", tmp_path / "out",
    )  # fmt: skip
    for expected in ("ok", "skipped"):
        ran = hookscope(*command, "--versus", early)
        assert [record["status"] for record in ran.records] == [expected]
        assert "rank correlation between the checkpoints" in ran.err
    assert hookscope(*command, "--versus", late).records[0]["status"] == "ok"


def test_a_second_checkpoint_that_does_not_fit_starts_nothing(
    hookscope, net, photo, two_checkpoints, tmp_path
):
    early, _ = two_checkpoints
    wide = tmp_path / "wide.pth"
    module = type(open_model(net).module)(7)
    torch.save(module.state_dict(), wide)
    out = tmp_path / "out"
    same = hookscope("gradcam", photo, "-m", net, "-c", early, "--versus", early, "-o", out)
    assert same.code == 2
    assert "very weights" in same.err
    other = hookscope("gradcam", photo, "-m", net, "--versus", wide, "-o", out)
    assert other.code == 2
    assert "head" in other.err
    assert not out.exists()


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


def user_file(folder: Path, body: str) -> Path:
    path = folder / "own.py"
    path.write_text("import torch\nfrom torch import nn\n\n\n" + textwrap.dedent(body))
    return path


def test_a_layer_that_the_second_checkpoint_does_not_reach(hookscope, photo, tmp_path):
    path = user_file(
        tmp_path,
        """
        class Whimsical(nn.Module):
            def __init__(self):
                super().__init__()
                self.gate = nn.Parameter(torch.ones(()))
                self.deep, self.other = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3)

            def forward(self, x):
                return (self.deep if self.gate > 0 else self.other)(x).mean((2, 3))
        """,
    )
    model = f"{path}:Whimsical"
    state = open_model(model).module.state_dict()
    for name, gate in (("on", 1.0), ("off", -1.0)):
        torch.save({**state, "gate": torch.tensor(gate)}, tmp_path / f"{name}.pth")
    ran = hookscope(
        "gradcam", photo, "-m", model, "-c", tmp_path / "on.pth", "-l", "deep", "--versus",
        tmp_path / "off.pth", "--json", "-o", tmp_path / "out",
    )  # fmt: skip
    assert ran.code == 0
    (record,) = ran.records
    assert record["status"] == "ok"
    assert record["versus"] is None
    assert list(record["files"]) == ["overlay"]
    assert "with the weights of off the layer does not run" in ran.err


def test_pictures_are_asked_one_by_one_where_they_change_each_other(hookscope, photo, tmp_path):
    path = user_file(
        tmp_path,
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


def test_a_true_class_that_only_the_network_can_refuse_costs_its_picture(
    hookscope, photo, tmp_path
):
    path = user_file(
        tmp_path,
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


def test_class_names_cannot_colour_the_terminal(hookscope, net, photo, tmp_path):
    labels = tmp_path / "labels.txt"
    labels.write_text("".join(f"x\x1b[31m{k}\n" for k in range(5)))
    ran = hookscope("gradcam", photo, "-m", net, "--labels", labels, "-o", tmp_path / "out")
    assert ran.code == 0
    assert "\x1b" not in ran.err
    assert r"x\x1b[31m" in ran.err


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
