"""The pointing game: a heatmap of a class points at the thing of that class, and not by chance.

Zhang et al. 2016: a hit where the map's maximum lies within the object's box. The network is
trained by ``shape_network`` on shapes in clutter; nobody tunes to the rates, which are printed.
"""

from __future__ import annotations

import pytest
import shape_network
import torch

from hookscope.gradcam import gradcam

PICTURES = 200
SEED = 7


@pytest.fixture(scope="module")
def scenes() -> list[shape_network.Scene]:
    return shape_network.scenes(PICTURES, SEED)


def hit_rate(
    network: shape_network.ShapeNetwork, scenes: list[shape_network.Scene], method: str
) -> float:
    """The share of hits over both classes of every picture."""
    x = shape_network.batch(scenes)
    hits = 0
    for turn in range(2):
        asked = [list(scene.boxes)[turn] for scene in scenes]
        heatmaps = gradcam(network, x, shape_network.LAYER, asked, method)
        for heatmap, scene, index in zip(heatmaps, scenes, asked, strict=True):
            left, top, right, bottom = scene.boxes[index]
            row, column = divmod(int(heatmap.flatten().argmax()), heatmap.shape[1])
            stride = shape_network.SIDE / heatmap.shape[1]
            x_hit, y_hit = (column + 0.5) * stride, (row + 0.5) * stride
            hits += left <= x_hit <= right and top <= y_hit <= bottom
    return hits / (2 * len(scenes))


def test_the_network_has_learnt_its_task(scenes):
    network = shape_network.trained()
    with torch.no_grad():
        right = (network(shape_network.batch(scenes)) > 0) == (shape_network.labels(scenes) > 0)
    share = right.float().mean().item()
    print(f"right answers: {share:.3f}")
    assert share >= 0.95


@pytest.mark.parametrize("method", ["gradcam", "gradcam++", "hirescam", "xgradcam", "layercam"])
def test_pointing_game(scenes, method):
    trained = hit_rate(shape_network.trained(), scenes, method)
    random = hit_rate(shape_network.untrained(), scenes, method)
    print(f"{method}: {trained:.3f} of the pictures trained, {random:.3f} with random weights")
    assert trained >= 0.9
    assert random <= 0.6


@pytest.mark.parametrize("method", ["ablationcam", "scorecam"])
def test_slow_methods_on_fewer_pictures(scenes, method):
    """Scorecam only says what the network looks at: its weights are all but equal on logits."""
    rate = hit_rate(shape_network.trained(), scenes[:20], method)
    print(f"{method}: {rate:.3f} of 20 pictures")
    assert rate >= (0.9 if method == "ablationcam" else 0.3)
