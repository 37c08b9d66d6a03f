from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from hookscope.errors import UsageError
from hookscope.render.palette import lut


@pytest.mark.parametrize("name", ["viridis", "turbo", "RdBu_r"])
def test_the_built_in_tables_are_matplotlibs_within_one_step(name: str) -> None:
    from matplotlib import colormaps

    theirs = colormaps[name](np.arange(256), bytes=True)[:, :3].astype(int)
    assert np.abs(lut(name, 256).astype(int) - theirs).max() <= 1


@pytest.mark.parametrize("name", ["magma", "tab10", "jet_r", "Greys"])
def test_any_other_colormap_is_matplotlibs(name: str) -> None:
    from matplotlib import colormaps

    theirs = colormaps[name](np.linspace(0, 1, 100), bytes=True)[:, :3]
    np.testing.assert_array_equal(lut(name, 100), theirs)


def test_an_unknown_colormap_names_the_closest() -> None:
    with pytest.raises(UsageError, match="viridsi") as caught:
        lut("viridsi")
    assert "viridis" in caught.value.hint


def test_the_shared_table_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        lut("viridis", 8)[0, 0] = 1


def test_default_pictures_need_neither_torch_nor_matplotlib() -> None:
    code = """
import sys
import numpy as np
from PIL import Image
from hookscope.render.grid import feature_grid
from hookscope.render.overlay import heatmap_view, overlay
from hookscope.render.panel import Panel
from hookscope.render.sheet import sheet
maps = np.arange(12.0).reshape(3, 2, 2)
feature_grid(maps, header="x")
feature_grid(maps, header="x", diverging=True)
picture, box = Image.new("RGB", (20, 10)), (0.0, 0.0, 20.0, 10.0)
overlay(picture, maps[0], box)
heatmap_view(maps[0], (20, 10), box)
sheet(picture, box, [Panel(maps[0], "cat", 0.5)])
print([name for name in ("torch", "matplotlib") if name in sys.modules])
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
