"""Wrapped, compiled and exported models: hooks fire under plain names, or an error says why not."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import pytest
import torch
from hook_networks import hooks_on, small_resnet
from torch import Tensor, nn

from hookscope import ActivationCapture, GradientCapture
from hookscope.errors import ModelError
from hookscope.hooks import passes


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return small_resnet().eval()


@pytest.fixture
def x() -> Tensor:
    return torch.randn(4, 3, 32, 32)


@pytest.fixture
def expected(model: nn.Module, x: Tensor) -> dict[str, Tensor]:
    with torch.no_grad(), ActivationCapture(model, "layer1.0.*") as capture:
        model(x)
    return dict(capture.activations)


def same(capture: ActivationCapture, expected: dict[str, Tensor]) -> bool:
    return list(capture) == list(expected) and all(
        torch.allclose(capture[name], expected[name], atol=1e-6) for name in expected
    )


def test_data_parallel_has_the_names_of_the_model_inside(
    model: nn.Module, x: Tensor, expected: dict[str, Tensor]
) -> None:
    wrapped = nn.DataParallel(model)
    with torch.no_grad(), ActivationCapture(wrapped, "layer1.0.*") as capture:
        wrapped(x)
        assert same(capture, expected)
        model(x)
        assert same(capture, expected)
    with GradientCapture(wrapped, "layer4") as gradients:
        wrapped(x).sum().backward()
    assert gradients["layer4"].shape[0] == 4


class TwoReplicas(nn.DataParallel):
    """Spreads a batch over two copies in two threads as DataParallel does, without devices."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        outputs: dict[int, Tensor] = {}
        shares = x.chunk(2)
        copies = [replicate(self.module, rank) for rank in range(2)]

        def work(rank: int) -> None:
            with torch.no_grad():
                outputs[rank] = copies[rank](shares[rank])

        # The second starts first: results go by rank and not by who was first.
        threads = [threading.Thread(target=work, args=(rank,)) for rank in (1, 0)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return torch.cat([outputs[0], outputs[1]])


def replicate(module: nn.Module, rank: int) -> nn.Module:
    replica = module._replicate_for_data_parallel()
    replica._parameters = dict(module._parameters)
    replica._modules = {name: replicate(child, rank) for name, child in module._modules.items()}
    replica.rank = rank
    return replica


def test_the_copies_of_data_parallel_make_one_result_in_the_order_of_the_batch(
    model: nn.Module, x: Tensor, expected: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    def rank_of(module: Any, value: Any) -> int:
        return 1 + module.rank

    monkeypatch.setattr("hookscope.hooks.activations.rank_of", rank_of)
    wrapped = TwoReplicas(model)
    with ActivationCapture(wrapped, "layer1.0.*", stop_after={"layer1.0.conv1": 1}) as capture:
        for _ in range(2):
            assert capture.run(x).shape == (4, 7)
            assert same(capture, expected)
    assert hooks_on(model) == 0
    assert passes.rank_of(model, x) == 0


def compiled_whole(model: nn.Module) -> nn.Module:
    return torch.compile(model, backend="eager")


def compiled_in_place(model: nn.Module) -> nn.Module:
    model.compile(backend="eager")
    return model


def compiled_part(model: nn.Module) -> nn.Module:
    model.layer1[0] = torch.compile(model.layer1[0], backend="eager")
    return model


@pytest.mark.parametrize("compile_", [compiled_whole, compiled_in_place, compiled_part])
def test_compiled_models_run_uncompiled_while_they_are_captured(
    model: nn.Module, x: Tensor, expected: dict[str, Tensor], compile_: Any
) -> None:
    compiled = compile_(model)
    with torch.no_grad():
        compiled(x)
        before = [dict(module.__dict__) for module in compiled.modules()]
        # Overlapping captures let go in another order than they were made.
        first = ActivationCapture(compiled, "layer1.0.*")
        second = ActivationCapture(compiled, "layer1.0.*")
        first.remove()
        compiled(x)
        assert len(first) == 0
        assert same(second, expected)
        second.remove()
        second.clear()
        for module, attributes in zip(compiled.modules(), before, strict=True):
            assert module.__dict__.get("forward") is attributes.get("forward")
            assert module._compiled_call_impl is attributes.get("_compiled_call_impl")
        compiled(x)
        assert len(second) == 0
    assert hooks_on(compiled) == 0
    with GradientCapture(compiled, "layer4") as gradients:
        compiled(x).sum().backward()
    assert gradients["layer4"].shape[0] == 4


def test_hooks_fire_in_an_unflattened_program_and_not_in_its_plain_module(
    model: nn.Module, x: Tensor, expected: dict[str, Tensor]
) -> None:
    program = torch.export.export(model, (x,))
    unflattened = torch.export.unflatten(program)
    with torch.no_grad(), ActivationCapture(unflattened, "layer1.0.*") as capture:
        unflattened(x)
    assert same(capture, expected)
    with (
        torch.no_grad(),
        ActivationCapture(unflattened, "layer1.0.conv1", stop_after={"layer1.0.conv1": 1}) as early,
    ):
        assert early.run(x) is None
    assert list(early) == ["layer1.0.conv1"]
    with pytest.raises(ModelError, match="unflatten"):
        ActivationCapture(program.module(), "layer1.0.conv1")


def test_a_traced_graph_that_calls_its_modules_is_captured(
    model: nn.Module, x: Tensor, expected: dict[str, Tensor]
) -> None:
    graph = torch.fx.symbolic_trace(model).eval()
    with torch.no_grad(), ActivationCapture(graph, "layer1.0.*") as capture:
        graph(x)
    assert same(capture, expected)


def test_torchscript_is_refused_whole_or_as_a_part(model: nn.Module, x: Tensor) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own announcement that TorchScript is deprecated
        script = torch.jit.script(model)
        model.layer1 = torch.jit.script(model.layer1)
    for capture in (ActivationCapture, GradientCapture):
        with pytest.raises(ModelError, match="TorchScript") as refusal:
            capture(script, "layer4")
        assert "state dict" in refusal.value.hint
        with pytest.raises(ModelError, match=r"'layer1.0.conv1' is TorchScript"):
            capture(model, ["conv1", "layer1.0.conv1"])
    assert hooks_on(model) == 0
