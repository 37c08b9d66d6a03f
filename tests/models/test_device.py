"""Which device is picked, on machines that this one is made to look like."""

from __future__ import annotations

import pytest
import torch

from hookscope.errors import UsageError
from hookscope.models.device import pick_device


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    return monkeypatch


@pytest.fixture
def nothing_but_a_cpu(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    return monkeypatch


@pytest.mark.parametrize(
    ("text", "device"),
    [("auto", "cuda:0"), ("cuda", "cuda:0"), ("CUDA:1", "cuda:1"), ("cpu", "cpu")],
)
def test_with_two_gpus(gpus: pytest.MonkeyPatch, text: str, device: str) -> None:
    assert pick_device(text) == torch.device(device)


@pytest.mark.parametrize(("rank", "device"), [("1", "cuda:1"), ("2", "cuda:0"), ("", "cuda:0")])
def test_each_rank_has_its_own(gpus: pytest.MonkeyPatch, rank: str, device: str) -> None:
    gpus.setenv("LOCAL_RANK", rank)
    assert pick_device("auto") == torch.device(device)
    assert pick_device("cuda:1") == torch.device("cuda:1")


def test_mps_before_the_cpu(nothing_but_a_cpu: pytest.MonkeyPatch) -> None:
    assert pick_device("auto") == torch.device("cpu")
    nothing_but_a_cpu.setattr(torch.backends.mps, "is_available", lambda: True)
    assert pick_device("auto") == torch.device("mps")


@pytest.mark.parametrize("text", ["cuda", "cuda:0", "mps"])
def test_what_is_not_there_is_refused(nothing_but_a_cpu: pytest.MonkeyPatch, text: str) -> None:
    with pytest.raises(UsageError, match="--device auto"):
        pick_device(text)


@pytest.mark.parametrize("text", ["gpu", "cuda:x", "cuda:-1", "cpu:0", "", "tpu"])
def test_what_is_unknown_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="unknown"):
        pick_device(text)


def test_a_gpu_too_far_is_refused(gpus: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="GPUs 0 to 1"):
        pick_device("cuda:2")
