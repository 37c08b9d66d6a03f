"""capture --tensorboard: what TensorBoard's own reader finds in the event file."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest
from pictures import open_image
from PIL import Image

pytest.importorskip("tensorboard", reason="the extra tensorboard is not installed")


@pytest.fixture
def events():
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return lambda folder: EventAccumulator(str(folder), {"images": 0, "histograms": 0}).Reload()


def test_grids_and_histograms_read_back(hookscope, net, photo, tmp_path, events):
    logs = tmp_path / "logs"
    ran = hookscope(
        "capture", photo, "-m", net, "-l", "first", "-l", "head", "-o", tmp_path / "out", "--save",
        "npy", "--json", "--tensorboard", logs,
    )  # fmt: skip
    assert ran.code == 0
    found = events(logs)
    tags = ["first/cat", "head/cat"]
    assert sorted(found.Tags()["images"]) == sorted(found.Tags()["histograms"]) == tags
    for record, tag in zip(ran.records, tags, strict=True):
        (image,) = found.Images(tag)
        drawn = Image.open(io.BytesIO(image.encoded_image_string))
        grid = open_image(record["files"]["grid"])
        assert (image.width, image.height) == grid.size
        assert np.array_equal(np.asarray(drawn.convert("RGB")), np.asarray(grid.convert("RGB")))
        (event,) = found.Histograms(tag)
        histogram, values = event.histogram_value, np.load(record["files"]["tensor"])
        assert histogram.num == values.size == sum(histogram.bucket)
        assert histogram.min == pytest.approx(values.min())
        assert histogram.max == pytest.approx(values.max())
        assert histogram.sum == pytest.approx(values.sum(dtype=float), rel=1e-5, abs=1e-5)
        middle = len(histogram.bucket) // 2
        below = (values < histogram.bucket_limit[middle]).sum()
        assert sum(histogram.bucket[: middle + 1]) == pytest.approx(below, abs=1)


def test_gradients_have_tags_of_their_own_and_folders_stay(hookscope, net, photo, tmp_path, events):
    (tmp_path / "in/deep").mkdir(parents=True)
    (tmp_path / "in/deep/cat.png").write_bytes(photo.read_bytes())
    ran = hookscope(
        "capture", tmp_path / "in", "-r", "-m", net, "-l", "second", "--what", "gradient", "-o",
        tmp_path / "out", "--tensorboard", tmp_path / "logs",
    )  # fmt: skip
    assert ran.code == 0
    assert events(tmp_path / "logs").Tags()["images"] == ["second gradient/deep/cat"]


def test_a_dry_run_leaves_no_log(hookscope, net, photo, tmp_path):
    ran = hookscope(
        "capture", photo, "-m", net, "-l", "first", "-o", tmp_path / "out", "--dry-run",
        "--tensorboard", tmp_path / "logs",
    )  # fmt: skip
    assert ran.code == 0
    assert not (tmp_path / "logs").exists()


def test_a_log_that_cannot_be(hookscope, net, photo, tmp_path, monkeypatch):
    command = ("capture", photo, "-m", net, "-l", "first", "-o", tmp_path / "out", "--tensorboard")
    file = tmp_path / "file"
    file.write_text("")
    refused = hookscope(*command, file)
    assert (refused.code, refused.out) == (2, "")
    assert str(file) in refused.err
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    missing = hookscope(*command, tmp_path / "logs")
    assert (missing.code, missing.out) == (2, "")
    assert "hookscope[tensorboard]" in missing.err
