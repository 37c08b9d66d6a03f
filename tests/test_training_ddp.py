"""Under DistributedDataParallel: plain names, each rank's own values, and rank 0 alone writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, distributed, multiprocessing, nn
from torch.nn.utils import clip_grad_norm_

from hookscope import ActivationCapture, GradientCapture
from hookscope.training import BadInputError, GradientMonitor, check_inputs, clip_gradients

RANKS = 2

pytestmark = pytest.mark.skipif(
    not (distributed.is_available() and distributed.is_gloo_available()),
    reason="this build of torch has no gloo",
)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(inplace=True), nn.Linear(8, 3))


def share(rank: int) -> Tensor:
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(rank + 1))


def gradients(model: nn.Module, x: Tensor) -> list[Tensor]:
    model.zero_grad()
    (model(x) ** 2).sum().backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


class Written(list):
    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        self.append((tag, scalar_value, global_step))


def work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=RANKS
    )
    try:
        model = nn.parallel.DistributedDataParallel(network())
        alone, x = network(), share(rank)
        by_rank = [gradients(network(), share(r)) for r in range(RANKS)]
        averaged = [torch.stack(pair).mean(0) for pair in zip(*by_rank, strict=True)]

        with (
            ActivationCapture(model, "*") as activations,
            GradientCapture(model, ["0", "2"]) as at_outputs,
            GradientMonitor(model, writer=(writer := Written())) as monitor,
        ):
            ours = gradients(model, x)
        assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(ours, averaged, strict=True))
        with ActivationCapture(alone, "*") as expected, GradientCapture(alone, ["0", "2"]) as local:
            gradients(alone, x)
        assert list(activations) == ["0", "1", "2"]
        assert all(torch.equal(activations[name], expected[name]) for name in expected)
        assert all(torch.allclose(at_outputs[name], local[name]) for name in ("0", "2"))

        history = monitor.history()
        assert history.layers == ("0", "2")
        norms = [torch.cat([g.flatten() for g in pair]).norm().item()
                 for pair in (by_rank[rank][:2], by_rank[rank][2:])]  # fmt: skip
        assert np.allclose(history.parameters[0], norms, rtol=1e-5)
        assert len(writer) == (4 if rank == 0 else 0)

        with clip_gradients(model, max_norm=0.5):
            clipped = gradients(model, x)
        for parameter, gradient in zip(alone.parameters(), averaged, strict=True):
            parameter.grad = gradient.clone()
        for layer in (alone[0], alone[2]):
            clip_grad_norm_(layer.parameters(), 0.5)
        for ours, parameter in zip(clipped, alone.parameters(), strict=True):
            assert torch.allclose(ours, parameter.grad, atol=1e-6)

        with clip_gradients(model, max_value=0.1):
            clipped = gradients(model, x)
        for ours, *both in zip(clipped, *by_rank, strict=True):
            assert torch.allclose(ours, torch.stack(both).clamp(-0.1, 0.1).mean(0), atol=1e-6)

        with check_inputs(model, "2", high=-1.0), pytest.raises(BadInputError, match="layer '2'"):
            model(x)
        Path(folder, f"done-{rank}").touch()
    finally:
        distributed.destroy_process_group()


def test_two_ranks(tmp_path: Path) -> None:
    multiprocessing.spawn(work, args=(str(tmp_path),), nprocs=RANKS)
    assert len(list(tmp_path.glob("done-*"))) == RANKS
