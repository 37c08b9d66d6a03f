"""One file that no one here wrote: torchvision's own MobileNetV2, from before torch 1.6."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torchvision import models

from hookscope.errors import CheckpointError
from hookscope.models.checkpoint import load_checkpoint
from hookscope.models.spec import resolve


def test_it_is_loaded_as_torchvision_loads_it(mobilenet_weights: Path, tmp_path: Path) -> None:
    anyhow = tmp_path / "whatever.safetensors"
    anyhow.symlink_to(mobilenet_weights)
    model, account = load_checkpoint(anyhow, resolve("mobilenet_v2"))
    theirs = models.mobilenet_v2(weights=None)
    theirs.load_state_dict(torch.load(mobilenet_weights, weights_only=True))
    expected = theirs.state_dict()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, expected[name]), name
    assert account.line() == (
        "whatever.safetensors: PyTorch file from before 1.6, no key; "
        "314 loaded, 0 missing, 0 unexpected, 1000 classes"
    )


def test_the_model_that_it_fits_is_found(mobilenet_weights: Path) -> None:
    with pytest.raises(CheckpointError, match="looks like a MobileNetV2") as caught:
        load_checkpoint(mobilenet_weights, resolve("resnet18"))
    assert "--model mobilenet_v2" in caught.value.hint


def test_half_of_it_is_refused(mobilenet_weights: Path, tmp_path: Path) -> None:
    content = mobilenet_weights.read_bytes()
    (tmp_path / "half.pth").write_bytes(content[: len(content) // 2])
    with pytest.raises(CheckpointError, match="is cut off: it ends in the middle"):
        load_checkpoint(tmp_path / "half.pth", resolve("mobilenet_v2"))
