"""Fixtures that several rooms share."""

from __future__ import annotations

import os
from pathlib import Path

# Before anything imports torch, which reads these once: workers side by side must not spin.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import real_weights

SAMPLES = Path(__file__).parent.parent / "sample_images"


@pytest.fixture(scope="session")
def mobilenet_weights() -> Path:
    """MobileNetV2's IMAGENET1K_V1 file in the torch cache, where torchvision finds it."""
    try:
        return real_weights.fetch()
    except RuntimeError as error:
        pytest.skip(f"no real weights: {error}")


@pytest.fixture(scope="session")
def chelsea() -> Path:
    """The cat: 451 x 300 pixels, a non-square photograph."""
    return SAMPLES / "chelsea.png"
