"""Shell completion: what each shell is offered, from a cache that spares it the import of torch."""

from __future__ import annotations

import shutil
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torchvision

from hookscope.cli.completion.values import METHODS
from hookscope.maps.cam import NAMES

NETWORK = """
    from beside import Block
    from torch import nn

    print("made by a user's file")


    class Net(nn.Module):
        def __init__(self, num_classes=4, deep=False):
            super().__init__()
            self.block = Block()
            if deep:
                self.deeper = nn.Conv2d(8, 8, 1)
            self.head = nn.Linear(8, num_classes)
"""
BESIDE = """
    from torch import nn


    class Block(nn.Sequential):
        def __init__(self):
            super().__init__(nn.Conv2d(3, 8, 1), nn.ReLU())
"""


@pytest.fixture
def nets(tmp_path: Path) -> Path:
    """A user's network in two files."""
    (tmp_path / "nets.py").write_text(textwrap.dedent(NETWORK))
    (tmp_path / "beside.py").write_text(textwrap.dedent(BESIDE))
    return tmp_path / "nets.py"


def test_subcommands_and_flags(warm):
    assert warm.bash("") == ["list-layers", "capture", "gradcam"]
    assert warm.bash("cap") == ["capture"]
    assert warm.bash("gradcam", "--me") == ["--mean", "--method"]
    assert warm.bash("gradcam", "--format", "") == ["png", "jpg", "webp"]


def test_with_a_warm_cache_nothing_heavy_is_imported(found_here, warm):
    assert "turbo" in found_here("gradcam", "--cmap", "")
    assert warm.bash("capture", "-l", "layer4.1.conv") == ["layer4.1.conv1", "layer4.1.conv2"]
    assert warm.bash("capture", "-t", "") == [
        "AdaptiveAvgPool2d",
        "BasicBlock",
        "BatchNorm2d",
        "Conv2d",
        "Linear",
        "MaxPool2d",
        "ReLU",
        "Sequential",
    ]
    assert warm.bash("capture", "-w", "") == ["DEFAULT", "IMAGENET1K_V1", "none"]
    assert warm.bash("gradcam", "-m", "vgg19") == ["vgg19", "vgg19_bn"]
    assert warm.bash("list-layers", "vgg19") == ["vgg19", "vgg19_bn"]
    assert warm.bash("gradcam", "--class", "tabb") == ["tabby"]
    assert warm.bash("gradcam", "--cmap", "viri") == ["viridis", "viridis_r"]


def test_without_the_cache_the_libraries_are_needed(warm, tmp_path):
    assert replace(warm, cache=tmp_path).bash("capture", "-l", "layer1") == []


def test_methods_are_those_that_there_are(warm):
    assert METHODS == NAMES
    assert warm.bash("gradcam", "--method", "gradcam") == ["gradcam", "gradcam++"]


def test_the_weights_are_those_of_the_model_on_the_line(warm):
    entries = ["DEFAULT", "IMAGENET1K_V1", "IMAGENET1K_V2", "none"]
    assert warm.bash("gradcam", "-m", "resnet50", "--weights", "") == entries
    assert warm.bash("list-layers", "resnet50", "--weights", "") == entries
    assert warm.bash("gradcam", "-m", "net.py", ":", "Net", "-w", "") == ["none"]


def test_layers_are_those_of_the_model_on_the_line(found_here, warm):
    first = ["classifier", *(f"classifier.{number}" for number in range(4))]
    assert found_here("list-layers", "squeezenet1_1", "-l", "cl") == first
    assert warm.bash("capture", "-m", "squeezenet1_1", "-l", "cl") == first
    assert warm.bash("list-layers", "squeezenet1_1", "--layer", "=", "cl") == first
    assert warm.bash("capture", "-l", "cl", "-m", "squeezenet1_1", at=3) == first
    environment = {**warm.environment, "HOOKSCOPE_MODEL": "squeezenet1_1"}
    assert replace(warm, environment=environment).bash("capture", "-l", "cl") == first


def test_an_unknown_model_has_nothing_to_offer(warm):
    for flag in ("-l", "-t", "-w", "--class"):
        assert warm.bash("gradcam", "-m", "resnet19", flag, "") == []
    assert warm.bash("capture", "-m", "resnet18", "--no-such-flag", "") == []


def test_a_factory_is_read_again_when_one_of_its_files_has_changed(prompt, warm, nets):
    line = ("capture", "-m", str(nets), ":", "Net", "--model-arg", "deep", "=", "true", "-l", "")
    layers = ["block", "block.0", "block.1", "deeper", "head"]
    assert prompt.bash(*line) == layers
    assert warm.bash(*line) == layers
    beside = nets.parent / "beside.py"
    beside.write_text(beside.read_text().replace("nn.ReLU()", "nn.ReLU(), nn.Tanh()"))
    assert warm.bash(*line) == []  # rather than what is no longer true
    assert prompt.bash(*line) == [*layers[:3], "block.2", *layers[3:]]


def test_a_checkpoint_brings_its_class_names(found_here, warm, tmp_path):
    network = torchvision.models.squeezenet1_0(num_classes=2)
    path = tmp_path / "best.pth"
    torch.save({"state_dict": network.state_dict(), "classes": ["cat", "dog"]}, path)
    line = ("gradcam", "-m", "squeezenet1_0", "-c", str(path), "--class", "")
    assert found_here(*line) == ["cat", "dog"]
    assert warm.bash(*line) == ["cat", "dog"]
    torch.save({"state_dict": network.state_dict(), "classes": ["hen", "dog"]}, path)
    assert warm.bash(*line) == []
    assert found_here(*line) == ["hen", "dog"]


def test_a_factory_that_fails_loudly_is_not_heard(prompt, tmp_path):
    """Neither what it says nor what it asks gets to the terminal, on which a line is typed."""
    (tmp_path / "bad.py").write_text(
        "import os, sys\n"
        "def net():\n"
        "    os.write(1, b'one')\n"
        "    os.write(2, b'two')\n"
        "    print('three')\n"
        "    input('four?')\n"
    )
    assert prompt.bash("capture", "-m", f"{tmp_path}/bad.py", ":", "net", "-l", "") == []


def test_a_torn_cache_and_one_that_cannot_be_written_are_no_matter(prompt, warm, tmp_path):
    cache = tmp_path / "cache" / "hookscope"
    shutil.copytree(warm.cache / "hookscope", cache)
    for entry in cache.iterdir():
        entry.write_bytes(entry.read_bytes()[:-100])
    assert replace(warm, cache=cache.parent).bash("capture", "-l", "layer1.0.b") == []
    (tmp_path / "file").touch()
    nowhere = replace(prompt, cache=tmp_path / "file")
    assert nowhere.bash("gradcam", "--cmap", "viridis") == ["viridis", "viridis_r"]


def test_completions_own_flags_are_on_the_first_page_of_the_help_alone(hookscope):
    assert "--show-completion" in hookscope("--help").out
    assert "completion" not in hookscope("capture", "--help").out
