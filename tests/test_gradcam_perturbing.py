"""scorecam and ablationcam on networks that make it hard to run many variants at once."""

from __future__ import annotations

import pytest
import torch
from small_network import pictures, small
from torch import Tensor, nn

from hookscope.gradcam import gradcam


class Parts(nn.Module):
    """A layer of interest between a stem and a head, and a way around the layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, 2, 1)
        self.layer = nn.Conv2d(4, 6, 3, 1, 1)
        self.head = nn.Linear(10, 3)
        self.rows: list[int] = []
        self.stem.register_forward_hook(lambda module, i, output: self.rows.append(len(output)))


class Concatenates(Parts):
    def forward(self, x: Tensor) -> Tensor:
        low = self.stem(x).relu()
        return self.head(torch.cat([low, self.layer(low)], 1).relu().mean((2, 3)))


class RemembersTheBatch(Parts):
    def forward(self, x: Tensor) -> Tensor:
        count = x.shape[0]
        low = self.stem(x).relu()
        high = self.layer(low).relu().mean((2, 3)).view(count, -1, 6).mean(1)
        return self.head(torch.cat([low.mean((2, 3)), high], 1))


class Adds(Parts):
    def forward(self, x: Tensor) -> Tensor:
        low = self.stem(x).relu()
        padded = nn.functional.pad(low, (0, 0, 0, 0, 0, 2))
        high = (self.layer(low) + padded).relu().mean((2, 3))
        return self.head(nn.functional.pad(high, (0, 4)))


def by_hand(model: Parts, x: Tensor, target: int) -> Tensor:
    """Whole passes, one picture and one channel at a time."""

    def score(picture: Tensor, channel: int | None) -> Tensor:
        def ablate(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
            output = output.clone()
            if channel is not None:
                output[:, channel] = 0
            kept.append(output)
            return output

        kept: list[Tensor] = []
        handle = model.layer.register_forward_hook(ablate)
        found = model(picture)[0, target]
        handle.remove()
        maps.append(kept[0][0])
        return found

    heatmaps = []
    for n in range(len(x)):
        maps: list[Tensor] = []
        clean = score(x[n : n + 1], None)
        activations = maps[0]
        drops = [(clean - score(x[n : n + 1], k)) / clean.abs() for k in range(6)]
        heatmaps.append(sum(w * a for w, a in zip(drops, activations, strict=True)).relu())
    return torch.stack(heatmaps).detach()


@pytest.mark.parametrize("network", [Concatenates, RemembersTheBatch, Adds])
def test_ablationcam_whether_the_network_can_be_resumed_or_not(network):
    torch.manual_seed(2)
    model = network().eval()
    x = pictures()
    found = gradcam(model, x, "layer", 1, "ablationcam", batch_size=4)
    rows = model.rows.copy()
    torch.testing.assert_close(found, by_hand(model, x, 1), rtol=1e-3, atol=1e-6)
    if network is Adds:
        assert rows == [3, 1, 1, 1]  # the batch, and then each picture once
    else:
        assert rows == [3, 1, 4, 2, 1, 4, 2, 1, 4, 2]


@pytest.mark.parametrize("method", ["scorecam", "ablationcam"])
def test_smaller_batches_where_the_network_takes_no_large_ones(method):
    class Picky(Concatenates):
        most = 100

        def forward(self, x: Tensor) -> Tensor:
            assert len(x) <= self.most
            return super().forward(x)

    torch.manual_seed(2)
    model = Picky().eval()
    x = pictures()[:1]
    expected = gradcam(model, x, "layer", 1, method)
    model.most = 1
    torch.testing.assert_close(
        gradcam(model, x, "layer", 1, method), expected, rtol=1e-3, atol=1e-6
    )
    model.most = 0
    with pytest.raises(AssertionError):
        gradcam(model, x, "layer", 1, method)


def test_scorecam_builds_its_masks_a_batch_at_a_time():
    model = small()
    model.conv = nn.Conv2d(6, 50, 3, 1, 1)
    model.last = nn.Conv2d(50, 8, 3, 1, 1)
    rows: list[int] = []
    model.eval().stem.register_forward_hook(lambda m, i, output: rows.append(len(output)))
    gradcam(model, pictures()[:1], "conv", 1, "scorecam", batch_size=16)
    assert rows == [1, 16, 16, 16, 2]


def test_scorecam_asks_once_for_all_dead_channels():
    model = small()
    nn.init.constant_(model.conv.weight[2:], 0)
    nn.init.constant_(model.conv.bias[2:], -1)
    rows: list[int] = []
    model.stem.register_forward_hook(lambda m, i, output: rows.append(len(output)))
    gradcam(model, pictures()[:1], "relu@1", 1, "scorecam")
    assert rows == [1, 1, 2]
