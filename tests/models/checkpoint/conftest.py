"""A small trained network, its source and its state dict, and a way to save what holds it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_network import Source, TinyNet, trained
from torch import Tensor, nn


@pytest.fixture
def net() -> nn.Module:
    return trained(TinyNet())


@pytest.fixture
def state(net: nn.Module) -> dict[str, Tensor]:
    return dict(net.state_dict())


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., Path]:
    """``saved(value)``: a file that ``torch.save`` wrote; keywords go there."""

    def save(value: Any, name: str = "best.pth", **keywords: Any) -> Path:
        path = tmp_path / name
        torch.save(value, path, **keywords)
        return path

    return save
