"""gradcam --versus: two checkpoints, one question."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from pictures import open_image
from scipy.stats import spearmanr

from hookscope.gradcam import gradcam
from hookscope.models.opening import open_model


@pytest.fixture
def two_checkpoints(net: str, tmp_path: Path) -> tuple[Path, Path]:
    """Two states of the same network."""
    files = tmp_path / "early.pth", tmp_path / "late.pth"
    for seed, file in enumerate(files):
        torch.manual_seed(10 + seed)
        module = type(open_model(net).module)()
        torch.save(module.state_dict(), file)
    return files


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


def test_a_layer_that_the_second_checkpoint_does_not_reach(hookscope, user_file, photo, tmp_path):
    path = user_file(
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
