"""What belongs to one forward pass, and what is left after it, however it ends."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from hook_networks import hooks_on
from torch import Tensor, nn
from torchvision import models

from hookscope import ActivationCapture, LayerNotFoundError


def test_a_new_pass_replaces_the_last_and_leaves_what_was_handed_out() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True))
    capture = ActivationCapture(model, "0")
    model(torch.ones(1, 3))
    first = capture.activations
    value = first["0"].clone()
    model(torch.zeros(2, 3))
    assert capture["0"].shape == (2, 4)
    assert len(capture) == 1
    assert torch.equal(first["0"], value)
    capture.clear()
    assert len(capture.activations) == 0
    with pytest.raises(LayerNotFoundError, match="nothing was captured at '0'"):
        capture["0"]
    capture.remove()
    model(torch.zeros(2, 3))
    assert len(capture) == 0
    assert hooks_on(model) == 0
    capture.remove()


def test_a_part_that_is_called_by_itself_is_a_pass_of_that_part() -> None:
    model = nn.ModuleDict(
        {"encoder": nn.Sequential(nn.Linear(3, 4), nn.ReLU()), "head": nn.Linear(4, 2)}
    )
    with ActivationCapture(model, ["encoder.1", "head"]) as capture:
        for batch in (5, 6):
            model["head"](model["encoder"](torch.randn(batch, 3)))
            assert list(capture) == ["encoder.1", "head"]
            assert len(capture["encoder.1"]) == len(capture["head"]) == batch


class Flipping(nn.Module):
    """Calls itself: both passes belong to one."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 1)

    def forward(self, x: Tensor, flip: bool = True) -> Tensor:
        if flip:
            return self(x, flip=False) + self(x.flip(-1), flip=False)
        return self.conv(x)


def test_a_model_that_calls_itself_makes_one_pass() -> None:
    model = Flipping()
    with ActivationCapture(model, "conv") as capture:
        for _ in range(2):
            model(torch.randn(1, 3, 4, 4))
            assert list(capture) == ["conv@1", "conv@2"]


class Failing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.error: type[BaseException] | None = None

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        if self.error is not None:
            raise self.error("on the way")
        return x


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_pass_that_failed_does_not_count_in_the_next(error: type[BaseException]) -> None:
    model = Failing()
    capture = ActivationCapture(model, "first")
    model.error = error
    with pytest.raises(error):
        model(torch.randn(1, 3))
    assert list(capture) == ["first"]
    model.error = None
    model(torch.randn(2, 3))
    assert list(capture) == ["first"]
    assert len(capture["first"]) == 2


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_no_hook_is_left_after_an_exception_in_the_block(error: type[BaseException]) -> None:
    model = Failing()
    model.error = error
    with pytest.raises(error), ActivationCapture(model, "first"):
        model(torch.randn(1, 3))
    assert hooks_on(model) == 0


def test_a_registration_that_fails_half_way_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = models.resnet18().eval()

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("no hooks here")

    monkeypatch.setattr(model.layer3[0].conv1, "register_forward_hook", refuse)
    with pytest.raises(RuntimeError, match="no hooks here"):
        ActivationCapture(model, ["conv1", "layer2", "layer3.0.conv1", "layer4"])
    assert hooks_on(model) == 0


def test_hooks_of_others_stay_and_see_the_same_output() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))
    seen: list[Tensor] = []
    model[0].register_forward_hook(lambda module, args, output: seen.append(output.clone()))
    before = hooks_on(model)
    with ActivationCapture(model, ["0", "1"], stop_after={"1": 1}) as capture:
        capture.run(torch.randn(1, 3))
    assert hooks_on(model) == before
    assert torch.equal(seen[0], capture["0"])


def test_the_pass_is_left_once_every_layer_has_run_as_often_as_asked() -> None:
    model = models.resnet18().eval()
    ran: list[str] = []
    for name in ("layer1.0.bn2", "layer1.1", "layer2"):
        model.get_submodule(name).register_forward_pre_hook(
            lambda module, args, name=name: ran.append(name)
        )
    x = torch.randn(1, 3, 64, 64)
    with (
        torch.no_grad(),
        ActivationCapture(model, "layer1.0.relu", stop_after={"layer1.0.relu": 2}) as capture,
    ):
        assert capture.run(x) is None
        assert list(capture) == ["layer1.0.relu@1", "layer1.0.relu@2"]
        assert ran == ["layer1.0.bn2"]
        early = capture["layer1.0.relu"]
        # A call that is not `run` goes through to the end, and gives the same.
        assert model(x).shape == (1, 1000)
        assert torch.equal(capture["layer1.0.relu"], early)
    with torch.no_grad(), ActivationCapture(model, "fc") as whole:
        assert torch.equal(whole.run(x), whole["fc"])


def test_leaving_early_passes_by_the_capture_of_another() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3))
    outer = ActivationCapture(model, "0", stop_after={"0": 1})
    inner = ActivationCapture(model, "1", stop_after={"1": 1})
    inner.run(torch.randn(1, 3))
    assert list(outer) == ["0"]
    assert list(inner) == ["1"]
    outer.remove()
    inner.remove()
    assert hooks_on(model) == 0


def test_replicas_in_threads_have_a_capture_each() -> None:
    torch.manual_seed(0)
    replicas = [
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.Conv2d(4, 2, 3))
        for _ in range(4)
    ]
    pictures = [torch.randn(1, 3, 16, 16) for _ in replicas]
    failures: list[str] = []

    def work(model: nn.Module, x: Tensor) -> None:
        with torch.no_grad(), ActivationCapture(model, "0", stop_after={"0": 1}) as capture:
            for _ in range(20):
                capture.run(x)
                if not torch.equal(capture["0"], model[0].forward(x)):
                    failures.append("mixed up")

    threads = [
        threading.Thread(target=work, args=pair) for pair in zip(replicas, pictures, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_gradient_checkpointing_runs_layers_again_without_a_second_result() -> None:
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = nn.Sequential(nn.Linear(3, 3), nn.Tanh())

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(self.block, x, use_reentrant=False)

    model = Checkpointed()
    with ActivationCapture(model, ["block", "block.1"]) as capture:
        model(torch.randn(2, 3, requires_grad=True)).sum().backward()
    assert list(capture) == ["block.1", "block"]
