"""Replicas: one set of weights, hooks of their own, and what cannot be copied is left alone."""

from __future__ import annotations

import functools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchvision.models import resnet18, swin_t, vit_b_16

from hookscope.hooks.activations import ActivationCapture
from hookscope.models.structure import without_initialisation
from hookscope.run.replicas import replicas


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.act = nn.ReLU(inplace=True)
        self.last = nn.Linear(4, 4)
        self.tied = nn.Linear(4, 4)
        self.tied.weight = self.last.weight

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.norm(self.first(x)))
        return self.tied(self.last(x.mean((2, 3))))


def storage(model: nn.Module) -> list[int]:
    return [tensor.data_ptr() for tensor in model.state_dict().values()]


def test_tensors_are_shared_and_modules_are_not() -> None:
    model = Small().eval()
    first, second, third = replicas(model, 3)
    assert first is model
    assert storage(first) == storage(second) == storage(third)
    assert second.tied.weight is second.last.weight is model.last.weight
    modules = [set(replica.modules()) for replica in (first, second, third)]
    assert not modules[0] & modules[1]
    assert not modules[1] & modules[2]
    assert not any(module.training for module in second.modules())
    x = torch.rand(2, 3, 9, 9)
    assert torch.equal(second(x), first(x))


@pytest.mark.parametrize("build", [resnet18, swin_t, vit_b_16])
def test_torchvision_models_take_no_memory_again(build: Any) -> None:
    with without_initialisation():
        model = build()
    _, copy = replicas(model, 2)
    assert copy is not model
    assert storage(copy) == storage(model)


def test_threads_with_a_replica_each_see_their_own_pictures() -> None:
    model = Small().eval()
    pictures = torch.rand(64, 1, 3, 16, 16)
    with ActivationCapture(model, ["norm", "last"]) as capture, torch.no_grad():
        expected = []
        for x in pictures:
            model(x)
            expected.append((capture["norm"], capture["last"]))
    free = list(replicas(model, 4))
    lock = threading.Lock()

    def take(x: Tensor) -> tuple[Tensor, Tensor]:
        with lock:
            replica = free.pop()
        with torch.no_grad(), ActivationCapture(replica, ["norm", "last"]) as capture:
            capture.run(x)
            found = capture["norm"], capture["last"]
        with lock:
            free.append(replica)
        return found

    with ThreadPoolExecutor(4) as pool:
        for found, wanted in zip(pool.map(take, pictures), expected, strict=True):
            torch.testing.assert_close(found, wanted)


def locked(model: Small) -> None:
    model.guard = threading.Lock()


def called_in_a_closure(model: Small) -> None:
    model.steps = [lambda x: model.first(x)]


def hooked_in_a_closure(model: Small) -> None:
    kept: list[Any] = []
    last = model.last
    model.first.register_forward_hook(lambda *_: kept.append(last))


def called_in_a_partial(model: Small) -> None:
    def step(scale: float, x: Tensor) -> Tensor:
        return scale * model.first(x)

    model.step = functools.partial(step, 2.0)


def unwilling(model: Small) -> None:
    class Unwilling:
        def __deepcopy__(self, memo: Any) -> Any:
            raise KeyError("this class has its own ideas")

    model.extra = {"state": [Unwilling()]}


@pytest.mark.parametrize(
    "spoil", [locked, called_in_a_closure, hooked_in_a_closure, called_in_a_partial, unwilling]
)
def test_what_cannot_be_copied_is_given_alone(spoil: Any) -> None:
    model = Small()
    spoil(model)
    assert replicas(model, 3) == [model]


def test_what_reaches_no_module_is_copied() -> None:
    model = Small()
    scale = 2.0
    model.steps = {"double": lambda x: scale * x}
    model.bound = model.first.forward
    model.partial = functools.partial(torch.add, 1)
    _, copy = replicas(model, 2)
    assert copy.bound.__self__ is copy.first


@pytest.mark.parametrize("free", [False, True])
def test_an_exported_program_is_given_alone(free: bool) -> None:
    axes = ({0: torch.export.Dim("batch", min=1)},) if free else None
    x = torch.rand(2, 3, 16, 16)
    program = torch.export.export(Small().eval(), (x,), dynamic_shapes=axes)
    model = torch.export.unflatten(program)
    assert replicas(model, 2) == [model]
