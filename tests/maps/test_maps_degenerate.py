from __future__ import annotations

import pytest
import torch

from hookscope.maps.degenerate import verdict


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, 0.0, 0.0], "all zero"),
        ([2.0, 2.0, 2.0], "constant"),
        ([1.0, 1.0 - 9e-7, 1.0], "constant"),
        ([1.0, 1.0 - 2e-6, 1.0], None),
        ([0.0, 3e-15, 1e-15], None),
        ([-5.0, -5.0, -5.0], "constant"),
        ([0.0, float("nan"), 1.0], "not finite"),
        ([0.0, float("inf"), 1.0], "not finite"),
        ([-float("inf"), 0.0, 1.0], "not finite"),
    ],
)
def test_verdict(values, expected):
    assert verdict(torch.tensor([values])) == expected
